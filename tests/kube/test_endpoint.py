"""Finding the cluster and being let in: kubeconfig, plugins, tokens, proxies, the pod's service account."""

import base64
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import make_authority, pem
from tests.kube.server import answer, write_kubeconfig
from webhook.kube import endpoint as endpoints
from webhook.kube.client import Client
from webhook.kube.endpoint import ConfigError

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """No cluster but the one a test names."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)


def authorizations(server):
    return [headers.get("Authorization") for _, _, headers, _ in server.requests]


@pytest.mark.parametrize("how", ["argument", "environment", "home"])
async def test_a_kubeconfig_is_found(server, tmp_path, monkeypatch, how):
    """The argument, $KUBECONFIG and ~/.kube/config are looked at, in this order."""
    home = tmp_path / ".kube"
    home.mkdir()
    write_kubeconfig(home / "config", server.url, {"token": "from-home"})
    if how != "home":
        monkeypatch.setenv("KUBECONFIG", write_kubeconfig(tmp_path / "env", server.url, {"token": "from-environment"}))
    path = write_kubeconfig(tmp_path / "arg", server.url, {"token": "from-argument"}) if how == "argument" else None
    async with await Client.connect(path) as client:
        await client.list(NAMESPACES)
    assert authorizations(server) == [f"Bearer from-{how}"]


async def test_basic_authentication(server, tmp_path):
    """User name and password of a kubeconfig go out as Basic."""
    path = write_kubeconfig(tmp_path / "k", server.url, {"username": "u", "password": "p"})
    async with await Client.connect(path) as client:
        await client.list(NAMESPACES)
    assert authorizations(server) == ["Basic " + base64.b64encode(b"u:p").decode()]


async def test_a_token_file_is_read_again(server, tmp_path, monkeypatch):
    """A token that changes in its file is used from the next minute on, without a restart."""
    token = tmp_path / "token"
    token.write_text("first")
    path = write_kubeconfig(tmp_path / "k", server.url, {"tokenFile": str(token)})
    monkeypatch.setattr(endpoints, "_RENEW_AFTER", 0.0)
    async with await Client.connect(path) as client:
        await client.list(NAMESPACES)
        token.write_text("second")
        await client.list(NAMESPACES)
    assert authorizations(server) == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("content", [None, "{"], ids=["gone", "half-written"])
async def test_credentials_that_cannot_be_read_again_go_on(server, tmp_path, monkeypatch, caplog, content):
    """A kubeconfig that is not there for a moment is complained about, and what was read before is sent."""
    path = tmp_path / "k"
    write_kubeconfig(path, server.url, {"token": "first"})
    monkeypatch.setattr(endpoints, "_RENEW_AFTER", 0.0)
    async with await Client.connect(str(path)) as client:
        path.unlink() if content is None else path.write_text(content)
        await client.list(NAMESPACES)
    assert authorizations(server) == ["Bearer first"]
    assert "could not be read again" in caplog.text


@pytest.fixture
def plugin(server, tmp_path):
    """A kubeconfig with an exec plugin, whose tokens are t1, t2, and so on; minutes say how long each is good."""

    def write(*minutes):
        program, count = tmp_path / "plugin", tmp_path / "count"
        program.write_text(
            f"#!{sys.executable}\nimport json, pathlib, datetime\n"
            f"count, lives = pathlib.Path({str(count)!r}), {list(minutes)!r}\n"
            "number = int(count.read_text()) + 1 if count.exists() else 1\ncount.write_text(str(number))\n"
            "status = {'token': f't{number}'}\n"
            "if lives:\n"
            "    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=lives[number - 1])\n"
            "    status['expirationTimestamp'] = until.strftime('%Y-%m-%dT%H:%M:%SZ')\n"
            "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
            " 'status': status}))\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}}
        return write_kubeconfig(tmp_path / "k", server.url, user)

    return write


async def test_a_refused_token_is_fetched_anew(server, plugin):
    """An exec plugin is asked again when the server answers 401, and the request is repeated once."""
    async with await Client.connect(plugin()) as client:
        await client.list(NAMESPACES)
        server.fault(answer(401, "Unauthorized"))
        await client.create(NAMESPACES, {"metadata": {"name": "a"}})
        await client.list(NAMESPACES)
    assert authorizations(server) == ["Bearer t1", "Bearer t1", "Bearer t2", "Bearer t2"]


@pytest.mark.parametrize(
    ("minutes", "tokens"),
    [
        pytest.param((1, 60), ["t2"] * 3, id="ahead-of-its-end"),
        pytest.param((60,), ["t1"] * 3, id="with-time-left"),
        pytest.param((), ["t1"] * 3, id="without-an-end"),
    ],
)
async def test_a_plugins_credential_is_renewed_before_it_expires(server, plugin, monkeypatch, minutes, tokens):
    """A credential that says when it expires is replaced ahead of that; any other one is kept."""
    monkeypatch.setattr(endpoints, "_RENEW_AFTER", 0.0)
    async with await Client.connect(plugin(*minutes)) as client:
        for _ in range(3):
            await client.list(NAMESPACES)
    assert authorizations(server) == [f"Bearer {token}" for token in tokens]


async def test_a_proxy_of_the_kubeconfig_is_used(server, tmp_path):
    """`proxy-url` sends the requests through the proxy."""
    path = write_kubeconfig(tmp_path / "k", "http://cluster.invalid", {}, **{"proxy-url": server.url})
    async with await Client.connect(path) as client:
        await client.list(NAMESPACES)
    [(_, _, headers, _)] = server.requests
    assert headers["Host"] == "cluster.invalid"


async def test_a_server_below_a_path(server, tmp_path):
    """A server address with a path (as behind Rancher) keeps it."""
    server.put("/clusters/c1/api/v1/namespaces/a")
    path = write_kubeconfig(tmp_path / "k", f"{server.url}/clusters/c1/", {})
    async with await Client.connect(path) as client:
        assert (await client.get(f"{NAMESPACES}/a"))["metadata"]["name"] == "a"


@pytest.fixture
def account(monkeypatch, tmp_path):
    """The directory of a pod's service account."""
    (tmp_path / "token").write_text("mounted\n")
    (tmp_path / "ca.crt").write_bytes(pem(make_authority(datetime.now(UTC), timedelta(days=1)).certificate))
    monkeypatch.setattr(endpoints, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return tmp_path


async def test_in_a_pod_the_service_account_is_used(account, monkeypatch):
    """Without a kubeconfig the pod's own service account is used; its token and authority are read again."""
    found = await endpoints.discover()
    assert found.url == "https://[fd00::1]:443"
    assert await found.headers() == {"Authorization": "Bearer mounted"}
    (account / "token").write_text("newer")
    taken = []
    monkeypatch.setattr(
        found, "tls", type("Context", (), {"load_verify_locations": lambda _, cafile: taken.append(cafile)})()
    )
    await found.renew(force=False)
    assert await found.headers() == {"Authorization": "Bearer newer"}
    assert taken == [str(account / "ca.crt")]


@pytest.mark.parametrize(
    ("lacks", "told"),
    [
        pytest.param("token", "No such file.*token", id="no-token"),
        pytest.param("ca.crt", "No such file", id="no-authority"),
        pytest.param("KUBERNETES_SERVICE_PORT", "KUBERNETES_SERVICE_PORT is not set", id="no-port"),
        pytest.param("content", "token is empty", id="empty-token"),
    ],
)
async def test_a_service_account_that_cannot_be_used_is_named(account, monkeypatch, lacks, told):
    """What a pod's account lacks is an error that says where it was looked for."""
    if lacks == "content":
        (account / "token").write_text("")
    elif (account / lacks).exists():
        (account / lacks).unlink()
    else:
        monkeypatch.delenv(lacks)
    with pytest.raises(ConfigError, match=f"service account in {account}.*{told}"):
        await endpoints.discover()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param(None, "there is no such file", id="missing"),
        pytest.param("{", "kubeconfig", id="not-yaml"),
        pytest.param("", "kubeconfig", id="empty"),
        pytest.param(
            '{"current-context": "x", "contexts": [], "clusters": [], "users": []}', "name x", id="no-context"
        ),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path, content, told):
    """A missing or broken kubeconfig is an error that names the file."""
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=told) as refused:
        await Client.connect(str(path))
    assert str(path) in str(refused.value)


async def test_without_any_configuration_it_says_what_to_do():
    """With nothing configured the error names the four ways."""
    with pytest.raises(ConfigError, match=r"--kubeconfig FILE.*KUBECONFIG.*~/.kube/config.*service account"):
        await Client.connect()


def test_in_a_pod_nothing_is_imported(account):
    """What reads kubeconfigs takes 20 MB, which a process in a cluster does without."""
    code = f"""
import asyncio, pathlib, sys
from webhook.cli import reconcile, serve
from webhook.kube import endpoint
endpoint.SERVICE_ACCOUNT = pathlib.Path({str(account)!r})
print(asyncio.run(endpoint.discover()).credentials.authorization, *sys.modules)
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.startswith("Bearer mounted")
    assert not {"kubernetes", "pydantic", "requests"} & set(finished.stdout.split())
