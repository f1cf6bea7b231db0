"""giveway on the cluster under test: real processes, with the rights and webhook configurations of manifests/base."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from ruamel.yaml import YAML

from certs.files import maintain_files
from certs.rotation import CertificateSettings
from tests.killing import KILL_AT
from tests.ports import free_port
from tests.processes import GivewayProcess, start_giveway
from tests.quickened import DEPLOYMENT
from tests.workloads import eventually
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.resources import CONFIG_MAP

IN_FORCE = CONFIG_MAP.path("giveway-system", "giveway-policies-in-force")
BASE = Path(__file__).parents[2] / "manifests" / "base"
SYSTEM = "giveway-system"
RECONCILER, WEBHOOK = "giveway-reconciler", "giveway-webhook"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": f"/api/v1/namespaces/{SYSTEM}/serviceaccounts",
    "ConfigMap": f"/api/v1/namespaces/{SYSTEM}/configmaps",
    "Secret": f"/api/v1/namespaces/{SYSTEM}/secrets",
    "ResourceQuota": f"/api/v1/namespaces/{SYSTEM}/resourcequotas",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM}/roles",
    "RoleBinding": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM}/rolebindings",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}
FORBIDDEN_IMAGE = """
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: e2e}
spec:
  rules:
  - name: no-image
    validate: {expression: "!object.spec.containers.exists(c, c.image == 'forbidden')"}
"""
"""A policy that refuses pods with the image `forbidden`."""


class Process:
    """A giveway command at work; what it writes goes to a file."""

    def __init__(self, process: GivewayProcess, log: Path) -> None:
        self._process, self.log = process, log

    async def ended(self, seconds: float = 30.0) -> int:
        """Its exit code, once it has ended by itself."""
        return await asyncio.wait_for(self._process.wait(), seconds)

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """End it; its exit code."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
        return await self.ended()

    def lines(self, message: str = "") -> list[dict[str, Any]]:
        """Its log lines, those with that message."""
        found = []
        for line in self.log.read_bytes().splitlines():
            with suppress(msgspec.DecodeError):
                found.append(msgspec.json.decode(line))
        return [line for line in found if not message or line.get("message") == message]


