"""The kubelet stand-in: pods are said to run, to end and to be gone."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.workloads import condition, eventually, never, pod
from webhook.clusters.acting.kubelet import READY_SECONDS, RUN_SECONDS
from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.resources import POD
from webhook.policy.model.values import NOTICE_CONDITION, READY

PODS = POD.path("default")
CLUSTER = {"nodes": 1, "termination_seconds": 0.3}


async def in_phase(admin, name: str, phase: str):
    async def check():
        found = await admin.get(f"{PODS}/{name}")
        return found if found["status"]["phase"] == phase else None

    return await eventually(check, what=f"{name} is {phase}")


async def is_gone(admin, name: str) -> bool:
    try:
        await admin.get(f"{PODS}/{name}")
    except ApiError as error:
        return error.status == 404
    return False


async def test_deleted_pod_takes_its_time_to_end(admin):
    """A deleted pod is still there during the termination time, then gone."""
    await admin.create(PODS, pod("p"))
    await in_phase(admin, "p", "Running")
    await admin.delete(f"{PODS}/p")
    ending = await admin.get(f"{PODS}/p")
    assert ending["metadata"]["deletionTimestamp"]
    assert ending["status"]["phase"] == "Running"
    await never(lambda: is_gone(admin, "p"), 0.15)
    await eventually(lambda: is_gone(admin, "p"), 3)


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


@pytest.mark.parametrize("ends", [{}, {RUN_SECONDS: "600"}], ids=["runs on", "ends later"])
async def test_a_pod_that_was_told_says_that_it_is_ready(admin, ends):
    """So many seconds after the condition that tells it; not as long as nobody does."""
    body = pod("p")
    body["metadata"]["annotations"] = {READY_SECONDS: "1.5", **ends}
    await admin.create(PODS, body)
    await in_phase(admin, "p", "Running")

    async def ready() -> bool:
        return (await admin.get(f"{PODS}/p"))["metadata"]["annotations"].get(READY) == "true"

    await never(ready, 0.3)
    begun = time.time()
    told = {"type": NOTICE_CONDITION, "status": "True", "lastTransitionTime": rfc3339(begun)}
    await admin.patch(f"{PODS}/p/status", {"status": {"conditions": [told]}}, kind="strategic")
    await eventually(ready, 5)
    assert 0.5 <= time.time() - begun < 4  # instants of conditions are whole seconds


async def test_pod_of_the_same_name_is_not_mistaken_for_its_predecessor(admin):
    """A pod made again under the same name survives the end of the first."""
    await admin.create(PODS, pod("p"))
    first = await in_phase(admin, "p", "Running")
    await admin.delete(f"{PODS}/p")
    await admin.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    await admin.create(PODS, pod("p"))
    await asyncio.sleep(0.5)
    assert (await in_phase(admin, "p", "Running"))["metadata"]["uid"] != first["metadata"]["uid"]
