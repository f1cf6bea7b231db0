"""`giveway certs` as people call it: exit codes, what is printed, what is written."""

import asyncio
import base64
import json
import signal
import subprocess
import sys
import threading
import time

import pytest
from click.testing import CliRunner

from tests.certs.handshake import server_context, shake_hands
from tests.kube.server import Server, answer
from webhook.cli.main import main

SERVICE = ["--service", "giveway-system/giveway"]
SECRET = "/api/v1/namespaces/giveway-system/secrets/giveway-tls"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/giveway"


def giveway(*arguments):
    return CliRunner().invoke(main, ["certs", *map(str, arguments)])


@pytest.fixture
def cluster(tmp_path):
    """An API server in a thread of its own, and a kubeconfig for it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def make():
        server = Server()
        await server.start()
        return server

    server = asyncio.run_coroutine_threadsafe(make(), loop).result()
    service = {"namespace": "giveway-system", "name": "giveway"}
    server.objects[CONFIGURATION] = {
        "metadata": {"name": "giveway", "resourceVersion": "1"},
        "webhooks": [{"name": "pods.giveway.dev", "clientConfig": {"service": service}}],
    }
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    server.kubeconfig = tmp_path / "kubeconfig"
    server.kubeconfig.write_text(json.dumps(config))
    yield server
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_issue_to_a_directory(tmp_path):
    """`issue --dir` writes files that a TLS server can use, and says for what and until when they are good."""
    result = giveway("issue", "--dir", tmp_path, *SERVICE, "--name", "127.0.0.1", "--days", 30)
    assert result.exit_code == 0, result.output
    files = {name: (tmp_path / name).read_bytes() for name in ("tls.crt", "tls.key", "ca.crt")}
    shake_hands(server_context(tmp_path / "served", files), files["ca.crt"], "127.0.0.1")
    assert "30.0 days left" in result.output
    assert "127.0.0.1, giveway, giveway.giveway-system, giveway.giveway-system.svc," in result.output


def test_issue_again_changes_nothing(tmp_path):
    """What is good is kept: a second `issue` prints the same."""
    first = giveway("issue", "--dir", tmp_path, *SERVICE)
    assert giveway("issue", "--dir", tmp_path, *SERVICE).output == first.output
    assert giveway("show", "--dir", tmp_path).output == first.output


def test_rotate_makes_a_new_serving_certificate(tmp_path):
    """`rotate` renews what is served at once; the authority stays."""
    giveway("issue", "--dir", tmp_path, *SERVICE)
    before = {name: (tmp_path / name).read_bytes() for name in ("tls.crt", "ca.crt")}
    assert giveway("issue", "--rotate", "--dir", tmp_path, *SERVICE).exit_code == 0
    assert (tmp_path / "tls.crt").read_bytes() != before["tls.crt"]
    assert (tmp_path / "ca.crt").read_bytes() == before["ca.crt"]


def test_rotate_of_the_authority_says_what_follows(tmp_path):
    """`--rotate=ca` adds an authority and says that it does not sign yet."""
    giveway("issue", "--dir", tmp_path, *SERVICE)
    result = giveway("issue", "--rotate=ca", "--dir", tmp_path, *SERVICE)
    assert result.output.count("\nauthority ") == 2
    assert "the newest authority signs from 10 minutes after its beginning on" in result.output
    assert (tmp_path / "ca.crt").read_bytes().count(b"BEGIN CERTIFICATE") == 2


def test_issue_to_a_secret_and_a_directory(cluster, tmp_path):
    """`issue --secret --dir --webhook-config` fills the Secret, the trust, and the directory without the CA's key."""
    directory = tmp_path / "certs"
    arguments = ["--secret", "giveway-system/giveway-tls", "--webhook-config", "giveway"]
    result = giveway("issue", *arguments, "--dir", directory, *SERVICE, "--kubeconfig", cluster.kubeconfig)
    assert result.exit_code == 0, result.output
    data = {name: base64.b64decode(text) for name, text in cluster.objects[SECRET]["data"].items()}
    assert {path.name for path in directory.iterdir() if not path.name.startswith("..")} == {
        "tls.crt",
        "tls.key",
        "ca.crt",
    }
    assert (directory / "tls.key").read_bytes() == data["tls.key"]
    bundle = cluster.objects[CONFIGURATION]["webhooks"][0]["clientConfig"]["caBundle"]
    assert base64.b64decode(bundle) == data["ca.crt"]
    shown = giveway("show", "--secret", "giveway-system/giveway-tls", "--kubeconfig", cluster.kubeconfig)
    assert shown.output == result.output


