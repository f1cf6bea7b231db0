"""`giveway certs` as people call it: exit codes, what is printed, what is written."""

import asyncio
import base64
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT

import pytest
from click.testing import CliRunner

from tests.cases import cases
from tests.certs.handshake import server_context, shake_hands
from tests.inspection.command import giveway as process
from tests.rights import used_rights
from tests.workloads import eventually, namespace
from webhook.cli.main import main
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube.resources import MUTATING_WEBHOOK_CONFIGURATION, NAMESPACE, SECRET

SERVICE = ["--service", "giveway-system/giveway"]
IN_SECRET = ["--secret", "giveway-system/giveway-tls"]
ENTRY = {
    "name": "pods.giveway.dev",
    "clientConfig": {"service": {"namespace": "giveway-system", "name": "giveway"}},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}


def giveway(*arguments):
    return CliRunner().invoke(main, ["certs", *map(str, arguments)])


@pytest.fixture
async def cluster():
    """A cluster with a namespace and a webhook configuration."""
    async with EmbeddedCluster(nodes=0) as started, started.client() as started.admin:
        await started.admin.create(NAMESPACE.path(), namespace("giveway-system"))
        configuration = {"metadata": {"name": "giveway"}, "webhooks": [ENTRY]}
        await started.admin.create(MUTATING_WEBHOOK_CONFIGURATION.path(), configuration)
        yield started


def test_issue_to_a_directory(tmp_path):
    """`issue --dir` writes files that a TLS server can use, and says for what and until when they are good."""
    result = giveway("issue", "--dir", tmp_path, *SERVICE, "--name", "127.0.0.1", "--days", 30)
    assert result.exit_code == 0, result.output
    files = {name: (tmp_path / name).read_bytes() for name in ("tls.crt", "tls.key", "ca.crt")}
    shake_hands(server_context(tmp_path / "served", files), files["ca.crt"], "127.0.0.1")
    assert "30.0 days left" in result.output
    assert "127.0.0.1, giveway, giveway.giveway-system, giveway.giveway-system.svc," in result.output


def test_what_is_good_is_kept_until_it_is_rotated(tmp_path):
    """A second `issue` prints the same, as `show` does; `--rotate` renews what is served at once, the authority stays.

    `--rotate=ca` adds an authority and says that it does not sign yet.
    """
    issue = ("issue", "--dir", tmp_path, *SERVICE)
    first = giveway(*issue)
    assert giveway(*issue).output == giveway("show", "--dir", tmp_path).output == first.output
    served, trusted = ((tmp_path / name).read_bytes() for name in ("tls.crt", "ca.crt"))
    assert giveway(*issue, "--rotate").exit_code == 0
    assert (tmp_path / "tls.crt").read_bytes() != served
    assert (tmp_path / "ca.crt").read_bytes() == trusted
    result = giveway(*issue, "--rotate=ca")
    assert result.output.count("\nauthority ") == 2
    assert "the newest authority signs from 10 minutes after its beginning on" in result.output
    assert (tmp_path / "ca.crt").read_bytes().count(b"BEGIN CERTIFICATE") == 2


async def test_issue_to_a_secret_and_a_directory(cluster, tmp_path):
    """`issue --secret --dir --webhook-config` fills the Secret, the trust, and the directory without the CA's key."""
    directory, kubeconfig = tmp_path / "certs", ["--kubeconfig", cluster.kubeconfig]
    result = await process(
        *("certs", "issue", *IN_SECRET, "--webhook-config", "giveway", "--dir", directory, *SERVICE, *kubeconfig)
    )
    assert result.exit_code == 0, result.stderr
    secret = await cluster.admin.get(SECRET.path("giveway-system", "giveway-tls"))
    data = {name: base64.b64decode(text) for name, text in secret["data"].items()}
    written = {path.name for path in directory.iterdir() if not path.name.startswith("..")}
    assert written == {"tls.crt", "tls.key", "ca.crt"}
    assert (directory / "tls.key").read_bytes() == data["tls.key"]
    stored = await cluster.admin.get(MUTATING_WEBHOOK_CONFIGURATION.path(name="giveway"))
    assert base64.b64decode(stored["webhooks"][0]["clientConfig"]["caBundle"]) == data["ca.crt"]
    assert (await process("certs", "show", *IN_SECRET, *kubeconfig)).stdout == result.stdout


@pytest.mark.parametrize("trouble", [False, True], ids=["well", "refused"])
async def test_keep_stays_until_it_is_told_to_go(cluster, tmp_path, trouble):
    """`issue --keep` stays, even where the cluster refuses it, and ends at once and cleanly on SIGTERM."""
    nobody = cluster.write_kubeconfig("nobody", cluster.add_user("nobody"))
    kubeconfig, certificate = nobody if trouble else cluster.kubeconfig, tmp_path / "certs" / "tls.crt"
    command = [sys.executable, "-m", "webhook.cli", "certs", "issue", "--keep", "--kubeconfig", str(kubeconfig)]
    command += [*IN_SECRET, "--dir", str(tmp_path / "certs"), *SERVICE]
    keeping = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT, env=os.environ)
    try:
        await eventually(lambda: used_rights(cluster, "nobody", allowed=False) if trouble else certificate.exists(), 60)
        await asyncio.sleep(0.2)
        assert keeping.returncode is None
        keeping.send_signal(signal.SIGTERM)
        output, _ = await asyncio.wait_for(keeping.communicate(), 10)
    finally:
        if keeping.returncode is None:
            keeping.kill()
    assert keeping.returncode == 0, output
    assert (b"403 Forbidden" in output) == trouble
    assert certificate.is_file() != trouble


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    cases(
        ("nowhere", ["issue", *SERVICE], 2, "Give --dir DIR, --secret NAMESPACE/NAME or both"),
        ("no name", ["issue", "--dir", "x"], 2, "Give --service NAMESPACE/NAME"),
        ("service", ["issue", "--dir", "x", "--service", "giveway"], 2, "not of the form NAMESPACE/NAME"),
        ("short ca", ["issue", "--dir", "x", *SERVICE, "--ca-days", "100"], 2, "three times as long"),
        ("days", ["issue", "--dir", "x", *SERVICE, "--days", "9e9"], 2, "0<x<=36500"),
        ("days of a client", ["client", "--dir", "x", "--days", "3000000"], 2, "0<x<=36500"),
        ("keep", ["issue", "--dir", "x", *SERVICE, "--keep"], 2, "--keep goes with --secret"),
        ("configuration", ["issue", "--dir", "x", *SERVICE, "--webhook-config", "g"], 2, "with --secret"),
        (
            "certificates from elsewhere",
            ["issue", "--dir", "theirs", *SERVICE],
            1,
            "come from elsewhere and are left alone",
        ),
        ("nothing to show", ["show", "--dir", "x"], 1, "there are no certificates yet"),
        ("kubeconfig", ["show", "--secret", "a/b", "--kubeconfig", "none"], 1, "there is no such file"),
    ),
)
def test_mistakes_are_explained(tmp_path, monkeypatch, arguments, code, told):
    """A call that cannot work says why, with the exit code for it."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "tls.crt").write_text("theirs")
    monkeypatch.chdir(tmp_path)
    result = giveway(*arguments)
    assert (result.exit_code, told in result.output) == (code, True)
    assert (tmp_path / "theirs" / "tls.crt").read_text() == "theirs"
