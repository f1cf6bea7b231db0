"""Certificates: an authority of one's own, and serving certificates signed by it (ECDSA on P-256)."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from inspect import signature

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED = timedelta(minutes=5)
"""How far validity begins before now, for clients whose clocks are behind."""


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def key_pem(self) -> bytes:
        """The key in PEM (PKCS 8, not encrypted)."""
        form, encryption = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, form, encryption)


def service_names(service: str, namespace: str) -> list[str]:
    """The names under which a Service is reached; API servers use `<service>.<namespace>.svc`."""
    local = f"{service}.{namespace}"
    return [service, local, f"{local}.svc", f"{local}.svc.cluster.local"]


def make_authority(now: datetime, lifetime: timedelta) -> KeyPair:
    """A new authority. Each has a subject of its own, so that chains are never ambiguous."""
    name = f"giveway CA {x509.random_serial_number():x}"
    return _issue(None, name[:32], now, lifetime)


def make_serving(authority: KeyPair, names: Iterable[str], now: datetime, lifetime: timedelta) -> KeyPair:
    """A serving certificate for DNS names and IP addresses. Raises ValueError for what can be neither."""
    general: list[x509.GeneralName] = []
    for name in names:
        try:
            general.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            general.append(x509.DNSName(name))
    purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    return _issue(authority, "giveway", now, lifetime, purpose, x509.SubjectAlternativeName(general))


def make_client(authority: KeyPair, name: str, now: datetime, lifetime: timedelta) -> KeyPair:
    """A certificate by which a client shows who it is; it never outlives its authority."""
    purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    return _issue(authority, name, now, lifetime, purpose)


def names_of(certificate: x509.Certificate) -> frozenset[str]:
    """The DNS names and IP addresses a certificate is for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(name.value) for name in names)


def signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether an authority signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def pem(*certificates: x509.Certificate) -> bytes:
    """Certificates one after the other in PEM."""
    encoding = serialization.Encoding.PEM
    return b"".join(certificate.public_bytes(encoding) for certificate in certificates)


def _issue(
    authority: KeyPair | None, name: str, now: datetime, lifetime: timedelta, *extensions: x509.ExtensionType
) -> KeyPair:
    """A certificate by an authority, within its time, or of a new one, which signs no other authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = {NameOID.ORGANIZATION_NAME: "giveway", NameOID.COMMON_NAME: name}
    subject = x509.Name([x509.NameAttribute(oid, text) for oid, text in attributes.items()])
    issuer, ends, signer, public = subject, now + lifetime, key, key.public_key()
    identifier = x509.SubjectKeyIdentifier
    is_for: list[x509.ExtensionType] = [identifier.from_public_key(public)]
    granted = {"key_cert_sign", "crl_sign"}
    limits = x509.BasicConstraints(ca=True, path_length=0)
    if authority is not None:
        above, signer = authority.certificate, authority.key
        issuer, ends = above.subject, min(ends, above.not_valid_after_utc)
        own = above.extensions.get_extension_for_class(identifier).value
        is_for.append(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own))
        granted = {"digital_signature"}
        limits = x509.BasicConstraints(ca=False, path_length=None)
    parameters = signature(x509.KeyUsage).parameters
    usage = {name: name in granted for name in parameters}
    serial = x509.random_serial_number()
    builder = x509.CertificateBuilder(issuer, subject, public, serial, now - BACKDATED, ends)
    for critical in (limits, x509.KeyUsage(**usage)):
        builder = builder.add_extension(critical, critical=True)
    for extension in (*is_for, *extensions):
        builder = builder.add_extension(extension, critical=False)
    return KeyPair(builder.sign(signer, hashes.SHA256()), key)