class Software:
    """Starts giveway's commands as the service accounts of the manifests."""

    def __init__(self, client: Client, kubeconfig: str, directory: Path) -> None:
        self.client, self._kubeconfig, self.directory = client, kubeconfig, directory
        self._processes: list[Process] = []
        self.configurations: list[str] = []
        self._more: list[str] = []

    async def install(self) -> None:
        """Apply namespace, service accounts and rights of manifests/base."""
        for name in ("namespace.yaml", "reconciler-rights.yaml", "webhook-rights.yaml"):
            for document in documents(BASE / name):
                with suppress_existing():
                    await self.client.create(PATHS[document["kind"]], document)

    async def start(
        self,
        command: str,
        *arguments: str,
        account: str | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> Process:
        """Start a command; as the administrator without an account."""
        config = await self.kubeconfig_of(account) if account else self._kubeconfig
        log = self.directory / f"{command}-{len(self._processes)}.log"
        with log.open("wb") as out:
            env = {**os.environ, "PYTHONUNBUFFERED": "1", **environment}
            made = await start_giveway(command, "--kubeconfig", config, *arguments, stdout=out, stderr=out, env=env)
        process = Process(made, log)
        self._processes.append(process)
        return process

    async def reconcile(self, policies: str, *arguments: str, kill_at: str = "") -> Process:
        """Start `giveway reconcile` with these policies and a lease that lapses within seconds; killed at a step."""
        directory = self.directory / "policies"
        directory.mkdir(exist_ok=True)
        (directory / "policies.yaml").write_text(policies)
        ports = ("--bind-address=127.0.0.1", "--health-port=0", "--debug-port=0")
        words = (f"--policies={directory}", *ports, *arguments)
        return await self.start("reconcile", *words, account=RECONCILER, environment={KILL_AT: kill_at})

    async def serve(self, policies: str, *arguments: str, reached: bool = True, deployment: str = "") -> Process:
        """Start `giveway serve`, and wait until it has filled in the configurations of manifests/base.

        One that the API server does not reach is waited for only until it probes.
        """
        await self.register()
        directory = self.directory / "served"
        directory.mkdir(exist_ok=True)
        (directory / "policies.yaml").write_text(policies)
        port = free_port()
        options = (*self.listening(port), "--entries=keep", f"--url=https://127.0.0.1:{port}")
        process = await self.start(
            "serve",
            f"--policies={directory}",
            *options,
            *arguments,
            account=WEBHOOK,
            environment={DEPLOYMENT: deployment},
        )
        what = "the webhook has filled in its configurations"
        await eventually(
            lambda: self.in_force(f"https://127.0.0.1:{port}/") if reached else self.probed(), 30, what=what
        )
        return process

    def listening(self, port: int) -> list[str]:
        """The options of a webhook on this port of the loopback, with a certificate that it is given here."""
        certificates = self.directory / "certs"
        maintain_files(certificates, CertificateSettings(("127.0.0.1",)), datetime.now(UTC))
        return [
            f"--tls-cert-file={certificates / 'tls.crt'}",
            f"--tls-private-key-file={certificates / 'tls.key'}",
            f"--ca-file={certificates / 'ca.crt'}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--health-port=0",
        ]

    async def register(self) -> None:
        """Apply the configurations of manifests/base, for a server to fill in."""
        self.configurations = []
        for document in documents(BASE / "webhook-configurations.yaml"):
            path = PATHS[document["kind"]]
            with suppress_existing():
                await self.client.create(path, document)
            if "Webhook" in document["kind"]:
                self.configurations.append(f"{path}/{document['metadata']['name']}")

    async def in_force(self, url: str) -> bool:
        """Whether both configurations hold more than the entry that probes, and lead there."""
        found = [(await self.client.get(path)).get("webhooks") or () for path in self.configurations]
        return all(len(entries) > 1 and entries[0]["clientConfig"]["url"].startswith(url) for entries in found)

    async def probed(self) -> bool:
        """Whether both configurations hold the entry that probes."""
        return all([(await self.client.get(path)).get("webhooks") for path in self.configurations])

    async def kubeconfig_of(self, account: str) -> str:
        """A kubeconfig with a token of a service account."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": None}}
        answer = await self.client.create(f"{PATHS['ServiceAccount']}/{account}/token", body)
        config = YAML(typ="safe").load(Path(self._kubeconfig))
        config["users"] = [{"name": account, "user": {"token": answer["status"]["token"]}}]
        cluster = config["clusters"][0]["name"]
        config["contexts"] = [{"name": account, "context": {"cluster": cluster, "user": account}}]
        config["current-context"] = account
        file = self.directory / f"{account}.kubeconfig"
        with file.open("w") as out:
            YAML(typ="safe").dump(config, out)
        return str(file)

    async def account(self, name: str) -> None:
        """Add a ServiceAccount, which goes when this does."""
        await self.client.create(PATHS["ServiceAccount"], {"metadata": {"name": name}})
        self._more.append(f"{PATHS['ServiceAccount']}/{name}")

    async def deployment(self, replicas: int) -> None:
        """Add the webhook's Deployment, or scale it; its pods run nowhere, because the tests start the process."""
        path, labels = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments", {"app": WEBHOOK}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "none"}], "nodeSelector": {"giveway.dev/none": ""}},
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        if f"{path}/{WEBHOOK}" in self._more:
            await self.client.patch(f"{path}/{WEBHOOK}", {"spec": {"replicas": replicas}})
            return
        await self.client.create(path, {"metadata": {"name": WEBHOOK}, "spec": spec})
        self._more.append(f"{path}/{WEBHOOK}")

    async def unregister(self) -> None:
        """Take the webhook configurations away."""
        for path in self.configurations:
            with suppress(ApiError):
                await self.client.delete(path)

    async def end(self) -> None:
        """Take the webhook configurations away, then end the processes."""
        await self.unregister()
        for path in self._more:
            with suppress(ApiError):
                await self.client.delete(path)
        for process in self._processes:
            await process.stop()
        with suppress(ApiError):
            await self.client.delete(IN_FORCE)


@asynccontextmanager
async def installed(client: Client, kubeconfig: str, directory: Path) -> AsyncIterator[Software]:
    """The rights of giveway on the cluster, ready to be started."""
    software = Software(client, kubeconfig, directory)
    await software.install()
    try:
        yield software
    finally:
        await software.end()


def manifest(**specs: Any) -> str:
    """Policies of these kinds, each called `e2e`, as documents of one text."""
    head = {"apiVersion": "giveway.dev/v1alpha1", "metadata": {"name": "e2e"}}
    texts = (msgspec.json.encode({**head, "kind": kind, "spec": spec}).decode() for kind, spec in specs.items())
    return "\n---\n".join(texts)


def policies(class_name: str, **spec: Any) -> str:
    """A PreemptionPolicy that manages one class."""
    body = {"preemptors": {"priorityClasses": [class_name]}, "victims": {"mode": "opt-in"}, **spec}
    return manifest(PreemptionPolicy=body)


def documents(file: Path) -> list[dict[str, Any]]:
    """The objects of a manifest, in the system's namespace where they need one."""
    found = [document for document in YAML(typ="safe").load_all(file.read_text()) if document]
    for document in found:
        if SYSTEM in PATHS.get(document["kind"], ""):
            document["metadata"]["namespace"] = SYSTEM
    return found


@contextmanager
def suppress_existing() -> Iterator[None]:
    """Pass over an object that is there already."""
    try:
        yield
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
