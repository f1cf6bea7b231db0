"""Certificates: an authority of one's own, and serving certificates signed by it (ECDSA on P-256)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

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
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def service_names(service: str, namespace: str) -> list[str]:
    """The names under which a Service is reached; API servers use `<service>.<namespace>.svc`."""
    return [
        service,
        f"{service}.{namespace}",
        f"{service}.{namespace}.svc",
        f"{service}.{namespace}.svc.cluster.local",
    ]


def make_authority(now: datetime, lifetime: timedelta) -> KeyPair:
    """A new authority. Each has a subject of its own, so that chains are never ambiguous."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    subject = _subject(f"giveway CA {serial:x}"[:32])
    certificate = (
        _builder(subject, subject, key.public_key(), now - BACKDATED, now + lifetime)
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate, key)


def make_serving(authority: KeyPair, names: Iterable[str], now: datetime, lifetime: timedelta) -> KeyPair:
    """A serving certificate for DNS names and IP addresses; it never outlives its authority.

    Raises ValueError for a name that can stand in no certificate.
    """
    general: list[x509.GeneralName] = []
    for name in names:
        try:
            general.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            general.append(x509.DNSName(name))
    return _leaf(
        authority, "giveway", ExtendedKeyUsageOID.SERVER_AUTH, now, lifetime, x509.SubjectAlternativeName(general)
    )


def make_client(authority: KeyPair, name: str, now: datetime, lifetime: timedelta) -> KeyPair:
    """A certificate by which a client shows who it is; it never outlives its authority."""
    return _leaf(authority, name, ExtendedKeyUsageOID.CLIENT_AUTH, now, lifetime)


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
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)


def fingerprint(certificate: x509.Certificate) -> str:
    """The SHA-256 fingerprint, in hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def _leaf(
    authority: KeyPair,
    name: str,
    purpose: x509.ObjectIdentifier,
    now: datetime,
    lifetime: timedelta,
    *extensions: x509.ExtensionType,
) -> KeyPair:
    """A certificate for one purpose, with further extensions; it signs no other, and never outlives its authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    until = min(now + lifetime, issuer.not_valid_after_utc)
    signer = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(_subject(name), issuer.subject, key.public_key(), now - BACKDATED, until)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return KeyPair(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "giveway"), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
