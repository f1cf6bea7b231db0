"""The table of checks of `giveway doctor`, run over one read of the cluster, and the canary of its scheduler.

Adding a check is a function and a row.
"""

import asyncio
import secrets
import time
from collections.abc import Iterable, Iterator
from typing import Any

from webhook.inspection.checks import (
    alive,
    budgets,
    certificates,
    classes,
    groups,
    native,
    policies,
    registration,
    rights,
    webhooks,
)
from webhook.inspection.cluster_findings import Check, ClusterFinding, finding
from webhook.inspection.observed import CONFIGURATIONS, NATIVE, Observed
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.instants import epoch
from webhook.kube.resources import NODE, POD, PRIORITY_CLASS

_COVERED = ("poddisruptionbudgets", "pods")
_NATIVE = ("priorityclasses", *(kind.plural for kind in NATIVE), *CONFIGURATIONS)
_RBAC = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")

CHECKS = (
    Check("installed", CONFIGURATIONS, alive.present),
    Check("answers", ("giveway-probe", *CONFIGURATIONS), alive.silent),
    Check("deployments", ("deployments", *CONFIGURATIONS), alive.deployed),
    Check("leader", ("leases", "deployments", "priorityclasses"), alive.led),
    Check("policies-in-force", ("configmaps", *CONFIGURATIONS), policies.differing),
    Check("own-rights", ("deployments", *_RBAC), rights.missing),
    Check("registered", CONFIGURATIONS, registration.registered),
    Check("entries", CONFIGURATIONS, registration.old, by_policies=True),
    Check("preempting-classes", ("priorityclasses", "pods"), classes.preempting, by_policies=True),
    Check("reserved-ranges", ("priorityclasses", "namespaces", "pods"), classes.reserved, by_policies=True),
    Check("silent-classes", ("priorityclasses", "pods"), classes.silent),
    Check("drifted-annotations", ("priorityclasses", "namespaces", "pods"), classes.drifted, by_policies=True),
    Check("twins", ("priorityclasses",), classes.twins, by_policies=True),
    Check("expendable-pods", ("priorityclasses", "namespaces", "pods"), classes.expendable, by_policies=True),
    Check("budgets-covering-nothing", _COVERED, budgets.covering_nothing),
    Check("budgets-covering-twice", _COVERED, budgets.covering_twice),
    Check("budgets-never-allowing", (*_COVERED, "priorityclasses"), budgets.never_allowing, by_policies=True),
    Check("stuck-nominations", ("pods",), alive.stuck),
    Check("overdue-notices", ("pods",), alive.overdue_notices),
    Check("groups-too-small", ("podgroups", "pods"), groups.too_small),
    Check("groups-without-room", ("podgroups", "pods", "nodes", "deviceclasses"), groups.without_room),
    Check("quotas-by-class", ("resourcequotas", "namespaces"), groups.by_class, by_policies=True),
    Check("exemptions", ("namespaces", "pods"), webhooks.exempting),
    Check("lock-out", ("namespaces", "daemonsets", *CONFIGURATIONS), webhooks.locking_out),
    Check("rights", _RBAC, rights.around_the_shield),
    Check("not-recorded", ("pods", "priorityclasses", *_RBAC), rights.unrecorded, by_policies=True),
    Check("certificates", ("secrets", *CONFIGURATIONS), certificates.expiring),
    Check("policies", ("namespaces", "priorityclasses"), policies.matching_nothing, by_policies=True),
    Check("exceptions", (), policies.listed, by_policies=True),
    Check("native-policies", _NATIVE, native.in_step, by_policies=True),
    Check("versions", (), alive.untested),
)
"""Every check: its name, what must be readable, and the function. docs/operations.md explains each by its name."""


def left_out(observed: Observed) -> frozenset[str]:
    """The checks that are not made because no policies are known."""
    return frozenset(check.name for check in CHECKS if check.by_policies) if observed.no_policies else frozenset()


def examine(observed: Observed) -> Iterator[ClusterFinding]:
    """What all checks find; a check that lacks something it needs says so instead."""
    skipped = left_out(observed)
    if skipped:
        yield finding("policies.unknown", checks=", ".join(sorted(skipped)))
    for check in (check for check in CHECKS if check.name not in skipped):
        lacking = [observed.missing[plural] for plural in check.needs if plural in observed.missing]
        if lacking:
            yield finding("checks.lacking", check=check.name, lacking="; ".join(lacking))
        else:
            yield from check.run(observed)


# Whether this scheduler keeps a nomination that it did not make (docs/kubernetes-behaviour.md K8, K12): a tiny
# pod that fits nowhere is nominated while a scheduling gate holds it back. Then the gate is taken away, the scheduler
# tries the pod and fails, and the pod shows what became of the nomination. Nothing is ever started, evicted or bound.
# Pod and PriorityClass are deleted however this ends; what a killed process left behind goes at the next run.

