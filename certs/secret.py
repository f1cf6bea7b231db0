"""Certificates in a cluster: kept in a Secret, trusted through the `caBundle` of webhook configurations.

Any number of replicas may do this at once: every write is conditional, and whoever comes second reads what the first
one wrote and uses that.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from certs.bundle import Bundle, BundleError, parse
from certs.rotation import CertificateSettings, begin, renew_authority, renew_serving

log = logging.getLogger(__name__)

_ATTEMPTS = 10
_CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_LABELS = {"app.kubernetes.io/name": "giveway", "app.kubernetes.io/component": "certificates"}


class SecretClient(Protocol):
    """What is needed of a client: JSON objects by path. Refusals are exceptions with the HTTP status in `status`."""

    async def get(self, path: str) -> dict[str, Any]:
        """Read an object."""

    async def create(self, path: str, body: Any) -> dict[str, Any]:
        """Create an object."""

    async def replace(self, path: str, body: Any) -> dict[str, Any]:
        """Replace an object of the same resourceVersion."""


@dataclass(frozen=True)
class SecretName:
    """Which Secret holds the certificates."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def collection(self) -> str:
        """The path of its collection."""
        return f"/api/v1/namespaces/{self.namespace}/secrets"

    @property
    def path(self) -> str:
        """Its path."""
        return f"{self.collection}/{self.name}"


async def maintain(
    api: SecretClient,
    secret: SecretName,
    configurations: Sequence[str],
    settings: CertificateSettings,
    now: Callable[[], datetime],
    *,
    rotate: bool = False,
    rotate_authority: bool = False,
) -> Bundle:
    """Bring Secret and `caBundle` up to date, renewing what is due; the certificates as they are then.

    `configurations` are names of Mutating- and ValidatingWebhookConfigurations. To be called at start and about once
    a minute. Raises BundleError for a Secret from elsewhere, and whatever the client raises.
    """

    def authority(known: Bundle | None) -> Bundle:
        return renew_authority(known, settings, now(), force=rotate_authority) if known else begin(settings, now())

    def serving(known: Bundle | None) -> Bundle:
        if known is None:
            return begin(settings, now())
        return renew_serving(known, settings, now(), force=rotate, spreading=spreading)

    fresh, bundle = await _update(api, secret, authority)
    # A new authority must be trusted before anything it signed is served.
    spreading = bool(await inject(api, configurations, bundle.trust()))
    if fresh:
        return bundle
    _, bundle = await _update(api, secret, serving)
    return bundle


async def read_secret(api: SecretClient, secret: SecretName) -> Bundle | None:
    """The certificates in the Secret; None if there is none yet. Raises BundleError for one from elsewhere."""
    return _bundle(secret, await _find(api, secret.path))


async def inject(api: SecretClient, configurations: Sequence[str], trust: bytes) -> list[str]:
    """Put `trust` into the `caBundle` of all webhooks that are reached through a Service; what was changed.

    Configurations that do not exist are passed over: what is not installed needs no trust.
    """
    return [
        f"{plural}/{name}"
        for name in configurations
        for plural in _CONFIGURATIONS
        if await _inject_one(api, f"/apis/admissionregistration.k8s.io/v1/{plural}/{name}", trust)
    ]


async def _update(
    api: SecretClient, secret: SecretName, change: Callable[[Bundle | None], Bundle]
) -> tuple[bool, Bundle]:
    """Read, change, write; again from the start if someone else wrote meanwhile. Whether this made the first."""
    for _ in range(_ATTEMPTS):
        stored = await _find(api, secret.path)
        held = _bundle(secret, stored)
        wanted = change(held)
        if wanted is held:
            return False, wanted
        data = {name: base64.b64encode(content).decode() for name, content in wanted.files().items()}
        try:
            if stored is None:
                metadata = {"name": secret.name, "namespace": secret.namespace, "labels": _LABELS}
                body = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata}
                await api.create(secret.collection, {**body, "data": data})
            else:
                await api.replace(secret.path, {**stored, "data": {**(stored.get("data") or {}), **data}})
        except Exception as error:
            if stored is None and _status(error) == 403:
                said = f"secret {secret} is not there, and may not be made ({error}): apply the manifests again"
                raise BundleError(said) from error
            if _status(error) != 409:
                raise
        else:
            log.info("secret %s: serving until %s", secret, wanted.serving.certificate.not_valid_after_utc)
            return held is None, wanted
    raise BundleError(f"secret {secret} was changed by others {_ATTEMPTS} times in a row")


async def _inject_one(api: SecretClient, path: str, trust: bytes) -> bool:
    """Write the bundle into the entries of one configuration; whoever was faster is read again."""
    wanted = base64.b64encode(trust).decode()
    for _ in range(_ATTEMPTS):
        configuration = await _find(api, path)
        if configuration is None:
            return False
        clients = [webhook["clientConfig"] for webhook in configuration.get("webhooks") or ()]
        outdated = [client for client in clients if "service" in client and client.get("caBundle") != wanted]
        if not outdated:
            return False
        for client in outdated:
            client["caBundle"] = wanted
        try:
            await api.replace(path, configuration)
        except Exception as error:
            if _status(error) != 409:
                raise
        else:
            log.info("%s: caBundle renewed", path)
            return True
    raise BundleError(f"{path} was changed by others {_ATTEMPTS} times in a row")


async def _find(api: SecretClient, path: str) -> dict[str, Any] | None:
    try:
        return await api.get(path)
    except Exception as error:
        if _status(error) == 404:
            return None
        raise


def _bundle(secret: SecretName, stored: dict[str, Any] | None) -> Bundle | None:
    if stored is None or not stored.get("data"):
        return None  # it is there and empty where the manifests made it
    try:
        files = {name: base64.b64decode(text) for name, text in (stored.get("data") or {}).items()}
        return parse(files)
    except (BundleError, binascii.Error) as error:
        raise BundleError(f"secret {secret}: {error}") from error


def _status(error: Exception) -> int | None:
    return getattr(error, "status", None)
