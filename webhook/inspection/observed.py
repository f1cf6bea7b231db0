"""One read of the cluster, which all checks look at. What may not be read is noted, not raised.

What pods have in common is kept once (`SharedPods`), and of each what checks read: about 0.6 kB.
"""

import asyncio
import base64
from collections import defaultdict
from collections.abc import Awaitable, Mapping
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import msgspec

from webhook.admission.configmaps import ALLOW_REMOVAL, POLICIES
from webhook.component_base.own_names import IN_FORCE, RECONCILER, WEBHOOK
from webhook.inspection.reading import Progress, in_reach, items_of, unless_refused
from webhook.kube import resources
from webhook.kube.client import Client
from webhook.kube.instants import epoch, epoch_or
from webhook.kube.lease import Lease
from webhook.kube.objects.cluster_scoped import Namespace, Node, PriorityClass
from webhook.kube.objects.devices import DeviceClass
from webhook.kube.objects.meta import ObjectMeta, key_of
from webhook.kube.objects.pod import Pod, PodDisruptionBudget, PodStatus
from webhook.kube.objects.scheduling import PodGroup
from webhook.kube.objects.sharing import SharedPods
from webhook.kube.pods import is_terminal
from webhook.kube.resources import CONFIG_MAP, DEPLOYMENT, LEASE, POD, Resource
from webhook.policy.evaluation.reads import protected_annotations
from webhook.policy.model.policies import Policies
from webhook.preemption.snapshot import kinds
from webhook.preemption.snapshot.pod_groups import NO_GROUP, GroupKey, group_of, minimum_said_by
from webhook.registration.probe import Probe, send_probe

Json = dict[str, Any]
T = TypeVar("T")

CONFIGURATIONS = {
    resource.plural: resource.kind
    for resource in (resources.MUTATING_WEBHOOK_CONFIGURATION, resources.VALIDATING_WEBHOOK_CONFIGURATION)
}
"""Webhook configurations: plural to kind."""
NATIVE = (
    resources.MUTATING_ADMISSION_POLICY,
    resources.MUTATING_ADMISSION_POLICY_BINDING,
    resources.VALIDATING_ADMISSION_POLICY,
    resources.VALIDATING_ADMISSION_POLICY_BINDING,
)
"""The kinds of the API server's own policies."""
_RBAC = "rbac.authorization.k8s.io"
_DECODED = (kinds.NAMESPACES, kinds.PRIORITY_CLASSES, kinds.BUDGETS, kinds.NODES, kinds.DEVICE_CLASSES)
"""The kinds of a snapshot that are listed as they are, beside the PodGroups."""
_AS_DATA = (
    resources.MUTATING_WEBHOOK_CONFIGURATION,
    resources.VALIDATING_WEBHOOK_CONFIGURATION,
    *NATIVE,
    Resource(_RBAC, "v1", "roles", "Role"),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
    Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    resources.SERVICE,
    resources.DAEMON_SET,
    Resource("", "v1", "resourcequotas", "ResourceQuota"),
)


_NOMINATED = b'"f:nominatedNodeName"'


class _Managed(msgspec.Struct, rename="camel"):
    manager: str = ""
    time: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="fieldsV1")


class _Meta(ObjectMeta):
    managed_fields: list[_Managed] | None = None


class _Pod(Pod):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class Nominated(NamedTuple):
    """When a pod's nomination was written last, as RFC 3339, and by which field manager; empty if it does not tell."""

    at: str = ""
    by: str = ""


class PolicyMap(msgspec.Struct, frozen=True):
    """A ConfigMap with policy files, which removals it allows, and when it was written last (seconds; 0 if unknown)."""

    files: dict[str, str]
    allowed: tuple[str, ...] = ()
    written: float = 0.0


