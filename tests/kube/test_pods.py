"""Facts about pods: whose a pod is, and where its replacement could run."""

import pytest

from tests.reconciler.builders import pod
from webhook.kube.pods import workload_of


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
