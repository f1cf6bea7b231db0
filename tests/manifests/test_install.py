"""The base at work: the embedded control plane, its RBAC, and the containers' own commands with their own tokens."""

import asyncio
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.manifests.objects import NAMESPACE, POLICIES, base_objects, containers
from tests.ports import free_port
from tests.processes import start_giveway
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube import resources
from webhook.kube.errors import ApiError
from webhook.kube.resources import Resource

RESOURCES = {
    "Namespace": resources.NAMESPACE,
    "ResourceQuota": Resource("", "v1", "resourcequotas", "ResourceQuota"),
    "ServiceAccount": Resource("", "v1", "serviceaccounts", "ServiceAccount"),
    "Role": Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    "RoleBinding": Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    "ClusterRole": Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
    "ClusterRoleBinding": Resource(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    ),
    "ConfigMap": resources.CONFIG_MAP,
    "Secret": resources.SECRET,
    "Service": Resource("", "v1", "services", "Service"),
    "Deployment": resources.DEPLOYMENT,
    "PodDisruptionBudget": resources.POD_DISRUPTION_BUDGET,
    "MutatingWebhookConfiguration": resources.MUTATING_WEBHOOK_CONFIGURATION,
    "ValidatingWebhookConfiguration": resources.VALIDATING_WEBHOOK_CONFIGURATION,
}
CONFIGURATIONS = [
    resources.MUTATING_WEBHOOK_CONFIGURATION.path(name="giveway"),
    resources.VALIDATING_WEBHOOK_CONFIGURATION.path(name="giveway"),
]


@pytest.fixture
async def cluster():
    """A control plane without nodes, with the base applied."""
    async with EmbeddedCluster(nodes=0) as started, started.client() as admin:
        for obj in sorted(base_objects(), key=lambda obj: list(RESOURCES).index(obj["kind"])):
            resource = RESOURCES[obj["kind"]]
            await admin.create(resource.path(obj["metadata"].get("namespace")), obj)
        started.admin = admin
        yield started


def serving_changes(directory, port, health_port):
    """Arguments of the webhook's containers for a machine that several tests share."""
    return {
        "--dir": f"--dir={directory}",
        "--secure-port": f"--secure-port={port}",
        "--health-port": f"--health-port={health_port}",
        "--tls-cert-file": f"--tls-cert-file={directory}/tls.crt",
        "--tls-private-key-file": f"--tls-private-key-file={directory}/tls.key",
        "--policies": f"--policies={POLICIES}",
        "--ca-file": f"--ca-file={directory}/ca.crt",
    }


def kubeconfig_of(cluster, account):
    return cluster.write_kubeconfig(account, cluster.service_account_token(NAMESPACE, account))


@asynccontextmanager
async def running(cluster, account, container, changes, *, code=0, flags=(), **process_options):
    """A container's command as a process with its service account, until it ends with this exit code.

    Arguments are replaced if the test must; `flags` are the interpreter's, which is started afresh for them.
    """
    args = [changes.get(argument.split("=")[0], argument) for argument in container["args"]]
    args += ["--kubeconfig", str(kubeconfig_of(cluster, account))]
    if flags or process_options:
        command = [sys.executable, *flags, "-m", "webhook.cli", *args]
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT, **process_options)
    else:
        process = await start_giveway(*args, stdout=PIPE, stderr=STDOUT)
    try:
        yield process
    finally:
        if process.returncode is None:
            await eventually(lambda: heeds_sigterm(process))
        if process.returncode is None:
            process.terminate()
        output = await asyncio.wait_for(process.stdout.read(), 20)
        assert await process.wait() == code, output.decode()


async def heeds_sigterm(process):
    """Whether a process is so far up that it ends in good order when it is asked to, or has ended."""
    return process.returncode is not None or catches(process.pid, signal.SIGTERM)


def catches(pid, number):
    """Whether a process handles a signal by now."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[1], 16)
    return bool(caught >> (number - 1) & 1)


async def answers(url, status=200):
    """Whether a URL answers with a status."""
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status == status
    except aiohttp.ClientError:
        return False


async def eventually(check, seconds=20):
    async with asyncio.timeout(seconds):
        while not await check():  # noqa: ASYNC110 - another process brings it about
            await asyncio.sleep(0.1)


async def in_force(admin):
    """Whether both configurations are filled in, beyond the entries that probe."""
    found = [await admin.get(path) for path in CONFIGURATIONS]
    return all(len(obj.get("webhooks") or ()) > 1 for obj in found)


def pod(name, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


async def test_a_cluster_gets_its_webhook(cluster, tmp_path):
    """Nothing is refused until a server answers; then pods are judged; what goes on while the server is away."""
    found, account = containers("giveway-webhook"), "giveway-webhook"
    directory, ports = tmp_path / "certs", (free_port(), free_port())
    changes = serving_changes(directory, *ports)
    cluster.services[f"{NAMESPACE}/giveway-webhook:443"] = f"127.0.0.1:{ports[0]}"
    await cluster.admin.create(resources.NAMESPACE.path(), {"metadata": {"name": "team-a"}})

    await cluster.admin.create(resources.POD.path("team-a"), pod("early"))

    async with running(cluster, account, found["issue-certificates"], changes) as issuing:
        assert await asyncio.wait_for(issuing.wait(), 30) == 0
    async with (
        running(cluster, account, found["webhook"], changes) as serving,
        running(cluster, account, found["keep-certificates"], changes) as keeping,
    ):
        await eventually(lambda: answers(f"http://127.0.0.1:{ports[1]}/readyz"))
        await eventually(lambda: in_force(cluster.admin))
        made = await cluster.admin.create(resources.POD.path("team-a"), pod("later"))
        assert made["spec"]["priority"] == 0
        with pytest.raises(ApiError, match="system-node-critical") as denied:
            await cluster.admin.create(
                resources.POD.path("team-a"), pod("greedy", priorityClassName="system-node-critical")
            )
        assert denied.value.status == 403
        assert (serving.returncode, keeping.returncode) == (None, None)

    name = resources.POD.path("team-a", "later")
    await cluster.admin.patch(name, {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}})
    with pytest.raises(ApiError, match="failed calling webhook"):
        await cluster.admin.patch(name, {"metadata": {"labels": {"giveway.dev/preemption": "managed"}}})
    await cluster.admin.patch(name, {"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": "me"}}})
    await cluster.admin.patch(name, {"metadata": {"labels": {"role": "leader"}, "finalizers": None}})
    await cluster.admin.create(resources.POD.path(NAMESPACE), pod("its-own"))
    with pytest.raises(ApiError, match="failed calling webhook") as refused:
        await cluster.admin.create(resources.POD.path("team-a"), pod("too-late"))
    assert refused.value.status == 500


async def test_replicas_that_start_at_once_share_their_certificates(cluster, tmp_path):
    """Two init containers at the same moment end with the same files and one Secret."""
    issue = containers("giveway-webhook")["issue-certificates"]
    directories = [tmp_path / name for name in "ab"]

    async def start(directory):
        async with running(cluster, "giveway-webhook", issue, {"--dir": f"--dir={directory}"}) as process:
            await asyncio.wait_for(process.wait(), 30)

    await asyncio.gather(*map(start, directories))
    first, second = ((directory / "tls.crt").read_bytes() for directory in directories)
    assert first == second
