"""Values an object gets where its author gave none: Kubernetes' defaults for what is modelled, as recorded.

`complete` runs before admission, as decoding does in Kubernetes; `begin` after it, on new objects only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from webhook.embedded.protocol.api_resources import ApiResource
from webhook.embedded.protocol.calls import Object
from webhook.embedded.schema.quality import qos_class

__all__ = ["begin", "complete"]

_MODE = 420


def complete(resource: ApiResource, obj: Object) -> None:
    """Fill in what Kubernetes defaults; does nothing to what is complete."""
    for part in _PARTS.get(resource.kind, ()):
        if obj.get(part) is None:
            obj[part] = {}
    for part, values in _DEFAULTS.get(resource.kind, {}).items():
        _set(_under(obj, part) if part else obj, **values)
    completion = _COMPLETIONS.get(resource.kind)
    if completion is not None:
        completion(obj)


def begin(resource: ApiResource, obj: Object) -> None:
    """Give a new object the status it is born with, whatever its author wrote there."""
    status = _FIRST_STATUS.get(resource.kind)
    if status is not None:
        obj["status"] = status(obj)
    if resource.kind == "Namespace":
        obj["spec"]["finalizers"] = ["kubernetes"]
    if resource.kind == "Job":
        _begin_job(obj)
    if resource.kind == "Service":
        _begin_service(obj)


def _set(target: Object, **values: Any) -> None:
    for key, value in values.items():
        if target.get(key) is None:
            target[key] = value


def _under(target: Object, key: str) -> Object:
    value = target.get(key)
    if value is None:
        value = target[key] = {}
    return value if isinstance(value, dict) else {}


def _items(target: Object, *keys: str) -> Iterator[Object]:
    for key in keys:
        yield from (item for item in target.get(key) or () if isinstance(item, dict))


def _pod(obj: Object) -> None:
    spec = _under(obj, "spec")
    _pod_spec(spec)
    _set(spec, enableServiceLinks=True)
    for condition in _items(_under(obj, "status"), "conditions"):
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)
    for container in _items(spec, "containers", "initContainers"):
        resources = _under(container, "resources")
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _pod_spec(spec: Object) -> None:
    """Set the defaults of a pod's spec."""
    _set(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        securityContext={},
        schedulerName="default-scheduler",
    )
    for container in _items(spec, "containers", "initContainers", "ephemeralContainers"):
        _container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in _items(spec, "volumes"):
        _volume(volume)
    for row in _items(spec, "topologySpreadConstraints"):
        _set(row, nodeAffinityPolicy="Honor", nodeTaintsPolicy="Ignore")


def _container(container: Object, *, host_network: bool) -> None:
    """Set the defaults of a container."""
    image = str(container.get("image") or "")
    latest = "@" not in image and image.rpartition("/")[2].partition(":")[2] in ("", "latest")
    _set(
        container,
        resources={},
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy="Always" if latest else "IfNotPresent",
    )
    for port in _items(container, "ports"):
        _set(port, protocol="TCP")
        if host_network and port.get("containerPort"):
            _set(port, hostPort=port["containerPort"])
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if isinstance(probe, dict):
            _set(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
            if isinstance(probe.get("httpGet"), dict):
                _set(probe["httpGet"], path="/", scheme="HTTP")
    for row in _items(container, "env"):
        field = (row.get("valueFrom") or {}).get("fieldRef")
        if isinstance(field, dict):
            _set(field, apiVersion="v1")


def _volume(volume: Object) -> None:
    for source in ("configMap", "secret", "downwardAPI", "projected"):
        if isinstance(volume.get(source), dict):
            _set(volume[source], defaultMode=_MODE)
    if isinstance(volume.get("hostPath"), dict):
        _set(volume["hostPath"], type="")
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}


def _template(obj: Object) -> Object:
    spec = _under(obj, "spec")
    template = _under(spec, "template")
    _under(template, "metadata")
    _pod_spec(_under(template, "spec"))
    return spec


