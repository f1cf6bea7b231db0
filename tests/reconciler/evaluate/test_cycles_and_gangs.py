"""What limits, cycles and shares of a policy mean for pods and gangs as preemptors, and for groups that go whole."""

import random
from itertools import pairwise

import pytest

from tests.cases import table
from tests.reconciler.builders import START, Desk, Setting, budget, evicted, node, pod, policy, preemptor
from tests.reconciler.harness.scenarios import WHOLE
from webhook.kube.instants import rfc3339
from webhook.policy.model.limits import CycleKeeper, Cycles, LabelRate, Limits, Rate, WorkloadLimit
from webhook.policy.model.preemption import BudgetMode, EvictionMode, ExtenderConfig, Groups, Preemptors
from webhook.policy.model.victims import EvictionCost, Victims
from webhook.reconciler.evaluate.outcomes import NOTHING_PROMISED, Evicts, Promised, Unschedulable, Waits
from webhook.reconciler.evictions.log import EvictionLog

GANG = "scheduling.x-k8s.io/pod-group"
NODES = [node(f"n{number}", "4") for number in range(4)]
ONE_EACH = Rate(1, 60.0)
SET = {"jobset.sigs.k8s.io/jobset-name": "set"}


def member(number, **more):
    """A member that waits for a node of its own."""
    asks = {"cpu": "4", "owner": ("Job", "train"), **more}
    return preemptor(f"gang-{number}", labels={GANG: "gang"}, **asks)


def filler(number, owner, *, priority=80, **more):
    """A pod that fills a node."""
    return pod(f"{owner}-{number}", "4", node=f"n{number}", owner=("ReplicaSet", owner), priority=priority, **more)


def cheap_and_dear(priority=90, **labels):
    """Two cheap pods of one owner, namespace and team, and two of another one that are dearer."""
    cheap = [filler(number, "cheap", labels={"team": "red", **labels}) for number in (0, 1)]
    return cheap + [filler(number, "dear", priority=priority, labels={"team": "blue"}) for number in (2, 3)]


PODS = cheap_and_dear()
CHEAP, DEAR = ["cheap-0", "cheap-1"], ["dear-2", "dear-3"]


def setting_of(pods=PODS, limits=Limits(), **more):  # noqa: B008
    """A cluster of full nodes in which a gang of two waits."""
    setting = Setting(*NODES, under=policy(limits=limits, **more))
    setting.add(*pods)
    setting.group()
    return setting


def decided(setting, promised=NOTHING_PROMISED, **asks):
    """Who goes for the gang now, or why nobody does."""
    outcome = setting.evaluate_gang(member(0, **asks), member(1, **asks), promised=promised)
    if isinstance(outcome, Unschedulable):
        return outcome
    assert isinstance(outcome, Evicts | Waits)
    return sorted(victim.metadata.name for victim in outcome.victims)


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
    outcome = decided(setting_of(limits=limits))
    if goes is None:
        assert (outcome.limited, "the policy's limits allow" in outcome.reason) == (True, True)
    else:
        assert [name.partition("-")[0] for name in outcome] == goes


@pytest.mark.parametrize("allowed", [1, 2])
def test_a_group_that_goes_whole_counts_whole(allowed):
    """A group of two pods goes only if the limit of its workload allows both: for a gang, and for one pod."""
    setting = setting_of(cheap_and_dear(**SET), Limits(per_workload=WorkloadLimit(allowed)), groups=WHOLE)
    alone = setting.evaluate(preemptor("alone", "4"))
    assert sorted(one.metadata.name for one in alone.victims) == (CHEAP if allowed == 2 else ["dear-2"])
    outcome = decided(setting)  # of the other owner both would have to go
    assert outcome == CHEAP if allowed == 2 else outcome.limited


