"""Everything that belongs together: the authority, the serving certificate, and what is still trusted beside them.

As files or as the data of a Secret:

    tls.crt      the serving certificate
    tls.key      its key
    ca.crt       every authority that is trusted: the newest, which signs, comes first
    ca.key       the newest authority's key
    retired.crt  serving certificates that were replaced but have not expired; they keep their authority trusted
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certs.authority import KeyPair, pem, signed_by

FILES = ("tls.crt", "tls.key", "ca.crt", "ca.key", "retired.crt")
"""All files of a bundle."""
SERVED = ("tls.crt", "tls.key", "ca.crt")
"""The files a server needs."""


class BundleError(ValueError):
    """Files or a Secret that are not a bundle this program wrote."""


@dataclass(frozen=True)
class Bundle:
    """One state of the certificates."""

    authority: KeyPair
    serving: KeyPair
    older: tuple[x509.Certificate, ...] = ()
    retired: tuple[x509.Certificate, ...] = ()

    @property
    def authorities(self) -> tuple[x509.Certificate, ...]:
        """Every authority that is trusted, newest first."""
        return (self.authority.certificate, *self.older)

    def trust(self) -> bytes:
        """What clients need: `ca.crt`, and the `caBundle` of the webhook configurations."""
        return pem(*self.authorities)

    def issuer(self) -> x509.Certificate | None:
        """The trusted authority that signed the serving certificate."""
        served = self.serving.certificate
        return next((ca for ca in self.authorities if signed_by(served, ca)), None)

    def files(self) -> dict[str, bytes]:
        """The bundle as files or Secret data."""
        return {
            "tls.crt": pem(self.serving.certificate),
            "tls.key": self.serving.key_pem(),
            "ca.crt": self.trust(),
            "ca.key": self.authority.key_pem(),
            "retired.crt": pem(*self.retired),
        }

    def pruned(self, now: datetime) -> "Bundle":
        """Without expired retired certificates and the older authorities that only they needed."""
        retired = tuple(old for old in self.retired if old.not_valid_after_utc > now)
        needed = (self.serving.certificate, *retired)
        older = tuple(
            ca for ca in self.older if ca.not_valid_after_utc > now and any(signed_by(leaf, ca) for leaf in needed)
        )
        if (retired, older) == (self.retired, self.older):
            return self
        return Bundle(self.authority, self.serving, older, retired)


def parse(files: Mapping[str, bytes]) -> Bundle | None:
    """The bundle in these files, None if there is none. Raises BundleError for what is not ours to overwrite."""
    missing = [name for name in ("ca.key", "ca.crt", "tls.key", "tls.crt") if not files.get(name)]
    if len(missing) == 4:
        return None
    if missing:
        text = f"{missing[0]} is missing, so these certificates come from elsewhere"
        raise BundleError(f"{text} and are left alone")
    newest, *older = _certificates(files, "ca.crt")
    serving = _certificates(files, "tls.crt")[0]
    retired = _certificates(files, "retired.crt") if files.get("retired.crt") else ()
    authority, served = _pair(newest, files, "ca"), _pair(serving, files, "tls")
    return Bundle(authority, served, tuple(older), tuple(retired))


def _certificates(files: Mapping[str, bytes], name: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(files[name])
    except ValueError as error:
        raise BundleError(f"{name} holds no certificates in PEM: {error}") from error


def _pair(certificate: x509.Certificate, files: Mapping[str, bytes], name: str) -> KeyPair:
    try:
        key = serialization.load_pem_private_key(files[f"{name}.key"], password=None)
    except (ValueError, TypeError) as error:
        raise BundleError(f"{name}.key holds no private key in PEM: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        text = f"{name}.key is not an ECDSA key, so it comes from elsewhere"
        raise BundleError(f"{text} and is left alone")
    if key.public_key() != certificate.public_key():
        raise BundleError(f"{name}.key does not belong to {name}.crt")
    return KeyPair(certificate, key)
