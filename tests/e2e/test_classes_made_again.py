"""Whoever has rights on priorityclasses decides about nobody else's pods: who makes a class again, and what it says."""

import asyncio
import json
from typing import Any

import pytest

from tests.e2e.native import BY, enforced, need_admission_policies
from tests.e2e.software import manifest, policies
from tests.e2e.users import granted, user
from tests.inspection import command
from tests.workloads import eventually, priority_class, until_refused
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.resources import PRIORITY_CLASS
from webhook.policy.model.values import CAN_BE_PREEMPTED, MANAGED, MARK

pytestmark = pytest.mark.kubectl

CLASS_ADMIN = ("--as", "e2e-class-admin")
"""Somebody who may do everything with PriorityClasses, and nothing else."""
KEPT_FOR = 4.0
"""Seconds for which nobody is evicted."""
IN_BAND, OUTSIDE = 71_500, 70_000
BAND = {"from": 71_000, "to": 72_000, "define": [{"subjects": [{"kind": "Group", "name": "e2e-platform"}]}]}
GUARDED = {
    "keys": [CAN_BE_PREEMPTED],
    "allow": [{"subjects": [{"kind": "Group", "name": "e2e-platform"}]}],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["priorityclasses"],
}
PLATFORM = ("--as", "e2e-owner", "--as-group", "e2e-platform")
MISSING = {"apiVersion": "v1", "kind": "Node", "name": "e2e-is-not-there", "uid": "e2e-is-not-there"}


async def may_change_classes(sandbox: Any, who: tuple[str, ...]) -> None:
    """Give a user every right on PriorityClasses, until the test is over."""
    rule = {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["*"]}
    await granted(sandbox, f"{sandbox.id}-{who[1]}", [user(who[1])], rules=[rule])


async def made_again(kubectl: Any, name: str, value: int, **fields: Any) -> None:
    """Somebody deletes a class, and makes it again."""
    await kubectl("delete", "priorityclass", name, *CLASS_ADMIN)
    await kubectl("create", "-f", "-", *CLASS_ADMIN, stdin=json.dumps(priority_class(name, value, **fields)))


@pytest.mark.parametrize("mode", ["opt-in", "opt-out"])
async def test_a_class_of_another_value_evicts_nobody(sandbox, giveway, kubectl, mode):
    """A class that is made again with another value evicts no pod of that name; one of the old value speaks again."""
    await may_change_classes(sandbox, CLASS_ADMIN)
    says_no = {"metadata": {"name": f"{sandbox.id}-steady", "annotations": {CAN_BE_PREEMPTED: "false"}}}
    steady = await sandbox.priority_class("steady", 2500, **says_no)
    high = await sandbox.priority_class("high", 5000, preemptionPolicy="Never")
    await sandbox.node("n1", cpu="4")
    await sandbox.run("victim", "4", priorityClassName=steady)

    says_yes = {"metadata": {"name": steady, "annotations": {CAN_BE_PREEMPTED: "true"}}}
    await giveway.reconcile(policies(high, victims={"mode": mode}))
    await made_again(kubectl, steady, 1, **says_yes)
    await sandbox.stuck("p", "4", priorityClassName=high, labels={MARK: MANAGED})
    await asyncio.sleep(KEPT_FOR)
    assert "victim" in await sandbox.here()
    await made_again(kubectl, steady, 2500, **says_yes)
    await sandbox.bound("p", 30)


async def test_a_preemptor_whose_class_was_made_again_waits_and_is_told(sandbox, giveway, kubectl):
    """Nobody is evicted for it, an Event on it says why, and the class of its value lets it be acted for again."""
    await may_change_classes(sandbox, CLASS_ADMIN)
    low = await sandbox.priority_class("low", 100)
    high = await sandbox.priority_class("high", 5000, preemptionPolicy="Never")
    await sandbox.node("n1", cpu="4")
    await sandbox.run("victim", "4", priorityClassName=low)
    await sandbox.stuck("p", "4", priorityClassName=high, labels={MARK: MANAGED})

    await made_again(kubectl, high, 1, preemptionPolicy="Never")
    await giveway.reconcile(policies(high, victims={"mode": "opt-out"}))
    await sandbox.told(f"PriorityClass {high} was made again: its value is 1", "PreemptionWaits")
    assert "victim" in await sandbox.here()
    await made_again(kubectl, high, 5000, preemptionPolicy="Never")
    await sandbox.bound("p", 30)


