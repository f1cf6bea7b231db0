"""Certificates for tests: a CA and what it signs, as PEM files."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from certs.authority import _issue, make_authority, pem


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
        names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        begins = datetime.now(UTC) - timedelta(days=2)
        made = _issue(self._pair, name, begins, timedelta(days=2 + days), x509.SubjectAlternativeName(names))
        paths = directory / f"{name}.crt", directory / f"{name}.key"
        paths[0].write_bytes(pem(made.certificate))
        paths[1].write_bytes(made.key_pem())
        return paths

    def renew(self, directory: Path, name: str, *, days: float = 1) -> None:
        """Put such a certificate in the place of the server's."""
        for path in self.issue(directory, name, days=days):
            path.replace(directory / f"server{path.suffix}")
