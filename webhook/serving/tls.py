"""The serving certificate and the client CA: loaded, checked, and changed while connections are served."""

import ssl
from pathlib import Path

import msgspec
from cryptography import x509


class TlsError(Exception):
    """A certificate, key or client CA that cannot be used; the text names the file and what is wrong."""


class ServingCertificate(msgspec.Struct, frozen=True):
    """A certificate in use: `expires` in seconds since the epoch."""

    context: ssl.SSLContext
    expires: float
    subject: str


def load_certificate(certificate_file: Path, key_file: Path, client_ca_file: Path | None = None) -> ServingCertificate:
    """Load certificate, key and client CA. Raises TlsError; nothing that is in use is touched."""
    try:
        certificate = x509.load_pem_x509_certificates(certificate_file.read_bytes())[0]
    except OSError as error:
        raise TlsError(f"cannot read the certificate: {error}") from error
    except ValueError as error:
        raise TlsError(f"{certificate_file} holds no PEM certificate: {error}") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # an API server begins each connection from nothing, and a ticket outlives its certificate
    context.options |= ssl.OP_NO_RENEGOTIATION
    problem = f"{key_file} is no private key for {certificate_file}"
    try:
        context.load_cert_chain(certificate_file, key_file)
        if client_ca_file is not None:
            problem = f"{client_ca_file} holds no usable client CA"
            context.load_verify_locations(cafile=client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        raise TlsError(f"{problem}: {getattr(error, 'reason', '') or error}") from error
    return ServingCertificate(
        context, certificate.not_valid_after_utc.timestamp(), certificate.subject.rfc4514_string()
    )
