"""What limits, cycles and shares of a policy mean for gangs: as preemptors, and for groups that go whole."""

import pytest

from tests.cases import table
from tests.reconciler.builders import START, Desk, Setting, budget, evicted, node, pod, policy, preemptor
from webhook.kube.instants import rfc3339
from webhook.policy.model.limits import CycleKeeper, Cycles, LabelRate, Limits, Rate, WorkloadLimit
from webhook.policy.model.preemption import (
    BudgetMode,
    EvictionMode,
    ExtenderConfig,
    GroupDisruption,
    Groups,
    Preemptors,
)
from webhook.policy.model.victims import EvictionCost, Victims
from webhook.reconciler.evaluate.outcomes import NOTHING_PROMISED, Evicts, Promised, Unschedulable, Waits

GANG = "scheduling.x-k8s.io/pod-group"
NODES = [node(f"n{number}", "4") for number in range(4)]
ONE_EACH = Rate(1, 60.0)


def member(number, **more):
    """A member that waits for a node of its own."""
    asks = {"cpu": "4", "owner": ("Job", "train"), **more}
    return preemptor(f"gang-{number}", labels={GANG: "gang"}, **asks)


def setting_of(limits, pods, **more):
    """A cluster of full nodes in which a gang of two waits."""
    setting = Setting(*NODES, under=policy(limits=limits, **more))
    setting.add(*pods)
    setting.group()
    return setting


def evaluated(setting, promised=NOTHING_PROMISED, **asks):
    """What would be done for the gang now."""
    return setting.evaluate_gang(member(0, **asks), member(1, **asks), promised=promised)


def gone(outcome):
    assert isinstance(outcome, Evicts | Waits)
    return sorted(victim.metadata.name for victim in outcome.victims)


def filler(number, owner, *, priority=80, **more):
    """A pod that fills a node."""
    return pod(f"{owner}-{number}", "4", node=f"n{number}", owner=("ReplicaSet", owner), priority=priority, **more)


# Two cheap pods of one owner, namespace and team, and two dear ones of another.
PODS = [filler(n, "cheap", labels={"team": "red"}) for n in range(2)] + [
    filler(n, "dear", priority=90, labels={"team": "blue"}) for n in (2, 3)
]


@table(
    "limits, goes",
    ("unlimited", Limits(), ["cheap", "cheap"]),
    ("perOwner", Limits(per_owner=ONE_EACH), ["cheap", "dear"]),
    ("perWorkload", Limits(per_workload=WorkloadLimit(1)), ["cheap", "dear"]),
    ("perLabel", Limits(per_label=LabelRate("team", 1, 60.0)), ["cheap", "dear"]),
    ("perNode", Limits(per_node=ONE_EACH), ["cheap", "cheap"]),
    ("perNamespace", Limits(per_namespace=ONE_EACH), None),
    ("perCluster", Limits(per_cluster=ONE_EACH), None),
)
def test_victims_of_a_gang_are_within_the_limits(limits, goes):
    """All victims of a gang count together: who is beyond a limit stays, and another one goes or the gang waits."""
    outcome = evaluated(setting_of(limits, PODS))
    if goes is None:
        assert isinstance(outcome, Unschedulable)
        assert outcome.limited
        assert "the policy's limits allow" in outcome.reason
    else:
        assert [name.partition("-")[0] for name in gone(outcome)] == goes


def test_what_was_evicted_before_counts():
    """A rate that one eviction has left nothing of keeps the gang until that leaves the window."""
    setting = setting_of(Limits(per_cluster=Rate(2, 60.0)), PODS)
    setting.clock.now = 100.0
    setting.evaluator.log.remember(setting.policy.limits)
    evicted(setting.evaluator.log, "Job/default/other", 90.0)
    outcome = evaluated(setting)
    assert isinstance(outcome, Unschedulable)
    assert (outcome.limited, outcome.due) == (True, 150.0)
    setting.clock.now = 151.0
    assert gone(evaluated(setting)) == ["cheap-0", "cheap-1"]


