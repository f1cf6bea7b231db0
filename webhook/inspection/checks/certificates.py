"""Certificates: giveway's own, and the authorities that webhook configurations trust."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from cryptography import x509

from certs.authority import signed_by
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity
from webhook.inspection.observed import CONFIGURATIONS, Observed

_OURS = "giveway"
_SOON = timedelta(days=14)
_LATE = 0.1
"""The share of its life at whose beginning a certificate has long been due for renewal."""
_WHY = "When it has expired the API server trusts no answer, and refuses whatever the entry fails closed for."


def expiring(observed: Observed) -> Iterator[ClusterFinding]:
    """Certificates that have expired or soon will, and trust that does not fit what is served."""
    now = datetime.fromtimestamp(observed.now, UTC)
    serving = _parse(observed.certificates.get("tls.crt", b""))
    if serving:
        until = serving[0].not_valid_after_utc
        if until - now < (until - serving[0].not_valid_before_utc) * _LATE:
            yield _ending(
                f"The serving certificate in Secret {observed.own}/giveway-tls",
                until,
                now,
                "giveway renews it long before. " + _WHY,
                "Look into the log of the container keep-certificates; giveway certs issue --rotate renews it now.",
            )
    for plural in CONFIGURATIONS:
        for configuration in observed.objects[plural]:
            name = configuration["metadata"]["name"]
            bundle_of = f"caBundle of {configuration.get('kind', plural)} {name}"
            clients = [entry.get("clientConfig") or {} for entry in configuration.get("webhooks") or ()]
            for bundle in filter(None, dict.fromkeys(client.get("caBundle") for client in clients)):
                authorities = _parse(bundle)
                last = max((authority.not_valid_after_utc for authority in authorities), default=None)
                if last is None:
                    yield ClusterFinding(
                        FindingSeverity.ERROR,
                        f"The {bundle_of} holds no certificates.",
                        "The API server trusts no answer of this webhook.",
                        "Have whoever installs it write the caBundle again.",
                    )
                elif last - now < _SOON:
                    renew = "Have whoever keeps its certificates (cert-manager, giveway certs) renew the authority."
                    yield _ending(f"The last authority in the {bundle_of}", last, now, _WHY, renew)
                if name == _OURS and serving and not any(signed_by(serving[0], authority) for authority in authorities):
                    yield ClusterFinding(
                        FindingSeverity.ERROR,
                        f"The caBundle of {plural} {name} trusts no authority that signed the certificate in Secret"
                        f" {observed.own}/giveway-tls.",
                        "The API server cannot reach the webhook: pods are refused, or not judged.",
                        "An administrator writes it: giveway certs issue with --secret, --service and --webhook-config."
                        if observed.own_state.static_entries
                        else "giveway certs issue writes caBundle; look into the log of the container"
                        " keep-certificates.",
                    )


def _ending(what: str, until: datetime, now: datetime, why: str, fix: str) -> ClusterFinding:
    """That a certificate ends soon, a warning, or has ended, an error."""
    if until <= now:
        return ClusterFinding(FindingSeverity.ERROR, f"{what} expired on {until:%Y-%m-%d}.", why, fix)
    left = f"expires on {until:%Y-%m-%d}, in {(until - now) / timedelta(days=1):.0f} days"
    return ClusterFinding(FindingSeverity.WARNING, f"{what} {left}.", why, fix)


def _parse(pem: bytes | str) -> list[x509.Certificate]:
    """The certificates of a PEM file, or of its Base64 as in a caBundle; none if it is neither."""
    try:
        return x509.load_pem_x509_certificates(base64.b64decode(pem) if isinstance(pem, str) else pem)
    except ValueError:
        return []
