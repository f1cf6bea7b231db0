"""The kubelet stand-in: pods are said to run, to end and to be gone."""

from __future__ import annotations

import asyncio

from tests.workloads import condition, eventually, is_there, pod
from webhook.clusters.acting.kubelet import RUN_SECONDS
from webhook.kube.resources import POD

PODS = POD.path("default")
CLUSTER = {"nodes": 1, "termination_seconds": 0.3}


async def in_phase(admin, name: str, phase: str):
    async def check():
        found = await admin.get(f"{PODS}/{name}")
        return found if found["status"]["phase"] == phase else None

    return await eventually(check, what=f"{name} is {phase}")


async def is_gone(admin, name: str) -> bool:
    return not await is_there(admin, f"{PODS}/{name}")


async def test_shorter_grace_period_is_honoured(cluster, admin):
    """A grace period shorter than the termination time ends the pod sooner."""
    cluster._controllers.kubelet.termination_seconds = 30.0
    await admin.create(PODS, pod("p"))
    await in_phase(admin, "p", "Running")
    await admin.delete(f"{PODS}/p", {"gracePeriodSeconds": 1})
    await eventually(lambda: is_gone(admin, "p"), 3)


async def test_annotated_pod_succeeds(admin):
    """A pod that says how long it runs is Succeeded after that, and not ready any more."""
    body = pod("p", restartPolicy="Never")
    body["metadata"]["annotations"] = {RUN_SECONDS: "0.2"}
    await admin.create(PODS, body)
    status = (await in_phase(admin, "p", "Succeeded"))["status"]
    ready = condition({"status": status}, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "PodCompleted")
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


async def test_pod_of_the_same_name_is_not_mistaken_for_its_predecessor(admin):
    """A pod made again under the same name survives the end of the first."""
    await admin.create(PODS, pod("p"))
    first = await in_phase(admin, "p", "Running")
    await admin.delete(f"{PODS}/p")
    await admin.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    await admin.create(PODS, pod("p"))
    await asyncio.sleep(0.5)
    assert (await in_phase(admin, "p", "Running"))["metadata"]["uid"] != first["metadata"]["uid"]