LABEL = "giveway.dev/canary"
"""On the pod and its class, with a value that no other canary has; also the gate's name, and a label no node has."""
_VALUE = -1000
"""Below the cutoff (-10) from which on Cluster Autoscaler adds no node for a pod."""
_USABLE, _TRIED, _SETTLED = 15.0, 60.0, 3.0
"""Seconds until a new class can be used, until a scheduler has tried a pod, and for which the nomination must stay."""
_LEFT_BEHIND = 600.0
_POLL = 0.2
Json = dict[str, Any]


class CanaryError(Exception):
    """The canary could not be deleted; the text says how to do it by hand."""


async def examine_nominations(client: Client, namespace: str) -> list[ClusterFinding]:
    """Nominate a pod of our own for some seconds, and say what the scheduler did with the nomination.

    An empty list means that it was kept. Raises CanaryError if something could not be deleted.
    """
    pods, classes = POD.path(namespace), PRIORITY_CLASS.path()
    try:
        nodes = (await client.get(NODE.path(), limit=1)).get("items")
        if not nodes:
            return [finding("canary.unknown", reason="the cluster has no node to nominate the pod to")]
        # What a process that was killed left behind
        for collection in (pods, classes):
            left_over, _ = await client.list(collection, labelSelector=LABEL)
            for obj in left_over:
                if time.time() - epoch(obj["metadata"]["creationTimestamp"]) > _LEFT_BEHIND:
                    await _remove(client, [f"{collection}/{obj['metadata']['name']}"])
        name = f"giveway-canary-{secrets.token_hex(4)}"
        own_class = {
            "metadata": {"name": name, "labels": {LABEL: name}},
            "value": _VALUE,
            "preemptionPolicy": "Never",
            "description": "giveway doctor --canary uses it for some seconds",
        }
        try:
            await client.create(classes, own_class)
            await _create_pod(client, pods, name)
            return await _watch_nomination(client, f"{pods}/{name}", nodes[0]["metadata"]["name"])
        finally:
            await _remove(client, (f"{pods}/{name}", f"{classes}/{name}"))
    except ApiError as error:
        return [finding("canary.unknown", reason=f"pod or PriorityClass could not be made or watched: {error.message}")]


async def _create_pod(client: Client, pods: str, name: str) -> Json:
    """Create a pod for no node, within the Pod Security Standard "restricted", whose image is never pulled.

    The API server needs a moment to know the class (docs/kubernetes-behaviour.md K21).
    """
    runs_as = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    confined = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod = {
        "metadata": {"name": name, "labels": {LABEL: name}},
        "spec": {
            "priorityClassName": name,
            "nodeSelector": {LABEL: name},
            "schedulingGates": [{"name": LABEL}],
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": runs_as,
            "containers": [{"name": "canary", "image": "registry.k8s.io/pause:3.10", "securityContext": confined}],
        },
    }
    end = time.monotonic() + _USABLE
    while True:
        try:
            return await client.create(pods, pod)
        except ApiError as error:
            if error.status != 403 or "PriorityClass" not in error.message or time.monotonic() > end:
                raise
            await asyncio.sleep(_POLL)


async def _watch_nomination(client: Client, path: str, node: str) -> list[ClusterFinding]:
    """Nominate the pod, let the scheduler try it, and say what became of the nomination."""
    by_others = "a nomination by somebody else than its scheduler"
    try:
        nominated = await client.patch(f"{path}/status", {"status": {"nominatedNodeName": node}})
    except ApiError as error:
        return [finding("canary.refused", what=f"The cluster refuses {by_others}: {error.message}.")]
    if not _nomination(nominated):
        return [finding("canary.refused", what=f"The API server accepts {by_others}, and drops it.")]
    await client.patch(path, {"spec": {"schedulingGates": None}})
    end = time.monotonic() + _TRIED
    while True:
        conditions = (await client.get(path)).get("status", {}).get("conditions") or ()
        if any((row["type"], row.get("reason")) == ("PodScheduled", "Unschedulable") for row in conditions):
            break
        if time.monotonic() > end:
            return [finding("canary.unknown", reason=f"no scheduler tried the pod within {_TRIED:.0f} s")]
        await asyncio.sleep(_POLL)
    await asyncio.sleep(_SETTLED)
    return [] if _nomination(await client.get(path)) else [finding("canary.cleared")]


async def _remove(client: Client, paths: Iterable[str]) -> None:
    """Delete these; what is not there is as good as deleted. Each is tried, whatever becomes of the others."""
    failed: list[str] = []
    for path in paths:
        try:
            await unless_absent(client.delete(path, {"gracePeriodSeconds": 0}))
        except ApiError as error:
            failed.append(f"{path}: {error}")
    if failed:
        raise CanaryError(
            f"could not delete {'; '.join(failed)}. Delete it yourself:"
            f" kubectl delete pods,priorityclasses -A -l {LABEL}"
        )


def _nomination(pod: Json) -> str:
    return str(pod.get("status", {}).get("nominatedNodeName") or "")
