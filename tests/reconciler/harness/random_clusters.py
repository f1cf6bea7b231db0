"""The kinds of random clusters, by features: what happens to themselves, the API server, the scheduler, the leader."""

import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tests.preemption.building import node
from tests.reconciler.builders import policy
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.devices import devices
from tests.reconciler.harness.dressed import bindings, costs, growth, zones
from tests.reconciler.harness.gangs import changing_gangs, gangs
from tests.reconciler.harness.judge import say_ready
from tests.reconciler.harness.pods import Json, cpu_of, running, waiting
from tests.reconciler.harness.spare_judge import spare
from tests.reconciler.harness.virtual_time import later, now, run
from webhook.kube.errors import NO_ANSWER, ApiError
from webhook.kube.resources import PRIORITY_CLASS
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import BudgetMode, EvictionMode
from webhook.policy.model.values import CAN_BE_PREEMPTED, NOTICE
from webhook.policy.model.victims import PodsMatch, PreemptionPair

Feature = Callable[[Cluster, int], None]
"""Changes the cluster of a seed before it begins to live, and says what happens in it then (`Cluster.begins`)."""


def cluster(seed: int, *features: Feature) -> Cluster:
    """A small cluster under random rules with these features, whose pods are created when it begins to live."""
    dice = random.Random(seed)
    rate = lambda: dice.choice((None, None, Rate(dice.randint(1, 2), dice.choice((5.0, 60.0)))))  # noqa: E731
    limits = Limits(per_owner=rate(), per_node=rate(), per_cluster=rate(), attempts_per_preemptor=1000)
    under = policy(
        limits=limits, plan_timeout=dice.choice((20.0, 60.0)), wait_for_terminating=dice.choice((0.0, 30.0, 60.0))
    )
    nodes = [node(f"n{number}", "8") for number in range(dice.randint(1, 4))]
    made = Cluster(under, nodes, dice)
    for app in ("a", "b"):
        if dice.random() < 0.5:
            made.cover(app, dice.randint(0, 2))
    if dice.random() < 0.25:
        made.shunned.add(dice.choice(nodes)["metadata"]["name"])
    for feature in features:
        feature(made, seed)
    return made


async def lived(made: Cluster, seconds: float) -> None:
    """Fill the cluster, let preemptors, nominees and departures come in the first twenty seconds, and let it settle."""
    dice = made.dice
    rare = random.Random(f"rare {dice.getstate()[1][:2]}")
    for host in made.nodes:
        room, on = 8, host["metadata"]["name"]
        for number in range(dice.randint(2, 8)):
            name = f"{on}-v{number}"
            pod = running(name, on, dice)
            if cpu_of(pod) > room:
                continue
            room -= cpu_of(pod)
            made.put(pod)
            if dice.random() < 0.15:
                made.kept.add(name)
            if rare.random() < 0.15:
                made.migrating[name] = rare.uniform(1, 100)
            if dice.random() < 0.2:
                later(dice.choice((0.0, 0.3, dice.uniform(0, 20))), made.leave, name)
    if dice.random() < 0.4:
        nominee = waiting("nominee", dice, 0.0, managed=False)
        nominee["status"]["nominatedNodeName"] = dice.choice(made.nodes)["metadata"]["name"]
        made.put(nominee)
        if rare.random() < 0.5:
            later(rare.uniform(0, 20), made.withdraw, "nominee")
    for number in range(dice.randint(1, 4)):
        at = dice.choice((0.0, 0.3, 0.5, dice.uniform(0, 20)))
        later(at, made.put, waiting(f"p{number}", dice, at))
        if rare.random() < 0.1:
            later(at + rare.choice((rare.uniform(0, 1), rare.uniform(0, 20))), made.withdraw, f"p{number}")
    for begin in made.begins:
        begin(made, rare)
    await made.live(seconds)


def trouble(made: Cluster, seed: int) -> None:
    """A good deal goes wrong: with budgets, the scheduler, other pods, the server, its watch, and the policies."""
    rare = random.Random(f"troubled {seed}")
    if rare.random() < 0.3:
        made.policy = replace(made.policy, budgets=BudgetMode.BEST_EFFORT)
    if rare.random() < 0.25:
        made.policy = replace(made.policy, eviction=EvictionMode.DELETE)
    made.scheduler.backs_off = rare.random() < 0.5
    if rare.random() < 0.2:
        made.scheduler.pauses = (0.5, 1.0, 3.0)
    if rare.random() < 0.3:
        made.terms = _terms(rare)
    made.begins.append(_trouble)


def slow_writes(made: Cluster, seed: int) -> None:
    """In every other cluster changes of pods take their time."""
    made.slow_writes = bool(seed % 2)


def oddities(made: Cluster, seed: int) -> None:
    """In every third cluster nodes go, pods come back under their names, and preemptors are made again."""
    if seed % 3 == 2:
        made.begins.append(_oddities)


