"""The resources the server knows: a table. One more resource is one more row.

Names, short names and categories are what Kubernetes 1.36 shows in discovery.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from webhook.kube.resources import Resource

Object = dict[str, Any]
"""A Kubernetes object as plain JSON data."""

VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
"""What may be asked of what is stored."""


def value_at(obj: Any, path: str) -> Any:
    """The value at a path such as `spec.nodeName`; None if nothing is there."""
    for name in path.split("."):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


@dataclass(frozen=True)
class ApiResource(Resource):
    """One row: how a resource is named, and what is special about it."""

    short: tuple[str, ...] = ()
    sub: tuple[str, ...] = ()
    """Sub-resources: `status`, `scale`, `finalize`, or one with a handler in `ApiServer.subresources`."""
    traits: frozenset[str] = frozenset()
    """What is special, in the words of the table below."""
    fields: tuple[str, ...] = ()
    """Field selectors beyond metadata.name and metadata.namespace."""

    @property
    def stored(self) -> bool:
        """Whether objects are kept, rather than answered at once such as a SelfSubjectReview."""
        return "create-only" not in self.traits

    @cached_property
    def qualified(self) -> str:
        """`plural.group`, as in error texts."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_FIELDS = {
    "Pod": ("spec.nodeName", "status.phase"),
    "Event": (*(f"involvedObject.{part}" for part in ("kind", "namespace", "name", "uid")), "reason"),
}
"""Field selectors, which are called as the field; other kinds have none but those that all have."""

_TABLE = """
v1 Binding - create-only
v1 ConfigMap cm
v1 Event ev
v1 LimitRange limits
v1 Namespace ns cluster +finalize +status
v1 Node no cluster +status
v1 PersistentVolumeClaim pvc returns-deleted +status
v1 PersistentVolume pv cluster returns-deleted +status
v1 Pod po all generation graceful returns-deleted +binding +eviction +status
v1 ReplicationController rc all generation +scale +status
v1 ResourceQuota quota returns-deleted +status
v1 Secret -
v1 ServiceAccount sa returns-deleted +token
v1 Service svc all returns-deleted +status
apps/v1 DaemonSet ds all generation +status
apps/v1 Deployment deploy all generation +scale +status
apps/v1 ReplicaSet rs all generation +scale +status
apps/v1 StatefulSet sts all generation +scale +status
events.k8s.io/v1 Event ev
authentication.k8s.io/v1 SelfSubjectReview - cluster create-only
batch/v1 CronJob cj all generation +status
batch/v1 Job - all generation +status
policy/v1 PodDisruptionBudget pdb generation versioned +status
rbac.authorization.k8s.io/v1 ClusterRoleBinding - cluster
rbac.authorization.k8s.io/v1 ClusterRole - cluster
rbac.authorization.k8s.io/v1 RoleBinding -
rbac.authorization.k8s.io/v1 Role -
storage.k8s.io/v1 CSINode - cluster returns-deleted
storage.k8s.io/v1 StorageClass sc cluster returns-deleted
admissionregistration.k8s.io/v1 MutatingWebhookConfiguration - cluster api-extensions generation versioned
admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration - cluster api-extensions generation versioned
scheduling.k8s.io/v1 PriorityClass pc cluster first-generation
coordination.k8s.io/v1 Lease - versioned
node.k8s.io/v1 RuntimeClass - cluster
"""
"""API version, kind, short name (or -), sub-resources with `+`, and traits:

- `all`, `api-extensions`: a category
- `cluster`: it is in no namespace
- `create-only`: it is answered at once and not stored
- `generation`: `metadata.generation` counts the changes of what is not status; `first-generation`: it is always 1
- `graceful`: DELETE waits for a grace period
- `returns-deleted`: DELETE answers with the object rather than a Status
- `versioned`: PUT may not leave out the resourceVersion
"""


def _row(line: str) -> ApiResource:
    """A resource as a line of the table tells it."""
    api_version, kind, short, *words = line.split()
    group, _, version = api_version.rpartition("/")
    return ApiResource(
        group,
        version,
        kind.lower() + ("es" if kind.endswith("s") else "s"),
        kind,
        namespaced="cluster" not in words,
        short=() if short == "-" else (short,),
        sub=tuple(word[1:] for word in words if word.startswith("+")),
        traits=frozenset(word for word in words if not word.startswith("+")),
        fields=() if kind == "Event" and group else _FIELDS.get(kind, ()),
    )


RESOURCES = tuple(_row(line) for line in _TABLE.strip().splitlines())

BY_NAME = {(row.api_version, row.plural): row for row in RESOURCES}
"""By group and version with the plural name, as URLs have them."""
BY_KIND = {(row.api_version, row.kind): row for row in RESOURCES if row.stored}
"""By group and version with the kind, as objects and owner references have them."""
BY_PLURAL: dict[str, ApiResource] = {row.plural: row for row in reversed(RESOURCES)}
"""The row in whose version a thing is stored: the first of its plural name, for events have two."""
STORED = tuple(row for row in RESOURCES if row.stored and BY_PLURAL[row.plural] is row)
"""The rows in whose version things are stored."""
