"""The webhook on a cluster: what it refuses, who is refused while it is gone, and what becomes of entries and policies.

The test of a client certificate needs an API server that was started with `--admission-control-config-file`, which the
embedded one has not (CONTRIBUTING.md).
"""

import os
import signal
import ssl
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from ruamel.yaml import YAML

from tests.admission.builders import make_pod, make_review
from tests.e2e.native import RESOURCES
from tests.e2e.software import (
    APPLIED,
    CONFIGURATIONS,
    FORBIDDEN_IMAGE,
    FORBIDDEN_POD,
    NO_IMAGE,
    manifest,
    policy_map,
    rule,
)
from tests.e2e.users import granted
from tests.manifests.objects import COMPONENTS, documents
from tests.workloads import eventually, fills_in_priorities, pod, refusal, refused, served, until_refused
from webhook.component_base.own_names import SYSTEM_NAMESPACE, WEBHOOK
from webhook.kube.client import Client
from webhook.kube.resources import CONFIG_MAP, NAMESPACE, POD, PRIORITY_CLASS, VALIDATING_ADMISSION_POLICY
from webhook.registration.entries import EXEMPT

LEADER = {"control-plane.alpha.kubernetes.io/leader": "me"}
FORBIDDEN = rule("none", priorityClasses={"deny": ["*-forbidden"]})
WITHOUT = rule("other", priorityClasses={"deny": ["nothing"]})
TOO_LARGE = "rule builtin/size: the review of this request is larger than 8388608 bytes"
FILES = os.environ.get("GIVEWAY_CLIENT_FILES", "")
"""The directory that `giveway certs client --url https://127.0.0.1:PORT` made, and the API server was started with."""


async def is_open(sandbox) -> bool:
    """Whether pods are made, whatever became of the webhook."""
    return not await refusal(sandbox.dry(pod("tried")))


async def is_closed(sandbox) -> bool:
    """Whether no pod is made without the webhook."""
    return "failed calling webhook" in await refusal(sandbox.dry(pod("tried")))


async def test_who_waits_for_a_webhook_that_is_gone(sandbox, giveway):
    """It fails closed for new pods and for what policies read, and for nothing else; each break-glass opens."""
    path = f"{sandbox.pods}/elected"
    server = await giveway.serve(FORBIDDEN_IMAGE)
    await sandbox.client.create(sandbox.pods, pod("elected"))
    await refused(sandbox.client.create(sandbox.pods, FORBIDDEN_POD), "e2e/no-image")

    assert await server.stop(signal.SIGKILL) == -signal.SIGKILL
    assert await is_closed(sandbox)
    await sandbox.client.patch(path, {"metadata": {"annotations": LEADER, "labels": {"role": "leader"}}})
    marked = sandbox.client.patch(path, {"metadata": {"labels": {"giveway.dev/preemption": "managed"}}})
    assert "failed calling webhook" in await refusal(marked)

    namespace = NAMESPACE.path(None, sandbox.id)
    await sandbox.client.patch(namespace, {"metadata": {"labels": {EXEMPT: ""}}})
    await eventually(lambda: is_open(sandbox), 10)
    await sandbox.client.patch(namespace, {"metadata": {"labels": {EXEMPT: None}}})
    await eventually(lambda: is_closed(sandbox), 10)
    await giveway.unregister()
    await eventually(lambda: is_open(sandbox), 10)


async def test_what_somebody_changes_is_put_back(sandbox, giveway):
    """Emptied or opened by hand, the entries are back after a sync period, and a new policy widens them."""
    await giveway.serve(FORBIDDEN_IMAGE)
    mutating, validating = CONFIGURATIONS
    before = await giveway.entries()
    await sandbox.client.patch(mutating, {"webhooks": []})
    opened = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
    await sandbox.client.patch(validating, opened, kind="json")

    async def put_back() -> bool:
        return await giveway.entries() == before

    await eventually(put_back, 15)

    async def reads_labels() -> bool:
        _, [entry, *_] = await giveway.entries()
        return "metadata.?labels !=" in entry["matchConditions"][0]["expression"]

    assert not await reads_labels()
    expressions = {"no-image": NO_IMAGE, "labels": "size(object.metadata.labels) < 9"}
    rules = [{"name": name, "validate": {"expression": text}} for name, text in expressions.items()]
    giveway.policies("served", manifest(PriorityPolicy={"rules": rules}))
    await eventually(reads_labels, 15)


async def test_a_server_that_nobody_follows_opens_the_door(sandbox, giveway):
    """Told to end in a rollout it leaves the entries; without replicas to follow it empties them."""
    await giveway.deployment(replicas=1)
    server = await giveway.serve(FORBIDDEN_IMAGE, deployment=WEBHOOK)
    assert await server.stop() == 0
    assert await is_closed(sandbox)
    server = await giveway.serve(FORBIDDEN_IMAGE, deployment=WEBHOOK)
    await giveway.deployment(replicas=0)
    assert await server.stop() == 0
    await eventually(lambda: is_open(sandbox), 10)


