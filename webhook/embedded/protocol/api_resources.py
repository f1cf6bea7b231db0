"""The resources the server knows: a table. One more resource is one more row.

Names, short names, categories and storage hashes are what Kubernetes 1.36 shows in discovery.
"""

from __future__ import annotations

from webhook.embedded.protocol.api_resource import CREATE, WITHOUT_COLLECTION, ApiResource

__all__ = ["BY_STORAGE", "BY_URL", "GROUPS", "RESOURCES", "ApiResource", "by_kind"]


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
_WORKLOAD = ("status",)
_SCALED = ("scale", "status")

_CORE = [
    ApiResource("", "bindings", "Binding", verbs=CREATE),
    ApiResource("", "configmaps", "ConfigMap", short=("cm",), hash="qFsyl6wFWjQ="),
    ApiResource("", "endpoints", "Endpoints", short=("ep",), hash="fWeeMqaN/OA=", create_on_put=True),
    ApiResource(
        "",
        "events",
        "Event",
        short=("ev",),
        hash="r2yiGXH7wu8=",
        fields=_EVENT_FIELDS,
        create_on_put=True,
        storage="events",
    ),
    ApiResource("", "limitranges", "LimitRange", short=("limits",), hash="EBKMFVe6cwo="),
    ApiResource(
        "",
        "namespaces",
        "Namespace",
        namespaced=False,
        short=("ns",),
        sub=("finalize", "status"),
        hash="Q3oi5N2YM8M=",
        fields=_same("status.phase"),
        verbs=WITHOUT_COLLECTION,
    ),
    ApiResource(
        "",
        "nodes",
        "Node",
        namespaced=False,
        short=("no",),
        sub=("status",),
        hash="XwShjMxG9Fs=",
        fields=_same("spec.unschedulable"),
    ),
    ApiResource(
        "",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        short=("pvc",),
        sub=("status",),
        hash="QWTyNDq0dC4=",
        returns_deleted=True,
    ),
    ApiResource(
        "",
        "persistentvolumes",
        "PersistentVolume",
        namespaced=False,
        short=("pv",),
        sub=("status",),
        hash="HN/zwEC+JgM=",
        returns_deleted=True,
    ),
    ApiResource(
        "",
        "pods",
        "Pod",
        short=("po",),
        categories=_ALL,
        sub=("binding", "eviction", "status"),
        hash="xPOwRZ+Yhw8=",
        generation=True,
        graceful=True,
        returns_deleted=True,
        fields=_POD_FIELDS,
    ),
    ApiResource("", "podtemplates", "PodTemplate", hash="LIXB2x4IFpk=", generation=True, returns_deleted=True),
    ApiResource(
        "",
        "replicationcontrollers",
        "ReplicationController",
        short=("rc",),
        categories=_ALL,
        sub=_SCALED,
        hash="Jond2If31h0=",
        generation=True,
        fields=_same("status.replicas"),
    ),
    ApiResource(
        "",
        "resourcequotas",
        "ResourceQuota",
        short=("quota",),
        sub=("status",),
        hash="8uhSgffRX6w=",
        returns_deleted=True,
    ),
    ApiResource("", "secrets", "Secret", hash="S6u1pOWzb84=", fields=_same("type")),
    ApiResource(
        "",
        "serviceaccounts",
        "ServiceAccount",
        short=("sa",),
        sub=("token",),
        hash="pbx9ZvyFpBE=",
        returns_deleted=True,
    ),
    ApiResource(
        "",
        "services",
        "Service",
        short=("svc",),
        categories=_ALL,
        sub=("status",),
        hash="0/CO1lhkEBI=",
        returns_deleted=True,
        fields=_same("spec.clusterIP", "spec.type"),
    ),
]

_APPS = [
    ApiResource("apps", "controllerrevisions", "ControllerRevision", hash="85nkx63pcBU="),
    ApiResource(
        "apps",
        "daemonsets",
        "DaemonSet",
        short=("ds",),
        categories=_ALL,
        sub=_WORKLOAD,
        hash="dd7pWHUlMKQ=",
        generation=True,
    ),
    ApiResource(
        "apps",
        "deployments",
        "Deployment",
        short=("deploy",),
        categories=_ALL,
        sub=_SCALED,
        hash="8aSe+NMegvE=",
        generation=True,
    ),
    ApiResource(
        "apps",
        "replicasets",
        "ReplicaSet",
        short=("rs",),
        categories=_ALL,
        sub=_SCALED,
        hash="P1RzHs8/mWQ=",
        generation=True,
        fields=_same("status.replicas"),
    ),
    ApiResource(
        "apps",
        "statefulsets",
        "StatefulSet",
        short=("sts",),
        categories=_ALL,
        sub=_SCALED,
        hash="H+vl74LkKdo=",
        generation=True,
    ),
]

