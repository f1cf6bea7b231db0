"""Bytes to a typed AdmissionReview: only the fields that are used, the whole object only where a rule asks for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from webhook.kube.objects import PriorityClass
from webhook.policy.request import UserInfo

__all__ = [
    "API_VERSION",
    "WORKLOADS",
    "BadReviewError",
    "Meta",
    "PodView",
    "Review",
    "decode",
    "decode_class",
    "decode_pod",
    "template_of",
]

T = TypeVar("T")

API_VERSION = "admission.k8s.io/v1"

WORKLOADS = {
    ("apps", "deployments"): "Deployment",
    ("apps", "statefulsets"): "StatefulSet",
    ("apps", "daemonsets"): "DaemonSet",
    ("apps", "replicasets"): "ReplicaSet",
    ("", "replicationcontrollers"): "ReplicationController",
    ("batch", "jobs"): "Job",
    ("batch", "cronjobs"): "CronJob",
}
"""What carries a pod template, by group and resource."""


class BadReviewError(Exception):
    """A body that is no AdmissionReview: `code` is the HTTP status, `uid` the request's where it could be read."""

    def __init__(self, message: str, *, uid: str = "", code: int = 400) -> None:
        super().__init__(message)
        self.message, self.uid, self.code = message, uid, code


class View(msgspec.Struct, rename="camel"):
    """Part of an object as admission reads it; null and absent are the same."""


class Meta(View):
    """The metadata that rules of this package read."""

    name: str | None = None
    generate_name: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class PodSpec(View):
    """A pod's priority, as far as it is filled in."""

    priority: int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None


class PodView(View):
    """A pod or a pod template."""

    metadata: Meta | None = None
    spec: PodSpec | None = None


class _Resource(View):
    group: str = ""
    resource: str = ""


class _Request(View):
    """The envelope; the objects in it are looked at by kind, later."""

    uid: str = ""
    resource: _Resource | None = None
    sub_resource: str | None = None
    operation: str | None = None
    namespace: str | None = None
    name: str | None = None
    user_info: UserInfo | None = None
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    dry_run: bool | None = None


_json = msgspec.json.Decoder()
_UID = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([\x20-\x7e]{1,128}?)"')
"""Where the API server writes the uid; read this way only from a body that is no JSON."""


@dataclass(slots=True)
class Review:
    """One request to judge, its objects as plain JSON data; `raw` is the whole AdmissionRequest."""

    uid: str
    group: str
    resource: str
    subresource: str
    operation: str
    namespace: str
    name: str
    user: UserInfo
    dry_run: bool
    object: dict[str, Any] | None
    old_object: dict[str, Any] | None
    raw: dict[str, Any]

    @property
    def kind(self) -> tuple[str, str]:
        """Group and resource."""
        return self.group, self.resource


def decode(body: bytes) -> Review:
    """Read an AdmissionReview. Raises BadReviewError with what is wrong and, where it can be read, the uid."""
    if not body.strip():
        raise BadReviewError("the body is empty; an AdmissionReview was expected")
    try:
        review = _json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadReviewError(f"the body is not JSON: {error}", uid=_find_uid(body)) from None
    except RecursionError:
        raise BadReviewError("the body is nested too deeply", uid=_find_uid(body)) from None
    if not isinstance(review, dict):
        raise BadReviewError("the body is not a JSON object; an AdmissionReview was expected")
    raw = review.get("request")
    uid = raw.get("uid") if isinstance(raw, dict) else None
    uid = uid if isinstance(uid, str) else ""
    _check_envelope(review, uid)
    if not isinstance(raw, dict):
        raise BadReviewError("request is missing")
    return _typed(raw, uid)


def decode_pod(review: Review, pod: dict[str, Any], field: str = "object") -> PodView:
    """The view of a pod or a pod template of the review; BadReviewError names the field that does not fit."""
    return _convert(pod, PodView, f"request.{field}", review.uid)


def decode_class(review: Review, data: dict[str, Any], field: str = "object") -> PriorityClass:
    """The view of a PriorityClass of the review; BadReviewError names the field that does not fit."""
    return _convert(data, PriorityClass, f"request.{field}", review.uid)


def template_of(workload: dict[str, Any] | None, resource: str) -> dict[str, Any] | None:
    """A workload's pod template; None where it has none."""
    path = ("spec", "jobTemplate", "spec", "template") if resource == "cronjobs" else ("spec", "template")
    part: Any = workload
    for key in path:
        part = part.get(key) if isinstance(part, dict) else None
    return part if isinstance(part, dict) else None


def _check_envelope(review: dict[str, Any], uid: str) -> None:
    if review.get("kind") != "AdmissionReview":
        raise BadReviewError(f"kind is {review.get('kind')!r}; AdmissionReview was expected", uid=uid)
    if review.get("apiVersion") != API_VERSION:
        raise BadReviewError(
            f"apiVersion is {review.get('apiVersion')!r}; only {API_VERSION} is served"
            " (set admissionReviewVersions: [v1] in the webhook configuration)",
            uid=uid,
        )


def _typed(raw: dict[str, Any], uid: str) -> Review:
    if not uid:
        raise BadReviewError("request.uid is missing or not a string")
    request = _convert(raw, _Request, "request", uid)
    if request.resource is None or not request.resource.resource:
        raise BadReviewError("request.resource is missing", uid=uid)
    return Review(
        uid=uid,
        group=request.resource.group,
        resource=request.resource.resource,
        subresource=request.sub_resource or "",
        operation=request.operation or "",
        namespace=request.namespace or "",
        name=request.name or "",
        user=request.user_info or UserInfo(),
        dry_run=bool(request.dry_run),
        object=request.object,
        old_object=request.old_object,
        raw=raw,
    )


def _convert(data: Any, to: type[T], field: str, uid: str) -> T:
    try:
        return msgspec.convert(data, to)
    except msgspec.ValidationError as error:
        raise BadReviewError(f"{field}: {str(error).replace('`$', '`')}", uid=uid) from None


def _find_uid(body: bytes) -> str:
    match = _UID.search(body, 0, 4096)
    return match[1].decode() if match else ""
