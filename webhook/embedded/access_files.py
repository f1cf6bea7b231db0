"""What a client needs to reach the server: a certificate to trust and a kubeconfig."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import os
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["server_context", "write_kubeconfig"]

LIFETIME = dt.timedelta(days=365)
NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


def server_context(directory: Path) -> tuple[ssl.SSLContext, Path]:
    """A TLS context for 127.0.0.1 and the file of the CA that vouches for it; both are kept in `directory`."""
    ca_file, cert_file, key_file = directory / "ca.crt", directory / "apiserver.crt", directory / "apiserver.key"
    if not (ca_file.exists() and cert_file.exists() and key_file.exists()):
        _issue(ca_file, cert_file, key_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert_file, key_file)
    return context, ca_file


def write_kubeconfig(path: Path, url: str, ca_file: Path, token: str, user: str = "admin") -> Path:
    """Write a kubeconfig (JSON, which YAML readers read) for a bearer token, readable by its owner only."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "giveway", "cluster": {"server": url, "certificate-authority": str(ca_file)}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "giveway", "context": {"cluster": "giveway", "user": user}}],
        "current-context": "giveway",
    }
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    return path


def _issue(ca_file: Path, cert_file: Path, key_file: Path) -> None:
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "giveway-embedded-ca")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    authority = _certificate(ca_name, ca_name, ca_key.public_key(), ca=True).sign(ca_key, hashes.SHA256())
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1")]
    served = (
        _certificate(name, ca_name, key.public_key(), ca=False)
        .add_extension(x509.SubjectAlternativeName([*map(x509.DNSName, NAMES), *addresses]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key_file.touch(mode=0o600)
    key_file.write_bytes(private)
    cert_file.write_bytes(served.public_bytes(serialization.Encoding.PEM))
    ca_file.write_bytes(authority.public_bytes(serialization.Encoding.PEM))


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, ca: bool
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )
