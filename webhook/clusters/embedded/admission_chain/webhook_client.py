"""The TLS call to an admission webhook: `url` or `service`, caBundle, timeout, and errors in Kubernetes' words."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from webhook.clusters.embedded.admission_chain.admission_review import (
    WebhookCallError,
    WebhookResponse,
    encoded_review,
    read_answer,
)
from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.storage.object_store import ObjectStore

CONNECTIONS = 64


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
            connector = aiohttp.TCPConnector(limit=CONNECTIONS)
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=True)
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