@BY
async def test_a_class_of_a_band_goes_by_those_who_define_it(sandbox, giveway, kubectl, native):
    """Neither a deletion nor an owner that does not exist takes it away; the platform team may do both.

    Outside the band a rule keeps the annotation that opens the pods of a class.
    """
    for who in (CLASS_ADMIN, PLATFORM):
        await may_change_classes(sandbox, who)
    steady = await sandbox.priority_class("steady", IN_BAND)
    loose = await sandbox.priority_class("loose", OUTSIDE)
    path = PRIORITY_CLASS.path(None, steady)
    owned = json.dumps({"metadata": {"ownerReferences": [MISSING]}})

    async def in_force() -> bool:
        try:
            await kubectl("delete", "priorityclass", steady, "--dry-run=server", *CLASS_ADMIN, code=1)
        except AssertionError:
            return False
        return True

    rules = [{"name": "band", "reserve": BAND}, {"name": "opens", "protectAnnotations": GUARDED}]
    documents = manifest(PriorityPolicy={"rules": rules})
    async with enforced(sandbox, giveway, documents, in_force, native=native):
        said = await kubectl("delete", "priorityclass", steady, *CLASS_ADMIN, code=1)
        assert "/band reserves: classes there may be defined by Group e2e-platform" in said
        said = await kubectl("patch", "priorityclass", steady, "-p", owned, *CLASS_ADMIN, code=1)
        assert "/band reserves" in said
        await sandbox.client.get(path)
        opens = f"{CAN_BE_PREEMPTED}=true"
        said = await kubectl("annotate", "priorityclass", loose, opens, *CLASS_ADMIN, code=1)
        assert "/opens leaves that to Group e2e-platform; leave it as it is" in said
        await kubectl("annotate", "priorityclass", loose, opens, *PLATFORM)
        await kubectl("patch", "priorityclass", loose, "-p", '{"description": "x"}', *CLASS_ADMIN)
        await kubectl("delete", "priorityclass", loose, *CLASS_ADMIN)
        await kubectl("patch", "priorityclass", steady, "-p", owned, *PLATFORM)

        async def gone() -> bool:
            classes, _ = await sandbox.client.list(PRIORITY_CLASS.path(), PriorityClass)
            return steady not in {one.metadata.name for one in classes}

        await eventually(gone, 30, "the garbage collector has deleted the class for its owner")
        await kubectl("create", "-f", "-", *PLATFORM, stdin=json.dumps(priority_class(steady, IN_BAND)))
        await kubectl("delete", "priorityclass", steady, *PLATFORM)


@pytest.mark.parametrize("mode", ["native", "backstop"])
async def test_uninstall_passes_beside_a_band(sandbox, client, kubeconfig, tmp_path, mode):
    """Its native rules refuse the deletion of a class to an administrator too; they go before anything else."""
    await need_admission_policies(client)
    steady = await sandbox.priority_class("steady", IN_BAND)
    path = PRIORITY_CLASS.path(None, steady)
    spec = {"rules": [{"name": "band", "reserve": BAND}]}
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "bands.yaml").write_text(manifest(PriorityPolicy=spec))

    to = ("--kubeconfig", kubeconfig)
    made = await command.giveway("install", "--wait=0", f"--mode={mode}", f"--policies={tmp_path / 'policies'}", *to)
    try:
        assert made.exit_code == 0, made.stderr
        words = "/band reserves: classes there may be defined by Group e2e-platform"
        await until_refused(lambda: client.delete(path, dryRun="All"), words, 60)
    finally:
        gone = await command.giveway("uninstall", "--yes", *to)
    assert gone.exit_code == 0, gone.stderr
    kinds = [line.partition(" ")[0] for line in gone.stdout.splitlines() if line.endswith(" deleted")]
    ours = [kind.endswith(("AdmissionPolicyBinding", "WebhookConfiguration")) for kind in kinds]
    assert ours == sorted(ours, reverse=True)
    assert any(ours)
    assert "PriorityClass" not in kinds
    await client.delete(path)
