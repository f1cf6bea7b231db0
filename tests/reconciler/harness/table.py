"""The kinds of random clusters."""

import random
from collections import Counter
from typing import NamedTuple

from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.device_wishes import devices
from tests.reconciler.harness.dressed import bindings, costs, zones
from tests.reconciler.harness.gangs import changing_gangs, gangs
from tests.reconciler.harness.growth import growth
from tests.reconciler.harness.random_clusters import (
    Feature,
    cluster,
    kills,
    lived,
    notices,
    oddities,
    slow_writes,
    trouble,
)
from tests.reconciler.harness.spare_judge import spare
from tests.reconciler.harness.virtual_time import run


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
    told, gangs_judged = str(made.told), made.gang_judge
    return {words: words in told for row in ROWS.values() for words in row.happens} | {
        "evicts": bool(made.evicted),
        "for gangs": bool(gangs_judged.for_gangs),
        "of groups": not gangs_judged.of_groups.isdisjoint(made.evicted),
        "leaders": bool(gangs_judged.for_gangs and (made.terms or made.killed_at)),
    }
