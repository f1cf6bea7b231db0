"""The resources the server knows: a table. One more resource is one more row.

Names, short names, categories and storage hashes are what Kubernetes 1.36 shows in discovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as plain JSON data."""

_CRUD = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_WITHOUT_COLLECTION = ("create", "delete", "get", "list", "patch", "update", "watch")
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
    create_on_put: bool = False
    fields: Mapping[str, str] | None = None
    """Field selectors beyond metadata.name and metadata.namespace: name to path, where they differ."""
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
        return self.storage or self.qualified

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


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_POD_FIELDS = _same(
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_PARTS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_COMMON = {"reason": "reason", "type": "type", "reportingComponent": "reportingComponent"}
_EVENT_FIELDS = {
    **_same(*(f"involvedObject.{part}" for part in _EVENT_PARTS)),
    **_EVENT_COMMON,
    "source": "source.component",
}
_NEW_EVENT_FIELDS = {
    **{f"regarding.{part}": f"involvedObject.{part}" for part in _EVENT_PARTS},
    **_EVENT_COMMON,
    "reportingController": "reportingComponent",
}
_ALL = ("all",)
_EXTENSIONS = ("api-extensions",)
_STATUS = ("status",)
_SCALED = ("scale", "status")
_ADMISSION = "admissionregistration.k8s.io"
_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
_RBAC = "rbac.authorization.k8s.io"


def _row(group: str, kind: str, short: str = "", storage_hash: str = "", **more: Any) -> ApiResource:
    """A row whose plural is the one that follows from its kind, unless it is given."""
    plural = more.pop("plural", kind.lower() + ("es" if kind.endswith("s") else "s"))
    return ApiResource(group, plural, kind, short=(short,) if short else (), hash=storage_hash, **more)


RESOURCES: tuple[ApiResource, ...] = (
    _row("", "Binding", verbs=_CREATE),
    _row("", "ConfigMap", "cm", "qFsyl6wFWjQ="),
    _row("", "Endpoints", "ep", "fWeeMqaN/OA=", plural="endpoints", create_on_put=True),
    _row("", "Event", "ev", "r2yiGXH7wu8=", fields=_EVENT_FIELDS, create_on_put=True, storage="events"),
    _row("", "LimitRange", "limits", "EBKMFVe6cwo="),
    _row(
        "",
        "Namespace",
        "ns",
        "Q3oi5N2YM8M=",
        namespaced=False,
        sub=("finalize", "status"),
        fields=_same("status.phase"),
        verbs=_WITHOUT_COLLECTION,
    ),
    _row("", "Node", "no", "XwShjMxG9Fs=", namespaced=False, sub=_STATUS, fields=_same("spec.unschedulable")),
    _row("", "PersistentVolumeClaim", "pvc", "QWTyNDq0dC4=", sub=_STATUS, returns_deleted=True),
    _row("", "PersistentVolume", "pv", "HN/zwEC+JgM=", namespaced=False, sub=_STATUS, returns_deleted=True),
    _row(
        "",
        "Pod",
        "po",
        "xPOwRZ+Yhw8=",
        categories=_ALL,
        sub=("binding", "eviction", "status"),
        generation=True,
        graceful=True,
        returns_deleted=True,
        fields=_POD_FIELDS,
    ),
    _row("", "PodTemplate", "", "LIXB2x4IFpk=", generation=True, returns_deleted=True),
    _row(
        "",
        "ReplicationController",
        "rc",
        "Jond2If31h0=",
        categories=_ALL,
        sub=_SCALED,
        generation=True,
        fields=_same("status.replicas"),
    ),
    _row("", "ResourceQuota", "quota", "8uhSgffRX6w=", sub=_STATUS, returns_deleted=True),
    _row("", "Secret", "", "S6u1pOWzb84=", fields=_same("type")),
    _row("", "ServiceAccount", "sa", "pbx9ZvyFpBE=", sub=("token",), returns_deleted=True),
    _row(
        "",
        "Service",
        "svc",
        "0/CO1lhkEBI=",
        categories=_ALL,
        sub=_STATUS,
        returns_deleted=True,
        fields=_same("spec.clusterIP", "spec.type"),
    ),
    _row("apps", "ControllerRevision", "", "85nkx63pcBU="),
    _row("apps", "DaemonSet", "ds", "dd7pWHUlMKQ=", categories=_ALL, sub=_STATUS, generation=True),
    _row("apps", "Deployment", "deploy", "8aSe+NMegvE=", categories=_ALL, sub=_SCALED, generation=True),
    _row(
        "apps",
        "ReplicaSet",
        "rs",
        "P1RzHs8/mWQ=",
        categories=_ALL,
        sub=_SCALED,
        generation=True,
        fields=_same("status.replicas"),
    ),
    _row("apps", "StatefulSet", "sts", "H+vl74LkKdo=", categories=_ALL, sub=_SCALED, generation=True),
    _row("batch", "CronJob", "cj", "sd5LIXh4Fjs=", categories=_ALL, sub=_STATUS, generation=True),
    _row(
        "batch",
        "Job",
        "",
        "mudhfqk/qZY=",
        categories=_ALL,
        sub=_STATUS,
        generation=True,
        fields=_same("status.successful"),
    ),
    *(
        _row(
            _ADMISSION,
            f"{how}WebhookConfiguration",
            "",
            digest,
            namespaced=False,
            categories=_EXTENSIONS,
            generation=True,
            unconditional=False,
        )
        for how, digest in (("Mutating", "Sqi0GUgDaX0="), ("Validating", "B0wHjQmsGNk="))
    ),
    _row(_AUTHENTICATION, "SelfSubjectReview", namespaced=False, verbs=_CREATE),
    _row(_AUTHORIZATION, "SelfSubjectAccessReview", namespaced=False, verbs=_CREATE),
    _row(_RBAC, "ClusterRoleBinding", "", "48tpQ8gZHFc=", namespaced=False),
    _row(_RBAC, "ClusterRole", "", "bYE5ZWDrJ44=", namespaced=False),
    _row(_RBAC, "RoleBinding", "", "eGsCzGH6b1g="),
    _row(_RBAC, "Role", "", "7FuwZcIIItM="),
    _row(
        "events.k8s.io", "Event", "ev", "r2yiGXH7wu8=", fields=_NEW_EVENT_FIELDS, create_on_put=True, storage="events"
    ),
    _row(
        "policy",
        "PodDisruptionBudget",
        "pdb",
        "EVWiDmWqyJw=",
        sub=_STATUS,
        generation=True,
        unconditional=False,
    ),
    _row("storage.k8s.io", "CSINode", "", "Pe62DkZtjuo=", namespaced=False, returns_deleted=True),
    _row("storage.k8s.io", "StorageClass", "sc", "K+m6uJwbjGY=", namespaced=False, returns_deleted=True),
    _row("scheduling.k8s.io", "PriorityClass", "pc", "1QwjyaZjj3Y=", namespaced=False, generation=True),
    _row("coordination.k8s.io", "Lease", "", "gqkMMb/YqFM=", unconditional=False, create_on_put=True),
    _row("node.k8s.io", "RuntimeClass", "", "WQTu1GL3T2Q=", namespaced=False),
)

GROUPS = (
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
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
