"""Restraint: rates per owner, node and cluster, growing back-off, and who is a last resort."""

from __future__ import annotations

import pytest

from tests.reconciler.builders import pod
from webhook.policy.model import Limits, Rate
from webhook.reconciler.evaluate.eviction_limiter import (
    EvictionLimiter,
    PlannedEviction,
    Remaining,
    attempts_back_off,
    is_last_resort,
    owner_of,
)

OWNER = Limits(per_owner=Rate(2, 60.0))


def test_remaining_evictions():
    """What the rates still allow owners, nodes and the cluster, and until when an eviction counts."""
    limiter, limits = (
        EvictionLimiter(),
        Limits(per_owner=Rate(2, 60.0), per_node=Rate(3, 30.0), per_cluster=Rate(9, 90.0)),
    )
    limiter.full(limits, 0.0)
    limiter.note([PlannedEviction("web", "n1"), PlannedEviction("", "n1")], 0.0)
    limiter.note([PlannedEviction("web", "n2")], 20.0)
    assert limiter.remaining(limits, 20.0) == Remaining({"web": 0}, {"n1": 1, "n2": 2}, 6, 30.0)
    assert limiter.remaining(limits, 61.0) == Remaining({"web": 1}, {}, 6, 80.0)
    assert limiter.remaining(limits, 111.0) == Remaining({}, {}, 9, None)
    assert limiter.remaining(Limits(), 20.0).until is None


def test_full_says_until_when():
    """What is used up is named, with the time at which room comes up again."""
    limiter = EvictionLimiter()
    limiter.full(OWNER, 0.0)
    limiter.note([PlannedEviction("web", "n1")], 10.0)
    assert limiter.full(OWNER, 10.0).until is None
    limiter.note([PlannedEviction("web", "n2")], 20.0)
    full = limiter.full(OWNER, 25.0)
    assert (full.owners, full.nodes, full.cluster, full.until) == ({"web"}, set(), False, 70.0)
    assert limiter.full(OWNER, 70.1).owners == frozenset()


def test_evictions_that_did_not_happen_do_not_count():
    """A plan that was dropped gives its share of the rates back."""
    limiter = EvictionLimiter()
    limiter.full(OWNER, 0.0)
    limiter.take_back(limiter.note([PlannedEviction("web", "n1")] * 2, 0.0))
    assert limiter.remaining(OWNER, 1.0).owners == {}


def test_memory_does_not_grow():
    """What is older than the longest window is forgotten."""
    limiter = EvictionLimiter()
    limiter.full(OWNER, 0.0)
    for second in range(5000):
        limiter.note([PlannedEviction(f"owner-{second}", f"n{second}")], float(second))
    assert len(limiter._owners) <= 61
    assert len(limiter._tickets) <= 61


def test_back_off_between_attempts_grows():
    """Nobody is evicted thousands of times for one pod: every attempt in vain doubles the wait, up to five minutes."""
    waits = [attempts_back_off(attempts) for attempts in range(12)]
    assert waits[:4] == [0.0, 1.0, 2.0, 4.0]
    assert waits == sorted(waits)
    assert waits[-1] == 300.0


@pytest.mark.parametrize(
    ("made", "owner"),
    [
        pytest.param({}, "", id="bare pod"),
        pytest.param({"owner": ("Job", "nightly")}, "Job/default/nightly", id="job"),
        pytest.param(
            {"owner": ("ReplicaSet", "web-5d4"), "labels": {"pod-template-hash": "5d4"}},
            "Deployment/default/web",
            id="replica set of a deployment",
        ),
        pytest.param({"owner": ("ReplicaSet", "web-5d4")}, "ReplicaSet/default/web-5d4", id="bare replica set"),
    ],
)
def test_owner(made, owner: str):
    """A pod counts for its workload; both ReplicaSets of a rollout are one Deployment."""
    assert owner_of(pod("v", **made)) == owner


def affinity(field: str, key: str, values: list[str], operator: str = "In"):
    term = {field: [{"key": key, "operator": operator, "values": values}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


HOSTNAME = "kubernetes.io/hostname"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        pytest.param({}, False, id="bare pod"),
        pytest.param({"owner": ("ReplicaSet", "web")}, False, id="replica set"),
        pytest.param({"owner": ("DaemonSet", "agent")}, True, id="daemon set"),
        pytest.param({"owner": ("Node", "n1")}, False, id="static pod, which never goes"),
        pytest.param({"spec": {"nodeSelector": {HOSTNAME: "n1"}}}, True, id="hostname selector"),
        pytest.param({"spec": affinity("matchFields", "metadata.name", ["n1"])}, True, id="node by name"),
        pytest.param({"spec": affinity("matchExpressions", HOSTNAME, ["n1"])}, True, id="one hostname"),
        pytest.param({"spec": affinity("matchExpressions", HOSTNAME, ["n1", "n2"])}, False, id="two hostnames"),
        pytest.param({"spec": affinity("matchExpressions", "zone", ["a"])}, False, id="a zone"),
    ],
)
def test_last_resort(made, expected: bool):
    """A pod whose replacement could run nowhere else is a victim only as a last resort."""
    assert is_last_resort(pod("v", **made)) is expected
