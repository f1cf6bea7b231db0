"""What nobody but giveway or their authors writes on pods, whichever way: records, the mark, costs, signals.

By the webhook with the configurations of manifests/base, and by the API server alone.
"""

import asyncio
import json
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import pytest

from tests.clusters.embedded.webhook_server import WebhookServer, configuration, patching, set_field
from tests.e2e.native import BY, enforced
from tests.e2e.software import Software, manifest, policies
from tests.e2e.users import granted, user
from tests.workloads import Json, deployment, eventually, pod, refusal, refused
from webhook.component_base.own_names import RECONCILER
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.pods import POD_DELETION_COST
from webhook.kube.resources import DEPLOYMENT, MUTATING_WEBHOOK_CONFIGURATION
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


def lasting(name: str, seconds: int) -> Json:
    """A preemptible pod with a grace period."""
    body = pod(name, terminationGracePeriodSeconds=seconds)
    body["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "true"}
    return body


def binding(sandbox: Any, node: str, **metadata: Any) -> Json:
    """A Binding of the pod `bare`."""
    meta = {"name": "bare", "namespace": sandbox.id, **metadata}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}


async def shields(sandbox: Any) -> bool:
    """Whether it holds what giveway alone writes: an API server takes one configuration after the other into use."""
    probe, stray = pod("probe"), binding(sandbox, "none", annotations=OWN)
    probe["metadata"]["annotations"] = OWN
    said = await refusal(sandbox.client.create(f"{sandbox.pods}/bare/binding", stray, dryRun="All"))
    with suppress(ApiError):  # what takes them off a new pod comes into use after what refuses them, or before
        made = await sandbox.dry(probe)
        return "builtin/own-annotations" in said and PLAN not in made["metadata"].get("annotations", {})
    return False


async def at_work(sandbox: Any) -> bool:
    """Whether the rule holds, too."""
    return "e2e/grace" in await refusal(sandbox.dry(lasting("probe", 601))) and await shields(sandbox)


def judged(sandbox: Any, giveway: Software, *, native: bool) -> AbstractAsyncContextManager[None]:
    """The policies hold."""
    return enforced(sandbox, giveway, documents(sandbox), lambda: at_work(sandbox), native=native)


@BY
async def test_nobody_writes_protected_keys(sandbox, giveway, native):
    """On a pod that exists nobody sets, changes or removes one, by the pod, its status, a Binding or apply.

    A kubelet's update of the status passes, and so do the reconciler's and the scheduler's.
    """
    client, node = sandbox.client, await sandbox.node("n1")
    await sandbox.pod("bare", schedulerName="nobody")
    path = f"{sandbox.pods}/bare"
    ways = (f"{path}/binding", f"{sandbox.pods.removesuffix('pods')}bindings")
    async with judged(sandbox, giveway, native=native):
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
    async with judged(sandbox, giveway, native=native):
        template = deployment("d", 0)
        template["spec"]["template"]["metadata"]["annotations"] = WRITTEN
        await sandbox.client.create(DEPLOYMENT.path(sandbox.id), template, dryRun="All")
        body = {"labels": {MARK: MANAGED, "app": "p"}, "annotations": {**OWN, **WRITTEN}}
        found = (await sandbox.pod("p", **body))["metadata"]
        assert not {PLAN, DECISION, GIVEN} & found["annotations"].keys()
        assert found["annotations"].get(CREATION) != "{}"
        assert WRITTEN.items() <= found["annotations"].items()
        assert found["labels"] == {"app": "p"}
        await refused(sandbox.client.create(sandbox.pods, lasting("long", 601)), "e2e/grace")
        await sandbox.dry(lasting("short", 600))


@pytest.mark.kubectl
@BY
async def test_kubectl_says_why(sandbox, giveway, kubectl, native):
    """`kubectl patch --subresource=status` is refused like `kubectl annotate`, with the rule's name."""
    await sandbox.pod("bare", schedulerName="nobody")
    here = ("pod", "bare", "-n", sandbox.id)
    async with judged(sandbox, giveway, native=native):
        body = json.dumps({"metadata": {"annotations": {CAN_BE_PREEMPTED: "true"}}})
        output = await kubectl("patch", *here, "--subresource=status", "--type=merge", "-p", body, code=1)
        done = "changed" if native else 'set to "true"'
        assert f"annotation {CAN_BE_PREEMPTED} may not be {done}: rule builtin/shield" in output
        output = await kubectl("annotate", *here, f"{PLAN}={FORGED}", code=1)
        assert f"annotation {PLAN} is giveway's own record" in output


