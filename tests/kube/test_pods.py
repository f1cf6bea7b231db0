"""Facts about pods: whose a pod is, and what its removal costs."""

import pytest

from tests.reconciler.builders import pod
from webhook.kube.pods import POD_DELETION_COST, deletion_cost, workload_of


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
        pytest.param({"owner": ("My_Kind", "a b/é")}, "My_Kind/default/a b/é", id="what no cluster has"),
        pytest.param({"owner": ("Job/a", "x")}, "", id="a kind that reads as two names"),
        pytest.param({"owner": ("Job", "x\x1b")}, "", id="what no record takes"),
    ],
)
def test_owner(made, owner: str):
    """A pod counts for its workload; both ReplicaSets of a rollout are one Deployment."""
    assert workload_of(pod("v", **made)) == owner


@pytest.mark.parametrize(
    ("said", "cost"), [("0", 0), ("-0", 0), ("10", 10), ("-1", -1), ("-01", -1), ("-000000000007", -7), ("007", 0)]
)
def test_what_a_deletion_costs(said, cost: int):
    """Leading zeros count after a minus only: so an API server takes the annotation, and so controllers read it."""
    assert deletion_cost({POD_DELETION_COST: said}) == cost
