"""The whole control plane: start, stop, and `giveway cluster` as a process."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.workloads import pod
from webhook.cli.main import main
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.standins.controller_manager import STAND_INS
from webhook.kube.client import Client
from webhook.kube.resources import NAMESPACE, NODE, POD, PRIORITY_CLASS

PODS = POD.path("default")


async def test_cluster_starts_with_nodes_namespaces_and_system_classes():
    """A fresh cluster has its nodes Ready, the four namespaces, and the two system classes."""
    async with EmbeddedCluster(nodes=2, cpu="4", memory="8Gi") as cluster, cluster.client() as client:
        nodes, _ = await client.list(NODE.path(), dict)
        assert [one["status"]["allocatable"]["cpu"] for one in nodes] == ["4", "4"]
        found, _ = await client.list(NAMESPACE.path(), dict)
        names = [one["metadata"]["name"] for one in found]
        assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
        classes, _ = await client.list(PRIORITY_CLASS.path(), dict)
        assert [one["value"] for one in classes] == [2_000_000_000, 2_000_001_000]
        assert cluster.failures() == []


@pytest.mark.parametrize("name", STAND_INS)
async def test_each_stand_in_can_be_left_out(name):
    """Every stand-in can be switched off by itself; the rest still starts."""
    async with EmbeddedCluster(nodes=1, without=(name,)) as cluster:
        assert cluster.failures() == []


def exists(path: str) -> bool:
    return Path(path).exists()


@pytest.fixture
def process(tmp_path):
    """`giveway cluster` as a process; the kubeconfig it wrote, which its owner alone can read."""
    file = tmp_path / "config"
    arguments = ["--nodes", "2", "--cpu", "3", "--kubeconfig", str(file)]
    command = [sys.executable, "-m", "webhook.cli", "cluster", *arguments, "--disable-admission-plugins", "Priority"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == f"export KUBECONFIG={file}\n"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        yield running, file
    finally:
        running.kill()
        running.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_command_serves_until_it_is_told_to_stop(process, number):
    """`giveway cluster` prints the export line, serves what was asked for, and ends cleanly at a signal."""
    running, file = process
    async with await Client.connect(str(file)) as client:
        nodes, _ = await client.list(NODE.path(), dict)
        assert [one["status"]["capacity"]["cpu"] for one in nodes] == ["3", "3"]
        assert "priority" not in (await client.create(PODS, pod("p")))["spec"]
        server = json.loads(file.read_text())["clusters"][0]["cluster"]
    running.send_signal(number)
    assert await asyncio.to_thread(running.wait, 10) == 0
    assert not exists(server["certificate-authority"])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--disable-stand-in", "kublet", "--disable-stand-in", "job"], "no such stand-in: kublet"),
        (["--disable-admission-plugins", "Priorty"], "no such admission plugin: Priorty"),
        (["--service", "hook=1.2.3.4:1"], "is not NAMESPACE/NAME:PORT=HOST:PORT"),
    ],
    ids=["stand-in", "plugin", "service"],
)
def test_command_explains_wrong_options(arguments, why):
    """A wrong option ends the command with a sentence and no traceback."""
    result = CliRunner().invoke(main, ["cluster", *arguments])
    assert result.exit_code != 0
    assert why in result.output
    assert "Traceback" not in result.output
