"""One read of the cluster, which all checks look at. What may not be read is noted, not raised.

Of a pod only what checks look at is kept: about 1 kB. Labels, which the pods of a workload share, are kept once.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import msgspec

from webhook.inspection.own_state import OwnState, read_own_state
from webhook.inspection.scope import in_reach
from webhook.inspection.served_priorities import ServedPriorities, read_served_priorities
from webhook.kube import resources
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.objects.cluster_scoped import Namespace, Node, PriorityClass
from webhook.kube.objects.devices import DeviceClass
from webhook.kube.objects.meta import ObjectMeta, OwnerReference
from webhook.kube.objects.pod import Pod, PodDisruptionBudget, PodSpec
from webhook.kube.objects.scheduling import PodGroup
from webhook.kube.resources import Resource
from webhook.policy.evaluation.reads import protected_annotations
from webhook.policy.model.policies import Policies
from webhook.preemption.snapshot.kinds import (
    BUDGETS,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PRIORITY_CLASSES,
)
from webhook.preemption.snapshot.pod_groups import NO_GROUP, GroupKey, group_of, minimum_said_by

CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
"""The plurals of webhook configurations."""
ENDED = ("Succeeded", "Failed")
_RBAC = "rbac.authorization.k8s.io"
_DECODED = (NAMESPACES, PRIORITY_CLASSES, BUDGETS, NODES, DEVICE_CLASSES)
"""The kinds of a snapshot that are listed as they are, beside the PodGroups."""
_AS_DATA = (
    resources.MUTATING_WEBHOOK_CONFIGURATION,
    resources.VALIDATING_WEBHOOK_CONFIGURATION,
    resources.MUTATING_ADMISSION_POLICY,
    resources.MUTATING_ADMISSION_POLICY_BINDING,
    resources.VALIDATING_ADMISSION_POLICY,
    resources.VALIDATING_ADMISSION_POLICY_BINDING,
    Resource(_RBAC, "v1", "roles", "Role"),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
    Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    resources.SERVICE,
    resources.DAEMON_SET,
    Resource("", "v1", "resourcequotas", "ResourceQuota"),
)
_READ: tuple[tuple[Resource, type[Any]], ...] = (
    *((kind.resource, kind.type_) for kind in _DECODED),
    *((resource, dict) for resource in _AS_DATA),
)
"""What is listed as it is; pods are summarised page by page."""
_DROPPED = {"services": ("spec", "status")}
"""Members of large objects that no check reads."""
_PAGE = 500

Progress = Callable[[str, int, int | None], None]


class _ObservedMeta(ObjectMeta):
    managed_fields: msgspec.Raw = msgspec.Raw(b"null")


class _ObservedSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    scheduler_name: str = "default-scheduler"
    scheduling_group: dict[str, Any] | None = None


class _ObservedStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    nominated_node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _ObservedMeta
    spec: _ObservedSpec = msgspec.field(default_factory=_ObservedSpec)
    status: _ObservedStatus = msgspec.field(default_factory=_ObservedStatus)


class _Managed(msgspec.Struct, rename="camel"):
    manager: str = ""
    time: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="fieldsV1")


_managed = msgspec.json.Decoder(list[_Managed] | None)


class ObservedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod as far as checks read it; `annotations` holds protected keys and giveway's own, and no others.

    `nominated_at` is when its nomination was written last, as RFC 3339, and `nominated_by` by which field manager;
    empty if the pod does not tell.
    """

    namespace: str
    name: str
    labels: dict[str, str]
    annotations: dict[str, str]
    owner: tuple[str, str, str]
    """apiVersion, kind and name of its controller; empty texts without one."""
    class_name: str
    priority: int
    preemption_policy: str
    scheduler_name: str
    node: str
    nominated: str
    created: str
    nominated_at: str = ""
    nominated_by: str = ""
    group: tuple[str, str, str] = NO_GROUP
    """Which group it belongs to (`GroupKey`)."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Observed(msgspec.Struct, kw_only=True):
    """What was read. `missing` says of each plural that could not be listed why; what depends on it is not checked.

    `own` is giveway's namespace, `reach` the namespaces it is asked about, `now` the time in seconds, `version` the
    answer of `/version`, `trust` the PEM files of giveway's Secret by name.
    """

    policies: Policies
    own: str
    now: float
    classes: dict[str, PriorityClass] = {}
    namespaces: dict[str, Namespace] = {}
    reach: frozenset[str] = frozenset()
    pods: list[ObservedPod] = []
    budgets: list[PodDisruptionBudget] = []
    nodes: list[Node] = []
    device_classes: list[DeviceClass] = []
    objects: dict[str, list[dict[str, Any]]] = {}
    """Everything else, by plural, as JSON data."""
    certificates: dict[str, bytes] = {}
    version: dict[str, Any] = {}
    missing: dict[str, str] = {}
    no_policies: str = ""
    """Why nobody knows which policies are in force; empty if `policies` are these."""
    own_state: OwnState = msgspec.field(default_factory=OwnState)
    priorities: ServedPriorities = ServedPriorities()
    minima: dict[tuple[str, str, str], int] = {}
    """By group (`GroupKey`) how many pods it needs, if it says so."""
    pod_groups: dict[tuple[str, str, str], PodGroup] = {}
    """The PodGroups with a minimum, by group."""
    members: dict[tuple[str, str, str], list[Pod]] = {}
    """The whole pods of the groups with a minimum of which some have no node."""

    def own_configuration(self, plural: str) -> dict[str, Any]:
        """The webhook configuration of giveway itself; empty if there is none."""
        return next((obj for obj in self.objects[plural] if obj["metadata"]["name"] == "giveway"), {})

    def own_entries(self) -> list[dict[str, Any]]:
        """The entries of giveway's webhook configurations."""
        return [entry for plural in CONFIGURATIONS for entry in self.own_configuration(plural).get("webhooks") or ()]