def kills(made: Cluster, seed: int) -> None:
    """Some processes are killed between two requests, or between a request and its answer."""
    dice = random.Random(f"kills {seed}")
    if dice.random() < 0.5 and not made.terms:
        made.killed_at = frozenset(dice.sample(range(1, 60), dice.randint(1, 4)))


def lost_answers(made: Cluster, seed: int) -> None:
    """For a while some answers of the server are lost: what was asked was done all the same."""
    dice = random.Random(f"lost {seed}")
    share, until = dice.choice((0.05, 0.2, 0.5)), dice.choice((10.0, 40.0, 100.0))

    def lose(_verb: str, _name: str, _body: Json) -> None:
        if now() < until and dice.random() < share:
            raise dice.choice((ApiError(500, "InternalError", "lost"), ApiError(NO_ANSWER, "Unreachable", "lost")))

    made.answered.append(lose)


def notices(made: Cluster, seed: int) -> None:
    """Victims are told before they are asked; some pods answer, some of them at all times."""
    dice = random.Random(f"notices {seed}")
    seconds = dice.choice((1.0, 5.0, 30.0, 90.0))
    made.policy = replace(made.policy, victims=replace(made.policy.victims, notice=seconds))
    if dice.random() < 0.3:
        made.killed_at = frozenset(dice.sample(range(1, 40), dice.randint(1, 4)))

    def answer(old: Json | None, new: Json | None) -> None:
        if new is None or not new["spec"].get("nodeName"):
            return
        told = NOTICE in new["metadata"].get("annotations", {})
        was = old is not None and NOTICE in old["metadata"].get("annotations", {})
        if (told and not was and dice.random() < 0.4) or (old is None and dice.random() < 0.1):
            after = dice.choice((0.0, 0.1, dice.uniform(0, seconds)))
            later(after, say_ready, made, new["metadata"]["name"])

    made.changes.append(answer)


def _terms(rare: random.Random) -> list[tuple[float, float, float]]:
    """Leaders of the first minute, with clocks that are wrong by up to half a minute, and one for the rest."""
    terms, at = [], 0.0
    while at < 60:
        end = at + rare.choice((0.05, 0.3, 1.0, rare.uniform(0, 20), rare.uniform(0, 60)))
        terms.append((at, end, rare.uniform(-30, 30)))
        at = end + rare.choice((0.0, 0.0, 1.0, 15.0))
    return [*terms, (at, float("inf"), 0.0)]


def _trouble(made: Cluster, rare: random.Random) -> None:
    """Let things go wrong in the first twenty seconds of a cluster."""
    at = lambda: rare.choice((0.0, 0.3, rare.uniform(0, 2), rare.uniform(0, 20)))  # noqa: E731
    # Controllers replace what was evicted, a few of them on the same node.
    for owner in ("x", "y"):
        if (how := rare.choice(("anywhere", "anywhere", "here", "", ""))) != "":
            made.replacing[owner] = how
    # kube-scheduler is away for a while.
    if rare.random() < 0.25:
        begin, seconds = at(), rare.choice((30.0, 200.0))
        later(begin, setattr, made.scheduler, "away_until", now() + begin + seconds)
    # Others wait, too, in front and behind.
    if rare.random() < 0.4:
        for number in range(rare.randint(1, 3)):
            other = waiting(f"other{number}", rare, 0.0, managed=False)
            other["spec"]["priority"] = rare.choice((50, 100, 105, 130))
            other["spec"]["preemptionPolicy"] = rare.choice(("Never", "PreemptLowerPriority"))
            later(at(), made.put, other)
    # The server throttles, and the watch stops and lists again.
    if rare.random() < 0.2:
        made.throttled = (rare.uniform(1, 15), 0.7)
    if rare.random() < 0.3:
        later(at(), made.hold_watch, rare.uniform(0.2, 3.0))
    # Somebody changes the rules.
    if rare.random() < 0.3:
        later(at(), rare.choice(_CHANGES), made)


def _oddities(made: Cluster, rare: random.Random) -> None:
    """Let nodes go, pods come back under their names, and preemptors be made again, in the first thirty seconds."""
    odd = random.Random(f"odd {rare.random()}")
    at = lambda: odd.choice((0.3, odd.uniform(0, 3), odd.uniform(0, 30)))  # noqa: E731
    names = [name for host in made.nodes if (name := host["metadata"]["name"]) != "far"]
    if odd.random() < 0.4 and len(names) > 1:
        later(at(), made.drop_node if odd.random() < 0.5 else made.cordon, odd.choice(names))
    for owner in ("x", "y"):
        if odd.random() < 0.4:
            made.replacing[owner] = "same"
    for number in range(4):
        if odd.random() < 0.3:
            later(at(), _make_again, made, f"p{number}", odd.choice((0.0, 0.2, 5.0)))
    for name in list(made.pods):
        if odd.random() < 0.1 and made.pods[name]["spec"].get("nodeName"):
            later(at(), _relabel, made, name, odd.choice(("a", "b", "c")))


