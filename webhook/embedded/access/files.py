"""What a client needs to reach the server: a certificate to trust and a kubeconfig."""

from __future__ import annotations

import datetime as dt
import json
import os
import ssl
from pathlib import Path

from certs.authority import make_authority, make_serving, pem

__all__ = ["server_context", "write_kubeconfig"]

LIFETIME = dt.timedelta(days=365)
NAMES = ("127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


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
    now = dt.datetime.now(dt.UTC)
    authority = make_authority(now, LIFETIME)
    serving = make_serving(authority, NAMES, now, LIFETIME)
    key_file.touch(mode=0o600)
    key_file.write_bytes(serving.key_pem())
    cert_file.write_bytes(pem(serving.certificate))
    ca_file.write_bytes(pem(authority.certificate))