@pytest.mark.parametrize("allowed", [1, 2])
def test_a_group_that_goes_whole_counts_whole(allowed):
    """A group of two pods goes only if the limit of its workload allows both: for a gang, and for one pod."""
    labels = {"jobset.sigs.k8s.io/jobset-name": "set"}
    pods = [filler(n, "cheap", labels=labels) for n in range(2)] + PODS[2:]
    whole = Groups(disruption=GroupDisruption.GROUP)
    setting = setting_of(Limits(per_workload=WorkloadLimit(allowed)), pods, groups=whole)
    alone = setting.evaluate(preemptor("alone", "4"))
    assert isinstance(alone, Evicts)
    assert sorted(one.metadata.name for one in alone.victims) == (
        ["cheap-0", "cheap-1"] if allowed == 2 else ["dear-2"]
    )
    outcome = evaluated(setting)
    if allowed == 2:
        assert gone(outcome) == ["cheap-0", "cheap-1"]
    else:  # of the other owner both would have to go
        assert isinstance(outcome, Unschedulable)
        assert outcome.limited


@pytest.mark.parametrize("keep", list(CycleKeeper))
def test_a_gang_does_not_evict_its_evictor(keep):
    """A workload for which a member's own was evicted stays, or it is told that it goes."""
    setting = setting_of(Limits(cycles=Cycles(keep=keep, window=100.0)), PODS)
    evicted(setting.evaluator.log, "Job/default/train", 0.0, "ReplicaSet/default/cheap")
    outcome = evaluated(setting)
    assert gone(outcome) == (["dear-2", "dear-3"] if keep is CycleKeeper.EVICTOR else ["cheap-0", "cheap-1"])
    closed = () if keep is CycleKeeper.EVICTOR else (("ReplicaSet/default/cheap", "Job/default/train"),)
    assert outcome.cycles == closed
    setting.remove("default/dear-2")
    setting.add(filler(2, "high", priority=200))
    outcome = evaluated(setting)
    if keep is CycleKeeper.EVICTOR:
        assert isinstance(outcome, Unschedulable)
        assert "pods of ReplicaSet/default/cheap stay, for which" in outcome.reason
    else:
        assert gone(outcome) == ["cheap-0", "cheap-1"]


def test_recent_evictions_count_as_a_cost():
    """Of pods of equal priority those go whose workload was evicted less often."""
    cost = EvictionCost(recent_evictions=3600.0)
    pods = [*PODS[:2], *(filler(n, "dear", labels={"team": "blue"}) for n in (2, 3))]
    setting = setting_of(Limits(), pods, victims=Victims(cost=cost))
    for owner, goes in (("cheap", ["dear-2", "dear-3"]), ("dear", ["cheap-0", "cheap-1"])):
        evicted(setting.evaluator.log, f"ReplicaSet/default/{owner}", 0.0, "")
        if owner == "dear":
            evicted(setting.evaluator.log, f"ReplicaSet/default/{owner}", 0.0, "")
        assert gone(evaluated(setting)) == goes


@pytest.mark.parametrize("eviction", list(EvictionMode))
@pytest.mark.parametrize("whole", [False, True], ids=["pods", "groups"])
def test_budgets_are_kept_where_the_api_server_keeps_them(eviction, whole):
    """Under best-effort no set of victims is planned that the Eviction API would refuse; a policy that deletes may."""
    groups = Groups(disruption=GroupDisruption.GROUP if whole else GroupDisruption.POD)
    labels = {"team": "red", "jobset.sigs.k8s.io/jobset-name": "set"}
    pods = [filler(n, "cheap", labels=labels) for n in range(2)] + [filler(n, "high", priority=200) for n in (2, 3)]
    setting = setting_of(Limits(), pods, budgets=BudgetMode.BEST_EFFORT, eviction=eviction, groups=groups)
    setting.budget(budget("b", 1, {"team": "red"}))
    if eviction is EvictionMode.DELETE:
        assert gone(evaluated(setting)) == ["cheap-0", "cheap-1"]
    else:
        assert isinstance(evaluated(setting), Unschedulable)
        setting.budget(budget("b", 2, {"team": "red"}))
        assert gone(evaluated(setting)) == ["cheap-0", "cheap-1"]