async def observe(
    client: Client,
    policies: Policies,
    own: str,
    now: float,
    progress: Progress = lambda *_: None,
    *,
    no_policies: str = "",
) -> Observed:
    """Read the cluster. Raises ApiError if it does not answer at all; rights that are missing are noted."""
    observed = Observed(policies=policies, own=own, now=now, missing={}, no_policies=no_policies)
    observed.version = await client.get("/version")
    lists: dict[str, list[Any]] = {}
    for resource, as_ in _READ:
        plural = resource.plural
        lists[plural] = await _list(client, observed, resource, as_)
        progress(plural, len(lists[plural]), len(lists[plural]))
    observed.namespaces = {namespace.metadata.name: namespace for namespace in lists.pop("namespaces")}
    observed.classes = {priority_class.metadata.name: priority_class for priority_class in lists.pop("priorityclasses")}
    observed.budgets = lists.pop("poddisruptionbudgets")
    observed.nodes, observed.device_classes = lists.pop("nodes"), lists.pop("deviceclasses")
    observed.reach = in_reach(observed.namespaces.values(), own)
    observed.objects = lists
    for source, kind in POD_GROUPS.items():
        for group in await _list(client, observed, kind.resource, kind.type_):
            if group.minimum:
                key = GroupKey(source, group.metadata.namespace, group.metadata.name)
                observed.minima[key], observed.pod_groups[key] = group.minimum, group
    observed.pods = await _pods(client, observed, progress)
    await _read_members(client, observed)
    try:
        secret = await client.get(resources.SECRET.path(own, "giveway-tls"))
        data = secret.get("data") or {}
        observed.certificates = {name: base64.b64decode(text) for name, text in data.items() if name.endswith(".crt")}
    except ApiError as error:
        if error.status != 404:
            _note(observed, "secrets", error, f"no right to get Secret {own}/giveway-tls")
    observed.priorities = await read_served_priorities(client)
    progress("giveway itself", 0, None)
    observed.own_state = await read_own_state(client, own, now, probing=bool(observed.own_entries()))
    observed.missing |= {
        plural: why for plural, why in observed.own_state.missing.items() if plural not in observed.missing
    }
    return observed


async def _list(
    client: Client, observed: Observed, resource: Resource, as_: type[Any], namespace: str = ""
) -> list[Any]:
    """All objects of a kind, JSON data without what no check reads; none if they may not be listed."""
    plural = resource.plural
    kept = ("name", "namespace", "labels") if "admissionpolic" in plural else ("name", "namespace")
    items: list[Any] = []
    try:
        async for page in client.pages_of(resource, as_, namespace or None, limit=_PAGE, resume=True):
            for row in page.items or ():
                if as_ is dict:
                    row["metadata"] = {key: part for key, part in row["metadata"].items() if key in kept}
                    for member in _DROPPED.get(plural, ()):
                        row.pop(member, None)
                items.append(row)
    except ApiError as error:
        _note(observed, plural, error, f"no right to list {plural}")
    return items


