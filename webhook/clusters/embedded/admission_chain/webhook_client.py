"""Asking one admission webhook: the request it is sent over TLS, and what its answer means.

The shape of an AdmissionReview, with the order of its keys, is that of a real API server. A webhook is reached by `url`
or `service` with its caBundle and timeout; errors and refusals are in Kubernetes' words.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import msgspec

from webhook.admission.review import enveloped
from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.calls import WriteRequest, user_object
from webhook.clusters.embedded.protocol.statuses import StatusError, failure
from webhook.clusters.embedded.storage.object_store import ObjectStore

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


class WebhookClient:
    """Calls webhooks. `services` maps `namespace/name:port` to the `host:port` that plays the service."""

    def __init__(self, services: Mapping[str, str], read: ObjectStore) -> None:
        self._services = services
        self._read = read
        self._session: aiohttp.ClientSession | None = None

    async def call(self, webhook: Mapping[str, Any], request: Object, *, mutating: bool) -> WebhookResponse:
        """Ask one webhook. Raises WebhookCallError with the text after `failed calling webhook "NAME": `."""
        shown, url, host = self._destination(webhook)
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64))
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Host": host}
        try:
            async with (
                asyncio.timeout(webhook["timeoutSeconds"]),
                self._session.post(
                    url,
                    data=encoded_review(request),
                    headers=headers,
                    ssl=_trust(str(webhook["clientConfig"].get("caBundle") or "")),
                    server_hostname=host.partition(":")[0],
                    allow_redirects=False,
                ) as response,
            ):
                body = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise WebhookCallError(f'failed to call webhook: Post "{shown}": {_failure(error)}') from error
        if response.status == 404:
            raise WebhookCallError("failed to call webhook: the server could not find the requested resource")
        if response.status != 200:
            said = body.decode(errors="replace").strip() or "unknown"
            why = f'an error on the server ("{said}") has prevented the request from succeeding'
            raise WebhookCallError(f"failed to call webhook: {why}")
        return read_answer(body, request["uid"], mutating=mutating)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _destination(self, webhook: Mapping[str, Any]) -> tuple[str, str, str]:
        """The URL of a webhook, or of its service, as errors show it; the one to call; and the host with its port."""
        client, query = webhook["clientConfig"], f"timeout={webhook['timeoutSeconds']}s"
        url = client.get("url")
        if url:
            return f"{url}?{query}", f"{url}?{query}", urlsplit(str(url)).netloc
        service: Mapping[str, Any] = client.get("service") or {}
        namespace, name, port = service.get("namespace", ""), service.get("name", ""), service.get("port") or 443
        path = str(service.get("path") or "/").lstrip("/")
        server_name = f"{name}.{namespace}.svc"
        shown = f"https://{server_name}:{port}/{path}?{query}"
        address = self._services.get(f"{namespace}/{name}:{port}")
        if address is None:
            exists = self._read.one("services", namespace, name) is not None
            missing = f'no endpoints available for service "{name}"' if exists else f'service "{name}" not found'
            raise WebhookCallError(f'failed to call webhook: Post "{shown}": {missing}')
        return shown, f"https://{address}/{path}?{query}", f"{server_name}:{port}"


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
    return typed | {key: value for key, value in obj.items() if key not in typed}


def _failure(error: Exception) -> str:
    """Why there was no answer, in kube-apiserver's words."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(error, TimeoutError):
        return "context deadline exceeded"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", error.certificate_error)
        return f"tls: failed to verify certificate: x509: {why}"
    if isinstance(cause, ConnectionRefusedError):
        address = f" {error.host}:{error.port}" if isinstance(error, aiohttp.ClientConnectorError) else ""
        return f"dial tcp{address}: connect: connection refused"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(cause) or type(cause).__name__


@lru_cache(maxsize=64)
def _trust(ca_bundle: str) -> ssl.SSLContext:
    """Trust the bundle (base64 of PEM) alone, or the system's roots where there is none."""
    try:
        if not ca_bundle:
            return ssl.create_default_context()
        return ssl.create_default_context(cadata=base64.b64decode(ca_bundle).decode())
    except (ValueError, ssl.SSLError) as error:
        raise WebhookCallError(f"could not get REST client: unable to load root certificates: {error}") from error
