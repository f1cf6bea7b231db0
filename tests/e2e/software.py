"""giveway on the cluster under test: real processes, with the rights and webhook configurations of manifests/base."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from ruamel.yaml import YAML

from certs.files import maintain_files
from certs.rotation import CertificateSettings
from tests.killing import KILL_AT
from tests.manifests.rendering import rendered
from tests.ports import free_port
from tests.processes import GivewayProcess, start_giveway
from tests.quickened import DEPLOYMENT
from tests.workloads import Json, deployment, eventually, pod
from webhook.component_base import own_names
from webhook.component_base.own_names import RECONCILER, WEBHOOK
from webhook.component_base.own_names import SYSTEM_NAMESPACE as SYSTEM
from webhook.installation.applier import ObjectApplier, ordered
from webhook.kube import resources
from webhook.kube.client import Client
from webhook.kube.errors import unless_absent

CONFIGURATIONS = [
    resources.MUTATING_WEBHOOK_CONFIGURATION.path(name=own_names.CONFIGURATION),
    resources.VALIDATING_WEBHOOK_CONFIGURATION.path(name=own_names.CONFIGURATION),
]
APPLIED, IN_FORCE = (resources.CONFIG_MAP.path(SYSTEM, name) for name in (own_names.APPLIED, own_names.IN_FORCE))
ACCOUNTS = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts"
WRITTEN = (APPLIED, IN_FORCE, resources.LEASE.path(SYSTEM, RECONCILER))
"""What people and processes of giveway write into its namespace."""
NO_IMAGE = "!object.spec.containers.exists(c, c.image == 'forbidden')"


class Process:
    """A giveway command at work; what it writes goes to a file."""

    def __init__(self, process: GivewayProcess, log: Path) -> None:
        self._process, self.log = process, log

    async def ended(self, seconds: float = 30.0) -> int:
        """Its exit code, once it has ended by itself."""
        return await asyncio.wait_for(self._process.wait(), seconds)

    async def killed(self) -> None:
        """Wait until it has been killed at the step that it was started for."""
        assert await self.ended() == -signal.SIGKILL

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """End it; its exit code."""
        self._process.send_signal(number)
        return await self.ended()

    def lines(self, message: str = "") -> list[Json]:
        """Its log lines, those with that message."""
        found = []
        for line in self.log.read_bytes().splitlines():
            with suppress(msgspec.DecodeError):
                found.append(msgspec.json.decode(line))
        return [line for line in found if not message or line.get("message") == message]

    def says(self, words: str) -> bool:
        """Whether a log line has these words."""
        return any(words in line.get("message", "") for line in self.lines())


class Software:
    """Starts giveway's commands as the service accounts of the manifests."""

    def __init__(self, client: Client, kubeconfig: str, directory: Path) -> None:
        self.client, self._kubeconfig, self.directory = client, kubeconfig, directory
        self._processes: list[Process] = []
        self._more: list[str] = []

    async def install(self) -> None:
        """Apply namespace, service accounts and rights of manifests/base; what giveway wrote before is gone."""
        await self._apply(lambda kind, _: kind in {"Namespace", "ResourceQuota", "ServiceAccount"} or "Role" in kind)
        await self._delete(*WRITTEN)

    async def register(self) -> None:
        """Apply the configurations of manifests/base, for a server to fill in."""
        await self._apply(lambda _, name: name in {own_names.CONFIGURATION, "giveway-probe"})

    async def _apply(self, wanted: Callable[[str, str], bool]) -> None:
        applier = ObjectApplier(self.client)
        for obj in ordered(rendered().values()):
            if wanted(obj["kind"], obj["metadata"]["name"]):
                await applier.apply(obj, lambda *_: None)

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

    def policies(self, directory: str, text: str) -> Path:
        """The file of that directory with these policies."""
        file = self.directory / directory / "policies.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return file

    async def reconcile(self, policies: str, *arguments: str, kill_at: str = "") -> Process:
        """Start `giveway reconcile` with these policies and a lease that lapses within seconds; killed at a step."""
        ports = ("--bind-address=127.0.0.1", "--health-port=0", "--debug-port=0")
        words = (f"--policies={self.policies('policies', policies).parent}", *ports, *arguments)
        return await self.start("reconcile", *words, account=RECONCILER, environment={KILL_AT: kill_at})

    async def serve(self, policies: str, *arguments: str, reached: bool = True, deployment: str = "") -> Process:
        """Start `giveway serve`, and wait until it has filled in the configurations of manifests/base.

        One that the API server does not reach is waited for only until it probes.
        """
        await self.register()
        port, directory = free_port(), self.policies("served", policies).parent
        url = f"https://127.0.0.1:{port}"
        process = await self.webhook(directory, port, url, *arguments, deployment=deployment)
        what = "the webhook has filled in its configurations"
        await eventually(lambda: self.in_force(f"{url}/") if reached else self.probed(), 30, what)
        return process

    async def webhook(self, directory: Path, port: int, url: str, *arguments: str, deployment: str) -> Process:
        """Start `giveway serve` on this port of the loopback, reached by that URL."""
        options = (f"--policies={directory}", *self.listening(port), f"--url={url}", "--entries=keep", *arguments)
        return await self.start("serve", *options, account=WEBHOOK, environment={DEPLOYMENT: deployment})

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

    async def entries(self) -> list[list[Json]]:
        """The entries of both configurations, as far as these exist."""
        found = [await unless_absent(self.client.get(path)) for path in CONFIGURATIONS]
        return [(one or {}).get("webhooks") or [] for one in found]

    async def in_force(self, url: str = "") -> bool:
        """Whether both configurations hold more than the entry that probes, and lead there."""
        return all(
            len(entries) > 1 and entries[0]["clientConfig"]["url"].startswith(url) for entries in await self.entries()
        )

    async def probed(self) -> bool:
        """Whether both configurations hold the entry that probes."""
        return all(await self.entries())

    async def kubeconfig_of(self, account: str) -> str:
        """A kubeconfig with a token of a service account."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": None}}
        answer = await self.client.create(f"{ACCOUNTS}/{account}/token", body)
        config = YAML(typ="safe").load(Path(self._kubeconfig))
        config["users"] = [{"name": account, "user": {"token": answer["status"]["token"]}}]
        cluster = config["clusters"][0]["name"]
        config["contexts"] = [{"name": account, "context": {"cluster": cluster, "user": account}}]
        config["current-context"] = account
        file = self.directory / f"{account}.kubeconfig"
        file.write_bytes(msgspec.json.encode(config))
        return str(file)

    async def account(self, name: str) -> Json:
        """Add a ServiceAccount, which goes when this does; it as the subject of a right."""
        await self.client.create(ACCOUNTS, {"metadata": {"name": name}})
        self._more.append(f"{ACCOUNTS}/{name}")
        return {"kind": "ServiceAccount", "name": name, "namespace": SYSTEM}

    async def deployment(self, replicas: int, name: str = WEBHOOK) -> None:
        """Add a Deployment of giveway, or scale it; its pods run nowhere, because the tests start the process."""
        path = resources.DEPLOYMENT.path(SYSTEM, name)
        if path in self._more:
            await self.client.patch(path, {"spec": {"replicas": replicas}})
            return
        body = deployment(name, replicas)
        body["metadata"]["labels"] = {"app.kubernetes.io/name": "giveway"}
        body["spec"]["template"]["spec"]["nodeSelector"] = {"giveway.dev/none": ""}
        await self.client.create(resources.DEPLOYMENT.path(SYSTEM), body)
        self._more.append(path)

    async def unregister(self) -> None:
        """Take the webhook configurations away."""
        await self._delete(*CONFIGURATIONS)

    async def end(self) -> None:
        """Take the webhook configurations away, then end the processes; what they wrote goes, too."""
        await self._delete(*CONFIGURATIONS, *self._more)
        for process in self._processes:
            await process.stop()
        await self._delete(*WRITTEN)

    async def _delete(self, *paths: str) -> None:
        for path in paths:
            await unless_absent(self.client.delete(path))


def manifest(**specs: Any) -> str:
    """Policies of these kinds, each called `e2e`, as documents of one text."""
    head = {"apiVersion": "giveway.dev/v1alpha1", "metadata": {"name": "e2e"}}
    texts = (msgspec.json.encode({**head, "kind": kind, "spec": spec}).decode() for kind, spec in specs.items())
    return "\n---\n".join(texts)


def policies(class_name: str, **spec: Any) -> str:
    """A PreemptionPolicy that manages one class."""
    body = {"preemptors": {"priorityClasses": [class_name]}, "victims": {"mode": "opt-in"}, **spec}
    return manifest(PreemptionPolicy=body)


def rule(name: str, **body: Any) -> str:
    """A PriorityPolicy of one rule."""
    return manifest(PriorityPolicy={"rules": [{"name": name, **body}]})


def policy_map(text: str) -> Json:
    """The ConfigMap in which people apply policies."""
    return {"metadata": {"name": own_names.APPLIED}, "data": {"policies.yaml": text}}


FORBIDDEN_IMAGE = rule("no-image", validate={"expression": NO_IMAGE})
FORBIDDEN_POD = pod("forbidden", containers=[{"name": "c", "image": "forbidden"}])
"""A policy that refuses pods with the image `forbidden`, and one of these."""