async def _pods(client: Client, observed: Observed, progress: Progress) -> list[ObservedPod]:
    """A summary of every running pod; none if they may not be listed."""
    kept = protected_annotations(observed.policies)
    shared: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    texts: dict[str, str] = {}
    pods: list[ObservedPod] = []
    try:
        async for page in client.pages(resources.POD.path(), _Pod, limit=_PAGE, resume=True):
            decoded = (pod for pod in page.items or () if isinstance(pod, _Pod))
            running = (pod for pod in decoded if pod.status.phase not in ENDED and not pod.metadata.deletion_timestamp)
            for pod in running:
                member = _as_member(pod)
                pods.append(_summary(pod, group_of(member), kept, shared, texts))
                if (said := minimum_said_by(member)) > observed.minima.get(pods[-1].group, 0):
                    observed.minima[pods[-1].group] = said
            left = page.metadata.remaining_item_count if page.metadata.continue_ else 0
            progress("pods", len(pods), None if left is None else len(pods) + left)
            await asyncio.sleep(0)
    except ApiError as error:
        _note(observed, "pods", error, "no right to list pods")
    return pods


async def _read_members(client: Client, observed: Observed) -> None:
    """Read the members of groups that wait as a whole: of them it is worked out whether they have room at all."""
    waiting = {pod.group for pod in observed.pods if not pod.node and pod.group in observed.minima}
    for namespace in sorted({namespace for _, namespace, _ in waiting}):
        for pod in await _list(client, observed, resources.POD, Pod, namespace):
            gone = not isinstance(pod, Pod) or pod.status.phase in ENDED or pod.metadata.deletion_timestamp
            if not gone and (key := group_of(pod)) in waiting:
                observed.members.setdefault(key, []).append(pod)


def _summary(
    pod: _Pod,
    group: GroupKey,
    kept: Collection[str],
    shared: dict[tuple[tuple[str, str], ...], dict[str, str]],
    texts: dict[str, str],
) -> ObservedPod:
    """What checks read of a pod; `shared` holds labels and `texts` words that other pods have as well."""
    meta, spec = pod.metadata, pod.spec
    labels = meta.labels or {}
    owner = next((reference for reference in meta.owner_references or () if reference.controller), OwnerReference())
    at, by = "", ""
    if pod.status.nominated_node_name and not spec.node_name:
        with suppress(msgspec.DecodeError, RecursionError):
            entries = _managed.decode(meta.managed_fields) or ()
            writes = [
                (entry.time, entry.manager) for entry in entries if b'"f:nominatedNodeName"' in bytes(entry.fields_v1)
            ]
            at, by = max(writes, default=("", ""))

    def once(text: str) -> str:
        return texts.setdefault(text, text)

    return ObservedPod(
        namespace=once(meta.namespace),
        name=meta.name,
        labels=shared.setdefault(tuple(sorted(labels.items())), labels),
        annotations={once(key): once(text) for key, text in (meta.annotations or {}).items() if key in kept},
        owner=(once(owner.api_version), once(owner.kind), once(owner.name)),
        class_name=once(spec.priority_class_name),
        priority=spec.priority or 0,
        preemption_policy=once(spec.preemption_policy or "PreemptLowerPriority"),
        scheduler_name=once(spec.scheduler_name),
        node=once(spec.node_name),
        nominated=once(pod.status.nominated_node_name),
        created=meta.creation_timestamp or "",
        nominated_at=at,
        nominated_by=by,
        group=group,
    )


def _as_member(pod: _Pod) -> Pod:
    """The pod with that by which it says which group it belongs to."""
    return Pod(metadata=pod.metadata, spec=PodSpec(scheduling_group=pod.spec.scheduling_group))


def _note(observed: Observed, plural: str, error: ApiError, forbidden: str) -> None:
    """Why something could not be read. A kind that the server does not have is as good as an empty list."""
    if error.status in (0, 401):
        raise error
    if error.status != 404:
        observed.missing[plural] = forbidden if error.status == 403 else f"{plural} could not be read: {error}"
