"""The base at work: the embedded control plane, its RBAC, and the containers' own commands with their own tokens."""

import asyncio
import re
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.manifests.objects import NAMESPACE, POLICIES
from tests.manifests.rendering import containers, rendered
from tests.ports import free_port
from tests.processes import start_giveway
from tests.workloads import eventually, namespace, pod
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.installation.applier import ObjectApplier, ordered
from webhook.kube import resources
from webhook.kube.errors import ApiError

WEBHOOK, RECONCILER = "giveway-webhook", "giveway-reconciler"
CONFIGURATIONS = [
    resources.MUTATING_WEBHOOK_CONFIGURATION.path(name="giveway"),
    resources.VALIDATING_WEBHOOK_CONFIGURATION.path(name="giveway"),
]


class Installed:
    """A cluster, and the containers of the base at work on it, with files and ports of this test alone."""

    def __init__(self, cluster, admin, directory):
        self.cluster, self.admin, self.directory = cluster, admin, directory
        self.port, *health = free_port(), free_port(), free_port()
        self.health = dict(zip((WEBHOOK, RECONCILER), health, strict=True))
        self.policies, certs = directory / "policies", directory / "certs"
        shutil.copytree(POLICIES, self.policies)
        self.changes = {
            "--dir": f"--dir={certs}",
            "--secure-port": f"--secure-port={self.port}",
            "--debug-port": "--debug-port=0",
            "--tls-cert-file": f"--tls-cert-file={certs}/tls.crt",
            "--tls-private-key-file": f"--tls-private-key-file={certs}/tls.key",
            "--policies": f"--policies={self.policies}",
            "--ca-file": f"--ca-file={certs}/ca.crt",
        }
        self.reach()

    def reach(self):
        """Let the API server reach the webhook's Service."""
        self.cluster.services[f"{NAMESPACE}/giveway-webhook:443"] = f"127.0.0.1:{self.port}"

    async def apply(self, objects):
        """Apply objects, what others need first."""
        applier = ObjectApplier(self.admin)
        for obj in ordered(objects):
            await applier.apply(obj, lambda *_: None)

    async def kubectl(self, *arguments):
        """What kubectl prints, line by line."""
        process = await asyncio.create_subprocess_exec(
            *("kubectl", "--kubeconfig", str(self.cluster.kubeconfig), *arguments), stdout=PIPE, stderr=STDOUT
        )
        output, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, output.decode()
        return output.decode().splitlines()

    @asynccontextmanager
    async def running(self, account, container, *, code=0, flags=(), **process_options):
        """A container's command as a process with its service account, until it ends with this exit code.

        Arguments are replaced if the test must; `flags` are the interpreter's, which is started afresh for them.
        """
        changes = self.changes | {"--health-port": f"--health-port={self.health.get(account)}"}
        token = self.cluster.authentication.issue_to_account(NAMESPACE, account)
        kubeconfig = self.cluster.write_kubeconfig(account, token)
        args = [changes.get(argument.split("=")[0], argument) for argument in container["args"]]
        args += ["--kubeconfig", str(kubeconfig)]
        if flags or process_options:
            command = [sys.executable, *flags, "-m", "webhook.cli", *args]
            process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT, **process_options)
        else:
            process = await start_giveway(*args, stdout=PIPE, stderr=STDOUT)
        try:
            yield process
        finally:
            # Not before it is so far up that it ends in good order
            await eventually(lambda: process.returncode is not None or _catches(process.pid, signal.SIGTERM), 20)
            if process.returncode is None:
                process.terminate()
            output = await asyncio.wait_for(process.stdout.read(), 20)
            assert await process.wait() == code, output.decode()

    async def finish(self, container, **options):
        """Let a container of the webhook run to its end."""
        async with self.running(WEBHOOK, container, **options) as process:
            assert await asyncio.wait_for(process.wait(), 30) == 0

    @asynccontextmanager
    async def serving(self, *, enforced=True, **options):
        """The webhook's containers at work: first certificates are issued, then the server comes up."""
        found = containers(WEBHOOK)
        code = options.pop("code", 0)
        await self.finish(found["issue-certificates"], **options)
        async with self.running(WEBHOOK, found["webhook"], code=code, **options) as process:
            await self.up(WEBHOOK)
            if enforced:
                await eventually(self.in_force, 20)
            yield process

    @asynccontextmanager
    async def reconciling(self, **options):
        """The reconciler at work."""
        async with self.running(RECONCILER, containers(RECONCILER)["reconciler"], **options) as process:
            await self.up(RECONCILER)
            yield process

    async def up(self, account):
        """Wait until a process is ready."""

        async def ready():
            try:
                async with aiohttp.ClientSession() as session, session.get(self.page(account, "readyz")) as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        await eventually(ready, 20)

    def page(self, account, name):
        return f"http://127.0.0.1:{self.health[account]}/{name}"

    async def shown(self, name, account=WEBHOOK):
        """A page of a process's private port."""
        async with aiohttp.ClientSession() as session, session.get(self.page(account, name)) as answer:
            return await answer.text()

    async def can_make_pods(self):
        """Whether a pod may be made now."""
        try:
            await self.admin.create(resources.POD.path("team-a"), pod("tried"), dryRun="All")
        except ApiError as error:
            if "failed calling webhook" not in error.message:
                raise
            return False
        return True

    async def webhooks(self):
        """The entries of both configurations."""
        return [(await self.admin.get(path)).get("webhooks") or [] for path in CONFIGURATIONS]

    async def entries(self):
        """The names of all entries."""
        return {entry["name"] for entries in await self.webhooks() for entry in entries}

    async def in_force(self):
        """Whether both configurations are filled in, beyond the entries that probe."""
        return all(len(entries) > 1 for entries in await self.webhooks())


def _catches(pid, number):
    """Whether a process handles a signal by now."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[1], 16)
    return bool(caught >> (number - 1) & 1)


@asynccontextmanager
async def with_base(directory, *components, deployments=True, nodes=0, **options):
    """A control plane with the base and components applied, and a namespace for pods; its admin does all of it."""
    async with EmbeddedCluster(nodes=nodes, **options) as cluster, cluster.client() as admin:
        installed = Installed(cluster, admin, directory)
        objects = rendered(*components).values()
        await installed.apply(obj for obj in objects if deployments or obj["kind"] != "Deployment")
        await admin.create(resources.NAMESPACE.path(), namespace("team-a"))
        yield installed
