"""Victims on one node against the slow oracle: whom budgets keep, and how groups go whole for a fit."""

import random
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.preemption.building import NOW, as_pod, rules, snapshot_of
from tests.preemption.clusters import FEATURES, plain
from tests.preemption.test_oracle import BY, answers
from webhook.policy.model.preemption import GroupDisruption
from webhook.preemption.decision import decide, fits_on

pytestmark = pytest.mark.slow

WHOLE = rules(groups=GroupDisruption.GROUP)
JOBSET = "jobset.sigs.k8s.io/jobset-name"


@pytest.mark.parametrize("by", [name for name in BY if name != "kubernetes"])
def test_budgets_are_those_of_the_oracle(by):
    """Whatever budgets have left, nobody goes beyond a strict one, and nobody whom the Eviction API refuses."""
    for seed in range(40):
        decision, expected = answers(plain(seed, "pdb", *(["oddities"] if seed % 2 else [])), by)
        assert decision == expected, seed


REMOVED_TOGETHER = ("pdb", "placement", "ports", "antiaffinity", "nominated", "resize", "sidecars", "volumes")
"""Features under which more pods never help: there nobody goes who could stay."""
_SHARING = ("bigmix", "csilimits", "mixed", "volumes")
FIT_WITHOUT = [feature for feature in FEATURES if feature not in _SHARING]
"""Features without pods that share on a node what only one of them can have."""


def in_groups(seed, features):
    """A cluster of which many pods are in groups of one to four, and the groups' members by name."""
    data, dice = plain(seed, *sorted(features)), random.Random(seed)
    groups = {}
    for number, made in enumerate(dice.sample(data["pods"], len(data["pods"]) * 2 // 3)):
        group = f"g{number // dice.choice((2, 3, 4))}"
        made["metadata"].setdefault("labels", {})[JOBSET] = group
        namespace = made["metadata"]["namespace"]
        groups.setdefault((namespace, group), set()).add(f"{namespace}/{made['metadata']['name']}")
    return data, {member: members for members in groups.values() for member in members}


@settings(max_examples=200)
@example(seed=9, features={"sidecars"})  # two pods hold one port, and one may not go
@given(
    seed=st.integers(0, 10**9),
    features=st.one_of(*(st.sets(st.sampled_from(of)) for of in (FEATURES, FIT_WITHOUT, REMOVED_TOGETHER))),
)
def test_groups_go_whole_and_for_a_fit(seed, features):
    """With a pod of a group all its members go that are placed and are not on their way out or over.

    Once they are gone, on whatever nodes, the preemptor fits; with any unit put back it does not.
    """
    data, members = in_groups(seed, features)
    snapshot, preemptor = snapshot_of(data, WHOLE), as_pod(data["preemptor"])
    stay = {row for row in range(snapshot.pods.rows) if snapshot.pods.terminating[row] or snapshot.pods.node[row] < 0}
    for candidate in decide(snapshot, preemptor, WHOLE, NOW).candidates:
        fits_without = partial(fits_on, snapshot, preemptor, candidate.node)
        gone = {victim.key for victim in candidate.victims}
        assert features - {*FIT_WITHOUT} or fits_without(without=snapshot.pod_rows(gone))
        for back in gone:
            unit = members.get(back, {back})
            assert set(snapshot.pod_rows(unit - gone).tolist()) <= stay
            if features <= {*REMOVED_TOGETHER}:
                assert not fits_without(without=snapshot.pod_rows(gone - unit))
