"""`giveway serve` as a process: options, environment, start, stop."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress

import pytest

from tests.admission.builders import make_pod, make_review
from tests.clusters.embedded.background import running
from tests.serving.certificates import Authority
from webhook.kube.client import Client
from webhook.kube.resources import NAMESPACE, PRIORITY_CLASS

POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: teams}
spec:
  match: {namespaceSelector: {matchLabels: {env: prod}}}
  rules:
  - {name: allowed, priorityClasses: {deny: [high]}}
"""


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory):
    """A cluster with a class and a namespace that the policies name."""
    path = tmp_path_factory.mktemp("cluster") / "kubeconfig"
    with running(nodes=0) as cluster:
        cluster.write_kubeconfig("admin", cluster.token, path)
        asyncio.run(fill(path))
        yield path


async def fill(kubeconfig):
    async with await Client.connect(str(kubeconfig)) as client:
        await client.create(PRIORITY_CLASS.path(), {"metadata": {"name": "high"}, "value": 100})
        await client.create(NAMESPACE.path(), {"metadata": {"name": "team-a", "labels": {"env": "prod"}}})


@pytest.fixture
def options(tmp_path, kubeconfig):
    """Options of a server with a certificate of its own and policies, on free ports."""
    authority = Authority()
    certificate, key = authority.issue(tmp_path, "server")
    authority.write_ca(tmp_path / "ca.crt")
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "teams.yaml").write_text(POLICY)
    return {
        "tls-cert-file": certificate,
        "tls-private-key-file": key,
        "policies": tmp_path / "policies",
        "kubeconfig": kubeconfig,
        "bind-address": "127.0.0.1",
        "secure-port": 0,
        "health-port": 0,
    }


@contextmanager
def serving(options: dict, environment: dict | None = None):
    """The process and its first line, which says the ports."""
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with subprocess.Popen(
        [sys.executable, "-m", "webhook.cli", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    ) as process:
        try:
            yield process, process.stdout.readline().decode()
        finally:
            process.kill()


@contextmanager
def killed_after(process: subprocess.Popen, seconds: float):
    """The process ends then at the latest, and with it the wait for a line that does not come."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def ports(line: str) -> tuple[int, int]:
    match = re.search(r"serving on port (\d+), probes on port (\d+)", line)
    assert match, line
    return int(match[1]), int(match[2])


def post(port: int, options: dict) -> dict:
    """What the server answers to a pod of class `high`."""
    made = make_pod(priorityClassName="high", priority=100, preemptionPolicy="PreemptLowerPriority")
    url, headers = f"https://127.0.0.1:{port}/validate?timeout=5s", {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(make_review(made)).encode(), headers)
    trust = ssl.create_default_context(cafile=options["policies"].parent / "ca.crt")
    with urllib.request.urlopen(request, context=trust, timeout=5) as answer:
        return json.load(answer)["response"]


def until_ready(health: int) -> bytes:
    """What /readyz says once the caches are filled."""
    for _ in range(200):
        with suppress(urllib.error.HTTPError), urllib.request.urlopen(f"http://127.0.0.1:{health}/readyz") as ready:
            return ready.read()
        time.sleep(0.05)
    raise AssertionError("it is not ready after 10 s")


def test_it_serves_reviews_by_policies_and_stops_on_sigterm(options):
    """Options in, refusals out; SIGTERM ends it in order, with nothing on standard error."""
    with serving(options) as (process, line):
        assert json.loads(line)["level"] == "info"
        secure, health = ports(line)
        assert until_ready(health) == b"ok\n"
        assert "teams/allowed" in post(secure, options)["status"]["message"]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (0, b"")
    messages = [json.loads(row)["message"] for row in out.splitlines()]
    assert "review" in messages
    assert messages[-1] == "stopped"


def test_every_option_can_come_from_the_environment(options):
    """GIVEWAY_… stands for the option of that name."""
    environment = {f"GIVEWAY_{name.replace('-', '_').upper()}": str(value) for name, value in options.items()}
    with serving({}, environment) as (process, line):
        assert ports(line)[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0


def test_it_goes_on_following_its_files_after_it_had_no_file_descriptor_left(options):
    """At the limit of open files nothing can be looked at; once there is room again, changes are taken into use."""
    with serving(options, {"GIVEWAY_ALLOW_REMOVAL": "true"}) as (process, line), killed_after(process, 20):
        secure, health = ports(line)
        until_ready(health)
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1, before[1]))
        assert any(b"Too many open files" in row for row in process.stdout)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
        (options["policies"] / "teams.yaml").write_text(POLICY.replace("deny: [high]", "deny: [low]"))
        assert any(json.loads(row)["message"].startswith("policies reloaded") for row in process.stdout)
        assert post(secure, options)["allowed"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("policies", "teams.yaml:7:6: error:"),
        ("certificate", "holds no PEM certificate"),
        ("port", "ddress already in"),
    ],
)
def test_it_does_not_start_on_what_is_broken(options, spoil, words):
    """What is wrong is said in the words of lint, and the exit code is 1; of a port, which option names another."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        if spoil == "policies":
            (options["policies"] / "teams.yaml").write_text(POLICY.replace("- {name: allowed", "- {nam: allowed"))
        elif spoil == "certificate":
            options["tls-cert-file"].write_text("x")
        else:
            options["secure-port"], words = taken.getsockname()[1], f"{words} use; --secure-port names another"
        with serving(options) as (process, line):
            _, err = process.communicate(timeout=10)
    assert (line, process.returncode, words in err.decode()) == ("", 1, True), err
