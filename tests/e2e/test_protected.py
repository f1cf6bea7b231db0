"""What nobody but giveway or their authors writes on pods, whichever way: records, the mark, costs, signals.

By the webhook with the configurations of manifests/base, and by the API server alone.
"""

import json
from contextlib import suppress
from typing import Any

import pytest

from tests.clusters.embedded.webhook_server import WebhookServer, configuration, patching, set_field
from tests.e2e.conftest import LABEL
from tests.e2e.native import BY, enforced
from tests.e2e.software import PATHS, RECONCILER, manifest
from tests.inspection import command
from tests.workloads import Json, deployment, eventually, pod, refusal, refused
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.pods import POD_DELETION_COST
from webhook.kube.resources import DEPLOYMENT
from webhook.policy.model.values import (
    CAN_BE_PREEMPTED,
    CREATION,
    DECISION,
    GIVEN,
    MANAGED,
    MARK,
    PLAN,
    PROTECTION_DURATION,
)

FORGED = '{"id":"x","node":"n","attempt":-1000000}'
SAVED, KARPENTER = "example.com/saved-at", "karpenter.sh/do-not-disrupt"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
OWN = {PLAN: FORGED, DECISION: FORGED, GIVEN: "{}", CREATION: "{}"}
"""What giveway alone writes."""
WRITTEN = {POD_DELETION_COST: "2147483647", SAVED: "2199-01-01T00:00:00Z", KARPENTER: "true", SAFE: "false"}
"""What whoever makes a pod may say, and nobody later."""
SHIELDED = {**WRITTEN, CAN_BE_PREEMPTED: "true", PROTECTION_DURATION: "60"}
GRACE = "{!r} in object.metadata.annotations ? object.spec.?terminationGracePeriodSeconds.orValue(30) <= 600 : true"


def documents(sandbox: Any) -> str:
    """A class is managed, these keys are read, two are copied from classes; long grace periods are refused."""
    victims = {
        "cost": {"deletionCost": True, "lostWork": {"checkpoints": [SAVED]}},
        "signals": [
            {"annotation": KARPENTER, "protects": ["true"], "duration": True},
            {"annotation": SAFE, "protects": ["false"]},
        ],
    }
    rules = [
        {"name": "grace", "validate": {"expression": GRACE.format(CAN_BE_PREEMPTED), "message": "end soon"}},
        {"name": "copy", "copyAnnotations": [CAN_BE_PREEMPTED, PROTECTION_DURATION]},
    ]
    managed = {"preemptors": {"priorityClasses": [f"{sandbox.id}-managed"]}, "victims": victims}
    return manifest(PreemptionPolicy=managed, PriorityPolicy={"match": {"namespaces": [sandbox.id]}, "rules": rules})


def lasting(sandbox: Any, name: str, seconds: int) -> Json:
    """A preemptible pod with a grace period."""
    body = pod(name, nodeSelector={LABEL: sandbox.id}, terminationGracePeriodSeconds=seconds)
    body["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "true"}
    return body


def binding(sandbox: Any, node: str, **metadata: Any) -> Json:
    """A Binding of the pod `bare`."""
    meta = {"name": "bare", "namespace": sandbox.id, **metadata}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}


async def shields(sandbox: Any) -> bool:
    """Whether it holds what giveway alone writes: an API server takes one configuration after the other into use."""
    probe, stray = pod("probe", nodeSelector={LABEL: sandbox.id}), binding(sandbox, "none", annotations=OWN)
    probe["metadata"]["annotations"] = OWN
    said = await refusal(sandbox.client.create(f"{sandbox.pods}/bare/binding", stray, dryRun="All"))
    with suppress(ApiError):  # what takes them off a new pod comes into use after what refuses them, or before
        made = await sandbox.client.create(sandbox.pods, probe, dryRun="All")
        return "builtin/own-annotations" in said and PLAN not in made["metadata"].get("annotations", {})
    return False


async def at_work(sandbox: Any) -> bool:
    """Whether the rule holds, too."""
    long = sandbox.client.create(sandbox.pods, lasting(sandbox, "probe", 601), dryRun="All")
    return "e2e/grace" in await refusal(long) and await shields(sandbox)


