"""Certificates in a cluster: kept in a Secret, trusted through the `caBundle` of webhook configurations.

Any number of replicas may do this at once: every write is conditional, and who comes second uses what is there.
"""

import base64
import binascii
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from certs.bundle import Bundle, BundleError, parse
from certs.rotation import CertificateSettings, renew_authority, renew_serving

Object = dict[str, Any]
log = logging.getLogger(__name__)

_ATTEMPTS = 10
_CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_LABELS = {"app.kubernetes.io/name": "giveway", "app.kubernetes.io/component": "certificates"}


class _Client(Protocol):
    """What is needed of a client: JSON objects by path, replaced by resourceVersion; its errors have a `status`."""

    async def get(self, path: str) -> Object: ...
    async def create(self, path: str, body: Any) -> Object: ...
    async def replace(self, path: str, body: Any) -> Object: ...


async def maintain(
    api: _Client,
    secret: tuple[str, str],
    configurations: Sequence[str],
    settings: CertificateSettings,
    now: Callable[[], datetime],
    *,
    rotate: bool = False,
    rotate_authority: bool = False,
) -> Bundle:
    """Bring Secret and `caBundle` up to date, renewing what is due; the certificates as they are then.

    `secret` is its namespace and name, `configurations` are names of Mutating- and
    ValidatingWebhookConfigurations. To be called at start and about once a minute. Raises
    BundleError for a Secret from elsewhere, and whatever the client raises.
    """

    def authority(held: Bundle | None) -> Bundle:
        return renew_authority(held, settings, now(), force=rotate_authority)

    def serving(held: Bundle | None) -> Bundle:
        return renew_serving(held or bundle, settings, now(), force=rotate, spreading=spreading)

    bundle = await _update(api, secret, authority)
    # A new authority must be trusted before anything it signed is served.
    spreading = bool(await inject(api, configurations, bundle.trust()))
    return await _update(api, secret, serving)


def secret_path(namespace: str, name: str) -> str:
    """The path of a Secret."""
    return f"/api/v1/namespaces/{namespace}/secrets/{name}"


async def read_secret(api: _Client, secret: tuple[str, str]) -> Bundle | None:
    """The certificates in the Secret, if it has any. Raises BundleError for those from elsewhere."""
    stored = await _find(api, secret_path(*secret))
    return _bundle(secret, stored)


async def inject(api: _Client, configurations: Sequence[str], trust: bytes) -> list[str]:
    """Put `trust` into the `caBundle` of all webhooks there that have a Service; what was changed."""
    wanted = base64.b64encode(trust).decode()

    def trusting(configuration: Object | None) -> Object | None:
        outdated = False
        for webhook in (configuration or {}).get("webhooks") or ():
            client = webhook["clientConfig"]
            if "service" in client and client.get("caBundle") != wanted:
                client["caBundle"] = wanted
                outdated = True
        return configuration if outdated else None

    return [
        f"{plural}/{name}"
        for name in configurations
        for plural in _CONFIGURATIONS
        if await _change(api, f"/apis/admissionregistration.k8s.io/v1/{plural}/{name}", trusting)
    ]


async def _update(api: _Client, secret: tuple[str, str], renew: Callable[[Bundle | None], Bundle]) -> Bundle:
    """The certificates as they are after `renew`, which gives the same ones if nothing is due."""
    renewed: list[Bundle] = []

    def renewing(stored: Object | None) -> Object | None:
        held = _bundle(secret, stored)
        renewed.append(renew(held))
        if renewed[-1] is held:
            return None
        if stored is None:
            metadata = {"name": secret[1], "namespace": secret[0], "labels": _LABELS}
            stored = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
            stored["type"] = "kubernetes.io/tls"
        data = dict(stored.get("data") or {})
        for name, content in renewed[-1].files().items():
            data[name] = base64.b64encode(content).decode()
        return {**stored, "data": data}

    await _change(api, secret_path(*secret), renewing)
    return renewed[-1]


async def _change(api: _Client, path: str, change: Callable[[Object | None], Object | None]) -> bool:
    """Read, change (None: it is right) and write, again if others wrote meanwhile. Whether it was written."""
    for _ in range(_ATTEMPTS):
        stored = await _find(api, path)
        wanted = change(stored)
        if wanted is None:
            return False
        try:
            if stored is None:
                await api.create(path.rpartition("/")[0], wanted)
            else:
                await api.replace(path, wanted)
        except Exception as error:
            status = getattr(error, "status", None)
            if stored is None and status == 403:
                said = f"{path} is not there, and may not be made ({error}): apply the manifests again"
                raise BundleError(said) from error
            if status != 409:
                raise
        else:
            log.info("%s: renewed", path)
            return True
    raise BundleError(f"{path} was changed by others {_ATTEMPTS} times in a row")


async def _find(api: _Client, path: str) -> Object | None:
    try:
        return await api.get(path)
    except Exception as error:
        if getattr(error, "status", None) == 404:
            return None
        raise


def _bundle(secret: tuple[str, str], stored: Object | None) -> Bundle | None:
    # Without any, it is there and empty where the manifests made it
    data = (stored or {}).get("data") or {}
    try:
        return parse({name: base64.b64decode(text) for name, text in data.items()})
    except (BundleError, binascii.Error) as error:
        raise BundleError(f"secret {'/'.join(secret)}: {error}") from error
