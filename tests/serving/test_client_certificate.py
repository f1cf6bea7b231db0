"""`giveway certs client`: what lets in nobody but the API server."""

import asyncio
import stat

import aiohttp
import pytest
import yaml
from click.testing import CliRunner

from tests.admission.builders import make_class, make_pod, make_review
from tests.policy.builders import table
from webhook.admission.context import Objects
from webhook.cli.certs import command

GOOD = make_review(make_pod(priorityClassName="high"))


def make(directory, *options: str):
    return CliRunner().invoke(command, ["client", "--dir", str(directory), *options])


async def test_only_who_has_the_certificate_gets_in(start, tmp_path):
    """The server trusts the authority that was made; none, and another one of the same kind, are turned away."""
    for name in ("mine", "others"):
        made = await asyncio.to_thread(make, tmp_path / name)  # the command has a loop of its own
        assert made.exit_code == 0
    ca = tmp_path / "mine" / "ca.crt"
    pairs = {name: (tmp_path / name / "giveway.crt", tmp_path / name / "giveway.key") for name in ("mine", "others")}
    async with start(objects=Objects([make_class("high", 100)]), client_ca_file=ca, client=pairs["mine"]) as running:
        assert (await running.post("/mutate", GOOD))[0] == 200
    for client in (None, pairs["others"]):
        async with start(objects=Objects(), client_ca_file=ca, client=client) as running:
            with pytest.raises(aiohttp.ClientError):
                await running.post("/mutate", GOOD)


@table(
    "options, host",
    {
        "usual": ((), "giveway-webhook.giveway-system.svc"),
        "another-namespace": (("--system-namespace", "a"), "giveway-webhook.a.svc"),
        "outside": (("--url", "https://10.0.0.1:9443/base"), "10.0.0.1:9443"),
    },
)
def test_the_files_lead_to_each_other(tmp_path, options, host):
    """kube-apiserver finds the kubeconfig by its configuration, and the certificate by the Service's name."""
    assert make(tmp_path / "new", *options).exit_code == 0
    read = {path.name: path for path in (tmp_path / "new").iterdir()}
    plugins = yaml.safe_load(read["admission.yaml"].read_text())["plugins"]
    assert [row["name"] for row in plugins] == ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"]
    assert {row["configuration"]["kubeConfigFile"].rsplit("/", 1)[1] for row in plugins} <= set(read)
    (user,) = yaml.safe_load(read["webhooks.kubeconfig"].read_text())["users"]
    assert user["name"] == host
    assert {path.rsplit("/", 1)[1] for path in user["user"].values()} <= set(read)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in read.values())


def test_nothing_is_written_over(tmp_path):
    """A key that is in use stays."""
    assert make(tmp_path).exit_code == 0
    key = (tmp_path / "giveway.key").read_bytes()
    again = make(tmp_path)
    assert again.exit_code == 1
    assert "already" in again.output
    assert (tmp_path / "giveway.key").read_bytes() == key
