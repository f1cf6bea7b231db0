"""Certificates and policies change under a running server, and no connection is lost."""

import asyncio
import errno
import os
import ssl
from pathlib import Path

import aiohttp
import pytest

from tests.admission.builders import make_class, make_pod, make_review
from tests.policy.builders import table
from tests.serving.certificates import Authority
from tests.serving.conftest import trusting
from tests.workloads import eventually as until
from webhook.admission.context import Objects
from webhook.component_base import file_watcher
from webhook.serving.server import TlsError, load_certificate

POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: teams}
spec:
  rules:
  - {name: allowed, priorityClasses: {allow: [CLASS]}}
"""
BROKEN = POLICY.replace("priorityClasses", "priorityClases")
HIGH = make_class("high", 100)
RESOLVED = make_review(
    make_pod(priorityClassName="high", priority=100, preemptionPolicy="PreemptLowerPriority"),
)


def allow(name: str) -> str:
    return POLICY.replace("CLASS", name)


async def peer_name(running, authority) -> str:
    """The common name that a new connection is shown."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", running.server.secure_port, ssl=trusting(authority), server_hostname="localhost"
    )
    certificate = writer.get_extra_info("peercert")
    writer.close()
    del reader
    return dict(part[0] for part in certificate["subject"])["commonName"]


