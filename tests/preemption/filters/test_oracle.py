"""Where a pod fits, and who has to go for it, against the slow oracle: each feature by itself, and all together."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.preemption.building import NOW, as_pod, snapshot_of
from tests.preemption.clusters import FEATURES, plain
from tests.preemption.devices.test_decision_oracle import compare
from tests.preemption.test_oracle import BY, answers
from webhook.preemption.decision import decide, fits, fits_on
from webhook.preemption.victims.rules import kubernetes_rules

pytestmark = pytest.mark.slow

KINDS = [(), *[(feature,) for feature in FEATURES], FEATURES]


@pytest.mark.parametrize("features", KINDS, ids=lambda features: "+".join(features) if len(features) < 2 else "all")
def test_decision_equals_the_oracles(features):
    """Fits, reasons, victims in order, violations and best nodes agree, by each way to read budgets in turn."""
    for seed in range(120 if features == ("volumes",) else 40):  # of volumes there are many rules
        made = plain(seed, *features, *(["oddities"] if seed % 2 else []))
        decision, expected = answers(made, [*BY][seed // 2 % 4])
        assert decision == expected, seed


@given(seed=st.integers(0, 10**9), features=st.sets(st.sampled_from(FEATURES)), share=st.floats(0, 1))
def test_where_it_fits_once_pods_are_gone(seed, features, share):
    """A decision's second look and one at a single node say what a look at all nodes says; no unknown node fits."""
    cluster = plain(seed, *sorted(features))
    snapshot, preemptor = snapshot_of(cluster), as_pod(cluster["preemptor"])
    placed = np.flatnonzero(snapshot.pods.node[: snapshot.pods.rows] >= 0)
    gone = np.array(sorted(random.Random(seed).sample(placed.tolist(), int(share * len(placed)))), np.intp)
    everywhere = fits(snapshot, preemptor, without=gone)
    assert decide(snapshot, preemptor, kubernetes_rules(), NOW).fits_without(gone) == everywhere
    for name in [*snapshot.node_names(), "gone"]:
        assert fits_on(snapshot, preemptor, name, without=gone) is (name in everywhere)


@pytest.mark.parametrize("start", range(300, 600, 100))
def test_decisions_for_devices(start):
    """A pod with claims fits where every choice of devices says so, and nobody goes who could stay."""
    assert compare(range(start, start + 100)) > 20