async def test_what_giveway_gave_follows_a_class_that_another_webhook_sets(sandbox, giveway, tmp_path):
    """A later webhook makes a managed pod one of a plain class: mark and copies go, and nobody is blamed for them."""
    offline = {CAN_BE_PREEMPTED: "true", PROTECTION_DURATION: "30"}
    managed = await sandbox.priority_class("managed", 100, offline, preemptionPolicy="Never")
    plain = await sandbox.priority_class("plain", 200)
    other = WebhookServer(
        tmp_path,
        patching(
            set_field("/spec/priorityClassName", plain),
            set_field("/spec/priority", 200),
            set_field("/spec/preemptionPolicy", "PreemptLowerPriority"),
        ),
    )
    async with judged(sandbox, giveway, native=False), other:
        made = await sandbox.pod("before", priorityClassName=managed)
        assert offline.items() <= made["metadata"]["annotations"].items()
        assert made["metadata"]["labels"][MARK] == MANAGED
        mine = {"matchLabels": {"kubernetes.io/metadata.name": sandbox.id}}
        path, name = MUTATING_WEBHOOK_CONFIGURATION.path(), f"zz-{sandbox.id}"
        await sandbox.client.create(path, configuration("Mutating", name, other.hook(namespaceSelector=mine)))
        try:

            async def asked() -> bool:
                await sandbox.dry(pod("probe"))
                return bool(other.reviews)

            await eventually(asked, 20, "the other webhook is asked")
            found = await sandbox.pod("after", priorityClassName=managed, annotations={PROTECTION_DURATION: "60"})
        finally:
            await sandbox.client.delete(f"{path}/{name}")
        assert (found["spec"]["priorityClassName"], found["spec"]["priority"]) == (plain, 200)
        own = {key: value for key, value in found["metadata"]["annotations"].items() if key in offline}
        assert own == {PROTECTION_DURATION: "60"}
        assert MARK not in found["metadata"]["labels"]


async def test_a_budget_that_never_allows_anything_is_told(sandbox, giveway, doctor):
    """`giveway doctor` names the budget over preemptible pods that nobody can ever evict, and not another one."""
    policies = giveway.policies("policies", documents(sandbox)).parent
    await sandbox.node("n1")
    low = await sandbox.priority_class("low", 80)
    await sandbox.budget("never", {"app": "kept"}, maxUnavailable=0)
    await sandbox.budget("sometimes", {"app": "free"}, minAvailable=0)
    for app in ("kept", "free"):
        await sandbox.victim(app, low, "100m")

    async def told() -> bool:
        found = str(await doctor("budgets-never-allowing", policies=policies))
        return f"{sandbox.id}/never" in found and f"{sandbox.id}/sometimes" not in found

    await eventually(told, 20, "the doctor tells of the budget")


def marked(body: dict[str, Any], **meta: Any) -> dict[str, Any]:
    """A pod or template with the mark and further metadata."""
    body["metadata"] |= meta | {"labels": {**body["metadata"].get("labels", {}), MARK: MANAGED}}
    return body


