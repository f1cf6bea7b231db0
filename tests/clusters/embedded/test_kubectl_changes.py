"""What people do: kubectl's changing commands against the embedded control plane, with its stand-ins, over TLS."""

import pytest

from tests.clusters.embedded.kubectl import DEPLOYMENT

pytestmark = pytest.mark.kubectl


def test_apply_tells_created_configured_unchanged(kubectl):
    """Apply creates, changes and leaves alone; what it no longer names is removed."""
    assert kubectl("apply", "-f", "-", stdin=DEPLOYMENT % 1) == "deployment.apps/web created\n"
    assert kubectl("apply", "-f", "-", stdin=DEPLOYMENT % 1) == "deployment.apps/web unchanged\n"
    more = (DEPLOYMENT % 2).replace("image: nginx", "image: nginx, env: [{name: A, value: b}]")
    assert kubectl("apply", "-f", "-", stdin=more) == "deployment.apps/web configured\n"
    assert kubectl("apply", "-f", "-", stdin=DEPLOYMENT % 2) == "deployment.apps/web configured\n"
    spec = kubectl.json("get", "deployment", "web")["spec"]
    assert spec["replicas"] == 2
    assert "env" not in spec["template"]["spec"]["containers"][0]


def test_server_side_apply_and_its_conflicts(kubectl):
    """Apply --server-side owns its fields: another manager's change conflicts until it is forced."""
    apply = ("apply", "--server-side", "-f", "-")
    assert kubectl(*apply, stdin=DEPLOYMENT % 1) == "deployment.apps/web serverside-applied\n"
    kubectl("scale", "deployment", "web", "--replicas", "3")
    output = kubectl(*apply, stdin=DEPLOYMENT % 2, code=1)
    assert 'Apply failed with 1 conflict: conflict with "kubectl" with subresource "scale" using apps/v1' in output
    assert ".spec.replicas" in output
    kubectl(*apply, "--force-conflicts", stdin=DEPLOYMENT % 2)
    assert kubectl.json("get", "deployment", "web")["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("configmap", "m", "--from-literal=a=b"), "configmap/m created"),
        (("clusterrole", "r", "--verb=get", "--resource=pods"), "clusterrole.rbac.authorization.k8s.io/r created"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_create(kubectl, arguments, shown):
    """Create makes each kind it knows, whose bodies it sends in protobuf."""
    assert kubectl("create", *arguments).strip() == shown


def test_created_objects_are_what_was_meant(kubectl):
    """What came in protobuf is stored like any other object."""
    kubectl("create", "priorityclass", "kubectl-high", "--value=1000", "--description=x", "--preemption-policy=Never")
    stored = kubectl.json("get", "priorityclass", "kubectl-high")
    assert (stored["value"], stored["description"], stored["preemptionPolicy"]) == (1000, "x", "Never")
    kubectl("create", "secret", "generic", "s", "--from-literal=a=b")
    assert kubectl.json("get", "secret", "s")["data"] == {"a": "Yg=="}
    kubectl("create", "pdb", "b", "--selector=app=web", "--max-unavailable=50%")
    assert kubectl.json("get", "pdb", "b")["spec"] == {
        "maxUnavailable": "50%",
        "selector": {"matchLabels": {"app": "web"}},
    }


def test_drain(kubectl):
    """Drain cordons a node and evicts its pods, which come back elsewhere."""
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT % 4)
    kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    output = kubectl("drain", "node-1", "--ignore-daemonsets", "--force", "--timeout=20s")
    try:
        assert "node/node-1 cordoned" in output
        assert "node/node-1 drained" in output
        assert "Ready,SchedulingDisabled" in kubectl("get", "node", "node-1")
        kubectl("rollout", "status", "deployment/web", "--timeout=20s")
        nodes = {item["spec"]["nodeName"] for item in kubectl.json("get", "pods", "-l", "app=web")["items"]}
        assert nodes == {"node-2"}
    finally:
        assert kubectl("uncordon", "node-1") == "node/node-1 uncordoned\n"
