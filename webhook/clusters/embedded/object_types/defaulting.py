"""Values an object gets where its author gave none: Kubernetes' defaults for what is modelled, as recorded.

`complete` runs before admission, as decoding does in Kubernetes; `begin` after it, on new objects only.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object
from webhook.clusters.model.jobs import job_labels
from webhook.clusters.model.new_pods import default_pod
from webhook.kube.label_keys import merge_label_keys
from webhook.kube.pods import template_of

# Defaults by field. A struct that has defaults itself is made if it is missing, but `name?` completes only a struct
# that is there, and `name[]` every item of a list.

_MODE = {"defaultMode": 420}
_PROBE = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
    "httpGet?": {"path": "/", "scheme": "HTTP"},
}
_CONTAINER = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "ports[]": {"protocol": "TCP"},
    "livenessProbe?": _PROBE,
    "readinessProbe?": _PROBE,
    "startupProbe?": _PROBE,
    "env[]": {"valueFrom?": {"fieldRef?": {"apiVersion": "v1"}}},
}
_POD_SPEC = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "containers[]": _CONTAINER,
    "initContainers[]": _CONTAINER,
    "ephemeralContainers[]": _CONTAINER,
    "volumes[]": {
        "configMap?": _MODE,
        "secret?": _MODE,
        "downwardAPI?": _MODE,
        "projected?": _MODE,
        "hostPath?": {"type": ""},
    },
    "topologySpreadConstraints[]": {"nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore"},
}
_TEMPLATE = {"metadata": {}, "spec": _POD_SPEC}
_JOB_SPEC = {
    "template": _TEMPLATE,
    "parallelism": 1,
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "suspend": False,
    "manualSelector": False,
}
_CRON_JOB_SPEC = {
    "concurrencyPolicy": "Allow",
    "suspend": False,
    "successfulJobsHistoryLimit": 3,
    "failedJobsHistoryLimit": 1,
    "jobTemplate": {"metadata": {}, "spec": {"template": _TEMPLATE}},
}
_WEBHOOK = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "timeoutSeconds": 10,
    "namespaceSelector": {},
    "objectSelector": {},
    "rules[]": {"scope": "*"},
    "clientConfig?": {"service?": {"port": 443}},
}
_NODE_INFO = dict.fromkeys(
    (
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
    ),
    "",
)
_ROLE_BINDING = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io"}}
_REPLICAS = {"template": _TEMPLATE, "replicas": 1}

_BY_KIND: dict[str, Object] = {
    "ClusterRoleBinding": _ROLE_BINDING,
    "CronJob": {"status": {}, "spec": _CRON_JOB_SPEC},
    "DaemonSet": {
        "status": {},
        "spec": {"template": _TEMPLATE, "revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate"}},
        "metadata": {"annotations": {"deprecated.daemonset.template.generation": "1"}},
    },
    "Deployment": {
        "status": {},
        "spec": {
            **_REPLICAS,
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate"},
        },
    },
    "Event": {
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "source": {},
        "reportingComponent": "",
        "reportingInstance": "",
    },
    "Job": {"status": {}, "spec": _JOB_SPEC},
    "Lease": {"spec": {}},
    "MutatingWebhookConfiguration": {"webhooks[]": {**_WEBHOOK, "reinvocationPolicy": "Never"}},
    "Namespace": {"spec": {}, "status": {"phase": "Active"}},
    "Node": {
        "spec": {},
        "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": _NODE_INFO,
            "conditions[]": {"lastHeartbeatTime": None, "lastTransitionTime": None},
        },
    },
    "PersistentVolume": {
        "spec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"},
        "status": {"phase": "Pending"},
    },
    "PersistentVolumeClaim": {"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}},
    "Pod": {
        "spec": {**_POD_SPEC, "enableServiceLinks": True},
        "status": {"conditions[]": {"lastProbeTime": None, "lastTransitionTime": None}},
    },
    "PodDisruptionBudget": {"spec": {}, "status": {}},
    "PriorityClass": {"value": 0, "preemptionPolicy": "PreemptLowerPriority"},
    "ReplicaSet": {"status": {}, "spec": _REPLICAS},
    "ReplicationController": {"status": {}, "spec": _REPLICAS},
    "RoleBinding": _ROLE_BINDING,
    "Secret": {"type": "Opaque"},
    "Service": {
        "spec": {"sessionAffinity": "None", "type": "ClusterIP", "ports[]": {"protocol": "TCP"}},
        "status": {},
    },
    "StatefulSet": {
        "status": {},
        "spec": {
            **_REPLICAS,
            "podManagementPolicy": "OrderedReady",
            "revisionHistoryLimit": 10,
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "updateStrategy": {"type": "RollingUpdate"},
        },
    },
    "StorageClass": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    "ValidatingWebhookConfiguration": {"webhooks[]": _WEBHOOK},
}
_ROLLING_UPDATE: dict[str, tuple[str, Object]] = {
    "DaemonSet": ("updateStrategy", {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}),
    "Deployment": ("strategy", {"rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}),
    "StatefulSet": ("updateStrategy", {"rollingUpdate": {"partition": 0}}),
}
"""The field of a workload that holds its strategy, and the defaults in it if its type is RollingUpdate."""

_FIRST_STATUS: dict[str, Object] = {
    "CronJob": {},
    "DaemonSet": {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    },
    "Deployment": {},
    "Job": {},
    "Namespace": {"phase": "Active"},
    "PersistentVolume": {"phase": "Pending"},
    "PersistentVolumeClaim": {"phase": "Pending"},
    "Pod": {"phase": "Pending"},
    "PodDisruptionBudget": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
    "ReplicaSet": {"replicas": 0},
    "ReplicationController": {"replicas": 0},
    "Service": {"loadBalancer": {}},
    "StatefulSet": {"replicas": 0, "availableReplicas": 0},
}


_COUNTED = ("cpu", "memory")
"""What decides about a pod's quality of service."""


