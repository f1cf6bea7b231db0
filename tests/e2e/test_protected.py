"""The protected keys of pods against whoever writes them, whichever way: with the configurations of manifests/base."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.clusters.embedded.webhook_server import WebhookServer, configuration, patching, set_field
from tests.e2e.conftest import LABEL
from tests.e2e.software import PATHS, RECONCILER, Software, installed, manifest
from tests.workloads import eventually, pod, refusal, refused
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
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
ANNOTATIONS = [PLAN, DECISION, GIVEN, CREATION, CAN_BE_PREEMPTED, PROTECTION_DURATION]
WAYS = ["pods/binding", "bindings"]


@asynccontextmanager
async def served(sandbox: Any, kubeconfig: str, directory: Any) -> AsyncIterator[Software]:
    """The webhook at work: the sandbox's class `managed` is managed, and both annotations are copied from classes."""
    manage = {"preemptors": {"priorityClasses": [f"{sandbox.id}-managed"]}}
    copy = {"rules": [{"name": "copy", "copyAnnotations": [CAN_BE_PREEMPTED, PROTECTION_DURATION]}]}
    async with installed(sandbox.client, kubeconfig, directory) as giveway:
        await giveway.serve(manifest(PreemptionPolicy=manage, PriorityPolicy=copy))
        await eventually(lambda: at_work(sandbox), 20, "the webhook is at work")
        yield giveway


async def at_work(sandbox: Any) -> bool:
    """Whether the API server asks both webhooks by now: it takes new configurations into use some time later."""
    forged = pod("probe", nodeSelector={LABEL: sandbox.id})
    forged["metadata"]["annotations"] = {PLAN: FORGED}
    stray = {"metadata": {"name": "probe", "annotations": {PLAN: FORGED}}, "target": {"kind": "Node", "name": "none"}}
    with suppress(ApiError):
        made = await sandbox.client.create(sandbox.pods, forged, dryRun="All")
        said = await refusal(sandbox.client.create(f"{sandbox.pods}/probe/binding", stray, dryRun="All"))
        return PLAN not in made["metadata"].get("annotations", {}) and "builtin/own-annotations" in said
    return False


def rule_for(key: str) -> str:
    if key == MARK:
        return "builtin/mark"
    return "builtin/own-annotations" if key in (PLAN, DECISION, GIVEN, CREATION) else "builtin/shield"


def metadata_with(key: str, value: str = FORGED) -> dict[str, Any]:
    """Metadata that sets one protected key."""
    return {"labels": {key: MANAGED}} if key == MARK else {"annotations": {key: value}}


async def test_status_writes_are_judged_for_the_protected_keys_alone(sandbox, kubeconfig, tmp_path):
    """An annotation set through the status is refused; a kubelet's update of the status, and the reconciler's, pass."""
    async with served(sandbox, kubeconfig, tmp_path) as giveway:
        await sandbox.node("n1")
        await sandbox.run("p", "100m")
        path = f"{sandbox.pods}/p"
        for key in (*ANNOTATIONS, MARK):
            body = {"metadata": metadata_with(key)}
            await refused(sandbox.client.patch(f"{path}/status", body), rule_for(key))
            await refused(sandbox.client.patch(path, body), rule_for(key))
        condition = {"type": "example.com/Seen", "status": "True"}
        await sandbox.client.patch(f"{path}/status", {"status": {"conditions": [condition]}}, kind="strategic")
        await sandbox.client.patch(f"{path}/status", {"metadata": {"annotations": {"example.com/a": "b"}}})
        async with await Client.connect(await giveway.kubeconfig_of(RECONCILER)) as reconciler:
            for value in ("{}", None):
                await reconciler.patch(f"{path}/status", {"metadata": {"annotations": {PLAN: value}}})
        found = (await sandbox.get("p"))["metadata"]
        assert found["annotations"].get("example.com/a") == "b"
        assert not {*ANNOTATIONS, MARK} & {*found["annotations"], *found["labels"]}


@pytest.mark.kubectl
async def test_kubectl_says_why(sandbox, kubeconfig, tmp_path, kubectl):
    """`kubectl patch --subresource=status` is refused like `kubectl annotate`, with the rule's name."""
    async with served(sandbox, kubeconfig, tmp_path):
        await sandbox.pod("p", schedulerName="nobody")
        here = ("pod", "p", "-n", sandbox.id)
        body = json.dumps({"metadata": {"annotations": {CAN_BE_PREEMPTED: "true"}}})
        output = await kubectl("patch", *here, "--subresource=status", "--type=merge", "-p", body, code=1)
        assert f'annotation {CAN_BE_PREEMPTED} may not be set to "true": rule builtin/shield' in output
        output = await kubectl("annotate", *here, f"{PLAN}={FORGED}", code=1)
        assert f"annotation {PLAN} is giveway's own record" in output


@pytest.mark.parametrize("way", WAYS)
async def test_a_binding_brings_no_protected_key_to_a_pod(sandbox, kubeconfig, tmp_path, way):
    """A Binding with a protected annotation or the mark is refused, one without binds, and so does the scheduler."""
    async with served(sandbox, kubeconfig, tmp_path):
        node = await sandbox.node("n1")
        await sandbox.pod("p", schedulerName="nobody")
        path = f"{sandbox.pods}/p/binding" if way == "pods/binding" else sandbox.pods.removesuffix("pods") + "bindings"

        def binding(**metadata: Any) -> dict[str, Any]:
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            meta = {"name": "p", "namespace": sandbox.id, **metadata}
            return {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}

        for key in (*ANNOTATIONS, MARK):
            await refused(sandbox.client.create(path, binding(**metadata_with(key))), rule_for(key))
        assert "nodeName" not in (await sandbox.get("p"))["spec"]
        await sandbox.client.create(path, binding(labels={"example.com/zone": "z"}, annotations={"example.com/a": "b"}))
        assert (await sandbox.get("p"))["spec"]["nodeName"] == node
        await sandbox.pod("q")
        assert await sandbox.bound("q") == node


async def test_a_new_pod_loses_what_only_giveway_writes(sandbox, kubeconfig, tmp_path):
    """A copied manifest's plan, decision, record and stray mark are taken off, and the pod gets in."""
    async with served(sandbox, kubeconfig, tmp_path):
        body = pod("p", labels={MARK: MANAGED, "app": "p"}, nodeSelector={LABEL: sandbox.id})
        own = {PLAN: FORGED, DECISION: FORGED, GIVEN: "{}", CREATION: "{}"}
        body["metadata"]["annotations"] = {**own, "example.com/a": "b"}
        await sandbox.client.create(sandbox.pods, body)
        found = (await sandbox.get("p"))["metadata"]
        assert not {PLAN, DECISION, GIVEN, CREATION} & found["annotations"].keys()
        assert found["annotations"]["example.com/a"] == "b"
        assert found["labels"] == {"app": "p"}


async def test_what_giveway_gave_follows_a_class_that_another_webhook_sets(sandbox, kubeconfig, tmp_path):
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
    async with served(sandbox, kubeconfig, tmp_path), other:
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
