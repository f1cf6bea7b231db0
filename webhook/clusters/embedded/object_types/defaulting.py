"""Values an object gets where its author gave none: Kubernetes' defaults for what is modelled, as recorded.

`complete` runs before admission, as decoding does in Kubernetes; `begin` after it, on new objects only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from webhook.clusters.embedded.protocol.api_resources import ApiResource, Object
from webhook.clusters.model.jobs import job_labels
from webhook.clusters.model.new_pods import default_pod
from webhook.kube.label_keys import merge_label_keys
from webhook.kube.pods import template_of
from webhook.kube.quantity import nanos

_TABLES = """
pod: &pod
  restartPolicy: Always
  terminationGracePeriodSeconds: 30
  dnsPolicy: ClusterFirst
  securityContext: {}
  schedulerName: default-scheduler
  containers[]: &container
    resources: {}
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
  initContainers[]: *container
  topologySpreadConstraints[]: {nodeAffinityPolicy: Honor, nodeTaintsPolicy: Ignore}
template: &template {metadata: {}, spec: *pod}
webhook: &webhook
  failurePolicy: Fail
  matchPolicy: Equivalent
  timeoutSeconds: 10
  namespaceSelector: {}
  objectSelector: {}
  rules[]: {scope: "*"}
  clientConfig?:
    service?: {port: 443}
role binding: &binding
  roleRef: {apiGroup: rbac.authorization.k8s.io}
kinds:
  ClusterRoleBinding: *binding
  CronJob:
    status: {}
    spec:
      concurrencyPolicy: Allow
      suspend: false
      successfulJobsHistoryLimit: 3
      failedJobsHistoryLimit: 1
      jobTemplate: {metadata: {}, spec: {template: *template}}
  DaemonSet:
    status: {}
    spec: {template: *template, revisionHistoryLimit: 10, updateStrategy: {type: RollingUpdate}}
    metadata: {annotations: {deprecated.daemonset.template.generation: "1"}}
  Deployment:
    status: {}
    spec:
      template: *template
      replicas: 1
      revisionHistoryLimit: 10
      progressDeadlineSeconds: 600
      strategy: {type: RollingUpdate}
  Event:
    {firstTimestamp: null, lastTimestamp: null, eventTime: null, source: {}, reportingComponent: "",
      reportingInstance: ""}
  Job:
    status: {}
    spec:
      {template: *template, parallelism: 1, backoffLimit: 6, completionMode: NonIndexed, suspend: false,
        manualSelector: false}
  Lease: {spec: {}}
  MutatingWebhookConfiguration:
    webhooks[]: {<<: *webhook, reinvocationPolicy: Never}
  Namespace: {spec: {}, status: {phase: Active}}
  Node:
    spec: {}
    status:
      daemonEndpoints: {kubeletEndpoint: {Port: 0}}
      nodeInfo: {machineID: "", systemUUID: "", bootID: "", kernelVersion: "", osImage: "", containerRuntimeVersion: "",
        kubeletVersion: "", kubeProxyVersion: "", operatingSystem: "", architecture: ""}
      conditions[]: {lastHeartbeatTime: null, lastTransitionTime: null}
  Pod:
    spec: {<<: *pod, enableServiceLinks: true}
    status:
      conditions[]: {lastProbeTime: null, lastTransitionTime: null}
  PodDisruptionBudget: {spec: {}, status: {}}
  PriorityClass: {value: 0, preemptionPolicy: PreemptLowerPriority}
  ReplicaSet: {status: {}, spec: {template: *template, replicas: 1}}
  RoleBinding: *binding
  StatefulSet:
    status: {}
    spec:
      template: *template
      replicas: 1
      podManagementPolicy: OrderedReady
      revisionHistoryLimit: 10
      persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Retain}
      updateStrategy: {type: RollingUpdate}
  StorageClass: {reclaimPolicy: Delete, volumeBindingMode: Immediate}
  ValidatingWebhookConfiguration:
    webhooks[]: *webhook
rolling updates:
  DaemonSet:
    updateStrategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}
  Deployment:
    strategy: {rollingUpdate: {maxUnavailable: 25%, maxSurge: 25%}}
  StatefulSet:
    updateStrategy: {rollingUpdate: {partition: 0}}
first status:
  Namespace: {phase: Active}
  PersistentVolumeClaim: {phase: Pending}
  Pod: {phase: Pending}
  PodDisruptionBudget: {disruptionsAllowed: 0, currentHealthy: 0, desiredHealthy: 0, expectedPods: 0}
"""
"""Defaults by field, as YAML; the parts before `kinds` are there to be named.

A struct that has defaults itself is made if it is missing, but `name?` completes only a struct that is there, and
`name[]` every item of a list. `rolling updates` holds what a workload's strategy gets if its type is RollingUpdate,
`first status` what an object with a status is born with, if that is not empty.
"""

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


_PARTS: Object = yaml.safe_load(_TABLES)
_DEFAULTS = {kind: _compiled(fields) for kind, fields in _PARTS["kinds"].items()}
_ROLLING_UPDATES = {kind: _compiled(fields) for kind, fields in _PARTS["rolling updates"].items()}


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
    for field, _, defaults in _ROLLING_UPDATES.get(kind, ()):
        if obj["spec"][field]["type"] == "RollingUpdate":
            _fill(obj["spec"][field], defaults)
    if runs_once:
        obj["spec"]["completions"] = 1
    template = obj if kind == "Pod" else template_of(obj, resource.plural)
    if template is not None:
        _complete_pod_spec(template.get("spec") or {})
    if kind == "Pod":
        default_pod(obj)
    _complete_from_others(kind, obj)


def _complete_pod_spec(spec: Object) -> None:
    """Set the defaults of a pod's spec that depend on other fields of it."""
    for container in _structs(spec, "containers", "initContainers"):
        image = str(container.get("image") or "")
        latest = "@" not in image and image.rpartition("/")[2].partition(":")[2] in ("", "latest")
        _set(container, "imagePullPolicy", "Always" if latest else "IfNotPresent")


def _complete_from_others(kind: str, obj: Object) -> None:
    """Set the defaults of an object that depend on other fields of it."""
    metadata, spec = obj["metadata"], obj.get("spec", {})
    match kind:
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


def begin(resource: ApiResource, obj: Object) -> None:
    """Give a new object the status it is born with, whatever its author wrote there, and what else it gets once."""
    if "status" in resource.sub and resource.kind != "Node":
        obj["status"] = dict(_PARTS["first status"].get(resource.kind) or {})
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


def _qos_class(spec: Object) -> str:
    """BestEffort if no container asks for cpu or memory, else Burstable: nobody is told that it is Guaranteed."""
    containers = _structs(spec, "containers", "initContainers")
    given = (((row.get("resources") or {}).get("requests") or {}).get(key, 0) for row in containers for key in _COUNTED)
    return "Burstable" if any(map(nanos, given)) else "BestEffort"
