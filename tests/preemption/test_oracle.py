"""The decision against the slow oracle, on random clusters of mixed features; each by itself: `filters/test_oracle`."""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.preemption import oracle
from tests.preemption.building import answer, rules
from tests.preemption.clusters import FEATURES, plain
from tests.preemption.dense import dense
from webhook.policy.model.preemption import BudgetMode, EvictionMode
from webhook.preemption.victims.rules import kubernetes_rules

pytestmark = pytest.mark.slow

BY = {
    "kubernetes": (kubernetes_rules(), None),
    "strict": (rules(), oracle.Policy()),
    "strict, by deletion": (rules(eviction=EvictionMode.DELETE), oracle.Policy(evicts=False)),
    "best effort": (rules(budgets=BudgetMode.BEST_EFFORT), oracle.Policy(strict=False)),
}
"""Rules, and the same in the oracle's words: what differs is how budgets are read, and what decides last."""
MIXTURES = {"seed": st.integers(0, 10**9), "features": st.sets(st.sampled_from(FEATURES), min_size=2, max_size=6)}


def answers(cluster, by):
    """Fits, reasons, victims in order, violations and best nodes: as they are decided, and as the oracle says."""
    ours, theirs = BY[by]
    return answer(cluster, ours), oracle.decide(cluster, policy=theirs)


@settings(max_examples=200)
@example(seed=2088, features={"affinity", "antiaffinity", "bigmix", "mixed"}, by="kubernetes")  # of another scheduler
@example(seed=502, features={"antiaffinity", "taints"}, by="strict")  # equal victims, of whom a budget covers one
@example(seed=10455, features={"taints", "volumes", "spread", "oddities", "resources", "resize"}, by="strict")
@example(seed=3332, features={"taints", "volumes"}, by="kubernetes")  # a nominated pod has the claim
@given(**MIXTURES, by=st.sampled_from([*BY]))
def test_decision_equals_the_oracles_for_any_mixture(seed, features, by):
    """Any mixture of features agrees too, under plain Kubernetes rules and under policies."""
    decided, expected = answers(plain(seed, *sorted(features)), by)
    assert decided == expected


def test_clusters_for_the_oracle_have_candidates():
    """The random clusters are worth comparing: a fair part of them ends in a preemption."""
    draws = random.Random(1)
    clusters = [plain(seed, *draws.sample(FEATURES, 3)) for seed in range(80)]
    assert sum(bool(answer(cluster)["candidates"]) for cluster in clusters) > 12


def test_dense_cluster_equals_the_oracles():
    """The cluster that figures are taken on, small: every node is a candidate, and the oracle agrees."""
    found = answer(dense(8, 30))
    assert found == oracle.decide(dense(8, 30))
    assert len(found["candidates"]) == 8
