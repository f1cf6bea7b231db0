"""Where each resource lives in the API, and which versions of Kubernetes giveway needs: the one owner of both."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

OLDEST = 30
"""The oldest minor version of Kubernetes 1 that giveway works with: it needs `matchConditions`."""
OLDEST_NATIVE = 36
"""The oldest minor version that has MutatingAdmissionPolicies (v1), which native policies need."""
TESTED = (32, 33, 36)
"""The minor versions on which the end-to-end tests ran, as the page kubernetes-behaviour of docs/ says."""
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object in the API; `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    of: str = ""
    """Whose kind it is, if another one has the same name."""
    other_versions: tuple[str, ...] = ()
    """Further API versions that a server may have instead, in the order in which they are tried."""

    @property
    def api_version(self) -> str:
        """`apiVersion` of its objects: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def title(self) -> str:
        """A name for the kind that no other kind has: `Pod`, `VolcanoPodGroup`."""
        return self.of + self.kind

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The path of the collection, of one namespace's part of it, of an object or of its sub-resource.

        Raises ValueError for a namespace that does not apply or is missing.
        """
        plural = self.plural
        if namespace and not self.namespaced:
            text = f"{plural} are cluster-wide; namespace {namespace!r}"
            raise ValueError(f"{text} does not apply")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{plural} {name!r} needs a namespace")
        parts = ["apis", self.group] if self.group else ["api"]
        parts.append(self.version)
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/" + "/".join(parts)

    def paths(self, namespace: str | None = None, name: str | None = None) -> list[str]:
        """As `path`, in each API version that a server may have, in the order of trying."""
        versions = (self.version, *self.other_versions)
        resources = [replace(self, version=version) for version in versions]
        return [resource.path(namespace, name) for resource in resources]


POD = Resource("", "v1", "pods", "Pod")
NODE = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACE = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SECRET = Resource("", "v1", "secrets", "Secret")
SERVICE = Resource("", "v1", "services", "Service")
CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap")
REPLICATION_CONTROLLER = Resource("", "v1", "replicationcontrollers", "ReplicationController")
PERSISTENT_VOLUME = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
PERSISTENT_VOLUME_CLAIM = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
DEPLOYMENT = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SET = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SET = Resource("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SET = Resource("apps", "v1", "daemonsets", "DaemonSet")
JOB = Resource("batch", "v1", "jobs", "Job")
LIMIT_RANGE = Resource("", "v1", "limitranges", "LimitRange")
RESOURCE_QUOTA = Resource("", "v1", "resourcequotas", "ResourceQuota")
RUNTIME_CLASS = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
CRON_JOB = Resource("batch", "v1", "cronjobs", "CronJob")
POD_DISRUPTION_BUDGET = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
PRIORITY_CLASS = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
POD_GROUP = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup", other_versions=("v1beta1", "v1"))
"""A server serves them in one of these versions; most serve none."""
COSCHEDULING_POD_GROUP = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", of="Coscheduling")
VOLCANO_POD_GROUP = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", of="Volcano")
CSI_NODE = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
STORAGE_CLASS = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
DEVICE_CLASS = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
RESOURCE_CLAIM = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_SLICE = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
LEASE = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENT = Resource("events.k8s.io", "v1", "events", "Event")


def _admission(kind: str) -> Resource:
    plural = f"{kind.lower()}s".replace("ys", "ies")
    return Resource("admissionregistration.k8s.io", "v1", plural, kind, namespaced=False)


MUTATING_WEBHOOK_CONFIGURATION = _admission("MutatingWebhookConfiguration")
VALIDATING_WEBHOOK_CONFIGURATION = _admission("ValidatingWebhookConfiguration")
MUTATING_ADMISSION_POLICY = _admission("MutatingAdmissionPolicy")
MUTATING_ADMISSION_POLICY_BINDING = _admission("MutatingAdmissionPolicyBinding")
VALIDATING_ADMISSION_POLICY = _admission("ValidatingAdmissionPolicy")
VALIDATING_ADMISSION_POLICY_BINDING = _admission("ValidatingAdmissionPolicyBinding")


def minor_of(version: Mapping[str, Any]) -> int | None:
    """The minor version that `/version` answers, which may be written as `32+`, if there is one."""
    digits = _DIGITS.match(str(version.get("minor", "")))
    if digits is None or str(version.get("major", "1")) != "1":
        return None
    return int(digits[0])
