"""When certificates are renewed, and in which order, so that at every moment what is served is trusted.

A new authority is first only *trusted*: it joins `ca.crt` and the `caBundle` of the webhook configurations while the
serving certificate stays. After a time of settling, in which API servers take up the new `caBundle`, the next serving
certificate is signed by it. The old authority stays trusted until the last serving certificate it signed has expired.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from certs.authority import BACKDATED, make_authority, make_serving, names_of, signed_by
from certs.bundle import Bundle

SETTLE = timedelta(minutes=10)
"""How long a new authority is trusted before it signs what is served: longer than API servers take to learn of a new
`caBundle`, and than the replicas' clocks differ."""


@dataclass(frozen=True)
class CertificateSettings:
    """For which names certificates are issued, and for how long.

    Raises ValueError if there is no name, if a serving certificate would not last for six times as long as an authority
    settles, or if authorities would not outlive what they sign.
    """

    names: tuple[str, ...]
    lifetime: timedelta = timedelta(days=90)
    authority_lifetime: timedelta = timedelta(days=3650)

    def __post_init__(self) -> None:
        if not self.names:
            raise ValueError("a serving certificate needs at least one name")
        if self.lifetime < 6 * SETTLE:
            raise ValueError("a serving certificate must be valid for an hour at least")
        if self.authority_lifetime < 3 * self.lifetime:
            raise ValueError("an authority must be valid at least three times as long as a serving certificate")


def renew_authority(
    bundle: Bundle | None, settings: CertificateSettings, now: datetime, *, force: bool = False
) -> Bundle:
    """The bundle with a new authority if it is time for one, and without what has expired; without any, a first bundle.

    It is time when the authority would not outlive two more serving certificates. `force` makes a
    new one unless the last is still settling. Returns the same object if nothing changes.
    """
    if bundle is None:
        authority = make_authority(now, settings.authority_lifetime)
        return Bundle(authority, make_serving(authority, settings.names, now, settings.lifetime))
    bundle = bundle.pruned(now)
    ends = bundle.authority.certificate.not_valid_after_utc
    due = ends - now < 2 * settings.lifetime
    if not due and not (force and _settled(bundle, now)):
        return bundle
    newest = make_authority(now, settings.authority_lifetime)
    return replace(bundle, authority=newest, older=bundle.authorities).pruned(now)


def renew_serving(
    bundle: Bundle, settings: CertificateSettings, now: datetime, *, force: bool = False, spreading: bool = False
) -> Bundle:
    """The bundle with a new serving certificate if it is time for one.

    It is time when two thirds of its validity have passed, a name is missing, or a newer authority
    has settled. The one it replaces is remembered until it expires. Call this only when the API
    servers know the bundle's authorities. If they were told just now (`spreading`), the newest
    signs at the next look. Returns the same object if nothing changes.
    """
    current = bundle.serving.certificate
    begins, ends = current.not_valid_before_utc, current.not_valid_after_utc
    unusable = ends <= now or bundle.issuer() is None
    outdated = not signed_by(current, bundle.authority.certificate)
    if not unusable and (not _settled(bundle, now) or (spreading and outdated)):
        return bundle
    aged = now >= begins + (ends - begins) * 2 / 3
    short = not set(settings.names) <= names_of(current)
    if not (unusable or aged or short or outdated or force):
        return bundle
    serving = make_serving(bundle.authority, settings.names, now, settings.lifetime)
    retired = (*bundle.retired, current)
    return replace(bundle, serving=serving, retired=retired).pruned(now)


def _settled(bundle: Bundle, now: datetime) -> bool:
    """Whether the newest authority has been trusted long enough, or signs already."""
    if signed_by(bundle.serving.certificate, bundle.authority.certificate):
        return True
    return now >= bundle.authority.certificate.not_valid_before_utc + BACKDATED + SETTLE
