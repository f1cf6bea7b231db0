"""Values an object gets where its author gave none: Kubernetes' defaults for what is modelled, as recorded.

`complete` runs before admission, as decoding does in Kubernetes; `begin` after it, on new objects only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
    ports[]: {protocol: TCP}
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
    status: {currentNumberScheduled: 0, numberMisscheduled: 0, desiredNumberScheduled: 0, numberReady: 0}
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
  PodDisruptionBudget:
    spec: {}
    status: {disruptionsAllowed: 0, currentHealthy: 0, desiredHealthy: 0, expectedPods: 0}
  PriorityClass: {value: 0, preemptionPolicy: PreemptLowerPriority}
  ReplicaSet: {status: {replicas: 0}, spec: {template: *template, replicas: 1}}
  RoleBinding: *binding
  Secret: {type: Opaque}
  StatefulSet:
    status: {replicas: 0, availableReplicas: 0}
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
"""
"""Defaults by field, as YAML; the parts before `kinds` are there to be named.

A struct that has defaults itself is made if it is missing, but `name?` completes only a struct that is there, and
`name[]` every item of a list. `rolling updates` holds what a workload's strategy gets if its type is RollingUpdate,
`first status` what an object with a status is born with, if that is not empty.
"""

_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_PARTS: Object = yaml.safe_load(_TABLES)


def _fill(target: Object, defaults: Object) -> None:
    """Give an object the values that it does not have, as the tables above tell them."""
    for key, value in defaults.items():
        name = key.rstrip("?[]")
        if key.endswith("[]"):
            for item in _structs(target, name):
                _fill(item, value)
        elif not isinstance(value, dict):
            _set(target, name, value)
        else:
            if not key.endswith("?"):
                _set(target, name, {})
            if target.get(name) is not None:
                _fill(target[name], value)


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
    _fill(obj, _PARTS["kinds"].get(kind, {}))
    for field, defaults in _PARTS["rolling updates"].get(kind, {}).items():
        if obj["spec"][field]["type"] == "RollingUpdate":
            _fill(obj["spec"][field], defaults)
    if runs_once:
        obj["spec"]["completions"] = 1
    template = obj if kind == "Pod" else template_of(obj, resource.plural)
    for container in _structs((template or {}).get("spec") or {}, "containers", "initContainers"):
        image = str(container.get("image") or "")
        latest = "@" not in image and image.rpartition("/")[2].partition(":")[2] in ("", "latest")
        _set(container, "imagePullPolicy", "Always" if latest else "IfNotPresent")
    match kind:
        case "Pod":
            default_pod(obj)
        case "Job":
            policy = "Failed" if given.get("podFailurePolicy") else "TerminatingOrFailed"
            _set(obj["spec"], "podReplacementPolicy", policy)
        case "Namespace" if name := obj["metadata"].get("name"):
            obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": name}
        case "Node" if (capacity := obj["status"].get("capacity")) and not obj["status"].get("allocatable"):
            obj["status"]["allocatable"] = dict(capacity)


def begin(resource: ApiResource, obj: Object) -> None:
    """Give a new object the status it is born with, whatever its author wrote there, and what else it gets once."""
    if "status" in resource.sub and resource.kind != "Node":
        obj["status"] = dict(_PARTS["first status"].get(resource.kind) or {})
        _fill(obj, _PARTS["kinds"].get(resource.kind, {}))
    metadata, spec = obj["metadata"], obj.get("spec", {})
    match resource.kind:
        case "Pod":
            obj["status"]["qosClass"] = _qos_class(spec)
            if spec.get("schedulingGates"):
                obj["status"]["conditions"] = [{**_GATED, "lastTransitionTime": metadata["creationTimestamp"]}]
            merge_label_keys(obj)
        case "Namespace":
            spec["finalizers"] = ["kubernetes"]
        case "Job":
            if spec.get("manualSelector") or spec.get("selector"):
                return
            # It selects its pods by its own uid.
            uid = metadata["uid"]
            spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
            for labelled in (metadata, spec["template"]["metadata"]):
                labelled["labels"] = {**(labelled.get("labels") or {}), **job_labels(metadata["name"], uid)}


def _qos_class(spec: Object) -> str:
    """BestEffort if no container asks for cpu or memory, else Burstable: nobody is told that it is Guaranteed."""
    containers = _structs(spec, "containers", "initContainers")
    requests = [(row.get("resources") or {}).get("requests") or {} for row in containers]
    return "Burstable" if any(nanos(row.get(key, 0)) for row in requests for key in ("cpu", "memory")) else "BestEffort"