_BATCH = [
    ApiResource(
        "batch",
        "cronjobs",
        "CronJob",
        short=("cj",),
        categories=_ALL,
        sub=_WORKLOAD,
        hash="sd5LIXh4Fjs=",
        generation=True,
    ),
    ApiResource(
        "batch",
        "jobs",
        "Job",
        categories=_ALL,
        sub=_WORKLOAD,
        hash="mudhfqk/qZY=",
        generation=True,
        fields=_same("status.successful"),
    ),
]

_ADMISSION = "admissionregistration.k8s.io"
_HOOKS = [
    ApiResource(
        _ADMISSION,
        f"{how.lower()}webhookconfigurations",
        f"{how}WebhookConfiguration",
        namespaced=False,
        categories=_EXTENSIONS,
        hash=digest,
        generation=True,
        unconditional=False,
    )
    for how, digest in (("Mutating", "Sqi0GUgDaX0="), ("Validating", "B0wHjQmsGNk="))
]

_AUTHORIZATION = [
    ApiResource("authorization.k8s.io", f"{kind.lower()}s", kind, namespaced=namespaced, verbs=CREATE)
    for kind, namespaced in (
        ("LocalSubjectAccessReview", True),
        ("SelfSubjectAccessReview", False),
        ("SelfSubjectRulesReview", False),
        ("SubjectAccessReview", False),
    )
]
_AUTHENTICATION = [
    ApiResource("authentication.k8s.io", f"{kind.lower()}s", kind, namespaced=False, verbs=CREATE)
    for kind in ("SelfSubjectReview", "TokenReview")
]

_RBAC = [
    ApiResource("rbac.authorization.k8s.io", f"{kind.lower()}s", kind, namespaced=namespaced, hash=digest)
    for kind, namespaced, digest in (
        ("ClusterRoleBinding", False, "48tpQ8gZHFc="),
        ("ClusterRole", False, "bYE5ZWDrJ44="),
        ("RoleBinding", True, "eGsCzGH6b1g="),
        ("Role", True, "7FuwZcIIItM="),
    )
]

_OTHERS = [
    ApiResource(
        "events.k8s.io",
        "events",
        "Event",
        short=("ev",),
        hash="r2yiGXH7wu8=",
        fields=_NEW_EVENT_FIELDS,
        create_on_put=True,
        storage="events",
    ),
    ApiResource(
        "policy",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        short=("pdb",),
        sub=("status",),
        hash="EVWiDmWqyJw=",
        generation=True,
        unconditional=False,
    ),
    ApiResource("storage.k8s.io", "csinodes", "CSINode", namespaced=False, hash="Pe62DkZtjuo=", returns_deleted=True),
    ApiResource(
        "storage.k8s.io",
        "storageclasses",
        "StorageClass",
        namespaced=False,
        short=("sc",),
        hash="K+m6uJwbjGY=",
        returns_deleted=True,
    ),
    ApiResource(
        "scheduling.k8s.io",
        "priorityclasses",
        "PriorityClass",
        namespaced=False,
        short=("pc",),
        hash="1QwjyaZjj3Y=",
        generation=True,
    ),
    ApiResource(
        "coordination.k8s.io",
        "leases",
        "Lease",
        hash="gqkMMb/YqFM=",
        unconditional=False,
        create_on_put=True,
    ),
]

RESOURCES: tuple[ApiResource, ...] = (
    *_CORE,
    *_APPS,
    *_BATCH,
    *_HOOKS,
    *_AUTHENTICATION,
    *_AUTHORIZATION,
    *_RBAC,
    *_OTHERS,
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
)
"""The named groups in the order `/apis` lists them."""

BY_URL: dict[tuple[str, str], ApiResource] = {(row.root, row.plural): row for row in RESOURCES}
BY_STORAGE: dict[str, ApiResource] = {row.key: row for row in reversed(RESOURCES)}
"""The row in whose version a thing is stored: the first of those that share a storage."""

_BY_KIND = {(row.api_version, row.kind): row for row in RESOURCES}


def by_kind(api_version: str, kind: str) -> ApiResource | None:
    """The row of a kind, such as an owner reference names it."""
    return _BY_KIND.get((api_version, kind))
