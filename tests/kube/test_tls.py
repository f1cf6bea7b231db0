"""Being let in over TLS: authorities, client certificates, server names, and files that change."""

import base64
import ssl
from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import make_authority, make_client, make_serving, pem
from tests.kube.server import Server, write_kubeconfig
from webhook.kube import endpoint as endpoints
from webhook.kube.client import Client
from webhook.kube.errors import ApiError

NAMESPACES = "/api/v1/namespaces"
NOW = datetime.now(UTC)
DAY = timedelta(days=1)


@pytest.fixture
def authority():
    return make_authority(NOW, 30 * DAY)


@pytest.fixture
async def server(tmp_path, authority):
    """A server for 127.0.0.1 and api.internal that lets in only who has a certificate of the authority."""
    serving = make_serving(authority, ["127.0.0.1", "api.internal"], NOW, DAY)
    for name, content in (
        ("ca", pem(authority.certificate)),
        ("c", pem(serving.certificate)),
        ("k", serving.key_pem()),
    ):
        (tmp_path / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "c", tmp_path / "k")
    context.load_verify_locations(tmp_path / "ca")
    context.verify_mode = ssl.CERT_REQUIRED
    async with Server(tls=context) as started:
        yield started


def encoded(content):
    return base64.b64encode(content).decode()


def embedded_in(authority, user="alice"):
    """Cluster and user with certificates inside the kubeconfig."""
    pair = make_client(authority, user, NOW, DAY)
    cluster = {"certificate-authority-data": encoded(pem(authority.certificate))}
    return cluster, {
        "client-certificate-data": encoded(pem(pair.certificate)),
        "client-key-data": encoded(pair.key_pem()),
    }


async def test_a_client_certificate_lets_in(server, authority, tmp_path):
    """A kubeconfig's certificate and key, inside it, authenticate over TLS."""
    cluster, user = embedded_in(authority)
    async with await Client.connect(write_kubeconfig(tmp_path / "k", server.url, user, **cluster)) as client:
        assert await client.list(NAMESPACES) == ([], "100")


async def test_a_server_of_another_authority_is_not_believed(server, authority, tmp_path):
    """A server that the kubeconfig's authority did not sign gets no request at all."""
    cluster, user = embedded_in(authority)
    other = make_authority(NOW, DAY)
    cluster["certificate-authority-data"] = encoded(pem(other.certificate))
    async with await Client.connect(write_kubeconfig(tmp_path / "k", server.url, user, **cluster)) as client:
        with pytest.raises(ApiError, match="certificate verify failed"):
            await client.list(NAMESPACES)
    assert server.requests == []


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param({"tls-server-name": "api.internal"}, id="server-name"),
        pytest.param({"insecure-skip-tls-verify": True}, id="insecure"),
    ],
)
async def test_a_server_reached_by_another_name(server, authority, tmp_path, setting):
    """`tls-server-name` checks another name than the address has; `insecure-skip-tls-verify` checks none."""
    (cluster, user), url = embedded_in(authority), server.url.replace("127.0.0.1", "localhost")
    async with await Client.connect(write_kubeconfig(tmp_path / "a", url, user, **cluster)) as client:
        with pytest.raises(ApiError, match="Hostname mismatch"):
            await client.list(NAMESPACES)
    async with await Client.connect(write_kubeconfig(tmp_path / "b", url, user, **cluster, **setting)) as client:
        assert await client.list(NAMESPACES) == ([], "100")


async def test_certificate_files_that_change_are_used(server, authority, tmp_path, monkeypatch):
    """A client certificate or an authority replaced on disk is taken up without a restart."""
    monkeypatch.setattr(endpoints, "_RENEW_AFTER", 0.0)
    stranger = make_client(make_authority(NOW, DAY), "stranger", NOW, DAY)
    (tmp_path / "u.crt").write_bytes(pem(stranger.certificate))
    (tmp_path / "u.key").write_bytes(stranger.key_pem())
    cluster = {"certificate-authority": str(tmp_path / "ca")}
    user = {"client-certificate": str(tmp_path / "u.crt"), "client-key": str(tmp_path / "u.key")}
    async with await Client.connect(write_kubeconfig(tmp_path / "k", server.url, user, **cluster)) as client:
        with pytest.raises(ApiError, match="Unreachable"):
            await client.list(NAMESPACES)
        known = make_client(authority, "alice", NOW, DAY)
        (tmp_path / "u.crt").write_bytes(pem(known.certificate))
        (tmp_path / "u.key").write_bytes(known.key_pem())
        assert await client.list(NAMESPACES) == ([], "100")


async def test_a_pair_of_files_that_does_not_fit_is_not_used(server, authority, tmp_path, monkeypatch):
    """A certificate that was replaced before its key is left for the next look: the pair before it still lets in."""
    monkeypatch.setattr(endpoints, "_RENEW_AFTER", 0.0)
    first, second = (make_client(authority, "alice", NOW, DAY) for _ in range(2))
    (tmp_path / "u.crt").write_bytes(pem(first.certificate))
    (tmp_path / "u.key").write_bytes(first.key_pem())
    cluster = {"certificate-authority": str(tmp_path / "ca")}
    user = {"client-certificate": str(tmp_path / "u.crt"), "client-key": str(tmp_path / "u.key")}
    async with await Client.connect(write_kubeconfig(tmp_path / "k", server.url, user, **cluster)) as client:
        (tmp_path / "u.crt").write_bytes(pem(second.certificate))
        assert await client.list(NAMESPACES) == ([], "100")
        (tmp_path / "u.key").write_bytes(second.key_pem())
        assert await client.list(NAMESPACES) == ([], "100")
