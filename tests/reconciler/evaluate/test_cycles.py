"""A preemptor whose own evictor it would evict in turn: found, told, and the policy says who stays."""

import asyncio
import random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.cases import table
from tests.reconciler.builders import Setting, evicted, node, pod, policy, preemptor
from webhook.policy.model.limits import CycleKeeper, Cycles, Limits
from webhook.policy.model.victims import EvictionCost, Victims
from webhook.reconciler.evaluate.extender_client import ExtenderClient
from webhook.reconciler.evaluate.outcomes import Evicts, Unschedulable
from webhook.reconciler.evictions.log import EvictionLog
from webhook.reconciler.plans.plan_manager import PlanManager
from webhook.reconciler.preempting import Preempting
from webhook.reconciler.queue.queue import Queue
from webhook.reconciler.reporting import ReconcilerMetrics, Reporter

DB, CACHE, API = (f"StatefulSet/default/{name}" for name in ("db", "cache", "api"))


def under(keep, window=100.0):
    return policy(limits=Limits(cycles=Cycles(keep=keep, window=window)))


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
def test_a_cycle_is_found_and_the_policy_says_who_stays(happened: list[Any], cycle: tuple[str, ...], keep: CycleKeeper):
    """A preemptor whose evictor is the only victim waits, or evicts and it is told which way the cycle goes."""
    setting = Setting(node("n1"), under=under(keep))
    setting.add(workload_pod("a", "db", node="n1"))
    for workload, by, age in happened:
        past(setting, workload, by, age)
    outcome = setting.evaluate(preemptor(owner=("StatefulSet", "cache")))
    if cycle and keep is CycleKeeper.EVICTOR:
        assert isinstance(outcome, Unschedulable)
        assert f"{DB} stay, for which" in outcome.reason
    else:
        assert outcome.cycles == ((cycle,) if cycle else ())


def test_who_stays_in_a_cycle_keeps_nobody_from_other_victims():
    """Neither a workload nor a bare pod that evicted it goes, but a dearer pod does; for others they may go."""
    setting = Setting(node("n1"), node("n2"), node("n3"), under=under(CycleKeeper.EVICTOR))
    setting.add(workload_pod("a", "db", node="n1"), pod("alone", "6", node="n2"))
    setting.add(workload_pod("b", "api", node="n3", priority=90))
    for by in (DB, "Pod/default/alone"):
        past(setting, CACHE, by)
    assert setting.evaluate(preemptor(owner=("StatefulSet", "cache"))).node == "n3"
    assert setting.evaluate(preemptor(owner=("StatefulSet", "other"))).node == "n1"


def closed_by(events, own, window, now):
    """The workloads from which a way of evictions within the window leads to `own`, found by walking back and forth."""
    pairs = {(by, gone) for gone, at, by in events if by and at > now - window}
    reach = {own}
    while more := {by for by, gone in pairs if gone in reach} - reach:
        reach |= more
    return reach - {own}


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_random_evictions_close_the_cycles_that_a_walk_finds(first):
    """Who closes a cycle, and the way that is told, are those of a walk over a plain list of what happened."""
    for seed in range(first, first + 50):
        dice, log, events, now = random.Random(seed), EvictionLog(), [], 1000.0
        names = [f"Job/a/{number}" for number in range(dice.randint(2, 9))]
        for _ in range(dice.randint(1, 25)):
            now += dice.choice([1.0, 50.0])
            events.append((dice.choice(names), now, dice.choice([*names, "", "Pod/b/alone"])))
            evicted(log, *events[-1])
        window = dice.choice([10.0, 200.0, 5000.0])
        happened = {(by, gone) for gone, at, by in events if at > now - window}
        for own in names:
            found = log.evictors(own, window, now)
            assert found.keys() == closed_by(events, own, window, now), seed
            assert all((by, gone) in happened for by, gone in found.items())
            assert all(gone == own or gone in found for gone in found.values())


async def test_what_keeps_one_workload_from_evicting_keeps_no_other_of_its_shape():
    """A preemptor that must not evict its evictor does not decide for pods of other workloads that look the same."""
    setting = Setting(node("n1"), under=under(CycleKeeper.EVICTOR))
    setting.add(workload_pod("a", "db", node="n1"))
    past(setting, CACHE, DB)
    manager, queue = PlanManager(setting.evaluator, setting.policy_set), Queue()
    reporter = Reporter(ReconcilerMetrics(CollectorRegistry()), lambda _: None, None)
    preempting = Preempting(manager, setting.policy_set, queue, ExtenderClient(asyncio.Queue()), reporter)
    outcomes = []
    for owner in ("cache", "other"):
        pending = preemptor(f"p-{owner}", owner=("StatefulSet", owner))
        setting.add(pending)
        entry = queue.offer(f"default/p-{owner}", uid=owner, priority=100, created=0.0, now=0.0)
        outcomes.append(preempting.evaluate(entry, pending, setting.policy, 0.0))
    assert [type(one) for one in outcomes] == [Unschedulable, Evicts]


def test_recent_evictions_count_as_a_cost():
    """Of two equal pods the one whose workload was evicted less often within the window goes."""
    cost = EvictionCost(recent_evictions=3600.0)
    setting = Setting(node("n1"), node("n2"), under=policy(victims=Victims(cost=cost)))
    setting.add(workload_pod("a", "db", node="n1"), workload_pod("b", "cache", node="n2"))
    past(setting, DB, API, 10.0)
    assert setting.evaluate(preemptor()).node == "n2"
    past(setting, CACHE, API, 10.0)
    past(setting, CACHE, API, 5.0)
    assert setting.evaluate(preemptor()).node == "n1"
    setting.clock.now += 3600.0
    assert setting.evaluate(preemptor()).selected.compared["recent evictions"] == "0"
