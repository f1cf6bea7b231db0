"""Every rate of a policy counts wherever rates do, and nobody waits who could be served within all of them."""

import random
from collections import Counter
from itertools import combinations

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import Setting, node, pod, policy, preemptor
from webhook.policy.model.limits import CycleKeeper, Cycles, LabelRate, Limits, Rate, WorkloadLimit
from webhook.policy.shapes.object_shape import yaml_name
from webhook.reconciler.evaluate.limits import NEVER, NOT_NOW
from webhook.reconciler.evaluate.outcomes import Evicts, Unschedulable
from webhook.reconciler.evictions.log import PodEviction

OTHER = {"cycles": "which of two workloads stays", "attempts_per_preemptor": "how often it is tried, not how much"}
"""The fields of `Limits` that are no rate, and what they say instead: a new field fails here until it is one or not."""
RATES = [field for field in Limits.__struct_fields__ if field not in OTHER]


def only(field, evictions=1):
    """Limits with this rate alone."""
    label = {"label": "team"} if field == "per_label" else {}
    return msgspec.convert({field: {"evictions": evictions, "window": 60.0, **label}}, Limits)


def victim(name, cpu="4"):
    """A pod for which every rate counts."""
    return pod(name, cpu, node="n1", owner=("Job", "a"), labels={"team": "a"})


def test_the_rates():
    """What is a rate is in the lists of rates."""
    every = msgspec.structs.replace(Limits(), **{field: getattr(only(field), field) for field in RATES})
    assert set(NEVER.values()) == {yaml_name(field) for field in RATES}
    assert NOT_NOW not in NEVER
    assert set(every.rates) == {field for field in RATES if not isinstance(getattr(every, field), WorkloadLimit)}


@pytest.mark.parametrize("field", RATES)
@table(
    "allowed, needs, due, says",
    ("used up", 1, "4", 3650.0, "limits.{} leaves room again"),
    ("less is left than is needed", 2, "8", 3650.0, "the first eviction that counts leaves its window"),
    ("more is needed than it ever allows", 1, "8", None, "than limits.{} ever allows"),
)
def test_a_rate_holds_evictions_back(field, allowed, needs, due, says):
    """It alone keeps the pods, says so, and no longer once the eviction of 10 s ago has left its window."""
    setting = Setting(node("n1"), under=policy(limits=only(field, allowed)))
    setting.clock.now, log = 3600.0, setting.evaluator.log
    log.remember([setting.policy.limits])
    setting.add(victim("v"), victim("w"))
    if due:
        log.asked("gone", log.eviction_of(victim("gone"), "API"), 3590.0)
    outcome = setting.evaluate(preemptor(cpu=needs))
    assert isinstance(outcome, Unschedulable)
    assert (outcome.limited, outcome.due) == (True, due and pytest.approx(due))
    assert says.format(yaml_name(field)) in outcome.text
    setting.clock.now = 3651.0
    assert isinstance(setting.evaluate(preemptor(cpu=needs)), Evicts if due else Unschedulable)


@pytest.mark.parametrize("field", RATES)
def test_time_helps_if_fewer_others_would_do(field):
    """The cheapest victims are more than a rate ever allows, and two others more than it leaves now: these go later."""
    setting = Setting(node("n1"), under=policy(limits=only(field, 3)))
    setting.clock.now, log = 3600.0, setting.evaluator.log
    log.remember([setting.policy.limits])
    alike = {"node": "n1", "owner": ("Job", "a"), "labels": {"team": "a"}}
    setting.add(*(pod(name, "1", priority=1, **alike) for name in "stuv"))
    setting.add(*(pod(name, "2", priority=2, **alike) for name in "ab"))
    for gone in ("gone", "gone-too"):
        log.asked(gone, log.eviction_of(victim(gone), "API"), 3590.0)
    outcome = setting.evaluate(preemptor(cpu="4"))
    assert isinstance(outcome, Unschedulable)
    assert "ever allows" not in outcome.text
    assert outcome.due == pytest.approx(3650.0)


@pytest.mark.parametrize("field", RATES)
def test_a_rate_that_got_smaller_ends_a_plan(field):
    """A plan that was made under a larger rate is told by which it is too large now."""
    log, uids = Setting().evaluator.log, ["uid-v", "uid-w"]
    log.remember([only(field)])
    log.intend("plan", {f"uid-{name}": log.eviction_of(victim(name)) for name in "vw"})
    assert log.overdrawn(only(field, 2), uids, 0.0) == ""
    told = f"limits.{yaml_name(field)} does not allow so many evictions any more"
    assert log.overdrawn(only(field), uids, 0.0) == told


OWN, HOUR = "StatefulSet/default/own", 3600.0


def served(nodes, pods, evicted, limits, size):
    """Whether some pods of one node that the limits let go make room for the preemptor: every set of pods is tried."""
    most = {
        "owner": limits.per_owner,
        "workload": limits.per_workload,
        "node": limits.per_node,
        "namespace": limits.per_namespace,
        "team": limits.per_label,
        "cluster": limits.per_cluster,
    }
    rates = {field: rate.evictions for field, rate in most.items() if rate is not None}
    for name, room in nodes.items():
        here = [one for one in pods if one["node"] == name]
        free = room - sum(one["cpu"] for one in here)
        for count in range(len(here) + 1):
            for gone in combinations(here, count):
                if any(one["stays"] for one in gone) or free + sum(one["cpu"] for one in gone) < size:
                    continue
                counts = Counter((field, one[field]) for one in (*evicted, *gone) for field in rates if one[field])
                if all(counts[field, one[field]] <= rates[field] for one in gone for field in rates if one[field]):
                    return True
    return False


