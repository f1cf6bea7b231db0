"""A bare pod whose class has a twin, with kubectl: applied, replaced and diffed again, as a team's pipeline does it."""

from contextlib import AbstractAsyncContextManager, suppress
from itertools import product
from typing import Any

import pytest

from tests.e2e.native import BY, enforced
from tests.e2e.software import Software, manifest
from tests.workloads import Json, pod, refusal
from webhook.kube.errors import ApiError
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import ObjectMeta
from webhook.policy.model.values import CAN_BE_PREEMPTED, GIVEN, MANAGED, MARK, POD_SCALE_UP_DELAY

pytestmark = pytest.mark.kubectl
PLAIN = {
    "automountServiceAccountToken": False,
    "tolerations": [{"operator": "Exists"}],
    "serviceAccountName": "default",
    "serviceAccount": "default",
}
"""What else the API server fills in only when a pod is made, so that replace has it."""
BY_SERVER = ("--server-side", "--force-conflicts")
COPY = {"rules": [{"name": "copy", "copyAnnotations": [CAN_BE_PREEMPTED]}]}


def of_sandbox(sandbox: Any, twin: str) -> str:
    """A class with a twin, if one is given, and an annotation that is copied from classes."""
    twins = {f"{sandbox.id}-old": f"{sandbox.id}-{twin}"} if twin else {}
    names = {"priorityClasses": [f"{sandbox.id}-managed"], "twins": twins}
    return manifest(PreemptionPolicy={"preemptors": names, "victims": {"mode": "opt-in"}}, PriorityPolicy=COPY)


def moved(sandbox: Any, giveway: Software, old: str, *, native: bool) -> AbstractAsyncContextManager[None]:
    """The class has a twin, to which pods are moved, by the API server's own policies or by the webhook."""
    meta = ObjectMeta(name=f"{sandbox.id}-twin", annotations={CAN_BE_PREEMPTED: "true"})
    classes = [PriorityClass(metadata=meta, value=100, preemption_policy="Never")]
    documents = of_sandbox(sandbox, "twin")
    return enforced(sandbox, giveway, documents, lambda: at_work(sandbox, old), native=native, classes=classes)


async def at_work(sandbox: Any, class_name: str) -> bool:
    """Whether new pods are moved by now, updates put right, and marks kept."""
    path = f"{sandbox.pods}/probe"
    try:
        made = await sandbox.pod("probe", schedulerName="nobody", priorityClassName=class_name)
        await sandbox.client.patch(path, {"spec": {"priorityClassName": class_name}}, dryRun="All")
        unmarked = {"metadata": {"labels": {MARK: None}}}
        stays = "builtin/mark" in await refusal(sandbox.client.patch(path, unmarked, dryRun="All"))
    except ApiError:
        return False
    finally:
        await sandbox.client.delete(path, {"gracePeriodSeconds": 0})
        await sandbox.gone("probe")
    return stays and made["spec"]["priorityClassName"] != class_name


@BY
async def test_a_pod_is_applied_again(sandbox, giveway, kubectl, native):
    """The diff is empty, apply takes a change beside, and replace keeps what the pod was given."""
    old = await sandbox.priority_class("old", 100)
    twin = await sandbox.priority_class("twin", 100, {CAN_BE_PREEMPTED: "true"}, preemptionPolicy="Never")
    spellings = [{}, {"preemptionPolicy": "PreemptLowerPriority"}]
    async with moved(sandbox, giveway, old, native=native):
        for number, (how, spelled) in enumerate(product([(), BY_SERVER], spellings)):
            name, here = f"tp{number}", ("-n", sandbox.id, "-f", "-")
            body = pod(name, schedulerName="nobody", priorityClassName=old, **PLAIN, **spelled)
            await kubectl("apply", *how, *here, stdin=body)
            first = await sandbox.get(name)
            assert (first["spec"]["priorityClassName"], first["metadata"]["labels"][MARK]) == (twin, MANAGED)
            assert {CAN_BE_PREEMPTED, GIVEN, POD_SCALE_UP_DELAY} <= first["metadata"]["annotations"].keys()
            assert await kubectl("diff", *how, *here, stdin=body) == ""
            await kubectl("apply", *how, *here, stdin=body)
            assert parts(await sandbox.get(name)) == parts(first)
            changed = {**body, "metadata": {**body["metadata"], "labels": {"app": "other"}}}
            await kubectl("apply", *how, *here, stdin=changed)
            assert (await sandbox.get(name))["metadata"]["labels"] == {"app": "other", MARK: MANAGED}
            await sandbox.client.patch(f"{sandbox.pods}/{name}", {"metadata": {"labels": {"app": None}}})
            await kubectl("replace", *here, stdin=body)
            assert kept(await sandbox.get(name)) == kept(first)
            refused = await kubectl("label", "pod", name, "-n", sandbox.id, f"{MARK}-", code=1)
            assert "builtin/mark" in refused


@pytest.mark.parametrize("later", ["", "other"], ids=["no-twin", "another-twin"])
@BY
async def test_a_pod_whose_twin_left_the_policy_is_applied_again(sandbox, giveway, kubectl, native, later):
    """Its manifest with the class of which it had the twin stays what it is: no difference, and no refusal."""
    old = await sandbox.priority_class("old", 100)
    twin = await sandbox.priority_class("twin", 100, preemptionPolicy="Never")
    body = pod("tp", schedulerName="nobody", priorityClassName=old, **PLAIN)
    here = ("-n", sandbox.id, "-f", "-")
    async with moved(sandbox, giveway, old, native=native):
        await kubectl("apply", *here, stdin=body)
        first = await sandbox.get("tp")
        assert first["spec"]["priorityClassName"] == twin

    async def no_difference() -> bool:
        with suppress(AssertionError):
            return await kubectl("diff", *here, stdin=body) == ""
        return False

    async with enforced(sandbox, giveway, of_sandbox(sandbox, later), no_difference, native=native):
        for command in (("apply",), ("apply", *BY_SERVER), ("replace",)):
            await kubectl(*command, *here, stdin=body)
            assert kept(await sandbox.get("tp")) == kept(first)


def parts(pod: Json) -> list[Any]:
    """A pod without what the API server counts."""
    return [pod["spec"], *(pod["metadata"].get(key) for key in ("labels", "annotations"))]


def kept(pod: Json) -> list[Any]:
    """Of a pod what giveway gave it, and the spec."""
    spec, labels, annotations = parts(pod)
    keys = (GIVEN, CAN_BE_PREEMPTED, POD_SCALE_UP_DELAY)
    return [spec, labels[MARK], *(annotations.get(key) for key in keys)]