def _deployment(obj: Object) -> None:
    spec = _template(obj)
    _set(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = _under(spec, "strategy")
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(_under(strategy, "rollingUpdate"), maxUnavailable="25%", maxSurge="25%")


def _replicas(obj: Object) -> None:
    _set(_template(obj), replicas=1)


def _controller(obj: Object) -> None:
    _replicas(obj)
    labels = obj["spec"]["template"]["metadata"].get("labels")
    if labels:
        _set(obj["spec"], selector=dict(labels))
    if labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = dict(labels)


def _stateful_set(obj: Object) -> None:
    spec = _template(obj)
    _set(spec, replicas=1, podManagementPolicy="OrderedReady", revisionHistoryLimit=10)
    _set(_under(spec, "persistentVolumeClaimRetentionPolicy"), whenDeleted="Retain", whenScaled="Retain")
    strategy = _under(spec, "updateStrategy")
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(_under(strategy, "rollingUpdate"), partition=0)


def _daemon_set(obj: Object) -> None:
    spec = _template(obj)
    _set(spec, revisionHistoryLimit=10)
    _set(_under(obj["metadata"], "annotations"), **{"deprecated.daemonset.template.generation": "1"})
    strategy = _under(spec, "updateStrategy")
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(_under(strategy, "rollingUpdate"), maxUnavailable=1, maxSurge=0)


def _job(obj: Object) -> None:
    spec = _template(obj)
    if spec.get("completions") is None and spec.get("parallelism") is None:
        _set(spec, completions=1)
    _set(spec, parallelism=1, backoffLimit=6, completionMode="NonIndexed", suspend=False, manualSelector=False)
    _set(spec, podReplacementPolicy="Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")


def _begin_job(obj: Object) -> None:
    """A job selects its pods by its own uid."""
    spec, uid, name = obj["spec"], obj["metadata"]["uid"], obj["metadata"]["name"]
    if spec.get("manualSelector") or spec.get("selector"):
        return
    labels = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    template = spec["template"]["metadata"]
    template["labels"] = {**(template.get("labels") or {}), **labels, "controller-uid": uid, "job-name": name}


def _cron_job(obj: Object) -> None:
    spec = _under(obj, "spec")
    _set(spec, concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    job = _under(spec, "jobTemplate")
    _under(job, "metadata")
    _template(job)


def _namespace(obj: Object) -> None:
    name = obj["metadata"].get("name")
    if name:
        _under(obj["metadata"], "labels")["kubernetes.io/metadata.name"] = name
    _set(_under(obj, "status"), phase="Active")


def _node(obj: Object) -> None:
    status = _under(obj, "status")
    _set(_under(_under(status, "daemonEndpoints"), "kubeletEndpoint"), Port=0)
    info = _under(status, "nodeInfo")
    for name in _NODE_INFO:
        info.setdefault(name, "")
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    for condition in _items(status, "conditions"):
        condition.setdefault("lastHeartbeatTime", None)
        condition.setdefault("lastTransitionTime", None)


_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


def _service(obj: Object) -> None:
    spec = _under(obj, "spec")
    _set(spec, sessionAffinity="None", type="ClusterIP")
    for port in _items(spec, "ports"):
        _set(port, protocol="TCP")
        _set(port, targetPort=port.get("port"))
    if spec["type"] != "ExternalName":
        _set(spec, internalTrafficPolicy="Cluster")


def _begin_service(obj: Object) -> None:
    """Give a service an address; nothing listens there."""
    spec = obj["spec"]
    if spec["type"] == "ExternalName" or spec.get("clusterIP"):
        return
    high, low = divmod(int(obj["metadata"]["uid"][:4], 16), 256)
    address = f"10.96.{high}.{low}"
    spec |= {"clusterIP": address, "clusterIPs": [address], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}


def _hooks(obj: Object) -> None:
    for hook in _items(obj, "webhooks"):
        _set(hook, failurePolicy="Fail", matchPolicy="Equivalent", timeoutSeconds=10)
        _set(hook, namespaceSelector={}, objectSelector={})
        if obj.get("kind") == "MutatingWebhookConfiguration":
            _set(hook, reinvocationPolicy="Never")
        for rule in _items(hook, "rules"):
            _set(rule, scope="*")
        service = (hook.get("clientConfig") or {}).get("service")
        if isinstance(service, dict):
            _set(service, port=443)


def _binding(obj: Object) -> None:
    reference = _under(obj, "roleRef")
    _set(reference, apiGroup="rbac.authorization.k8s.io")
    for subject in _items(obj, "subjects"):
        if subject.get("kind") in ("User", "Group"):
            _set(subject, apiGroup="rbac.authorization.k8s.io")


def _event(obj: Object) -> None:
    if obj.get("apiVersion") != "v1":
        return
    for key in ("firstTimestamp", "lastTimestamp", "eventTime"):
        obj.setdefault(key, None)
    _set(obj, source={}, reportingComponent="", reportingInstance="")


_PARTS = {
    "Pod": ("spec", "status"),
    "Node": ("spec", "status"),
    "Namespace": ("spec", "status"),
    "PersistentVolume": ("spec", "status"),
    "PersistentVolumeClaim": ("spec", "status"),
    "Service": ("spec", "status"),
    "Deployment": ("status",),
    "ReplicaSet": ("status",),
    "ReplicationController": ("status",),
    "StatefulSet": ("status",),
    "DaemonSet": ("status",),
    "Job": ("status",),
    "CronJob": ("status",),
    "PodDisruptionBudget": ("spec", "status"),
    "Lease": ("spec",),
}

_DEFAULTS: dict[str, dict[str, Object]] = {
    "PersistentVolume": {
        "spec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"},
        "status": {"phase": "Pending"},
    },
    "PersistentVolumeClaim": {"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}},
    "PriorityClass": {"": {"value": 0, "preemptionPolicy": "PreemptLowerPriority"}},
    "Secret": {"": {"type": "Opaque"}},
    "StorageClass": {"": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}},
}
"""Kinds whose defaults are the same for every object: the part of it ("" is the object itself), and its fields."""

_COMPLETIONS: dict[str, Callable[[Object], None]] = {
    "ClusterRoleBinding": _binding,
    "CronJob": _cron_job,
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
    "Event": _event,
    "Job": _job,
    "MutatingWebhookConfiguration": _hooks,
    "Namespace": _namespace,
    "Node": _node,
    "Pod": _pod,
    "ReplicaSet": _replicas,
    "ReplicationController": _controller,
    "RoleBinding": _binding,
    "Service": _service,
    "StatefulSet": _stateful_set,
    "ValidatingWebhookConfiguration": _hooks,
}

_NO_DISRUPTIONS = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
_NO_DAEMONS = {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0}

_FIRST_STATUS: dict[str, Callable[[Object], Object]] = {
    "CronJob": lambda _obj: {},
    "DaemonSet": lambda _obj: dict(_NO_DAEMONS),
    "Deployment": lambda _obj: {},
    "Job": lambda _obj: {},
    "Namespace": lambda _obj: {"phase": "Active"},
    "PersistentVolume": lambda _obj: {"phase": "Pending"},
    "PersistentVolumeClaim": lambda _obj: {"phase": "Pending"},
    "Pod": lambda obj: {"phase": "Pending", "qosClass": qos_class(obj.get("spec") or {})},
    "PodDisruptionBudget": lambda _obj: dict(_NO_DISRUPTIONS),
    "ReplicaSet": lambda _obj: {"replicas": 0},
    "ReplicationController": lambda _obj: {"replicas": 0},
    "Service": lambda _obj: {"loadBalancer": {}},
    "StatefulSet": lambda _obj: {"replicas": 0, "availableReplicas": 0},
}