def _make_again(made: Cluster, name: str, after: float) -> None:
    known = made.pods.get(name)
    if known is None or known["spec"].get("nodeName"):
        return
    made.withdraw(name)
    new = msgspec.json.decode(msgspec.json.encode(known))
    new["metadata"] |= {"uid": f"{known['metadata']['uid']}-again", "annotations": {}}
    new["status"].pop("nominatedNodeName", None)
    later(after, made.put, new)


def _relabel(made: Cluster, name: str, app: str) -> None:
    known = made.pods.get(name)
    if known is not None and "deletionTimestamp" not in known["metadata"]:
        made.outcomes.outside("other budgets cover it", known["metadata"]["uid"])
        made.edit(name, lambda pod: pod["metadata"].update(labels={"app": app}))


def _exclude(made: Cluster) -> None:
    pairs = (PreemptionPair(victims=PodsMatch(namespaces=("elsewhere",))),)
    made.use(replace(made.policy, victims=replace(made.policy.victims, pairs=pairs)))


def manage_another(made: Cluster) -> None:
    """The policy does not manage the preemptors' class any more."""
    made.use(replace(made.policy, preemptors=replace(made.policy.preemptors, priority_classes=("another",))))


def _forbid(made: Cluster) -> None:
    made.outcomes.outside("the class was changed")
    made.classes[0] = {"metadata": {"name": "low", "annotations": {CAN_BE_PREEMPTED: "false"}}, "value": 80}
    made.show(PRIORITY_CLASS, made.classes[0])


def _use_up(made: Cluster) -> None:
    for app in made.budgets:
        made.outcomes.outside("the budget was used up by somebody else")
        made.allow(app, 0)


_CHANGES: tuple[Callable[[Cluster], None], ...] = (_exclude, manage_another, _forbid, _use_up)


class Row(NamedTuple):
    """A kind of clusters: its features, for how many seconds they live, and what happens in some of them.

    The last are words of the log, or names of what `_happened` counts.
    """

    features: tuple[Feature, ...]
    seconds: float = 300.0
    happens: tuple[str, ...] = ("evicts",)


def always_slow(made: Cluster, seed: int) -> None:
    """Changes of pods take their time."""
    slow_writes(made, seed | 1)


def mixed(made: Cluster, seed: int) -> None:
    """Everything at once, each feature in half of the clusters."""
    dice = random.Random(f"mixed {seed}")
    for feature in (bindings, devices, growth, costs, gangs, changing_gangs, notices, kills):
        if dice.random() < 0.5:
            feature(made, seed)


TROUBLE = (trouble, slow_writes)
ROWS = {
    "calm": Row((spare,), 1500.0),
    "calm, slow writes": Row((always_slow, spare), 1500.0),
    "trouble": Row((*TROUBLE, oddities)),
    "zones": Row((*TROUBLE, zones, kills), happens=("evicts", "make room in zone")),
    "bindings": Row((*TROUBLE, bindings, oddities)),
    "devices": Row((*TROUBLE, devices, oddities)),
    "growth": Row((*TROUBLE, growth, oddities)),
    "notices": Row((*TROUBLE, notices, oddities), 400.0),
    "answers lost": Row((*TROUBLE, notices, oddities, lost_answers), 400.0),
    "costs": Row(
        (*TROUBLE, costs, oddities),
        happens=(
            "'message': 'cycle'",
            "of its own workload were evicted",
            "limits.perWorkload",
            "limits.perNamespace",
            "of its victims are ready",
        ),
    ),
    "gangs": Row((*TROUBLE, gangs, oddities), happens=("for gangs", "of groups", "leaders")),
    "changing gangs": Row((*TROUBLE, gangs, changing_gangs, oddities)),
    "gangs and kills": Row((slow_writes, gangs, kills)),
    "mixed": Row((*TROUBLE, mixed, oddities), 400.0),
}


def live(seed: int, row: Row, seen: Counter[str] | None = None) -> list[str]:
    """What is wrong in one random cluster; counts in `seen` what happened in it."""
    wrong: list[str] = []

    async def work() -> None:
        made = cluster(seed, *row.features)
        await lived(made, row.seconds)
        wrong.extend(made.faults(row.seconds / 2))
        if seen is not None:
            seen.update(_happened(made))

    run(work())
    return wrong


def _happened(made: Cluster) -> dict[str, bool]:
    told, record = str(made.told), made.record
    return {words: words in told for row in ROWS.values() for words in row.happens} | {
        "evicts": bool(made.evicted),
        "for gangs": bool(record.for_gangs),
        "of groups": not record.of_groups.isdisjoint(made.evicted),
        "leaders": bool(record.for_gangs and (made.terms or made.killed_at)),
    }