@pytest.mark.parametrize("trouble", [False, True], ids=["well", "refused"])
def test_keep_stays_until_it_is_told_to_go(cluster, tmp_path, trouble):
    """`issue --keep` stays, even where the cluster refuses it, and ends at once and cleanly on SIGTERM."""
    if trouble:
        cluster.fault(answer(403, "Forbidden"), contains="secrets", times=1000)
    command = [sys.executable, "-m", "webhook.cli", "certs", "issue", "--keep", "--kubeconfig", str(cluster.kubeconfig)]
    command += ["--secret", "giveway-system/giveway-tls", "--dir", str(tmp_path / "certs"), *SERVICE]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not ((tmp_path / "certs" / "tls.crt").exists() or trouble):
            time.sleep(0.05)
        while time.monotonic() < deadline and not cluster.asked("GET", "secrets"):
            time.sleep(0.05)
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=10)
    finally:
        process.kill()
    assert process.returncode == 0, output
    assert ("403 Forbidden" in output) == trouble
    assert (tmp_path / "certs" / "tls.crt").is_file() != trouble


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        pytest.param(["issue", *SERVICE], 2, "Give --dir DIR, --secret NAMESPACE/NAME or both", id="nowhere"),
        pytest.param(["issue", "--dir", "x"], 2, "Give --service NAMESPACE/NAME", id="no-name"),
        pytest.param(
            ["issue", "--dir", "x", "--service", "giveway"], 2, "not of the form NAMESPACE/NAME", id="service"
        ),
        pytest.param(["issue", "--dir", "x", *SERVICE, "--ca-days", "100"], 2, "three times as long", id="short-ca"),
        pytest.param(["issue", "--dir", "x", *SERVICE, "--days", "9e9"], 2, "0<x<=36500", id="days"),
        pytest.param(["client", "--dir", "x", "--days", "3000000"], 2, "0<x<=36500", id="days-of-a-client"),
        pytest.param(["issue", "--dir", "x", *SERVICE, "--keep"], 2, "--keep goes with --secret", id="keep"),
        pytest.param(["issue", "--dir", "x", *SERVICE, "--webhook-config", "g"], 2, "with --secret", id="config"),
        pytest.param(["show", "--dir", "x"], 1, "there are no certificates yet", id="nothing-to-show"),
        pytest.param(["show", "--secret", "a/b", "--kubeconfig", "none"], 1, "there is no such file", id="kubeconfig"),
    ],
)
def test_mistakes_are_explained(tmp_path, monkeypatch, arguments, code, told):
    """A call that cannot work says why, with the exit code for it."""
    monkeypatch.chdir(tmp_path)
    result = giveway(*arguments)
    assert result.exit_code == code
    assert told in result.output


def test_certificates_from_elsewhere_are_left_alone(tmp_path):
    """A directory with other certificates is an error and stays as it is."""
    (tmp_path / "tls.crt").write_text("theirs")
    result = giveway("issue", "--dir", tmp_path, *SERVICE)
    assert result.exit_code == 1
    assert "ca.key is missing, so these certificates come from elsewhere and are left alone" in result.output
    assert (tmp_path / "tls.crt").read_text() == "theirs"
