"""AdmissionReview: the request a webhook is sent and what its answer means.

The shape, with the order of its keys, is that of a real API server; texts of refusals are its words.
"""

from __future__ import annotations

import json
import uuid
from typing import Literal

import msgspec

from webhook.admission.review import enveloped
from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.calls import WriteRequest, user_object
from webhook.clusters.embedded.protocol.statuses import StatusError, failure

LOWEST_REFUSAL = 400
_INVALID = "received invalid webhook response"
_ESCAPED = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
"""What Go's encoding/json escapes for the sake of HTML, and which makes a review larger than its object."""


class WebhookCallError(Exception):
    """A webhook that could not be asked or gave no usable answer."""


class WebhookResponse(msgspec.Struct, rename="camel"):
    """What a webhook said."""

    uid: str
    allowed: bool = False
    status: Object = {}
    patch_type: str = ""
    patch: bytes = b""
    operations: list[Object] = []
    """Those of a JSON patch."""
    warnings: list[str] = []


class _Answer(msgspec.Struct, rename="camel"):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    response: WebhookResponse


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
    request: Object = {
        "uid": str(uuid.uuid4()),
        "kind": versioned_kind,
        "resource": versioned,
        "subResource": subresource,
        "requestKind": versioned_kind,
        "requestResource": versioned,
        "requestSubResource": subresource,
        "name": change.name,
        "namespace": change.name if resource.plural == "namespaces" else change.namespace,
        "operation": change.operation,
        "userInfo": user_object(change.user),
    }
    # Those of a PATCH become what its operation is.
    named: Object = {"kind": f"{change.operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
    return {
        **{key: value for key, value in request.items() if value},
        "object": _typed(change.object, group, version, kind),
        "oldObject": _typed(change.old_object, group, version, kind),
        "dryRun": change.dry_run,
        "options": named | {key: value for key, value in change.options.items() if key not in (*named, "force")},
    }


def encoded_review(request: Object) -> bytes:
    """The AdmissionReview around a request, encoded as Go does."""
    text = json.dumps(enveloped(request), ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPED).encode(errors="replace")


def read_answer(body: bytes, uid: str, *, mutating: bool) -> WebhookResponse:
    """Decode a webhook's answer. Raises WebhookCallError for one that an API server does not take."""
    try:
        response = msgspec.json.decode(body, type=_Answer).response
        patch = response.patch if mutating else b""
        response.operations = msgspec.json.decode(patch, type=list[Object]) if patch else []
    except msgspec.DecodeError as error:
        raise WebhookCallError(f"{_INVALID}: {error}") from error
    if response.uid != uid:
        raise WebhookCallError(f'{_INVALID}: expected response.uid="{uid}", got "{response.uid}"')
    if mutating and response.patch_type != ("JSONPatch" if patch else ""):
        raise WebhookCallError(f"{_INVALID}: one of response.patch and response.patchType JSONPatch alone")
    return response


def denial(name: str, status: Object) -> StatusError:
    """The refusal that a client sees for a webhook's `allowed: false`."""
    explanation = f": {told}" if (told := status.get("message") or status.get("reason")) else " without explanation"
    text = f'admission webhook "{name}" denied the request{explanation}'
    code = max(int(status.get("code") or 0), LOWEST_REFUSAL)
    return failure(code, status.get("reason") or "", text, status.get("details"))


def _typed(obj: Object | None, group: str, version: str, kind: str) -> Object | None:
    if obj is None:
        return None
    typed: Object = {"kind": kind, "apiVersion": f"{group}/{version}" if group else version}
    typed.update((key, value) for key, value in obj.items() if key not in typed)
    return typed
