"""Costs, limits of workloads and shares change who goes; a plan that has evicted still ends with its preemptor bound.

The clusters are those of `test_outcomes`, under a policy that counts what evictions cost and whose they were.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reconciler.builders import START
from tests.reconciler.random_clusters import lived_in_trouble, troubled
from tests.reconciler.simulation import Simulation
from tests.reconciler.virtual_time import run
from webhook.kube.instants import rfc3339
from webhook.kube.pods import POD_DELETION_COST
from webhook.policy.model.cost import EvictionCost, LostWork
from webhook.policy.model.limits import CycleKeeper, Cycles, LabelRate, Rate, WorkloadLimit
from webhook.policy.model.values import MARK
from webhook.policy.model.victims import Victims

pytestmark = pytest.mark.slow

Json = dict[str, Any]
SETTLED = 300.0
CLUSTERS = 50
SAVED = "example.com/saved-at"
PARTS = {
    "a cycle is told": "'message': 'cycle'",
    "who evicted stays": "of its own workload were evicted",
    "a limit of a workload": "limits.perWorkload",
    "a share": "limits.perNamespace",
    "a cost decides": "of its victims are ready",
}
"""What has a part in some of any fifty clusters, by words that are told."""


def costly(seed: int) -> Simulation:
    """A cluster in which a good deal goes wrong, under random costs, limits and shares."""
    made, dice = troubled(seed), random.Random(f"costly {seed}")
    some = lambda: dice.random() < 0.6  # noqa: E731
    cost = EvictionCost(
        readiness=some(),
        group_restarts=some(),
        deletion_cost=some(),
        lost_work=LostWork(checkpoints=(SAVED,)) if some() else None,
        recent_evictions=dice.choice((5.0, 60.0, 3600.0)) if some() else None,
        grace_period=some(),
    )
    window = lambda: dice.choice((5.0, 60.0))  # noqa: E731
    limits = msgspec.structs.replace(
        made.policy.limits,
        per_workload=WorkloadLimit(dice.randint(1, 3), dice.choice((20.0, 60.0, 120.0))) if some() else None,
        per_namespace=Rate(dice.randint(1, 3), window()) if dice.random() < 0.3 else None,
        per_label=LabelRate("app", dice.randint(1, 2), window()) if dice.random() < 0.3 else None,
        cycles=Cycles(keep=dice.choice(list(CycleKeeper)), window=dice.choice((20.0, 60.0, 3600.0))),
    )
    made.policy = msgspec.structs.replace(made.policy, limits=limits, victims=Victims(cost=cost))
    made.restart()
    _dressed(made, dice)
    return made


def _dressed(made: Simulation, dice: random.Random) -> None:
    """Whatever pod comes has what the keys look at; preemptors belong to the workloads of victims."""
    put = made.put

    def dress(pod: Json) -> None:
        meta = pod["metadata"]
        if meta["name"] not in made.pods:
            if dice.random() < 0.5:
                meta.setdefault("annotations", {})[POD_DELETION_COST] = str(dice.randint(-5, 5))
            if dice.random() < 0.3:
                meta.setdefault("annotations", {})[SAVED] = rfc3339(START - dice.randint(-100, 3000))
            if dice.random() < 0.3:
                meta["labels"]["jobset.sigs.k8s.io/jobset-name"] = dice.choice(("s", "t"))
            if dice.random() < 0.7 and pod["status"]["phase"] == "Running":
                pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
            if MARK in meta["labels"] and dice.random() < 0.9:
                owner = dice.choice(("x", "y"))
                meta["ownerReferences"] = [{"kind": "Job", "name": owner, "uid": owner, "controller": True}]
        put(pod)

    made.put = dress  # type: ignore[method-assign]


def life(seed: int) -> tuple[Simulation, list[str]]:
    """Such a cluster once it has lived, and the plans that evicted in vain though nothing outside had changed."""
    found: list[tuple[Simulation, list[str]]] = []

    async def live() -> None:
        made = costly(seed)
        await lived_in_trouble(made, seed, SETTLED)
        found.append((made, made.outcomes.in_vain + made.outcomes.unfinished(SETTLED / 2)))

    run(live())
    return found[0]


@pytest.mark.parametrize("first", range(0, CLUSTERS, 50))
def test_every_eviction_ends_in_a_bound_pod(first: int):
    """No plan ends otherwise; costs, limits and cycles have a part in a good many of the clusters."""
    found, parts = {}, Counter[str]()
    for seed in range(first, first + 50):
        made, said = life(seed)
        if said:
            found[seed] = said
        told = str(made.told)
        parts.update(name for name, words in PARTS.items() if words in told)
        parts.update(["evicts"] if made.evicted else [])
    assert not found
    assert parts["evicts"] >= 20
    assert sum(parts[name] > 0 for name in PARTS) >= len(PARTS) - 1, parts


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1523, id="a victim is gone and one of the same name there before the watch shows either"),
        pytest.param(2027, id="a nomination keeps room also if a pod in front leaves it none"),
        pytest.param(2226, id="a pod that did not leave in a plan's time is not counted on by the next one"),
    ],
)
def test_clusters_that_were_found_later(seed: int):
    """Clusters of longer runs in which a plan evicted in vain once."""
    assert not life(seed)[1]


@pytest.mark.soak
@settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**9))
def test_the_same_in_many_more_clusters(seed: int):
    """The same over many more clusters."""
    assert not life(seed)[1]
