"""All stand-ins of a cluster: made by name, with the users real components have, and run together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Protocol

from webhook.embedded.access.authentication import service_account
from webhook.embedded.access.bootstrap import CONTROLLERS
from webhook.embedded.protocol.api_resources import BY_STORAGE
from webhook.embedded.protocol.api_resources import RESOURCES as ROWS
from webhook.embedded.protocol.calls import UserInfo
from webhook.embedded.server.api import ApiServer
from webhook.embedded.standins.daemonsets import DaemonSetController
from webhook.embedded.standins.deployments import DeploymentController
from webhook.embedded.standins.disruption import DisruptionController
from webhook.embedded.standins.garbage import GarbageCollector
from webhook.embedded.standins.informers import StandInInformers
from webhook.embedded.standins.jobs import JobController
from webhook.embedded.standins.kubelet import Kubelet
from webhook.embedded.standins.namespaces import NamespaceController
from webhook.embedded.standins.replicasets import ReplicaSetController
from webhook.embedded.standins.statefulsets import StatefulSetController
from webhook.embedded.storage.reading import StoreReader
from webhook.kube.client import Client
from webhook.kube.events import EventRecorder
from webhook.kube.resources import Resource
from webhook.scheduling.default_preemption import Preemption
from webhook.scheduling.scheduler import NAME as SCHEDULER_NAME
from webhook.scheduling.scheduler import Scheduler

__all__ = ["STAND_INS", "ControllerManager"]

AUTHENTICATED = "system:authenticated"
SCHEDULER = UserInfo("system:kube-scheduler", (AUTHENTICATED,))
MANAGER = UserInfo("system:kube-controller-manager", (AUTHENTICATED,))
NOT_COLLECTED = ("events", "leases")
"""What is never owned, and changes too often to be looked at."""

STAND_INS = (
    "scheduler",
    "preemption",
    "kubelet",
    "replicaset",
    "deployment",
    "daemonset",
    "statefulset",
    "job",
    "disruption",
    "namespace",
    "garbage",
)
"""Every stand-in that can be left out; `preemption` is kube-scheduler's own."""


class StandIn(Protocol):
    """What a crew runs."""

    name: str

    async def run(self) -> None:
        """Work until it is cancelled."""


class ControllerManager:
    """The stand-ins of one API server, but for those named in `without`."""

    def __init__(self, api: ApiServer, read: StoreReader, without: Collection[str], termination_seconds: float) -> None:
        self._api = api
        self._read = read
        self._without = frozenset(without)
        self._informers = StandInInformers(api.local(MANAGER, "kube-controller-manager"))
        self.kubelet = Kubelet(self._informers, self._node_client, termination_seconds=termination_seconds)
        self._nodes: dict[str, Client] = {}
        self._events: EventRecorder | None = None
        self._members = [make() for name, make in self._makers().items() if name not in self._without]
        self._tasks: list[asyncio.Task[None]] = []

    @staticmethod
    def check(without: Collection[str]) -> None:
        """Raise ValueError for a name that is no stand-in's."""
        unknown = set(without) - set(STAND_INS)
        if unknown:
            raise ValueError(f"no such stand-in: {', '.join(sorted(unknown))}; there are {', '.join(STAND_INS)}")

    async def start(self) -> None:
        """Start them and wait until they know the cluster."""
        self._tasks = [asyncio.create_task(self._informers.run(), name="informers")]
        self._tasks += [asyncio.create_task(member.run(), name=member.name) for member in self._members]
        await self._informers.synced()

    async def stop(self) -> None:
        """Stop them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._events is not None:
            await self._events.close(deadline=0.1)
        self._tasks.clear()

    def failures(self) -> list[BaseException]:
        """What ended a stand-in that should have run on."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        return [error for task in ended if (error := task.exception()) is not None]

    def _makers(self) -> dict[str, Callable[[], StandIn]]:
        informers, manager = self._informers, self._controller
        return {
            "kubelet": lambda: self.kubelet,
            "scheduler": self._scheduler,
            "replicaset": lambda: ReplicaSetController(informers, manager("replicaset-controller")),
            "deployment": lambda: DeploymentController(informers, manager("deployment-controller")),
            "daemonset": lambda: DaemonSetController(informers, manager("daemon-set-controller")),
            "statefulset": lambda: StatefulSetController(informers, manager("statefulset-controller")),
            "job": lambda: JobController(informers, manager("job-controller")),
            "disruption": lambda: DisruptionController(informers, manager("disruption-controller")),
            "namespace": lambda: NamespaceController(informers, manager("namespace-controller"), _resources()),
            "garbage": lambda: GarbageCollector(
                informers,
                manager("generic-garbage-collector"),
                [resource for resource in _resources() if resource.plural not in NOT_COLLECTED],
            ),
        }

    def _scheduler(self) -> Scheduler:
        client = self._api.local(SCHEDULER, "kube-scheduler")
        self._events = EventRecorder(client, SCHEDULER_NAME, f"{SCHEDULER_NAME}-embedded")
        preemption = None if "preemption" in self._without else Preemption(client, self._events)
        return Scheduler(self._informers, client, preemption, self._events)

    def _controller(self, name: str) -> Client:
        assert name in CONTROLLERS
        account: Any = self._read.one("serviceaccounts", "kube-system", name)
        user = service_account("kube-system", name, account["metadata"]["uid"])
        return self._api.local(user, "kube-controller-manager")

    def _node_client(self, node: str) -> Client:
        if node not in self._nodes:
            user = UserInfo(f"system:node:{node}", ("system:nodes", AUTHENTICATED))
            self._nodes[node] = self._api.local(user, "kubelet")
        return self._nodes[node]


def _resources() -> list[Resource]:
    rows = [row for row in ROWS if row.stored and BY_STORAGE[row.key] is row]
    return [Resource(row.group, row.version, row.plural, row.kind, row.namespaced) for row in rows]
