"""A TLS handshake between a server with a bundle's files and a client with some trust, in memory."""

import ssl
from pathlib import Path

SERVER_NAME = "giveway.giveway-system.svc"


def server_context(directory: Path, files: dict[str, bytes]) -> ssl.SSLContext:
    """A server's context from `tls.crt` and `tls.key`."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("tls.crt", "tls.key"):
        (directory / name).write_bytes(files[name])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    return context


def shake_hands(server: ssl.SSLContext, trust: bytes, name: str = SERVER_NAME) -> str:
    """Shake hands as strictly as OpenSSL can; the protocol's version. Raises ssl.SSLError where trust is missing."""
    client = ssl.create_default_context(cadata=trust.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
            if not ends:
                return str(end.version())
    raise AssertionError("the handshake does not end")
