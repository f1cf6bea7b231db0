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
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.admission.builders import make_pod, make_review
from tests.cases import cases
from tests.serving.certificates import Authority
from tests.workloads import eventually
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
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


@pytest.fixture
async def options(tmp_path):
    """Options of a server with a certificate and policies, for a cluster with what these name, on free ports."""
    authority = Authority()
    certificate, key = authority.issue(tmp_path, "server")
    authority.write_ca(tmp_path / "ca.crt")
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "teams.yaml").write_text(POLICY)
    async with EmbeddedCluster(nodes=0) as cluster, cluster.client() as client:
        await client.create(PRIORITY_CLASS.path(), {"metadata": {"name": "high"}, "value": 100})
        await client.create(NAMESPACE.path(), {"metadata": {"name": "team-a", "labels": {"env": "prod"}}})
        yield {
            "tls-cert-file": certificate,
            "tls-private-key-file": key,
            "policies": tmp_path / "policies",
            "kubeconfig": cluster.kubeconfig,
            "bind-address": "127.0.0.1",
            "secure-port": 0,
            "health-port": 0,
        }


@asynccontextmanager
async def serving(options, **environment):
    """The process and its first line, which says the ports. It ends with the block, after a minute at the latest."""
    command = (sys.executable, "-m", "webhook.cli", "serve", *(f"--{name}={value}" for name, value in options.items()))
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=PIPE, env={**os.environ, **environment}
    )
    try:
        async with asyncio.timeout(60):
            yield process, (await process.stdout.readline()).decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def ports(line):
    """The ports of reviews and of probes."""
    return re.search(r"serving on port (\d+), probes on port (\d+)", line).groups()


async def post(port, options):
    """What the server answers to a pod of class `high`."""
    made = make_pod(priorityClassName="high", priority=100, preemptionPolicy="PreemptLowerPriority")
    trust = ssl.create_default_context(cafile=options["policies"].parent / "ca.crt")
    url = f"https://127.0.0.1:{port}/validate?timeout=5s"
    async with aiohttp.ClientSession() as session, session.post(url, json=make_review(made), ssl=trust) as answer:
        return (await answer.json())["response"]


async def until_ready(health):
    """Wait until /readyz says that the caches are filled."""

    async def is_ready():
        url = f"http://127.0.0.1:{health}/readyz"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return await answer.text() == "ok\n"

    await eventually(is_ready)


async def test_it_serves_reviews_by_policies_and_stops_on_sigterm(options):
    """Options in, refusals out; SIGTERM ends it in order, with nothing on standard error."""
    async with serving(options) as (process, line):
        assert json.loads(line)["level"] == "info"
        secure, health = ports(line)
        await until_ready(health)
        assert "teams/allowed" in (await post(secure, options))["status"]["message"]
        process.send_signal(signal.SIGTERM)
        out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    messages = [json.loads(row)["message"] for row in out.splitlines()]
    assert "review" in messages
    assert messages[-1] == "stopped"


async def test_every_option_can_come_from_the_environment(options):
    """GIVEWAY_… stands for the option of that name."""
    environment = {f"GIVEWAY_{name.replace('-', '_').upper()}": str(value) for name, value in options.items()}
    async with serving({}, **environment) as (process, line):
        assert ports(line)
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0


async def test_it_goes_on_following_its_files_after_it_had_no_file_descriptor_left(options):
    """At the limit of open files nothing can be looked at; once there is room again, changes are taken into use."""

    async def says(text):
        while text not in (row := await process.stdout.readline()):
            assert row, "it has ended"

    async with serving(options, GIVEWAY_ALLOW_REMOVAL="true") as (process, line):
        secure, health = ports(line)
        await until_ready(health)
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1, before[1]))
        await says(b"Too many open files")
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
        (options["policies"] / "teams.yaml").write_text(POLICY.replace("deny: [high]", "deny: [low]"))
        await says(b'"policies reloaded')
        assert (await post(secure, options))["allowed"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    cases(
        ("policies", "policies", "teams.yaml:7:6: error:"),
        ("certificate", "tls-cert-file", "holds no PEM certificate"),
        ("port", "secure-port", "ddress already in use; --secure-port names another"),
    ),
)
async def test_it_does_not_start_on_what_is_broken(options, spoil, words):
    """What is wrong is said in the words of lint, and the exit code is 1; of a port, which option names another."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        if spoil == "policies":
            (options["policies"] / "teams.yaml").write_text(POLICY.replace("- {name: allowed", "- {nam: allowed"))
        elif spoil == "tls-cert-file":
            options["tls-cert-file"].write_text("x")
        else:
            options["secure-port"] = taken.getsockname()[1]
        async with serving(options) as (process, line):
            _, err = await process.communicate()
    assert (line, process.returncode, words in err.decode()) == ("", 1, True), err