def random_setting(seed, *, across):
    """A random cluster with a past; with `across` teams have pods in several namespaces."""
    dice = random.Random(seed)
    chance = lambda: dice.random() < 0.4  # noqa: E731
    keep, grouped = dice.choice(list(CycleKeeper)), dice.random() < 0.5
    limits = Limits(
        per_owner=Rate(dice.randint(1, 3), HOUR) if chance() else None,
        per_workload=WorkloadLimit(dice.randint(1, 3), HOUR) if chance() else None,
        per_node=Rate(dice.randint(1, 4), HOUR) if chance() else None,
        per_namespace=Rate(dice.randint(1, 4), HOUR) if chance() and (across or grouped) else None,
        per_label=LabelRate("team", dice.randint(1, 4), HOUR) if chance() and (across or not grouped) else None,
        per_cluster=Rate(dice.randint(1, 6), HOUR) if chance() else None,
        cycles=Cycles(keep=keep, window=2 * HOUR),
    )
    nodes = {f"n{number}": dice.randint(6, 12) for number in range(dice.randint(1, 3))}
    workloads = []
    for number in range(dice.randint(1, 5)):
        team = dice.choice(["", "a", "b"])
        namespace = dice.choice(["red", "blue"]) if across else {"": "red", "a": "blue", "b": "blue"}[team]
        of = f"w{number}" if dice.random() < 0.8 else ""  # a pod without an owner has no rate by that
        workloads.append((of, namespace, team, bool(of) and dice.random() < 0.2))
    pods = []
    for name, room in nodes.items():
        left = room
        while left > 0 and sum(one["node"] == name for one in pods) < 7:
            of, namespace, team, evictor = dice.choice(workloads)
            cpu = dice.randint(1, min(4, left))
            owner = f"StatefulSet/{namespace}/{of}" if of else ""
            made = {"name": f"p{len(pods)}", "of": of, "cpu": cpu, "evictor": evictor}
            made["stays"] = evictor and keep is CycleKeeper.EVICTOR
            counts = {"node": name, "owner": owner, "workload": owner, "namespace": namespace, "team": team}
            pods.append({**made, **counts, "cluster": "all"})
            left -= cpu
    evicted = [one for one in pods if dice.random() < 0.2]
    return dice, limits, nodes, pods, evicted


def setting_of(limits, nodes, pods, evicted):
    """The cluster, and a log of what was evicted from it."""
    setting = Setting(*(node(name, str(room)) for name, room in nodes.items()), under=policy(limits=limits))
    setting.clock.now, log = 3 * HOUR, setting.evaluator.log
    log.remember([limits])
    made = {}
    for one in pods:
        labels, owner = {"team": one["team"]} if one["team"] else {}, ("StatefulSet", one["of"]) if one["of"] else None
        more = {"node": one["node"], "namespace": one["namespace"], "labels": labels, "owner": owner}
        made[one["name"]] = pod(one["name"], str(one["cpu"]), **more)
    setting.add(*made.values())
    for one in pods:
        if one["evictor"]:  # so long ago that no rate counts it
            log.note(PodEviction(1.5 * HOUR, OWN, "", preemptor=one["owner"]))
    for one in evicted:  # another pod of the same workload went from that node before
        log.asked(one["name"], log.eviction_of(made[one["name"]], "Job/x/y"), 3 * HOUR - 100.0)
    return setting


def evaluated(seeds, *, across):
    """Random clusters, each with the size of a preemptor and what would be done for it."""
    for seed in seeds:
        dice, limits, nodes, pods, evicted = random_setting(seed, across=across)
        size = dice.randint(1, 8)
        setting = setting_of(limits, nodes, pods, evicted)
        outcome = setting.evaluate(preemptor(cpu=str(size), owner=("StatefulSet", "own")))
        yield seed, limits, nodes, pods, evicted, size, outcome


@pytest.mark.parametrize("first", range(0, 800, 200))
def test_nobody_waits_who_could_be_served(first):
    """A preemptor waits just if no set of pods within the limits makes room for it."""
    kinds = Counter()
    for seed, limits, nodes, pods, evicted, size, outcome in evaluated(range(first, first + 200), across=False):
        assert isinstance(outcome, Unschedulable) is not served(nodes, pods, evicted, limits, size), seed
        kinds[type(outcome), getattr(outcome, "limited", False)] += 1
    assert min(kinds[Evicts, False], kinds[Unschedulable, True]) >= 20


def test_victims_are_within_the_limits_whatever_they_are():
    """Also where teams have pods in several namespaces no limit is gone beyond."""
    for seed, limits, nodes, pods, evicted, _, outcome in evaluated(range(300), across=True):
        if isinstance(outcome, Evicts):
            names = {one.metadata.name for one in outcome.victims}
            gone = [one for one in pods if one["name"] in names]
            assert served({outcome.node: nodes[outcome.node]}, gone, evicted, limits, nodes[outcome.node]), seed