class _Default(NamedTuple):
    """One field of the tables above, its name taken apart; `value` of a struct is a list of these."""

    name: str
    suffix: str
    value: Any


def _compiled(fields: Object) -> list[_Default]:
    rows = []
    for key, value in fields.items():
        name = key.rstrip("?[]")
        rows.append(_Default(name, key[len(name) :], _compiled(value) if isinstance(value, dict) else value))
    return rows


_DEFAULTS = {kind: _compiled(fields) for kind, fields in _BY_KIND.items()}
_STRATEGIES = {kind: (field, _compiled(fields)) for kind, (field, fields) in _ROLLING_UPDATE.items()}


def _fill(target: Object, defaults: list[_Default]) -> None:
    for name, suffix, value in defaults:
        current = target.get(name)
        if suffix == "[]":
            for item in _structs(target, name):
                _fill(item, value)
        elif isinstance(value, list):
            if current is None and not suffix:
                current = target[name] = {}
            if isinstance(current, dict):
                _fill(current, value)
        elif current is None:
            target[name] = value


def _set(target: Object, name: str, value: Any) -> None:
    if target.get(name) is None:
        target[name] = value


def _structs(target: Object, *names: str) -> Iterator[Object]:
    for name in names:
        yield from (item for item in target.get(name) or () if isinstance(item, dict))


def complete(resource: ApiResource, obj: Object) -> None:
    """Fill in what Kubernetes defaults; does nothing to what is complete."""
    kind, given = resource.kind, obj.get("spec") or {}
    if kind == "Event" and resource.group:
        return
    runs_once = kind == "Job" and given.get("completions") is None and given.get("parallelism") is None
    _fill(obj, _DEFAULTS.get(kind, []))
    if kind in _STRATEGIES:
        field, defaults = _STRATEGIES[kind]
        if obj["spec"][field]["type"] == "RollingUpdate":
            _fill(obj["spec"][field], defaults)
    if runs_once:
        obj["spec"]["completions"] = 1
    template = obj if kind == "Pod" else template_of(obj, resource.plural)
    if template is not None:
        _complete_pod_spec(template["spec"])
    if kind == "Pod":
        default_pod(obj)
    _complete_from_others(kind, obj)


