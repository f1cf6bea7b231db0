"""A whole control plane in this process: API server over TLS, admission, RBAC, stand-ins, and nodes to schedule on."""

from __future__ import annotations

import datetime as dt
import json
import os
import ssl
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from certs.files import maintain_files
from certs.rotation import CertificateSettings
from webhook.clusters.embedded.access.bootstrap import bootstrap_objects
from webhook.clusters.embedded.access.users import Authentication, RbacAuthorizer
from webhook.clusters.embedded.admission_chain.chain import PLUGINS, AdmissionChain
from webhook.clusters.embedded.admission_chain.registered_webhooks import RegisteredWebhooks
from webhook.clusters.embedded.admission_chain.webhook_client import WebhookClient
from webhook.clusters.embedded.apiserver.api_server import ApiServer, HttpServer
from webhook.clusters.embedded.protocol.api_resources import BY_KIND
from webhook.clusters.embedded.standins.controller_manager import ACCOUNTS, STAND_INS, ControllerManager
from webhook.clusters.embedded.storage.object_store import ObjectStore
from webhook.kube.client import Client
from webhook.kube.resources import NODE
from webhook.policy.evaluation.request import UserInfo

ADMIN = UserInfo("admin", ("system:masters", "system:authenticated"), "admin")
NAMES = ("127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass
class EmbeddedCluster:
    """A control plane, started and stopped as an async context manager.

    `without` names stand-ins that do not run, `disabled_plugins` admission plugins. `services` maps
    `namespace/name:port` to the `host:port` that webhooks' `service` references are sent to. Raises ValueError for
    names that there are not.
    """

    nodes: int = 3
    cpu: str = "8"
    memory: str = "32Gi"
    port: int = 0
    disabled_plugins: Collection[str] = ()
    without: Collection[str] = ()
    services: dict[str, str] = field(default_factory=dict)
    termination_seconds: float = 0.2

    def __post_init__(self) -> None:
        left_out = (("stand-in", self.without, STAND_INS), ("admission plugin", self.disabled_plugins, PLUGINS))
        for what, names, known in left_out:
            if unknown := sorted(set(names) - set(known)):
                raise ValueError(f"no such {what}: {', '.join(unknown)}; there are {', '.join(known)}")
        self.store = ObjectStore()
        self.authentication = Authentication(self.store)
        self.authorizer = RbacAuthorizer(self.store)
        self._webhooks = WebhookClient(self.services, self.store)
        chain = AdmissionChain(self.store, RegisteredWebhooks(self.store, self._webhooks), self.disabled_plugins)
        self.api = ApiServer(self.authentication, self.authorizer, chain, self.store)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything; afterwards `kubeconfig`, `url`, `ca` and `token` are set."""
        self._temporary = tempfile.TemporaryDirectory(prefix="giveway-cluster-")
        directory = Path(self._temporary.name)
        maintain_files(directory, CertificateSettings(NAMES), dt.datetime.now(dt.UTC))
        self.ca = directory / "ca.crt"
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(directory / "tls.crt", directory / "tls.key")
        self._server = HttpServer(self.api, tls, port=self.port)
        await self._server.start()
        self.url = self._server.url
        self.token = self.authentication.issue(ADMIN)
        self.kubeconfig = self.write_kubeconfig("admin", self.token)
        client = self.api.local(agent="kube-apiserver")
        for obj in bootstrap_objects(ACCOUNTS):
            resource = BY_KIND[obj["apiVersion"], obj["kind"]]
            await client.create(resource.path(obj["metadata"].get("namespace")), obj)
        kubelet = self.api.local(agent="kubelet")
        for number in range(1, self.nodes + 1):
            await kubelet.create(NODE.path(), node(f"node-{number}", self.cpu, self.memory))
        self._controllers = ControllerManager(self.api, self.without, self.termination_seconds)
        await self._controllers.start()

    async def stop(self) -> None:
        """Stop everything."""
        await self._controllers.stop()
        await self._server.stop()
        await self._webhooks.close()
        self._temporary.cleanup()

    async def restart(self) -> None:
        """Stop listening, cut every connection and watch, and come back on the same port with the same state."""
        await self._server.stop()
        await self._server.start()

    def client(self, token: str | None = None) -> Client:
        """A client over TLS for a bearer token, by default the administrator's. Close it."""
        return Client.for_server(self.url, token=token or self.token, ca_file=str(self.ca))

    def add_user(self, name: str, *groups: str) -> str:
        """Make a user known; returns its bearer token."""
        return self.authentication.issue(UserInfo(name, (*groups, "system:authenticated"), name))

    def write_kubeconfig(self, user: str, token: str, path: Path | None = None) -> Path:
        """Write a kubeconfig for a user's token, readable by its owner only.

        It is JSON, which YAML readers read, and goes to `path` or beside the server's certificates.
        """
        where = path or self.ca.parent / f"{user}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.ca.absolute())}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "giveway", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "giveway", "context": {"cluster": "giveway", "user": user}}],
            "current-context": "giveway",
        }
        with os.fdopen(os.open(where, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)
            file.write("\n")
        return where

    def failures(self) -> list[BaseException]:
        """What ended a stand-in that should have run on; a test's clue."""
        return self._controllers.failures()


def node(name: str, cpu: str = "8", memory: str = "32Gi") -> dict[str, object]:
    """A node as its kubelet registers it."""
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.36.0", "operatingSystem": "linux", "architecture": "amd64"},
        },
    }