@BY
async def test_nobody_writes_protected_keys(sandbox, giveway, native):
    """On a pod that exists nobody sets, changes or removes one, by the pod, its status, a Binding or apply.

    A kubelet's update of the status passes, and so do the reconciler's and the scheduler's.
    """
    client, node = sandbox.client, await sandbox.node("n1")
    await sandbox.pod("bare", schedulerName="nobody")
    path, ways = (
        f"{sandbox.pods}/bare",
        (f"{sandbox.pods}/bare/binding", f"{sandbox.pods.removesuffix('pods')}bindings"),
    )
    async with enforced(sandbox, giveway, documents(sandbox), lambda: at_work(sandbox), native=native):
        full = pod("full", schedulerName="nobody")
        full["metadata"]["annotations"] = WRITTEN
        await client.create(sandbox.pods, full)
        rules = dict.fromkeys(OWN, "builtin/own-annotations") | dict.fromkeys(SHIELDED, "builtin/shield")
        for key, rule in (rules | {MARK: "builtin/mark"}).items():
            metadata = {"labels": {MARK: MANAGED}} if key == MARK else {"annotations": {key: {**OWN, **SHIELDED}[key]}}
            applied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare", **metadata}}
            for one in (path, f"{path}/status"):
                await refused(client.patch(one, {"metadata": metadata}), rule)
                await refused(client.patch(one, applied, kind="apply", fieldManager="tenant", force="true"), rule)
            for way in ways:
                await refused(client.create(way, binding(sandbox, node, **metadata)), rule)
        for key, value in WRITTEN.items():
            for change in (value[:-1], None):
                for one in (f"{sandbox.pods}/full", f"{sandbox.pods}/full/status"):
                    await refused(client.patch(one, {"metadata": {"annotations": {key: change}}}), "builtin/shield")
        condition = {"type": "example.com/Seen", "status": "True"}
        await client.patch(f"{path}/status", {"status": {"conditions": [condition]}}, kind="strategic")
        await client.patch(f"{path}/status", {"metadata": {"annotations": {"example.com/a": "b"}}})
        async with await Client.connect(await giveway.kubeconfig_of(RECONCILER)) as reconciler:
            for value in ("{}", None):
                await reconciler.patch(f"{path}/status", {"metadata": {"annotations": {PLAN: value}}})
        harmless = binding(sandbox, node, labels={"example.com/zone": "z"}, annotations={"example.com/c": "d"})
        await client.create(ways[0], harmless)
        found = await sandbox.get("bare")
        assert found["spec"]["nodeName"] == node
        assert found["metadata"]["annotations"]["example.com/a"] == "b"
        assert not {*OWN, *SHIELDED, MARK} & {*found["metadata"]["annotations"], *found["metadata"]["labels"]}
        assert WRITTEN.items() <= (await sandbox.get("full"))["metadata"]["annotations"].items()
        await sandbox.pod("scheduled")
        assert await sandbox.bound("scheduled") == node


@BY
async def test_what_a_new_pod_may_say(sandbox, giveway, native):
    """A template and a pod keep what their author says, and a copied manifest loses what giveway writes."""
    async with enforced(sandbox, giveway, documents(sandbox), lambda: at_work(sandbox), native=native):
        template = deployment("d", 0)
        template["spec"]["template"]["metadata"]["annotations"] = WRITTEN
        await sandbox.client.create(DEPLOYMENT.path(sandbox.id), template, dryRun="All")
        body = pod("p", labels={MARK: MANAGED, "app": "p"}, nodeSelector={LABEL: sandbox.id})
        body["metadata"]["annotations"] = {**OWN, **WRITTEN}
        await sandbox.client.create(sandbox.pods, body)
        found = (await sandbox.get("p"))["metadata"]
        assert not {PLAN, DECISION, GIVEN} & found["annotations"].keys()
        assert found["annotations"].get(CREATION) != "{}"
        assert WRITTEN.items() <= found["annotations"].items()
        assert found["labels"] == {"app": "p"}
        await refused(sandbox.client.create(sandbox.pods, lasting(sandbox, "long", 601)), "e2e/grace")
        await sandbox.client.create(sandbox.pods, lasting(sandbox, "short", 600), dryRun="All")


