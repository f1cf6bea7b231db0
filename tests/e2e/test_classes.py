"""PriorityClasses on a cluster, by kubectl: those that policies manage, and who makes one again, whatever it says.

Whoever has rights on priorityclasses decides about nobody else's pods.
"""

import asyncio
import json
from typing import Any

import pytest

from tests.e2e.native import BY, enforced, need_admission_policies
from tests.e2e.software import manifest, policies, rule
from tests.e2e.users import granted, user
from tests.inspection import command
from tests.workloads import eventually, is_there, priority_class, refusal, until_refused
from webhook.kube.resources import PRIORITY_CLASS
from webhook.policy.model.values import CAN_BE_PREEMPTED, MANAGED, MARK

pytestmark = pytest.mark.kubectl

HEAD = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{{}}}\nvalue: 5\n"
PREEMPT = "preemptionPolicy: PreemptLowerPriority\n"
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
    await kubectl("create", "-f", "-", *CLASS_ADMIN, stdin=priority_class(name, value, **fields))


@pytest.mark.parametrize("mode", ["opt-in", "opt-out"])
async def test_a_class_of_another_value_evicts_nobody(sandbox, giveway, kubectl, mode):
    """A class that is made again with another value evicts no pod of that name; one of the old value speaks again."""
    await may_change_classes(sandbox, CLASS_ADMIN)
    steady = await sandbox.priority_class("steady", 2500, {CAN_BE_PREEMPTED: "false"})
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
    path, opens = PRIORITY_CLASS.path(None, steady), f"{CAN_BE_PREEMPTED}=true"
    owned = json.dumps({"metadata": {"ownerReferences": [MISSING]}})

    async def in_force() -> bool:
        return "/band reserves" in await refusal(sandbox.client.delete(path, dryRun="All"))

    rules = [{"name": "band", "reserve": BAND}, {"name": "opens", "protectAnnotations": GUARDED}]
    documents = manifest(PriorityPolicy={"rules": rules})
    async with enforced(sandbox, giveway, documents, in_force, native=native):
        said = await kubectl("delete", "priorityclass", steady, *CLASS_ADMIN, code=1)
        assert "/band reserves: classes there may be defined by Group e2e-platform" in said
        said = await kubectl("patch", "priorityclass", steady, "-p", owned, *CLASS_ADMIN, code=1)
        assert "/band reserves" in said
        await sandbox.client.get(path)
        said = await kubectl("annotate", "priorityclass", loose, opens, *CLASS_ADMIN, code=1)
        assert "/opens leaves that to Group e2e-platform; leave it as it is" in said
        await kubectl("annotate", "priorityclass", loose, opens, *PLATFORM)
        await kubectl("patch", "priorityclass", loose, "-p", '{"description": "x"}', *CLASS_ADMIN)
        await kubectl("delete", "priorityclass", loose, *CLASS_ADMIN)
        await kubectl("patch", "priorityclass", steady, "-p", owned, *PLATFORM)

        async def gone() -> bool:
            return not await is_there(sandbox.client, path)

        await eventually(gone, 30, "the garbage collector has deleted the class for its owner")
        await kubectl("create", "-f", "-", *PLATFORM, stdin=priority_class(steady, IN_BAND))
        await kubectl("delete", "priorityclass", steady, *PLATFORM)