class OwnState(msgspec.Struct, kw_only=True):
    """giveway in its namespace.

    `lease_unchanged` says that the lease was read twice and nobody had renewed it in between.
    """

    deployments: dict[str, Json] = {}
    pods: list[Json] = []
    lease: Lease | None = None
    lease_unchanged: bool = False
    applied: PolicyMap | None = None
    in_force: PolicyMap | None = None
    probe: Probe | None = None
    """None if nothing was asked, because there are no entries to ask through."""

    @property
    def static_entries(self) -> bool:
        """Whether the webhook in the cluster leaves the entries of its configurations to an administrator."""
        pod = self.deployments.get(WEBHOOK, {}).get("spec", {}).get("template", {}).get("spec", {})
        return any("--entries=static" in (container.get("args") or ()) for container in pod.get("containers", ()))


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
    pods: list[Pod] = []
    """Those that run or wait, with protected annotations and giveway's own, and no others."""
    nominated: dict[str, Nominated] = {}
    """Of pods without a node that are nominated, by `namespace/name`."""
    budgets: list[PodDisruptionBudget] = []
    nodes: list[Node] = []
    device_classes: list[DeviceClass] = []
    objects: dict[str, list[dict[str, Any]]] = {}
    """Everything else, by plural, as JSON data without who wrote which field."""
    certificates: dict[str, bytes] = {}
    version: dict[str, Any] = {}
    missing: dict[str, str] = {}
    no_policies: str = ""
    """Why nobody knows which policies are in force; empty if `policies` are these."""
    own_state: OwnState = msgspec.field(default_factory=OwnState)
    minima: dict[GroupKey, int] = {}
    """By group how many pods it needs, if it says so."""
    pod_groups: dict[GroupKey, PodGroup] = {}
    """The PodGroups with a minimum, by group."""
    members: dict[GroupKey, list[Pod]] = {}
    """The pods of the groups with a minimum."""

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

    async def items(resource: Resource, as_: type[Any]) -> list[Any]:
        return [item async for item in items_of(client, resource, as_, progress)]

    async def listed(resource: Resource, as_: type[Any]) -> list[Any]:
        return await unless_refused(observed.missing, resource.plural, items(resource, as_), [])

    namespaces, classes, observed.budgets, observed.nodes, observed.device_classes = [
        await listed(kind.resource, kind.type_) for kind in _DECODED
    ]
    observed.namespaces = {namespace.metadata.name: namespace for namespace in namespaces}
    observed.classes = {priority_class.metadata.name: priority_class for priority_class in classes}
    observed.reach = in_reach(observed.namespaces.values(), own)
    observed.objects = {resource.plural: await listed(resource, dict) for resource in _AS_DATA}
    for obj in chain.from_iterable(observed.objects.values()):
        obj["metadata"].pop("managedFields", None)
    for source, kind in kinds.POD_GROUPS.items():
        for group in await listed(kind.resource, kind.type_):
            if group.minimum:
                key = GroupKey(source, group.metadata.namespace, group.metadata.name)
                observed.minima[key], observed.pod_groups[key] = group.minimum, group
    await unless_refused(observed.missing, "pods", _read_pods(client, observed, progress), None)
    asked = client.get(resources.SECRET.path(own, "giveway-tls"))
    secret = await unless_refused(observed.missing, "secrets", asked, None, verb="get", where=f" in {own}")
    files = (secret or {}).get("data") or {}
    observed.certificates = {name: base64.b64decode(text) for name, text in files.items() if name.endswith(".crt")}
    progress("giveway itself", 0, None)
    observed.own_state = await _read_own_state(client, observed)
    return observed