@pytest.mark.kubectl
@BY
async def test_kubectl_says_why(sandbox, giveway, kubectl, native):
    """`kubectl patch --subresource=status` is refused like `kubectl annotate`, with the rule's name."""
    await sandbox.pod("bare", schedulerName="nobody")
    here = ("pod", "bare", "-n", sandbox.id)
    async with enforced(sandbox, giveway, documents(sandbox), lambda: at_work(sandbox), native=native):
        body = json.dumps({"metadata": {"annotations": {CAN_BE_PREEMPTED: "true"}}})
        output = await kubectl("patch", *here, "--subresource=status", "--type=merge", "-p", body, code=1)
        done = "changed" if native else 'set to "true"'
        assert f"annotation {CAN_BE_PREEMPTED} may not be {done}: rule builtin/shield" in output
        output = await kubectl("annotate", *here, f"{PLAN}={FORGED}", code=1)
        assert f"annotation {PLAN} is giveway's own record" in output


async def test_what_giveway_gave_follows_a_class_that_another_webhook_sets(sandbox, giveway, tmp_path):
    """A later webhook makes a managed pod one of a plain class: mark and copies go, and nobody is blamed for them."""
    offline = {CAN_BE_PREEMPTED: "true", PROTECTION_DURATION: "30"}
    managed = await sandbox.priority_class("managed", 100, preemptionPolicy="Never")
    await sandbox.client.patch(
        f"/apis/scheduling.k8s.io/v1/priorityclasses/{managed}", {"metadata": {"annotations": offline}}
    )
    plain = await sandbox.priority_class("plain", 200)
    other = WebhookServer(
        tmp_path,
        patching(
            set_field("/spec/priorityClassName", plain),
            set_field("/spec/priority", 200),
            set_field("/spec/preemptionPolicy", "PreemptLowerPriority"),
        ),
    )
    async with enforced(sandbox, giveway, documents(sandbox), lambda: at_work(sandbox), native=False), other:
        await sandbox.pod("before", priorityClassName=managed)
        found = (await sandbox.get("before"))["metadata"]
        assert offline.items() <= found["annotations"].items()
        assert found["labels"][MARK] == MANAGED
        mine = {"matchLabels": {"kubernetes.io/metadata.name": sandbox.id}}
        hook = other.hook(namespaceSelector=mine)
        path = PATHS["MutatingWebhookConfiguration"]
        await sandbox.client.create(path, configuration("Mutating", f"zz-{sandbox.id}", hook))
        try:
            body = pod("after", priorityClassName=managed, nodeSelector={LABEL: sandbox.id})
            body["metadata"]["annotations"] = {PROTECTION_DURATION: "60"}

            async def asked() -> bool:
                await sandbox.client.create(sandbox.pods, pod("probe"), dryRun="All")
                return bool(other.reviews)

            await eventually(asked, 20, "the other webhook is asked")
            await sandbox.client.create(sandbox.pods, body)
        finally:
            await sandbox.client.delete(f"{path}/zz-{sandbox.id}")
        found = await sandbox.get("after")
        assert (found["spec"]["priorityClassName"], found["spec"]["priority"]) == (plain, 200)
        own = {key: value for key, value in found["metadata"]["annotations"].items() if key in offline}
        assert own == {PROTECTION_DURATION: "60"}
        assert MARK not in found["metadata"]["labels"]


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
        said = await command.giveway("doctor", "--kubeconfig", kubeconfig, "--policies", str(tmp_path), "--format=json")
        findings = [one for one in json.loads(said.stdout)["findings"] if one["check"] == "budgets-never-allowing"]
        return f"{sandbox.id}/never" in str(findings) and f"{sandbox.id}/sometimes" not in str(findings)

    await eventually(told, 20, "the doctor tells of the budget")
