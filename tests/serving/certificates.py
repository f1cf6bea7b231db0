"""Certificates for tests: a CA and what it signs, as PEM files."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from certs.authority import KeyPair, make_authority, pem


class Authority:
    """A CA that signs certificates for 127.0.0.1, expired ones too, for servers and for clients."""

    def __init__(self) -> None:
        self._pair = make_authority(datetime.now(UTC), timedelta(days=30))
        self.certificate = self._pair.certificate

    def write_ca(self, path: Path) -> Path:
        path.write_bytes(pem(self.certificate))
        return path

    def issue(self, directory: Path, name: str, *, days: float = 1) -> tuple[Path, Path]:
        """A certificate and its key as `NAME.crt` and `NAME.key`."""
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        issuer, number, begins = self.certificate.subject, x509.random_serial_number(), now - timedelta(days=2)
        builder = x509.CertificateBuilder(issuer, subject, key.public_key(), number, begins, now + timedelta(days=days))
        signer = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        for extension in (
            x509.SubjectAlternativeName(names),
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer),
        ):
            builder = builder.add_extension(extension, critical=False)
        made = KeyPair(builder.sign(self._pair.key, hashes.SHA256()), key)
        paths = directory / f"{name}.crt", directory / f"{name}.key"
        paths[0].write_bytes(pem(made.certificate))
        paths[1].write_bytes(made.key_pem())
        return paths