@pytest.mark.kubectl
@BY
async def test_nothing_runs_away(sandbox, giveway, kubectl, native):
    """A tenant's controller that selects its pods by giveway's mark makes no pods without end.

    What the tenant makes with the mark: a ReplicaSet, a pod of a custom resource, and a copy of a pod. The webhook
    refuses the template. Natively templates are not judged, so it gets in, and its pods are refused.
    """
    await granted(sandbox, f"{sandbox.id}-editor", [user("e2e-tenant")], role="edit", where=sandbox.id)
    probe = marked(pod("probe", schedulerName="nobody"))

    async def holds() -> bool:
        with suppress(ApiError):
            return MARK not in (await sandbox.dry(probe))["metadata"].get("labels", {})
        return False

    async with enforced(sandbox, giveway, policies(f"{sandbox.id}-managed*"), holds, native=native):
        here = ("-f", "-", "-n", sandbox.id, "--as", "e2e-tenant")
        replicas = deployment("runaway", 1, kind="ReplicaSet")
        marked(replicas["spec"]["template"])["spec"]["schedulerName"] = "nobody"
        replicas["spec"]["selector"] = {"matchLabels": {MARK: MANAGED}}
        said = await kubectl("create", *here, stdin=replicas, code=0 if native else 1)
        assert ("builtin/mark" in said) != native
        await asyncio.sleep(2)
        assert len(await sandbox.here()) <= 1
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
        owner = json.loads(await kubectl("create", *here, "-o", "json", stdin=body))["metadata"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"], "controller": True}
        made = marked(pod("made", schedulerName="nobody"), ownerReferences=[reference])
        assert "builtin/mark" in await kubectl("create", *here, stdin=made, code=1)
        await kubectl("create", *here, stdin=marked(pod("copy", schedulerName="nobody")))
        assert MARK not in (await sandbox.get("copy"))["metadata"]["labels"]


JOB_SET, VOLCANO = "jobset.sigs.k8s.io/jobset-name", "scheduling.k8s.io/group-name"
WRITTEN_ANYWAY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "labels": ({"metadata": {"labels": {"tier": "batch"}}}, {"metadata": {"labels": {"tier": "web"}}}),
    "groups": (
        {"metadata": {"labels": {"tier": "batch"}}},
        {"metadata": {"labels": {JOB_SET: "a"}, "annotations": {VOLCANO: "g"}}},
    ),
    "starts": (
        {"status": {"startTime": "2000-01-01T00:00:00Z"}},
        {"status": {"startTime": "2099-01-01T00:00:00Z"}},
    ),
}
"""What is written on the pod that stays, and on the one that goes."""


@pytest.mark.parametrize("what", WRITTEN_ANYWAY)
@BY
async def test_what_is_written_into_the_status_decides_nothing(sandbox, giveway, native, what):
    """Who may patch `pods/status` and nothing else makes no victim of a running pod, and keeps none.

    Nothing that they write is refused: controllers relabel running pods all the time. Of two pods the one goes that
    went without it: by its label, its group, the end of its protection.
    """
    name, right = f"{sandbox.id}-status", {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}
    await granted(sandbox, name, [await giveway.account(name)], rules=[right], where=sandbox.id)
    kubeconfig = await giveway.kubeconfig_of(name)
    low, high = await sandbox.classes()
    by_label = [{"victims": {"labels": {"matchLabels": {"tier": "batch"}}}}]
    victims = {"mode": "opt-out"} | ({} if what == "starts" else {"pairs": by_label})
    given = policies(high, victims=victims, groups={"disruption": "Never"})

    async def recorded() -> bool:
        return CREATION in (await sandbox.dry(pod("probe")))["metadata"].get("annotations", {})

    async with enforced(sandbox, giveway, given, recorded, native=native), await Client.connect(kubeconfig) as writer:
        for name, tier, seconds in (("stays", "web", "3600"), ("goes", "batch", "1")):
            await sandbox.node(f"for-{name}")
            annotations = {PROTECTION_DURATION: seconds} if what == "starts" else {}
            await sandbox.run(name, "3", annotations=annotations, labels={"tier": tier}, priorityClassName=low)
        await giveway.reconcile(given)
        await refused(writer.patch(f"{sandbox.pods}/stays", {"metadata": {"labels": {"a": "b"}}}), "forbidden")
        for name, written in zip(("stays", "goes"), WRITTEN_ANYWAY[what], strict=True):
            await writer.patch(f"{sandbox.pods}/{name}/status", written)
        await sandbox.pod("preemptor", cpu="3", priorityClassName=high)
        await sandbox.bound("preemptor", 30)
        await sandbox.gone("goes")
        await asyncio.sleep(2)
        assert "stays" in await sandbox.here()
