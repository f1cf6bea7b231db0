"""The kinds of random clusters, who judges them, and clusters of longer runs in which something was wrong once."""

import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol

from tests.reconciler.harness.bindings import bindings
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.costs import costs
from tests.reconciler.harness.device_wishes import devices
from tests.reconciler.harness.gang_judge import GangJudge
from tests.reconciler.harness.gangs import changing_gangs, gangs
from tests.reconciler.harness.growth import growth
from tests.reconciler.harness.notice_judge import NoticeJudge
from tests.reconciler.harness.outcome_judge import OutcomeJudge
from tests.reconciler.harness.random_clusters import (
    Feature,
    always_slow_writes,
    cluster,
    kills,
    lived,
    notices,
    oddities,
    slow_writes,
    trouble,
)
from tests.reconciler.harness.rule_judge import RuleJudge
from tests.reconciler.harness.spare_judge import SpareJudge
from tests.reconciler.harness.virtual_time import run
from tests.reconciler.harness.zones import zones


class Judge(Protocol):
    """Watches a cluster from its beginning; what is wrong by the end, if all that began before `settled` is over."""

    def faults(self, settled: float) -> list[str]: ...


def outcomes(made: Cluster) -> OutcomeJudge:
    """Every plan that has evicted ends with its preemptor bound, unless something outside changed (E9)."""
    return made.outcomes


class Row(NamedTuple):
    """A kind of clusters: its features, its judges, for how many seconds they live, and what happens in some of them.

    The last are words of the log, or names of what `_happened` counts.
    """

    features: tuple[Feature, ...]
    judges: tuple[Callable[[Cluster], Judge], ...] = (outcomes, RuleJudge)
    seconds: float = 300.0
    happens: tuple[str, ...] = ("evicts",)


def mixed(made: Cluster, seed: int) -> None:
    """Everything at once, each feature in half of the clusters."""
    dice = random.Random(f"mixed {seed}")
    for feature in (bindings, devices, growth, costs, gangs, changing_gangs, notices, kills):
        if dice.random() < 0.5:
            feature(made, seed)


TROUBLE = (trouble, slow_writes)
OF_GANGS = (outcomes, RuleJudge, GangJudge)
ROWS = {
    "calm": Row((), (SpareJudge, RuleJudge), 1500.0),
    "calm, slow writes": Row((always_slow_writes,), (SpareJudge, RuleJudge), 1500.0),
    "trouble": Row((*TROUBLE, oddities)),
    "zones": Row((*TROUBLE, zones, kills), happens=("evicts", "make room in zone")),
    "bindings": Row((*TROUBLE, bindings, oddities)),
    "devices": Row((*TROUBLE, devices, oddities)),
    "growth": Row((*TROUBLE, growth, oddities)),
    "notices": Row((*TROUBLE, notices, oddities), (outcomes, RuleJudge, NoticeJudge), 400.0),
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
    "gangs": Row((*TROUBLE, gangs, oddities), OF_GANGS, happens=("for gangs", "of groups", "leaders")),
    "changing gangs": Row((*TROUBLE, gangs, changing_gangs, oddities), OF_GANGS),
    "gangs and kills": Row((slow_writes, gangs, kills), OF_GANGS),
    "mixed": Row((*TROUBLE, mixed, oddities), OF_GANGS, 400.0),
}


def live(seed: int, row: Row, seen: Counter[str] | None = None) -> list[str]:
    """What is wrong in one random cluster; counts in `seen` what happened in it."""
    found: list[str] = []

    async def work() -> None:
        made = cluster(seed, *row.features)
        judges = [judge(made) for judge in row.judges]
        await lived(made, row.seconds)
        for judge in judges:
            found.extend(judge.faults(row.seconds / 2))
        if seen is not None:
            seen.update(_happened(made, judges))

    run(work())
    return found


def _happened(made: Cluster, judges: list[Judge]) -> dict[str, int]:
    told = str(made.told)
    counts = {words: words in told for row in ROWS.values() for words in row.happens}
    for judge in judges:
        if isinstance(judge, GangJudge):
            counts["for gangs"] = bool(judge.for_gangs)
            counts["of groups"] = not judge.of_groups.isdisjoint(made.evicted)
            counts["leaders"] = bool(judge.for_gangs and (made.terms or made.killed_at))
    return counts | {"evicts": bool(made.evicted)}
