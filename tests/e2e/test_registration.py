"""The webhook configurations on a cluster: who is refused while the server works, is gone, and is taken away."""

import signal
from contextlib import suppress
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.e2e.software import FORBIDDEN_IMAGE, SYSTEM
from tests.e2e.users import granted
from tests.workloads import eventually, pod, refusal, served, until_refused
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.resources import NAMESPACE
from webhook.registration.entries import EXEMPT

POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
COMPONENT = Path(__file__).parents[2] / "manifests" / "components" / "exempt-label" / "policy.yaml"
LEADER = {"control-plane.alpha.kubernetes.io/leader": "me"}


async def makes(sandbox) -> str:
    """Why a pod cannot be made now, or nothing."""
    return await refusal(sandbox.client.create(sandbox.pods, pod("tried"), dryRun="All"))


async def test_who_waits_for_a_webhook_that_is_gone(sandbox, giveway):
    """It fails closed for new pods and for what policies read, and for nothing else; each break-glass opens."""
    path = f"{sandbox.pods}/elected"
    server = await giveway.serve(FORBIDDEN_IMAGE)
    await sandbox.client.create(sandbox.pods, pod("elected"))
    refused = pod("refused")
    refused["spec"]["containers"][0]["image"] = "forbidden"
    with pytest.raises(ApiError, match="e2e/no-image"):
        await sandbox.client.create(sandbox.pods, refused)

    assert await server.stop(signal.SIGKILL) == -signal.SIGKILL
    assert "failed calling webhook" in await makes(sandbox)
    await sandbox.client.patch(path, {"metadata": {"annotations": LEADER, "labels": {"role": "leader"}}})
    with pytest.raises(ApiError, match="failed calling webhook"):
        await sandbox.client.patch(path, {"metadata": {"labels": {"giveway.dev/preemption": "managed"}}})

    namespace = NAMESPACE.path(None, sandbox.id)
    await sandbox.client.patch(namespace, {"metadata": {"labels": {EXEMPT: ""}}})
    await eventually(lambda: open_for(sandbox), 10)
    await sandbox.client.patch(namespace, {"metadata": {"labels": {EXEMPT: None}}})
    await eventually(lambda: closed_for(sandbox), 10)
    await giveway.unregister()
    await eventually(lambda: open_for(sandbox), 10)


async def test_what_somebody_changes_is_put_back(sandbox, giveway):
    """Emptied or opened by hand, the entries are back after a sync period, and a new policy widens them."""
    await giveway.serve(FORBIDDEN_IMAGE)
    mutating, validating = giveway.configurations
    before = [(await sandbox.client.get(path))["webhooks"] for path in giveway.configurations]
    await sandbox.client.patch(mutating, {"webhooks": []})
    opened = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
    await sandbox.client.patch(validating, opened, kind="json")

    async def put_back() -> bool:
        return [(await sandbox.client.get(path)).get("webhooks") for path in giveway.configurations] == before

    await eventually(put_back, 15)

    async def reads_labels() -> bool:
        entry = (await sandbox.client.get(validating))["webhooks"][0]
        return "metadata.?labels !=" in entry["matchConditions"][0]["expression"]

    assert not await reads_labels()
    rule = '  - name: labels\n    validate: {expression: "size(object.metadata.labels) < 9"}\n'
    (giveway.directory / "served" / "policies.yaml").write_text(FORBIDDEN_IMAGE + rule)
    await eventually(reads_labels, 15)


async def test_a_server_that_nobody_follows_opens_the_door(sandbox, giveway):
    """Told to end in a rollout it leaves the entries; without replicas to follow it empties them."""
    await giveway.deployment(replicas=1)
    server = await giveway.serve(FORBIDDEN_IMAGE, deployment="giveway-webhook")
    assert await server.stop() == 0
    assert await closed_for(sandbox)
    server = await giveway.serve(FORBIDDEN_IMAGE, deployment="giveway-webhook")
    await giveway.deployment(replicas=0)
    assert await server.stop() == 0
    await eventually(lambda: open_for(sandbox), 10)


async def open_for(sandbox) -> bool:
    return not await makes(sandbox)


async def closed_for(sandbox) -> bool:
    return "failed calling webhook" in await makes(sandbox)


async def test_who_may_exempt_a_namespace(sandbox, giveway):
    """The shipped policy lets administrators set the label, and nobody else who may change a namespace."""
    await served(sandbox.client.get(POLICY), "ValidatingAdmissionPolicies")
    account, path = f"{sandbox.id}-tenant", NAMESPACE.path(None, sandbox.id)
    rule = {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": [sandbox.id], "verbs": ["get", "patch"]}
    made = []
    try:
        for obj in YAML(typ="safe").load_all(COMPONENT.read_text()):
            where = POLICY if obj["kind"] == "ValidatingAdmissionPolicy" else f"{POLICY.removesuffix('ies')}ybindings"
            await sandbox.client.create(where, obj)
            made.append(f"{where}/{obj['metadata']['name']}")
        await giveway.account(account)
        subject = {"kind": "ServiceAccount", "name": account, "namespace": SYSTEM}
        await granted(sandbox, account, [subject], rules=[rule])
        async with await Client.connect(await giveway.kubeconfig_of(account)) as tenant:
            exempt = {"metadata": {"labels": {EXEMPT: ""}}}
            await until_refused(lambda: tenant.patch(path, exempt, dryRun="All"), "giveway-exempt-label", 15)
            await tenant.patch(path, {"metadata": {"labels": {"other": "label"}}})
        await sandbox.client.patch(path, {"metadata": {"labels": {EXEMPT: ""}}})
    finally:
        for one in reversed(made):
            with suppress(ApiError):
                await sandbox.client.delete(one)
