"""What tenants write is shielded, whichever way they write it: costs, checkpoints, signals, grace periods, budgets."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.conftest import LABEL
from tests.e2e.native import natively
from tests.e2e.software import installed, manifest
from tests.inspection.command import giveway
from tests.workloads import eventually, pod, refusal, refused
from webhook.kube.pods import POD_DELETION_COST
from webhook.policy.files.loading import load_or_raise
from webhook.policy.model.values import CAN_BE_PREEMPTED

SAVED = "example.com/saved-at"
KARPENTER = "karpenter.sh/do-not-disrupt"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
KEYS = {POD_DELETION_COST: "2147483647", SAVED: "2199-01-01T00:00:00Z", KARPENTER: "true", SAFE: "false"}
GRACE = "{!r} in object.metadata.annotations ? object.spec.?terminationGracePeriodSeconds.orValue(30) <= 600 : true"


def documents(sandbox: Any) -> str:
    """A policy that reads these keys, and a rule against long grace periods of preemptible pods."""
    victims = {
        "cost": {"deletionCost": True, "lostWork": {"checkpoints": [SAVED]}},
        "signals": [
            {"annotation": KARPENTER, "protects": ["true"], "duration": True},
            {"annotation": SAFE, "protects": ["false"]},
        ],
    }
    rule = {"name": "grace", "validate": {"expression": GRACE.format(CAN_BE_PREEMPTED), "message": "end soon"}}
    managed = {"preemptors": {"priorityClasses": [f"{sandbox.id}-managed"]}, "victims": victims}
    return manifest(PreemptionPolicy=managed, PriorityPolicy={"match": {"namespaces": [sandbox.id]}, "rules": [rule]})


def lasting(sandbox: Any, name: str, seconds: int) -> dict[str, Any]:
    """A preemptible pod with a grace period."""
    body = pod(name, nodeSelector={LABEL: sandbox.id}, terminationGracePeriodSeconds=seconds)
    body["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "true"}
    return body


async def at_work(sandbox: Any) -> bool:
    """Whether both the rule and the shield are in force by now."""
    stray = {"metadata": {"name": "p", "annotations": KEYS}, "target": {"kind": "Node", "name": "none"}}
    binding = await refusal(sandbox.client.create(f"{sandbox.pods}/p/binding", stray, dryRun="All"))
    said = await refusal(sandbox.client.create(sandbox.pods, lasting(sandbox, "probe", 601), dryRun="All"))
    return "builtin/shield" in binding and "e2e/grace" in said


async def nobody_writes_them(sandbox: Any) -> None:
    """A new pod has what its author writes; on a pod that exists nobody sets, changes or removes it, by any way."""
    client, node = sandbox.client, await sandbox.node("n1")
    deployment = {
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "d"}},
            "template": {**pod("d", labels={"app": "d"}), "metadata": {"labels": {"app": "d"}, "annotations": KEYS}},
        },
    }
    await client.create(f"/apis/apps/v1/namespaces/{sandbox.id}/deployments", deployment, dryRun="All")
    full = pod("full", schedulerName="nobody")
    full["metadata"]["annotations"] = KEYS
    await client.create(sandbox.pods, full)
    await client.create(sandbox.pods, pod("bare", schedulerName="nobody"))
    for key, value in KEYS.items():
        for name, change in (("bare", value), ("full", value[:-1]), ("full", None)):
            body = {"metadata": {"annotations": {key: change}}}
            for path in (f"{sandbox.pods}/{name}", f"{sandbox.pods}/{name}/status"):
                await refused(client.patch(path, body), "builtin/shield")
        for path in (f"{sandbox.pods}/bare", f"{sandbox.pods}/bare/status"):
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare", "annotations": {key: value}}}
            await refused(client.patch(path, body, kind="apply", fieldManager="tenant", force="true"), "builtin/shield")
        stray = {"metadata": {"name": "bare", "annotations": {key: value}}, "target": {"kind": "Node", "name": node}}
        await refused(client.create(f"{sandbox.pods}/bare/binding", stray), "builtin/shield")
    assert not KEYS.keys() & (await sandbox.get("bare"))["metadata"].get("annotations", {}).keys()
    assert KEYS.items() <= (await sandbox.get("full"))["metadata"]["annotations"].items()
    await refused(client.create(sandbox.pods, lasting(sandbox, "long", 601)), "e2e/grace")
    await client.create(sandbox.pods, lasting(sandbox, "short", 600), dryRun="All")


async def test_the_webhook_keeps_what_costs_and_signals_say(sandbox, kubeconfig, tmp_path):
    """With the webhook: at creation, by the pod, its status, a Binding and server-side apply."""
    async with installed(sandbox.client, kubeconfig, tmp_path) as software:
        await software.serve(documents(sandbox))
        await sandbox.pod("p", schedulerName="nobody")
        await eventually(lambda: at_work(sandbox), 20, "the webhook is at work")
        await nobody_writes_them(sandbox)


async def test_native_policies_keep_what_costs_and_signals_say(sandbox, tmp_path):
    """The same without a webhook."""
    (tmp_path / "policies.yaml").write_text(documents(sandbox))
    await sandbox.pod("p", schedulerName="nobody")
    async with natively(sandbox, load_or_raise(tmp_path), whole=True):
        await eventually(lambda: at_work(sandbox), 60, "the policies are in force")
        await nobody_writes_them(sandbox)


async def test_a_budget_that_never_allows_anything_is_told(sandbox, kubeconfig, tmp_path):
    """`giveway doctor` names the budget over preemptible pods that nobody can ever evict, and not another one."""
    (tmp_path / "policies.yaml").write_text(documents(sandbox))
    await sandbox.node("n1")
    low = await sandbox.priority_class("low", 80)
    await sandbox.budget("never", {"app": "kept"}, maxUnavailable=0)
    await sandbox.budget("sometimes", {"app": "free"}, minAvailable=0)
    for app in ("kept", "free"):
        await sandbox.victim(app, low, "100m")

    async def told() -> bool:
        said = await giveway("doctor", "--kubeconfig", kubeconfig, "--policies", str(tmp_path), "--format", "json")
        findings = [one for one in json.loads(said.stdout)["findings"] if one["check"] == "budgets-never-allowing"]
        return f"{sandbox.id}/never" in str(findings) and f"{sandbox.id}/sometimes" not in str(findings)

    await eventually(told, 20, "the doctor tells of the budget")
