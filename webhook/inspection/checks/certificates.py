"""Certificates: giveway's own, and the authorities that webhook configurations trust."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509

from certs.authority import signed_by
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity
from webhook.inspection.observed import Observed

__all__ = ["expiring"]

_OURS = "giveway"
_SOON = timedelta(days=14)
_LATE = 0.1
"""The share of its life at whose beginning a certificate has long been due for renewal."""
_WHY = "When it has expired the API server trusts no answer, and refuses whatever the entry fails closed for."


def expiring(observed: Observed) -> Iterator[ClusterFinding]:
    """Certificates that have expired or soon will, and trust that does not fit what is served."""
    now = datetime.fromtimestamp(observed.now, UTC)
    serving = _parse(observed.certificates.get("tls.crt", b""))
    for certificate in serving[:1]:
        yield from _serving(certificate, observed.own, now)
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        for configuration in observed.objects[plural]:
            name = configuration["metadata"]["name"]
            bundles = dict.fromkeys(_bundle(entry) for entry in configuration.get("webhooks") or ())
            for bundle in filter(None, bundles):
                yield from _trusted(f"{configuration.get('kind', plural)} {name}", bundle, now)
                authorities = _authorities(bundle)
                if name == _OURS and serving and not any(signed_by(serving[0], one) for one in authorities or ()):
                    yield ClusterFinding(
                        FindingSeverity.ERROR,
                        f"The caBundle of {plural} {name} trusts no authority that signed the certificate in Secret"
                        f" {observed.own}/giveway-tls.",
                        "The API server cannot reach the webhook: pods are refused, or not judged.",
                        "giveway certs issue writes caBundle; look into the log of the container keep-certificates.",
                    )


def _serving(certificate: x509.Certificate, own: str, now: datetime) -> Iterator[ClusterFinding]:
    until = certificate.not_valid_after_utc
    life = until - certificate.not_valid_before_utc
    if until - now < life * _LATE:
        yield ClusterFinding(
            FindingSeverity.ERROR if until <= now else FindingSeverity.WARNING,
            f"The serving certificate in Secret {own}/giveway-tls {_ends(until, now)}.",
            "giveway renews it long before. " + _WHY,
            "Look into the log of the container keep-certificates; giveway certs rotate renews it now.",
        )


def _trusted(where: str, bundle: str, now: datetime) -> Iterator[ClusterFinding]:
    authorities = _authorities(bundle)
    if authorities is None:
        yield ClusterFinding(
            FindingSeverity.ERROR,
            f"The caBundle of {where} holds no certificates.",
            "The API server trusts no answer of this webhook.",
            "Have whoever installs it write the caBundle again.",
        )
        return
    last = max(one.not_valid_after_utc for one in authorities)
    if last - now < _SOON:
        yield ClusterFinding(
            FindingSeverity.ERROR if last <= now else FindingSeverity.WARNING,
            f"The last authority in the caBundle of {where} {_ends(last, now)}.",
            _WHY,
            "Have whoever keeps its certificates (cert-manager, giveway certs) renew the authority.",
        )


def _ends(until: datetime, now: datetime) -> str:
    days = (until - now) / timedelta(days=1)
    return f"expired on {until:%Y-%m-%d}" if days <= 0 else f"expires on {until:%Y-%m-%d}, in {days:.0f} days"


def _authorities(bundle: str) -> list[x509.Certificate] | None:
    try:
        return _parse(base64.b64decode(bundle)) or None
    except binascii.Error:
        return None


def _parse(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []


def _bundle(entry: dict[str, Any]) -> str:
    return (entry.get("clientConfig") or {}).get("caBundle") or ""
