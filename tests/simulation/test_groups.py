"""Futures of clusters with gangs: all members are placed together, or nobody goes; PodGroups come with the cluster."""

from __future__ import annotations

import pytest

from tests.simulation.clusters import cluster_of, evicted, node, placed, pod, run
from webhook.clusters.simulated.objects import kind_of
from webhook.policy.model.values import CAN_BE_PREEMPTED

GANG = {"labels": {"scheduling.x-k8s.io/pod-group": "ring"}}


def ring(minimum, members):
    """Two full nodes, and a gang whose members each need one of them."""
    pods = [
        *(pod(f"v{name}", "2", on=name, annotations={CAN_BE_PREEMPTED: "true"}) for name in "ab"),
        *(pod(f"ring-{number}", "2", "high", **GANG) for number in range(members)),
    ]
    group = {"metadata": {"name": "ring", "namespace": "default"}, "spec": {"minMember": minimum}}
    return cluster_of([node(name, "2") for name in "ab"], pods, CoschedulingPodGroup=[group])


@pytest.mark.parametrize(
    ("minimum", "members", "gone"), [(2, 2, {"va", "vb"}), (3, 3, set()), (3, 2, set())], ids=["fits", "room", "member"]
)
def test_all_members_or_none(minimum, members, gone):
    """Both victims go for both members; for three there is no room, and of three one is missing: then nobody goes."""
    result = run(ring(minimum, members))
    assert {name for _, name, _ in evicted(result)} == gone
    assert set(placed(result)) == ({"ring-0", "ring-1"} if gone else set())


@pytest.mark.parametrize(
    ("api_version", "title"),
    [
        ("scheduling.k8s.io/v1alpha2", "PodGroup"),
        ("scheduling.x-k8s.io/v1alpha1", "CoschedulingPodGroup"),
        ("scheduling.volcano.sh/v1beta1", "VolcanoPodGroup"),
    ],
)
def test_whose_pod_group_it_is(api_version, title):
    """Of kinds with one name the API group says which it is."""
    assert kind_of(api_version, "PodGroup").name == title