def mount(directory: Path, version: str, files: dict[str, str | bytes]) -> None:
    """Write files as kubelet does: a new folder, and `..data` swapped to it in one step."""
    data = directory / f"..{version}"
    data.mkdir()
    for name, content in files.items():
        (data / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (directory / "..tmp").symlink_to(data.name)
    os.replace(directory / "..tmp", directory / "..data")  # noqa: PTH105 - the very call kubelet makes
    for name in files:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")


@pytest.fixture
def policies(tmp_path) -> Path:
    directory = tmp_path / "policies"
    directory.mkdir()
    return directory


async def allowed(running) -> bool:
    _, answer = await running.post("/validate", RESOLVED)
    return answer["allowed"]


async def test_policies_reload_on_the_swap_of_a_configmap(start, policies):
    """A mounted ConfigMap changes by a symlink swap; the rules follow, on the same connection."""
    mount(policies, "one", {"teams.yaml": allow("batch")})
    async with start(policies=policies, objects=Objects([HIGH])) as running:
        assert not await allowed(running)
        mount(policies, "two", {"teams.yaml": allow("high")})
        await until(lambda: allowed(running))
        assert len(running.server._connections.connections) == 1
        _, text = await running.get("/metrics")
    assert 'giveway_policy_reloads_total{result="success"} 1.0' in text


async def test_broken_policies_leave_the_last_good_ones_in_use(start, policies):
    """A mistake is logged with file, line and column, shown by readyz and a metric, and changes no verdict."""
    (policies / "teams.yaml").write_text(allow("high"))
    async with start(policies=policies, objects=Objects([HIGH])) as running:
        (policies / "teams.yaml").write_text(BROKEN)
        line = await running.logged(level="error")
        assert "teams.yaml:6:21: error:" in line["message"]
        assert await allowed(running)
        status, report = await running.get("/readyz?verbose")
        assert status == 200
        assert "the files are not in use" in report
        assert "teams.yaml:6:21" in report
        _, metrics = await running.get("/metrics")
        assert "giveway_policies_current 0.0" in metrics
        assert 'giveway_policy_reloads_total{result="failure"} 1.0' in metrics
        (policies / "teams.yaml").write_text(allow("batch"))
        await running.logged(message=f"policies reloaded from {policies}")
        assert not await allowed(running)
        _, report = await running.get("/readyz?verbose")
        assert "broken" not in report


async def test_a_reload_that_failed_is_tried_again(start, policies, monkeypatch):
    """What failed may not be the files' fault, so it does not wait for their next change."""
    monkeypatch.setattr(file_watcher, "_RETRY", (0.02, 0.02))
    (policies / "teams.yaml").write_text(allow("high"))
    async with start(policies=policies, objects=Objects([HIGH])) as running:
        monkeypatch.setattr(Path, "open", full)
        (policies / "teams.yaml").write_text(allow("batch"))
        line = await running.logged(level="error")
        assert "Too many open files" in line["message"]
        monkeypatch.undo()
        await running.logged(message=f"policies reloaded from {policies}")
        assert not await allowed(running)


def full(path, *mode, opened=Path.open, **more):
    if mode == ("rb",):
        raise OSError(errno.EMFILE, "Too many open files")
    return opened(path, *mode, **more)


async def test_a_new_certificate_is_used_for_new_connections(start, authority, tmp_path):
    """Open connections go on under the old certificate, new ones are shown the new one."""
    async with start() as running:
        assert await peer_name(running, authority) == "server"
        await running.post("/mutate", RESOLVED)
        open_before = running.server._connections.connections[0]
        authority.renew(tmp_path, "renewed", days=9)

        async def renewed() -> bool:
            return await peer_name(running, authority) == "renewed"

        await until(renewed)
        status, _ = await running.post("/mutate", RESOLVED)
        assert status == 200
        assert open_before in running.server._connections.connections
        _, report = await running.get("/readyz?verbose")
    assert "[+]certificate ok: expires" in report


async def test_no_review_fails_while_certificates_change(start, authority, tmp_path):
    """Reviews on old and new connections are all answered through a dozen reloads."""
    async with start() as running:
        failures, answered = [], 0
        done = asyncio.Event()

        async def load_(*, fresh: bool) -> None:
            nonlocal answered
            while not done.is_set():
                headers = {"Connection": "close"} if fresh else {}
                try:
                    status, _ = await running.post("/mutate", RESOLVED, headers=headers)
                except aiohttp.ClientError as error:
                    failures.append(error)
                else:
                    answered += status == 200

        tasks = [asyncio.create_task(load_(fresh=bool(n % 2))) for n in range(6)]
        for number in range(12):
            authority.renew(tmp_path, f"n{number}")
            await asyncio.sleep(0.08)
        done.set()
        await asyncio.gather(*tasks)
        _, metrics = await running.get("/metrics")
    assert not failures
    assert answered > 50
    reloads = next(line for line in metrics.splitlines() if 'certificate_reloads_total{result="success"}' in line)
    assert float(reloads.split()[-1]) >= 3


@pytest.mark.parametrize("spoil", ["other key", "no certificate"])
async def test_a_broken_certificate_leaves_the_last_good_one_in_use(start, authority, tmp_path, spoil):
    """A key that does not fit, or a file that is no certificate, is logged and changes nothing."""
    async with start() as running:
        if spoil == "other key":
            authority.issue(tmp_path, "other")[1].replace(tmp_path / "server.key")
        else:
            (tmp_path / "server.crt").write_text("nonsense")
        line = await running.logged(level="error")
        assert "certificate not reloaded" in line["message"]
        assert await peer_name(running, authority) == "server"
        status, report = await running.get("/readyz?verbose")
        assert status == 200
        assert "the files are broken" in report


async def test_a_client_ca_that_is_replaced_is_forgotten(start, tmp_path):
    """After a reload clients of the old CA do not get in any more."""
    old, new = Authority(), Authority()
    ca = old.write_ca(tmp_path / "callers.crt")
    client = old.issue(tmp_path, "apiserver")
    async with start(client_ca_file=ca, client=client) as running:
        await running.post("/mutate", RESOLVED)
        new.write_ca(ca)

        async def refused() -> bool:
            try:
                await running.post("/mutate", RESOLVED, headers={"Connection": "close"})
            except aiohttp.ClientError:
                return True
            return False

        await until(refused)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
async def test_tls_below_1_2_is_refused(start, authority):
    """Old protocol versions get no handshake."""
    context = trusting(authority)
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with start() as running:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", running.server.secure_port, ssl=context)


@table(
    "files, words",
    {
        "no certificate": ({}, "cannot read the certificate"),
        "not PEM": ({"server.crt": "x"}, "server.crt holds no PEM certificate"),
        "no key": ({"server.key": "x"}, "server.key is no private key for"),
        "no client CA": ({"ca.crt": "x"}, "ca.crt holds no usable client CA"),
    },
)
def test_what_is_wrong_with_a_certificate_is_said(authority, tmp_path, files, words):
    """The text names the file."""
    certificate, key = authority.issue(tmp_path, "server")
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    if not files:
        certificate.unlink()
    with pytest.raises(TlsError, match=words):
        load_certificate(certificate, key, tmp_path / "ca.crt" if "ca.crt" in files else None)


async def test_an_expired_certificate_is_not_ready(start, authority, tmp_path):
    """Nobody can call a server whose certificate has expired, so it does not claim to be ready."""
    async with start() as running:
        authority.renew(tmp_path, "expired", days=-1)
        await until(lambda: running.ready(503))
        _, report = await running.get("/readyz")
    assert "[-]certificate failed: expires" in report
