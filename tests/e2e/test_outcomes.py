"""What is evicted ends in a bound pod (docs/semantics.md E9): what once emptied nodes for nothing, on a cluster."""

from tests.e2e.conftest import LABEL
from tests.e2e.software import policies
from tests.workloads import deployment, eventually
from webhook.kube.pods import TEMPLATE_HASH
from webhook.kube.resources import NODE
from webhook.policy.model.values import CAN_BE_PREEMPTED

PLAYED = [{"key": f"node.kubernetes.io/{state}", "operator": "Exists"} for state in ("not-ready", "unreachable")]
"""Tolerations of what a node without a kubelet may be, but not of a cordon."""


async def test_a_rolling_update_on_a_node_that_is_cordoned_is_not_to_blame(sandbox, giveway):
    """Its new pod takes free room beside what the plan frees, and then the node is cordoned: its other pods may go."""
    low, top = await sandbox.priority_class("low", 80), await sandbox.priority_class("top", 200)
    high = await sandbox.priority_class("high", 100, preemptionPolicy="Never")
    first, second = await sandbox.node("n1", cpu="8"), await sandbox.node("n2", cpu="5")
    await sandbox.pod("stays", cpu="2", priorityClassName=low, nodeName=first)
    await sandbox.victim("small", low, "1", nodeName=second)

    async def revision(number: str, replicas: int, cpu: str, class_name: str) -> None:
        """One of the two ReplicaSets of the Deployment `web` while it rolls; no controller changes their sizes."""
        body = deployment(f"web-{number}", replicas, cpu, "ReplicaSet")
        template = body["spec"]["template"]
        template["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "true"}
        template["metadata"]["labels"][TEMPLATE_HASH] = number
        template["spec"] |= {"nodeSelector": {LABEL: sandbox.id}, "tolerations": PLAYED}
        template["spec"]["priorityClassName"] = class_name
        await sandbox.client.create(f"/apis/apps/v1/namespaces/{sandbox.id}/replicasets", body)

    async def on(node: str, number: str) -> str:
        """A pod of that revision on the node."""
        pods, _ = await sandbox.client.list(sandbox.pods, dict)
        names = [one["metadata"]["name"] for one in pods if one["spec"].get("nodeName") == node]
        return next((name for name in names if name.startswith(f"web-{number}-")), "")

    await revision("1", 2, "4", low)
    leaves = str(await eventually(lambda: on(first, "1")))
    await eventually(lambda: on(second, "1"))
    held = f"{sandbox.pods}/{leaves}"
    await sandbox.client.patch(held, {"metadata": {"finalizers": ["example.com/held"]}})
    process = await giveway.reconcile(policies(high))
    await sandbox.preemptor(high, "5", tolerations=PLAYED)
    try:
        await sandbox.until(leaves, lambda one: "deletionTimestamp" in one["metadata"], 30, "leaves")
        await revision("2", 1, "1", top)
        await eventually(lambda: on(first, "2"))
        await sandbox.client.patch(NODE.path(None, first), {"spec": {"unschedulable": True}})
        ended = await eventually(lambda: process.lines("plan ended"), 30)
    finally:
        await sandbox.client.patch(held, {"metadata": {"finalizers": None}})
    assert ended[0]["ending"] == "node-changed"
    assert await sandbox.bound("p", 30) == second