async def test_without_the_priority_plugin_pods_have_their_priorities(sandbox, giveway):
    """Pods get the value and the policy of their class, the system's too, and none of a class that does not exist."""
    if await fills_in_priorities(sandbox.client):
        pytest.skip("the API server has its Priority plugin")
    name = await sandbox.priority_class("plain", 70, preemptionPolicy="Never")
    await giveway.serve(FORBIDDEN_IMAGE, "--priority-plugin-off")
    critical = ("kube-system", "system-node-critical", 2_000_001_000, "PreemptLowerPriority")
    for namespace, class_name, value, policy in ((sandbox.id, name, 70, "Never"), critical):
        create = partial(sandbox.client.create, POD.path(namespace), dryRun="All")
        made = await create(pod("resolved", priorityClassName=class_name))
        assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (value, policy)
        await refused(create(pod("resolved", priorityClassName="ghost")), "no PriorityClass with name ghost")


async def test_who_may_exempt_a_namespace(sandbox, giveway):
    """The shipped policy lets administrators set the label, and nobody else who may change a namespace."""
    await served(sandbox.client.list(VALIDATING_ADMISSION_POLICY.path(), dict), "ValidatingAdmissionPolicies")
    account, path = f"{sandbox.id}-tenant", NAMESPACE.path(None, sandbox.id)
    rights = {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": [sandbox.id], "verbs": ["get", "patch"]}
    for obj in documents(COMPONENTS / "exempt-label" / "policy.yaml"):
        await sandbox.create(RESOURCES[obj["kind"]], obj)
    await granted(sandbox, account, [await giveway.account(account)], rules=[rights])
    async with await Client.connect(await giveway.kubeconfig_of(account)) as tenant:
        exempt = {"metadata": {"labels": {EXEMPT: ""}}}
        await until_refused(lambda: tenant.patch(path, exempt, dryRun="All"), "giveway-exempt-label", 15)
        await tenant.patch(path, {"metadata": {"labels": {"other": "label"}}})
    await sandbox.client.patch(path, exempt)


async def test_what_is_in_force_outlives_broken_files(sandbox, giveway):
    """A typo and a lost rule are refused when applied; a server restarted on such files goes by what was in force."""
    denied = pod("tried", priorityClassName=await sandbox.priority_class("forbidden", 7))
    server = await giveway.serve(FORBIDDEN)
    await refused(sandbox.dry(denied), "e2e/none")
    await sandbox.client.create(CONFIG_MAP.path(SYSTEM_NAMESPACE), policy_map(FORBIDDEN))
    typo = FORBIDDEN.replace("deny", "denny")
    for text, words in ((typo, "unknown field"), (WITHOUT, "e2e/none: the rule is gone")):
        await refused(sandbox.client.patch(APPLIED, policy_map(text)), words)

    assert await server.stop(signal.SIGKILL) == -signal.SIGKILL
    server = await giveway.serve(typo)
    await refused(sandbox.dry(denied), "e2e/none")
    await eventually(lambda: server.says("the set in force stays"))
    meant = {"metadata": {"annotations": {"giveway.dev/allow-removal": "e2e/none"}}}
    await sandbox.client.patch(APPLIED, {**meant, "data": policy_map(WITHOUT)["data"]})


async def test_a_padded_object_is_refused_by_a_verdict(sandbox, giveway):
    """A review spends six bytes on each `<`, so that an object which an API server takes can be too large for it."""
    padded = {"metadata": {"name": f"{sandbox.id}-padded"}, "value": 7, "description": "<" * 1_430_000}
    band = {"from": 876_544_000, "to": 876_544_000, "use": [{"namespaces": ["nobody"]}]}
    await giveway.serve(rule("urgent", reserve=band))
    await until_refused(lambda: sandbox.client.create(PRIORITY_CLASS.path(), padded, dryRun="All"), TOO_LARGE, 20)


@pytest.mark.skipif(not FILES, reason="GIVEWAY_CLIENT_FILES names no files that the API server was started with")
async def test_only_the_api_server_gets_in(sandbox, giveway, tmp_path):
    """Reviews come through with the certificate, policies are enforced; nobody without it gets past the handshake."""
    [user] = YAML(typ="safe").load(Path(FILES) / "webhooks.kubeconfig")["users"]
    url = f"https://{user['name']}"
    options = [f"--client-ca-file={FILES}/ca.crt", f"--url={url}", f"--secure-port={url.rpartition(':')[2]}"]
    server = await giveway.serve(FORBIDDEN_IMAGE, *options, reached=False)
    await eventually(lambda: giveway.in_force(url), 30)
    await sandbox.client.create(sandbox.pods, pod("good"))
    await refused(sandbox.client.create(sandbox.pods, FORBIDDEN_POD), "e2e/no-image")

    trust = ssl.create_default_context(cafile=str(tmp_path / "certs" / "ca.crt"))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        for _ in range(20):
            with pytest.raises(aiohttp.ClientError):
                await session.post(f"{url}/validate", json=make_review(make_pod()))
    assert not [line for line in server.lines() if line.get("user") == "alice"]
    await sandbox.client.create(sandbox.pods, pod("another"))
