"""Bodies that kubectl's typed commands send as `application/vnd.kubernetes.protobuf`, as plain data.

An envelope (`runtime.Unknown`) names version and kind; the fields follow the schema of that kind. Answers are always
JSON, which these clients accept as well.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from webhook.clusters.embedded.object_types import schemas
from webhook.clusters.embedded.object_types.schemas import Schema
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import Object, by_kind
from webhook.kube import protobuf_wire
from webhook.kube.instants import rfc3339

_MAGIC = b"k8s\0"
_TRUNCATED = "the protobuf body is cut off"
_OTHER_MODELS = {
    ("policy/v1", "Eviction"): "V1Eviction",
    ("autoscaling/v1", "Scale"): "V1Scale",
}
_STRING_INT_OR_STRING = 1
_ZERO_IS_UNSET = {
    *("hostIPC", "hostNetwork", "hostPID", "hostPort", "stdin", "stdinOnce", "tty"),
    *("generation", "globalDefault", "minReadySeconds", "paused"),
}
"""Fields that these messages always carry and JSON leaves out at zero or false."""

_MESSAGES = """
RbacV1Subject kind apiGroup name namespace
V1ClusterRole metadata rules aggregationRule
V1ClusterRoleBinding metadata subjects roleRef
V1ConfigMap metadata data binaryData immutable
V1Container name image command args workingDir ports env resources volumeMounts livenessProbe readinessProbe
  lifecycle terminationMessagePath imagePullPolicy securityContext stdin stdinOnce tty envFrom
  terminationMessagePolicy volumeDevices startupProbe resizePolicy restartPolicy
V1ContainerPort name hostPort containerPort protocol hostIP
V1DeleteOptions gracePeriodSeconds preconditions orphanDependents propagationPolicy dryRun
  ignoreStoreReadErrorWithClusterBreakingPotential
V1Deployment metadata spec status
V1DeploymentSpec replicas selector template strategy minReadySeconds revisionHistoryLimit paused
  9:progressDeadlineSeconds
V1DeploymentStrategy type rollingUpdate
V1Eviction metadata deleteOptions
V1Job metadata spec status
V1JobSpec parallelism completions activeDeadlineSeconds selector manualSelector template backoffLimit
  ttlSecondsAfterFinished completionMode suspend podFailurePolicy backoffLimitPerIndex maxFailedIndexes
  podReplacementPolicy managedBy successPolicy
V1LabelSelector matchLabels matchExpressions
V1LabelSelectorRequirement key operator values
V1LocalObjectReference name
V1ManagedFieldsEntry manager operation apiVersion time 6:fieldsType fieldsV1 subresource
V1Namespace metadata spec status
V1NamespaceSpec finalizers
V1NonResourceAttributes path verb
V1ObjectMeta name generateName namespace selfLink uid resourceVersion generation creationTimestamp deletionTimestamp
  deletionGracePeriodSeconds labels annotations ownerReferences finalizers 17:managedFields
V1ObjectReference kind namespace name uid apiVersion resourceVersion fieldPath
V1OwnerReference kind 3:name uid apiVersion controller blockOwnerDeletion
V1PodDisruptionBudget metadata spec status
V1PodDisruptionBudgetSpec minAvailable selector maxUnavailable unhealthyPodEvictionPolicy
V1PodSpec volumes containers restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy
  nodeSelector serviceAccountName serviceAccount nodeName hostNetwork hostPID hostIPC securityContext
  imagePullSecrets hostname subdomain affinity schedulerName initContainers automountServiceAccountToken tolerations
  hostAliases priorityClassName priority dnsConfig shareProcessNamespace readinessGates runtimeClassName
  enableServiceLinks preemptionPolicy overhead topologySpreadConstraints ephemeralContainers setHostnameAsFQDN os
  hostUsers schedulingGates resourceClaims resources
V1PodTemplateSpec metadata spec
V1PolicyRule verbs apiGroups resources resourceNames nonResourceURLs
V1Preconditions uid resourceVersion
V1PriorityClass metadata value globalDefault description preemptionPolicy
V1ResourceAttributes namespace verb group version resource subresource name fieldSelector labelSelector
V1ResourceRequirements limits requests claims
V1Role metadata rules
V1RoleBinding metadata subjects roleRef
V1RoleRef apiGroup kind name
V1RollingUpdateDeployment maxUnavailable maxSurge
V1Scale metadata spec status
V1ScaleSpec replicas
V1Secret metadata data type stringData immutable
V1SelfSubjectAccessReview metadata spec status
V1SelfSubjectAccessReviewSpec resourceAttributes nonResourceAttributes
V1SelfSubjectReview metadata status
V1ServiceAccount metadata secrets imagePullSecrets automountServiceAccountToken
"""

"""Messages, each with its fields in the order of their numbers, which start at 1; `7:name` jumps.