@pytest.mark.parametrize("keep", list(CycleKeeper))
def test_a_gang_does_not_evict_its_evictor(keep):
    """A workload for which a member's own was evicted stays, or it is told that it goes."""
    setting = setting_of(limits=Limits(cycles=Cycles(keep=keep, window=100.0)))
    evicted(setting.evaluator.log, "Job/default/train", 0.0, "ReplicaSet/default/cheap")
    stays = keep is CycleKeeper.EVICTOR
    assert setting.evaluate_gang(member(0), member(1)).cycles == (
        () if stays else (("ReplicaSet/default/cheap", "Job/default/train"),)
    )
    assert decided(setting) == (DEAR if stays else CHEAP)
    setting.add(filler(2, "dear", priority=200))
    outcome = decided(setting)
    assert "pods of ReplicaSet/default/cheap stay, for which" in outcome.reason if stays else outcome == CHEAP


@pytest.mark.parametrize("eviction", list(EvictionMode))
@pytest.mark.parametrize("groups", [Groups(), WHOLE], ids=["pods", "groups"])
def test_budgets_are_kept_where_the_api_server_keeps_them(eviction, groups):
    """Under best-effort no set of victims is planned that the Eviction API would refuse; a policy that deletes may."""
    more = {"budgets": BudgetMode.BEST_EFFORT, "eviction": eviction, "groups": groups}
    setting = setting_of(cheap_and_dear(200, **SET), **more)
    setting.budget(budget("b", 1, {"team": "red"}))
    assert (decided(setting) == CHEAP) is (eviction is EvictionMode.DELETE)
    setting.budget(budget("b", 2, {"team": "red"}))
    assert decided(setting) == CHEAP


def test_extenders_are_refused():
    """A policy with extenders evicts nobody for a gang, and says why."""
    extender = ExtenderConfig(url_prefix="https://extender.example.com", preempt_verb="preempt")
    outcome = decided(setting_of(extenders=(extender,)))
    assert outcome.reason == "the policy has extenders, and they are not asked about gangs"


async def test_a_gang_of_which_nobody_waits_long_enough():
    """Nothing is done for it as long as no member has waited for the policy's delay."""
    setting = setting_of(preemptors=Preemptors(priority_classes=("high",), delay=60.0))
    desk = Desk(setting, dry_run=True)
    setting.add(member(0), member(1))
    for number in range(2):
        desk.reconciler.queue.retry(desk.reconciler.queue.entries[f"default/gang-{number}"], 0.0)
    desk.reconciler.turn()
    assert {line["reason"] for line in desk.told} == {"it waits for its scheduler to look at it"}


async def test_the_victims_of_a_gang_count_for_its_namespace():
    """A plan of a gang counts for its namespace's turns with every victim once."""
    setting = setting_of()
    desk = Desk(setting, dry_run=True)
    setting.add(member(0), member(1))
    await desk.work(10.0)
    assert {entry.share.had for entry in desk.reconciler.queue.entries.values()} == {20.0}, "ten tries a victim"


@table("leaves, asked", ("another plan has yet to ask it", False, CHEAP), ("it leaves", True, ["cheap-1"]))
def test_a_gang_counts_on_no_pod_that_another_plan_has_yet_to_ask(leaves, asked):
    """The gang's nominations may end that plan, and then nobody would ask the pod: it is a victim of the gang, too."""
    setting = setting_of()
    setting.expect(preemptor("lower", "4", priority=90), Waits("n0", 0, (PODS[0],)))
    if leaves:
        setting.add(filler(0, "cheap", labels={"team": "red"}, deleted=rfc3339(START + 20)))
    assert decided(setting, promised=Promised(planned=() if leaves else {"default/cheap-0"})) == asked


def test_a_gang_takes_no_room_that_was_made_for_a_lower_pod():
    """Also where nobody goes for it, if others do elsewhere: by itself it would not come."""
    setting, low = setting_of(), preemptor("low", "4", priority=90, nominated="n0")
    setting.add(filler(0, "cheap", deleted=rfc3339(START + 20)), low)
    assert decided(setting) == ["cheap-1"]
    assert decided(setting, promised=Promised(held={"n0": [low]})) == ["cheap-1", "dear-3"]
    setting.remove("default/cheap-0")
    assert decided(setting, promised=Promised(held={"n0": [low]})) == ["cheap-1", "dear-3"]