@pytest.mark.parametrize("mode", ["native", "backstop"])
async def test_uninstall_passes_beside_a_band(sandbox, giveway, kubeconfig, mode):
    """Its native rules refuse the deletion of a class to an administrator too; they go before anything else."""
    await need_admission_policies(sandbox.client)
    steady = await sandbox.priority_class("steady", IN_BAND)
    path = PRIORITY_CLASS.path(None, steady)
    policies = giveway.policies("bands", rule("band", reserve=BAND)).parent

    to = ("--kubeconfig", kubeconfig)
    made = await command.giveway("install", "--wait=0", f"--mode={mode}", f"--policies={policies}", *to)
    try:
        assert made.exit_code == 0, made.stderr
        words = "/band reserves: classes there may be defined by Group e2e-platform"
        await until_refused(lambda: sandbox.client.delete(path, dryRun="All"), words, 60)
    finally:
        gone = await command.giveway("uninstall", "--yes", *to)
    assert gone.exit_code == 0, gone.stderr
    kinds = [line.partition(" ")[0] for line in gone.stdout.splitlines() if line.endswith(" deleted")]
    ours = [kind.endswith(("AdmissionPolicyBinding", "WebhookConfiguration")) for kind in kinds]
    assert ours == sorted(ours, reverse=True)
    assert any(ours)
    assert "PriorityClass" not in kinds
    await sandbox.client.delete(path)


@pytest.fixture
async def at_work(sandbox, giveway):
    """The webhook, at work on PriorityClasses with the sandbox's name in theirs."""
    await giveway.serve(policies(f"{sandbox.id}-*"))
    probe = priority_class(f"{sandbox.id}-probe", 5)

    async def managed() -> bool:
        made = await sandbox.client.create(PRIORITY_CLASS.path(), probe, dryRun="All")
        return made["preemptionPolicy"] == "Never"

    await eventually(managed, 20, "the webhook is at work")


async def classes(sandbox):
    """The sandbox's classes by name, with their preemption policies."""
    found, _ = await sandbox.client.list(PRIORITY_CLASS.path(), dict)
    rows = {one["metadata"]["name"]: one["preemptionPolicy"] for one in found}
    return {name: policy for name, policy in rows.items() if name.startswith(sandbox.id)}


@pytest.mark.parametrize("written", ["", PREEMPT], ids=["absent", "spelled out"])
@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["by the client", "by the server"])
async def test_a_managed_class_is_applied_again(sandbox, at_work, kubectl, written, how):
    """Its author is warned that it was made Never; the unchanged manifest is taken again, and so is a change beside."""
    name = f"{sandbox.id}-again"
    sandbox.cleans_up(PRIORITY_CLASS.path(None, name))
    manifest = HEAD.format(f"name: {name}") + written
    first = await kubectl("apply", *how, "-f", "-", stdin=manifest)
    assert f"PriorityClass {name} was made Never" in first
    await kubectl("apply", *how, "-f", "-", stdin=manifest)
    await kubectl("apply", *how, "-f", "-", stdin=manifest + "description: changed\n")
    found = await sandbox.client.get(PRIORITY_CLASS.path(None, name))
    assert (found["preemptionPolicy"], found["description"]) == ("Never", "changed")
    await kubectl("replace", "-f", "-", stdin=manifest)
    assert await classes(sandbox) == {name: "Never"}


async def test_a_generated_name_does_not_escape(sandbox, at_work, kubectl):
    """A class whose name the API server makes is managed like one that is named."""
    manifest = HEAD.format(f"generateName: {sandbox.id}-")
    warned = await kubectl("create", "-f", "-", stdin=manifest + PREEMPT)
    found = await classes(sandbox)
    for name in found:
        sandbox.cleans_up(PRIORITY_CLASS.path(None, name))
    assert list(found.values()) == ["Never"]
    assert f"PriorityClass {sandbox.id}-* was made Never" in warned


async def test_a_class_that_nobody_manages_stays_as_it_is(sandbox, at_work, kubectl):
    """Outside the policies the API server's own rules hold: preemptionPolicy cannot change."""
    name = f"other-{sandbox.id}"
    sandbox.cleans_up(PRIORITY_CLASS.path(None, name))
    head = HEAD.format(f"name: {name}")
    assert "Warning" not in await kubectl("apply", "-f", "-", stdin=head + "preemptionPolicy: Never\n")
    refused = await kubectl("apply", "-f", "-", stdin=head + PREEMPT, code=1)
    assert "preemptionPolicy" in refused
