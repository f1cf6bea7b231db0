"""Finding the cluster and being let in: kubeconfig, plugins, tokens, proxies, the pod's service account."""

import base64
import json
import stat
import subprocess
import sys

import pytest

from tests.kube.server import Server, answer
from webhook.kube import endpoint as endpoints
from webhook.kube.client import Client
from webhook.kube.endpoint import ConfigError
from webhook.kube.loaders import loaders

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture
async def server():
    async with Server() as started:
        yield started


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """No cluster but the one a test names."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)


def write_kubeconfig(path, url, user, **cluster):
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{"name": "c", "cluster": {"server": url, **cluster}}],
        "contexts": [{"name": "it", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(config))  # JSON is YAML
    return str(path)


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


async def test_a_refused_token_is_fetched_anew(server, tmp_path):
    """An exec plugin is asked again when the server answers 401, and the request is repeated once."""
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"#!{sys.executable}\nimport json, pathlib\n"
        f"count = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "number = int(count.read_text()) + 1 if count.exists() else 1\ncount.write_text(str(number))\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': f't{number}'}}))\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    async with await Client.connect(write_kubeconfig(tmp_path / "k", server.url, user)) as client:
        await client.list(NAMESPACES)
        server.fault(answer(401, "Unauthorized"))
        await client.create(NAMESPACES, {"metadata": {"name": "a"}})
        await client.list(NAMESPACES)
    assert authorizations(server) == ["Bearer t1", "Bearer t1", "Bearer t2", "Bearer t2"]


async def test_a_plugins_credential_is_renewed_before_it_expires(server, tmp_path, monkeypatch):
    """A credential that says when it expires is replaced ahead of that; one with time left is kept."""
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"#!{sys.executable}\nimport json, pathlib, datetime\n"
        f"count = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "number = int(count.read_text()) + 1 if count.exists() else 1\ncount.write_text(str(number))\n"
        "life = datetime.timedelta(minutes=1 if number == 1 else 60)\n"
        "until = (datetime.datetime.now(datetime.timezone.utc) + life).strftime('%Y-%m-%dT%H:%M:%SZ')\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': f't{number}', 'expirationTimestamp': until}}))\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    monkeypatch.setattr(endpoints, "_RENEW_AFTER", 0.0)
    async with await Client.connect(write_kubeconfig(tmp_path / "k", server.url, user)) as client:
        for _ in range(3):
            await client.list(NAMESPACES)
    assert authorizations(server) == ["Bearer t2", "Bearer t2", "Bearer t2"]


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


async def test_in_a_pod_the_service_account_is_used(server, tmp_path, monkeypatch):
    """Without a kubeconfig the pod's own service account is used."""
    incluster_config = loaders().incluster_config
    (tmp_path / "token").write_text("mounted")
    (tmp_path / "ca.crt").write_text(CERTIFICATE)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = await endpoints.discover()
    assert found.url == "https://[fd00::1]:443"
    assert (await found.headers())["Authorization"].lower() == "bearer mounted"


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


def run_python(code):
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return finished.stdout.split()


def test_finding_a_cluster_stays_lean():
    """The package's loaders come without the rest of it, which would cost 20 MB."""
    code = """
import sys
from webhook.kube.loaders import loaders
print("requests" in sys.modules, "pydantic" in sys.modules, hasattr(loaders().kube_config, "load_kube_config"))
print("requests" in sys.modules, "pydantic" in sys.modules, "kubernetes" in sys.modules)
"""
    assert run_python(code) == ["False", "False", "True", "False", "False", "False"]


def test_a_kubeconfig_is_read_lean(tmp_path):
    """Reading a kubeconfig with a token brings neither the package nor what it depends on: 2 MB instead of 22."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    code = f"""
import asyncio, sys
from webhook.kube.endpoint import discover
print(asyncio.run(discover({str(tmp_path / "config")!r})).authorization)
print(*(name in sys.modules for name in ("kubernetes", "pydantic", "requests")))
"""
    assert run_python(code) == ["Bearer", "secret", "False", "False", "False"]


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
@pytest.mark.slow
def test_others_get_the_package_whole(first):
    """Whoever imports the official client in the same process gets all of it, be it before or after."""
    ours = "from webhook.kube.loaders import loaders; assert loaders().configuration().verify_ssl\n"
    theirs = (
        "import kubernetes, kubernetes.aio\n"
        "assert kubernetes.client.CoreV1Api and kubernetes.aio.client.CoreV1Api().api_client\n"
        "assert kubernetes.aio.config.kube_config.ApiClient\n"
    )
    assert run_python((theirs + ours if first else ours + theirs) + "print('fine')") == ["fine"]


CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBCzCBs6ADAgECAgEBMAoGCCqGSM49BAMCMA8xDTALBgNVBAMMBHRlc3QwIBcN
MjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMA8xDTALBgNVBAMMBHRlc3Qw
WTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAR2KtgNuOSQR/Pn0vpR7S7vQRHbM7cp
ym42d5bH6keElrL7ap1c9hnn/MmVNpYERjRA+mPQtFqAMau3IAO7lvtpMAoGCCqG
SM49BAMCA0cAMEQCIHFqcP6LsxjkGVkNwDgOcB3fcvhgFhFhphCgkb73IhQlAiAu
iWm7T0O1TurfP6Zp47HAapBjpRlviBCr69TFXSp4Kg==
-----END CERTIFICATE-----
"""