DB, CACHE, API = (f"StatefulSet/default/{name}" for name in ("db", "cache", "api"))


def past(setting, workload, by, age=9.0):
    evicted(setting.evaluator.log, workload, setting.clock.monotonic() - age, by)


def workload_pod(name, of, **more):
    return pod(name, "6", owner=("StatefulSet", of), **more)


@pytest.mark.parametrize("keep", list(CycleKeeper))
@table(
    "happened, cycle",
    ("of two", [(CACHE, DB, 99.0)], (DB, CACHE)),
    ("of three", [(API, DB, 50.0), (CACHE, API, 20.0)], (DB, API, CACHE)),
    ("before the window", [(CACHE, DB, 101.0)], ()),
    ("of others", [(API, DB, 9.0)], ()),
)
def test_a_cycle_is_found_and_the_policy_says_who_stays(happened, cycle, keep):
    """A preemptor whose evictor is the only victim waits, or evicts and it is told which way the cycle goes."""
    setting = Setting(node("n1"), under=policy(limits=Limits(cycles=Cycles(keep=keep, window=100.0))))
    setting.add(workload_pod("a", "db", node="n1"))
    for workload, by, age in happened:
        past(setting, workload, by, age)
    outcome = setting.evaluate(preemptor(owner=("StatefulSet", "cache")))
    if cycle and keep is CycleKeeper.EVICTOR:
        assert isinstance(outcome, Unschedulable)
        assert f"{DB} stay, for which" in outcome.reason
    else:
        assert outcome.cycles == ((cycle,) if cycle else ())


def closed_by(events, own, window, now):
    """The workloads from which a way of evictions within the window leads to `own`, found by walking back and forth."""
    pairs = {(by, gone) for gone, at, by in events if by and at > now - window}
    reach = {own}
    while more := {by for by, gone in pairs if gone in reach} - reach:
        reach |= more
    return reach - {own}


def test_random_evictions_close_the_cycles_that_a_walk_finds():
    """Who closes a cycle, and the way that is told, are those of a walk over a plain list of what happened."""
    for seed in range(200):
        dice, log, events, now = random.Random(seed), EvictionLog(), [], 1000.0
        names = [f"Job/a/{number}" for number in range(dice.randint(2, 9))]
        for _ in range(dice.randint(1, 25)):
            now += dice.choice([1.0, 50.0])
            events.append((dice.choice(names), now, dice.choice([*names, "", "Pod/b/alone"])))
            evicted(log, *events[-1])
        window = dice.choice([10.0, 200.0, 5000.0])
        happened = {(by, gone) for gone, at, by in events if at > now - window}
        for own in names:
            found = log.evictors([own], window, now)
            assert found.keys() == closed_by(events, own, window, now), seed
            assert all((way[0], way[-1]) == (by, own) for by, way in found.items())
            assert happened.issuperset(pair for way in found.values() for pair in pairwise(way))


def test_recent_evictions_count_as_a_cost_of_a_window():
    """Of two equal pods the one whose workload was evicted less often within the window goes."""
    cost = EvictionCost(recent_evictions=3600.0)
    setting = Setting(node("n1"), node("n2"), under=policy(victims=Victims(cost=cost)))
    setting.add(workload_pod("a", "db", node="n1"), workload_pod("b", "cache", node="n2"))
    past(setting, DB, API, 10.0)
    assert setting.evaluate(preemptor()).node == "n2"
    for age in (10.0, 5.0):
        past(setting, CACHE, API, age)
    assert setting.evaluate(preemptor()).node == "n1"
    setting.clock.now += 3600.0
    assert setting.evaluate(preemptor()).selected.compared["recent evictions"] == "0"