async def _read_pods(client: Client, observed: Observed, progress: Progress) -> None:
    """Note every pod that has not ended and is not going, the nominations, and which pods are of groups."""
    kept, share, not_nominated = protected_annotations(observed.policies), SharedPods(), PodStatus()
    members = defaultdict[GroupKey, list[Pod]](list)
    async for pod in items_of(client, resources.POD, _Pod, progress):
        if not isinstance(pod, _Pod) or is_terminal(pod) or pod.metadata.deletion_timestamp:
            continue
        group, meta = group_of(pod), pod.metadata
        if group != NO_GROUP:
            observed.minima[group] = max(minimum_said_by(pod), observed.minima.get(group, 0))
            members[group].append(pod)
        else:
            pod.spec.containers = pod.spec.init_containers = None  # what a pod asks for counts for groups alone
        if pod.status.nominated_node_name and not pod.spec.node_name:
            fields = [entry for entry in meta.managed_fields or () if _NOMINATED in bytes(entry.fields_v1)]
            writes = [Nominated(entry.time, entry.manager) for entry in fields]
            observed.nominated[key_of(pod)] = max(writes, default=Nominated())
        # No check reads these; they would be a quarter of what is kept
        meta.managed_fields, meta.uid, meta.resource_version = None, "", ""
        node = pod.status.nominated_node_name
        pod.status = PodStatus(nominated_node_name=node) if node else not_nominated
        meta.annotations = {key: text for key, text in (meta.annotations or {}).items() if key in kept} or None
        observed.pods.append(share(pod))
    observed.minima = {group: minimum for group, minimum in observed.minima.items() if minimum}
    observed.members = {group: pods for group, pods in members.items() if group in observed.minima}


_OWN_PODS = "app.kubernetes.io/name=giveway"
_LOOK_AGAIN = 5.0
"""Seconds, at most, after which a lease that seems old is read once more: the clocks here and there may differ."""


async def _read_own_state(client: Client, observed: Observed) -> OwnState:
    """Read giveway's own objects, and probe if there are entries to probe. Raises ApiError as `observe` does."""
    own, state = observed.own, OwnState()

    async def ask(what: str, verb: str, asked: Awaitable[T]) -> T | None:
        """An answer; None if there is no such object, or no right to it."""
        return await unless_refused(observed.missing, what, asked, None, verb=verb, where=f" in {own}")

    deployments = await ask("deployments", "list", client.list(DEPLOYMENT.path(own), labelSelector=_OWN_PODS))
    state.deployments = {deployment["metadata"]["name"]: deployment for deployment in (deployments or ([],))[0]}
    if state.deployments:
        pods = await ask("pods", "list", client.list(POD.path(own), labelSelector=_OWN_PODS))
        state.pods = (pods or ([],))[0]
    state.applied = _policy_map(await ask("configmaps", "get", client.get(CONFIG_MAP.path(own, POLICIES))))
    state.in_force = _policy_map(await ask("configmaps", "get", client.get(CONFIG_MAP.path(own, IN_FORCE))))
    if observed.own_entries():
        state.probe = await ask("giveway-probe", "patch ConfigMap", send_probe(client, own))
    # Last, because it may take some seconds
    path = LEASE.path(own, RECONCILER)
    state.lease = await ask("leases", "get", client.get(path, Lease))
    lasts = (state.lease and state.lease.spec.lease_duration_seconds) or 15
    if state.lease is not None and observed.now - epoch_or(state.lease.spec.renew_time, 0.0) > lasts:
        await asyncio.sleep(min(_LOOK_AGAIN, lasts / 3))
        again = await ask("leases", "get", client.get(path, Lease))
        state.lease_unchanged = again is not None and again.spec.renew_time == state.lease.spec.renew_time
        state.lease = again
    return state


def _policy_map(config_map: Mapping[str, Any] | None) -> PolicyMap | None:
    if config_map is None:
        return None
    metadata = config_map["metadata"]
    allowed = (metadata.get("annotations") or {}).get(ALLOW_REMOVAL, "").replace(",", " ").split()
    times = [field["time"] for field in metadata.get("managedFields") or () if field.get("time")]
    return PolicyMap(dict(config_map.get("data") or {}), tuple(allowed), max(map(epoch, times), default=0.0))
