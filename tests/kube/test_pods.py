"""Facts about pods: whose a pod is, and where its replacement could run."""

from __future__ import annotations

import pytest

from tests.reconciler.builders import pod
from webhook.kube.pods import is_last_resort, workload_of


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
    assert workload_of(pod("v", **made)) == owner


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