def _complete_pod_spec(spec: Object) -> None:
    """Set the defaults of a pod's spec that depend on other fields of it."""
    for container in _structs(spec, "containers", "initContainers", "ephemeralContainers"):
        image = str(container.get("image") or "")
        latest = "@" not in image and image.rpartition("/")[2].partition(":")[2] in ("", "latest")
        _set(container, "imagePullPolicy", "Always" if latest else "IfNotPresent")
    for volume in _structs(spec, "volumes"):
        if set(volume) == {"name"}:
            volume["emptyDir"] = {}


def _complete_from_others(kind: str, obj: Object) -> None:
    """Set the defaults of an object that depend on other fields of it."""
    metadata, spec = obj["metadata"], obj.get("spec", {})
    match kind:
        case "ClusterRoleBinding" | "RoleBinding":
            for subject in _structs(obj, "subjects"):
                if subject.get("kind") in ("User", "Group"):
                    _set(subject, "apiGroup", "rbac.authorization.k8s.io")
        case "Job":
            _set(spec, "podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
        case "Namespace":
            if metadata.get("name"):
                _set(metadata, "labels", {})
                metadata["labels"]["kubernetes.io/metadata.name"] = metadata["name"]
        case "Node":
            status = obj["status"]
            if status.get("capacity") and not status.get("allocatable"):
                status["allocatable"] = dict(status["capacity"])
        case "ReplicationController":
            labels = spec["template"]["metadata"].get("labels")
            if labels:
                _set(spec, "selector", dict(labels))
                metadata["labels"] = metadata.get("labels") or dict(labels)
        case "Service":
            for port in _structs(spec, "ports"):
                _set(port, "targetPort", port.get("port"))
            if spec["type"] != "ExternalName":
                _set(spec, "internalTrafficPolicy", "Cluster")


def begin(resource: ApiResource, obj: Object) -> None:
    """Give a new object the status it is born with, whatever its author wrote there, and what else it gets once."""
    first = _FIRST_STATUS.get(resource.kind)
    if first is not None:
        obj["status"] = copy.deepcopy(first)
    metadata, spec = obj["metadata"], obj.get("spec", {})
    match resource.kind:
        case "Pod":
            obj["status"]["qosClass"] = _qos_class(spec)
            merge_label_keys(obj)
        case "Namespace":
            spec["finalizers"] = ["kubernetes"]
        case "Job":
            if spec.get("manualSelector") or spec.get("selector"):
                return
            # It selects its pods by its own uid.
            uid, template = metadata["uid"], spec["template"]["metadata"]
            spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
            template["labels"] = {**(template.get("labels") or {}), **job_labels(metadata["name"], uid)}
        case "Service":
            if spec["type"] == "ExternalName" or spec.get("clusterIP"):
                return
            # An address at which nothing listens.
            high, low = divmod(int(metadata["uid"][:4], 16), 256)
            address = f"10.96.{high}.{low}"
            spec |= {"clusterIP": address, "clusterIPs": [address]}
            spec |= {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}


def _qos_class(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort (`component-helpers/.../qos`)."""
    guaranteed, any_given = True, False
    for container in _structs(spec, "containers", "initContainers"):
        resources = container.get("resources") or {}
        requests, limits = (
            {key: value for key, value in (resources.get(part) or {}).items() if key in _COUNTED and str(value) != "0"}
            for part in ("requests", "limits")
        )
        any_given = any_given or bool(requests or limits)
        guaranteed = guaranteed and len(limits) == len(_COUNTED) and {**limits, **requests} == limits
    if not any_given:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"