def test_extenders_are_refused():
    """A policy with extenders evicts nobody for a gang, and says why."""
    extender = ExtenderConfig(url_prefix="https://extender.example.com", preempt_verb="preempt")
    outcome = evaluated(setting_of(Limits(), PODS, extenders=(extender,)))
    assert isinstance(outcome, Unschedulable)
    assert outcome.reason == "the policy has extenders, and they are not asked about gangs"


async def test_a_gang_of_which_nobody_waits_long_enough():
    """Nothing is done for it as long as no member has waited for the policy's delay."""
    setting = setting_of(Limits(), PODS, preemptors=Preemptors(priority_classes=("high",), delay=60.0))
    desk = Desk(setting, dry_run=True)
    setting.add(member(0), member(1))
    for number in range(2):
        desk.reconciler.queue.retry(f"default/gang-{number}", 0.0, after=0.0, reason="")
    desk.reconciler.turn()
    assert {line["reason"] for line in desk.told} == {"it waits for its scheduler to look at it"}


async def test_the_victims_of_a_gang_count_for_its_namespace():
    """A plan of a gang counts for its namespace's turns with every victim once."""
    setting = setting_of(Limits(), PODS)
    desk = Desk(setting, dry_run=True)
    took = []
    desk.reconciler.queue.took = lambda key, victims: took.append((key, victims))
    setting.add(member(0), member(1))
    await desk.work(10.0)
    assert took == [("default/gang-0", 2)]


@table("front, waits", ("nobody", 0, True), ("one that leaves room", 1, True), ("one that takes it", 2, False))
def test_room_that_comes_up_for_members_on_one_node(front, waits):
    """Pods in front take it first, and what is left has to do for all members that are to be there."""
    setting = setting_of(Limits(), [pod("leaving", "4", node="n0", deleted=rfc3339(START + 5))])
    for number in (1, 2, 3):
        setting.state.nodes.take(f"n{number}", None)
    if front:
        setting.add(preemptor("front", str(front), priority=200, labels={"app": "front"}))
    outcome = evaluated(setting, cpu="1500m", owner=None)
    assert isinstance(outcome, Evicts | Waits if waits else Unschedulable)
    assert waits or (outcome.behind and "default/front of priority 200" in outcome.reason)


def test_a_gang_is_placed_where_pods_in_front_leave_it_the_room():
    """A pod of higher priority that can only come to one node keeps the gang off that node, and not from others."""
    setting = setting_of(Limits(), PODS)
    assert gone(evaluated(setting)) == ["cheap-0", "cheap-1"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    setting.add(preemptor("front", "4", priority=200, spec={"affinity": affinity}))
    assert gone(evaluated(setting)) == ["cheap-1", "dear-3"]


@table(
    "leaves, asked", ("another plan has yet to ask it", False, ["cheap-0", "cheap-1"]), ("it leaves", True, ["cheap-1"])
)
def test_a_gang_counts_on_no_pod_that_another_plan_has_yet_to_ask(leaves: bool, asked: list[str]):
    """The gang's nominations may end that plan, and then nobody would ask the pod: it is a victim of the gang, too."""
    setting = setting_of(Limits(), PODS)
    setting.expect(preemptor("lower", "4", priority=90), Waits("n0", 0, (PODS[0],)))
    if leaves:
        setting.add(filler(0, "cheap", labels={"team": "red"}, deleted=rfc3339(START + 20)))
    assert gone(evaluated(setting, promised=Promised(planned={"default/cheap-0"}))) == asked
