"""Certificates: what is served, and the authorities that the webhook configurations trust."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509

from certs.authority import signed_by
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, finding
from webhook.inspection.observed import CONFIGURATIONS, Observed

_SOON = timedelta(days=14)
_LATE = 0.1
"""The share of its life at whose beginning a certificate has long been due for renewal."""


def expiring(observed: Observed) -> Iterator[ClusterFinding]:
    """Certificates that have expired or soon will, and trust that does not fit what is served."""
    now = datetime.fromtimestamp(observed.now, UTC)
    serving = _parse(observed.certificates.get("tls.crt", b""))
    if serving:
        until = serving[0].not_valid_after_utc
        if until - now < (until - serving[0].not_valid_before_utc) * _LATE:
            yield finding("certificates.serving", own=observed.own, **_ending(until, now))
    for plural in CONFIGURATIONS:
        entries = observed.own_configuration(plural).get("webhooks") or ()
        bundles = [(entry.get("clientConfig") or {}).get("caBundle") for entry in entries]
        for bundle in filter(None, dict.fromkeys(bundles)):
            authorities = _parse(bundle)
            last = max((authority.not_valid_after_utc for authority in authorities), default=None)
            if last is None:
                yield finding("certificates.none", plural=plural)
            elif last - now < _SOON:
                yield finding("certificates.authority", plural=plural, **_ending(last, now))
            if serving and not any(signed_by(serving[0], authority) for authority in authorities):
                by = "administrator" if observed.own_state.static_entries else "giveway"
                yield finding(f"certificates.untrusted-{by}", plural=plural, own=observed.own)


def _ending(until: datetime, now: datetime) -> dict[str, Any]:
    """That a certificate ends soon, a warning, or has ended, an error."""
    if until <= now:
        return {"severity": FindingSeverity.ERROR, "ends": f"expired on {until:%Y-%m-%d}"}
    ends = f"expires on {until:%Y-%m-%d}, in {(until - now) / timedelta(days=1):.0f} days"
    return {"severity": FindingSeverity.WARNING, "ends": ends}


def _parse(pem: bytes | str) -> list[x509.Certificate]:
    """The certificates of a PEM file, or of its Base64 as in a caBundle; none if it is neither."""
    try:
        return x509.load_pem_x509_certificates(base64.b64decode(pem) if isinstance(pem, str) else pem)
    except ValueError:
        return []