Messages are called as the official client's models are. A line that is indented continues the one before. Left out are
statuses, which a new object does not bring, and what the pages have nobody create with kubectl alone.
"""


def _numbered(fields: Sequence[str]) -> dict[int, str]:
    numbers: dict[int, str] = {}
    number = 0
    for field in fields:
        jump, _, name = field.rpartition(":")
        number = int(jump) if jump else number + 1
        numbers[number] = name
    return numbers


_LINES = (line.split() for line in _MESSAGES.strip().replace("\n  ", " ").splitlines())
NUMBERS = {message: _numbered(fields) for message, *fields in _LINES}
"""By message and number: the names of the fields."""


def decode(body: bytes) -> Object:
    """A body as an object with kind and apiVersion. Raises StatusError: 400 for what does not parse."""
    if not body.startswith(_MAGIC):
        raise statuses.bad_request("provided data does not appear to be a protobuf message, expected prefix k8s")
    try:
        unknown = dict(_fields(body[len(_MAGIC) :]))
        meta = {number: value.decode() for number, value in _fields(unknown.get(1, b""))}
        version, kind = meta.get(1, ""), meta.get(2, "")
        resource = by_kind(version, kind)
        if resource is not None:
            model = schemas.model_of(resource)
        elif kind == "DeleteOptions":
            model = "V1DeleteOptions"
        elif (version, kind) in _OTHER_MODELS:
            model = _OTHER_MODELS[version, kind]
        else:
            raise statuses.bad_request(f'no kind "{kind}" is registered for version "{version}"')
        return {"kind": kind, "apiVersion": version, **_message(schemas.of_model(model), unknown.get(2, b""), model)}
    except (IndexError, UnicodeDecodeError) as error:
        raise statuses.bad_request(_TRUNCATED) from error
    except (AttributeError, TypeError, msgspec.DecodeError) as error:  # a field of another wire type, or not JSON
        raise statuses.bad_request(f"the protobuf body does not fit its kind: {error}") from error


def _message(schema: Schema, data: bytes, name: str) -> Object:
    """The fields of one message. Raises StatusError (400) if it is not in the table: kubectl does not send it."""
    obj: Object = {}
    numbers = NUMBERS.get(name, {})
    if data and not numbers:
        raise statuses.bad_request(f"{name.removeprefix('V1')} is not read from protobuf here; send JSON")
    for number, raw in _fields(data):
        field_name = numbers.get(number, "")
        field = schema.fields.get(field_name)
        if field is None or field_name == "status":
            continue
        if field.kind == "list":
            assert field.item is not None
            obj.setdefault(field_name, []).append(_value(field.item, raw))
        elif field.kind == "map":
            assert field.item is not None
            entry = dict(_fields(raw))
            key = entry.get(1, b"").decode()
            obj.setdefault(field_name, {})[key] = _value(field.item, entry.get(2, b""))
        else:
            value = _value(field, raw)
            if value not in ("", None) and not (not value and field_name in _ZERO_IS_UNSET):
                obj[field_name] = value
    return obj


def _value(field: Schema, raw: Any) -> Any:
    """One value, by the kind of its field in JSON."""
    match field.kind:
        case "struct":
            return _message(field, raw, field.model)
        case "time":
            parts = dict(_fields(raw))
            seconds = parts.get(1, 0) + parts.get(2, 0) / 1e9
            if not parts.get(1):
                return None
            return rfc3339(seconds)
        case "any":  # RawExtension and FieldsV1: JSON in a message of its own
            inner = dict(_fields(raw)).get(1)
            return msgspec.json.decode(inner) if inner else None
        case "intstr":
            parts = dict(_fields(raw))
            is_string = parts.get(1) == _STRING_INT_OR_STRING
            return parts.get(3, b"").decode() if is_string else _integer(parts.get(2, 0))
        case "quantity":
            return dict(_fields(raw)).get(1, b"").decode()
        case "integer" | "int64":
            return _integer(raw)
        case "boolean":
            return bool(raw)
        case "bytes":
            return base64.b64encode(raw).decode()
    return raw.decode()


def _integer(raw: int) -> int:
    return raw - (1 << 64) if raw >> 63 else raw


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and raw values of a message's fields, in order. Raises StatusError (400)."""
    try:
        for number, _, value in protobuf_wire.fields(data):
            yield number, value
    except protobuf_wire.WireError as error:
        raise statuses.bad_request(f"the protobuf body {error}") from error
