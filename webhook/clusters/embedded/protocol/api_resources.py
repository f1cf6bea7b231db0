"""The resources the server knows: a table. One more resource is one more row.

Names, short names, categories and storage hashes are what Kubernetes 1.36 shows in discovery.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as plain JSON data."""

_CRUD = ("create", "delete", "get", "list", "patch", "update", "watch")
_CREATE = ("create",)


@dataclass(frozen=True)
class ApiResource:
    """One row: how a resource is named, and what is special about it."""

    group: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    sub: tuple[str, ...] = ()
    """Sub-resources: `status`, `scale`, `finalize`, or one with a hook in `ApiServer.subresources`."""
    hash: str = ""
    generation: bool = False
    """Whether `metadata.generation` counts the changes of what is not status."""
    graceful: bool = False
    """Whether DELETE waits for a grace period (pods)."""
    returns_deleted: bool = False
    """Whether DELETE answers with the object rather than a Status."""
    unconditional: bool = True
    """Whether PUT may leave out the resourceVersion."""
    fields: tuple[str, ...] = ()
    """Field selectors beyond metadata.name and metadata.namespace."""
    verbs: tuple[str, ...] = _CRUD
    storage: str = ""
    """Where its objects are kept; two rows with the same storage are two versions of one thing."""
    version: str = "v1"

    @cached_property
    def api_version(self) -> str:
        """`group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def qualified(self) -> str:
        """`plural.group`, as in error texts."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def singular(self) -> str:
        """The kind in lower case."""
        return self.kind.lower()

    @cached_property
    def key(self) -> str:
        """The name of its place in the store."""
        return self.storage or self.plural

    @cached_property
    def prefix(self) -> bytes:
        """The start of an object's JSON, before its first own field."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    @cached_property
    def root(self) -> str:
        """The URL of its group and version."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    @property
    def stored(self) -> bool:
        """Whether objects are kept, rather than answered at once such as a SubjectAccessReview."""
        return self.verbs != _CREATE


_FIELDS = {
    "Pod": ("spec.nodeName", "status.phase"),
    "Event": (*(f"involvedObject.{part}" for part in ("kind", "namespace", "name", "uid")), "reason"),
}
"""Field selectors, which are called as the field; other kinds have none but those that all have."""

_TABLE = """
v1 Binding - - create-only
v1 ConfigMap cm qFsyl6wFWjQ=
v1 Endpoints ep fWeeMqaN/OA=
v1 Event ev r2yiGXH7wu8=
v1 LimitRange limits EBKMFVe6cwo=
v1 Namespace ns Q3oi5N2YM8M= cluster +finalize +status
v1 Node no XwShjMxG9Fs= cluster +status
v1 PersistentVolumeClaim pvc QWTyNDq0dC4= returns-deleted +status
v1 PersistentVolume pv HN/zwEC+JgM= cluster returns-deleted +status
v1 Pod po xPOwRZ+Yhw8= all generation graceful returns-deleted +binding +eviction +status
v1 PodTemplate - LIXB2x4IFpk= generation returns-deleted
v1 ReplicationController rc Jond2If31h0= all generation +scale +status
v1 ResourceQuota quota 8uhSgffRX6w= returns-deleted +status
v1 Secret - S6u1pOWzb84=
v1 ServiceAccount sa pbx9ZvyFpBE= returns-deleted +token
v1 Service svc 0/CO1lhkEBI= all returns-deleted +status
apps/v1 ControllerRevision - 85nkx63pcBU=
apps/v1 DaemonSet ds dd7pWHUlMKQ= all generation +status
apps/v1 Deployment deploy 8aSe+NMegvE= all generation +scale +status
apps/v1 ReplicaSet rs P1RzHs8/mWQ= all generation +scale +status
apps/v1 StatefulSet sts H+vl74LkKdo= all generation +scale +status
batch/v1 CronJob cj sd5LIXh4Fjs= all generation +status
batch/v1 Job - mudhfqk/qZY= all generation +status
admissionregistration.k8s.io/v1 MutatingWebhookConfiguration - Sqi0GUgDaX0= cluster extensions generation versioned
admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration - B0wHjQmsGNk= cluster extensions generation versioned
authentication.k8s.io/v1 SelfSubjectReview - - cluster create-only
rbac.authorization.k8s.io/v1 ClusterRoleBinding - 48tpQ8gZHFc= cluster
rbac.authorization.k8s.io/v1 ClusterRole - bYE5ZWDrJ44= cluster
rbac.authorization.k8s.io/v1 RoleBinding - eGsCzGH6b1g=
rbac.authorization.k8s.io/v1 Role - 7FuwZcIIItM=
events.k8s.io/v1 Event ev r2yiGXH7wu8=
policy/v1 PodDisruptionBudget pdb EVWiDmWqyJw= generation versioned +status
storage.k8s.io/v1 CSINode - Pe62DkZtjuo= cluster returns-deleted
storage.k8s.io/v1 StorageClass sc K+m6uJwbjGY= cluster returns-deleted
scheduling.k8s.io/v1 PriorityClass pc 1QwjyaZjj3Y= cluster generation
coordination.k8s.io/v1 Lease - gqkMMb/YqFM= versioned
node.k8s.io/v1 RuntimeClass - WQTu1GL3T2Q= cluster
"""
"""API version, kind, short name, storage hash, and words: categories, `+` a sub-resource, and what is special."""
_CATEGORIES = {"all": "all", "extensions": "api-extensions"}


def _row(line: str) -> ApiResource:
    """A resource as a line of the table tells it."""
    api_version, kind, short, digest, *words = line.split()
    group, _, version = api_version.rpartition("/")
    plural = kind.lower()
    if kind != "Endpoints":
        plural += "es" if kind.endswith("s") else "s"
    is_event = kind == "Event"
    return ApiResource(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        namespaced="cluster" not in words,
        short=() if short == "-" else (short,),
        categories=tuple(_CATEGORIES[word] for word in words if word in _CATEGORIES),
        sub=tuple(word[1:] for word in words if word.startswith("+")),
        hash="" if digest == "-" else digest,
        generation="generation" in words,
        graceful="graceful" in words,
        returns_deleted="returns-deleted" in words,
        unconditional="versioned" not in words,
        fields=() if is_event and group else _FIELDS.get(kind, ()),
        verbs=_CREATE if "create-only" in words else _CRUD,
        storage="events" if is_event else "",
    )


RESOURCES = tuple(_row(line) for line in _TABLE.strip().splitlines())

GROUPS = (
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "batch",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
)
"""The named groups in the order `/apis` lists them."""

BY_URL: dict[tuple[str, str], ApiResource] = {(row.root, row.plural): row for row in RESOURCES}
BY_STORAGE: dict[str, ApiResource] = {row.key: row for row in reversed(RESOURCES)}
"""The row in whose version a thing is stored: the first of those that share a storage."""

_BY_KIND = {(row.api_version, row.kind): row for row in RESOURCES}


def by_kind(api_version: str, kind: str) -> ApiResource | None:
    """The row of a kind, such as an owner reference names it."""
    return _BY_KIND.get((api_version, kind))
