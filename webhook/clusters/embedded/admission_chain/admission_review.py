"""AdmissionReview: the request a webhook is sent and what its answer means.

The shape, with the order of its keys, is that of a real API server; texts of refusals are its words.
"""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import dataclass, field

from webhook.admission.review import enveloped
from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.calls import WriteRequest, user_object
from webhook.clusters.embedded.protocol.statuses import StatusError

LOWEST_REFUSAL = 400
_ESCAPED = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
"""What Go's encoding/json escapes for the sake of HTML, and which makes a review larger than its object."""


class InvalidAnswerError(Exception):
    """A webhook's answer that an API server does not understand."""


@dataclass(frozen=True, slots=True)
class WebhookResponse:
    """What a webhook said; `patch` holds JSON patch operations."""

    allowed: bool
    status: Object
    patch: list[Object]
    warnings: list[str] = field(default_factory=list)


def request_of(change: WriteRequest) -> Object:
    """Return the AdmissionRequest, with a fresh uid."""
    resource, subresource = change.resource, change.subresource
    # A sub-resource may carry an object of its own kind, such as an Eviction.
    judged = change.object or change.old_object or {}
    group, _, version = str(judged.get("apiVersion") or "").rpartition("/")
    kind = str(judged.get("kind") or "")
    if not kind or not version:
        group, version, kind = resource.group, resource.version, resource.kind
    versioned_kind = {"group": group, "version": version, "kind": kind}
    versioned = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    request: Object = {"uid": str(uuid.uuid4()), "kind": versioned_kind, "resource": versioned}
    if subresource:
        request["subResource"] = subresource
    request["requestKind"] = versioned_kind
    request["requestResource"] = versioned
    if subresource:
        request["requestSubResource"] = subresource
    if change.name:
        request["name"] = change.name
    namespace = change.name if resource.plural == "namespaces" else change.namespace
    if namespace:
        request["namespace"] = namespace
    request["operation"] = change.operation
    request["userInfo"] = user_object(change.user)
    request["object"] = _typed(change.object, group, version, kind)
    request["oldObject"] = _typed(change.old_object, group, version, kind)
    request["dryRun"] = change.dry_run
    # Those of a PATCH become what its operation is.
    options: Object = {"kind": f"{change.operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
    given = change.options.items()
    options.update((key, value) for key, value in given if key not in ("kind", "apiVersion", "force"))
    request["options"] = options
    return request


def encoded_review(request: Object) -> bytes:
    """The AdmissionReview around a request, encoded as Go does."""
    text = json.dumps(enveloped(request), ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPED).encode(errors="replace")


def read_answer(body: bytes, uid: str, *, mutating: bool) -> WebhookResponse:
    """Decode a webhook's answer. Raises InvalidAnswerError with what the API server would say."""
    try:
        review = json.loads(body)
    except ValueError as error:
        raise InvalidAnswerError(f"couldn't decode body: {error}") from error
    said = review if isinstance(review, dict) else {}
    api_version, kind = said.get("apiVersion", ""), said.get("kind", "")
    if (api_version, kind) != ("admission.k8s.io/v1", "AdmissionReview"):
        expected = "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview"
        raise InvalidAnswerError(f"{expected}, got {api_version or '/'}, Kind={kind}")
    response = said.get("response")
    if not isinstance(response, dict):
        raise InvalidAnswerError("webhook response was absent")
    if response.get("uid") != uid:
        raise InvalidAnswerError(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    operations: list[Object] = []
    patch, patch_type = response.get("patch"), response.get("patchType")
    if mutating and (patch or patch_type):
        if not patch or patch_type != "JSONPatch":
            raise InvalidAnswerError(
                "webhook returned response.patch without response.patchType JSONPatch, or that alone"
            )
        try:
            operations = json.loads(base64.b64decode(patch, validate=True))
        except ValueError as error:
            raise InvalidAnswerError(f"response.patch is not a base64-encoded JSON patch: {error}") from error
        if not isinstance(operations, list):
            raise InvalidAnswerError("response.patch is not a list of operations")
    return WebhookResponse(
        allowed=bool(response.get("allowed")),
        status=response.get("status") or {},
        patch=operations,
        warnings=list(response.get("warnings") or ()),
    )


def denial(name: str, status: Object) -> StatusError:
    """The refusal that a client sees for a webhook's `allowed: false`."""
    said = dict(status)
    denied_by = f'admission webhook "{name}" denied the request'
    explanation = said.get("message") or said.get("reason")
    refusal: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    refusal["message"] = f"{denied_by}: {explanation}" if explanation else f"{denied_by} without explanation"
    for key in ("reason", "details"):
        if said.get(key):
            refusal[key] = said[key]
    code = int(said.get("code") or 0)
    refusal["code"] = max(code, LOWEST_REFUSAL)
    return StatusError(refusal)


def _typed(obj: Object | None, group: str, version: str, kind: str) -> Object | None:
    if obj is None:
        return None
    typed: Object = {"kind": kind, "apiVersion": f"{group}/{version}" if group else version}
    typed.update((key, value) for key, value in obj.items() if key not in typed)
    return typed
