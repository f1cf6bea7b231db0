"""All stand-ins of a cluster: made by name, with the users real components have, and run together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from webhook.clusters.acting.controller import Controller, ControllerContext, controlled_pods
from webhook.clusters.acting.deployments import DeploymentController
from webhook.clusters.acting.disruption import DisruptionController
from webhook.clusters.acting.kubelet import Kubelet
from webhook.clusters.acting.workload_controllers import (
    DaemonSetController,
    JobController,
    ReplicaSetController,
    StatefulSetController,
)
from webhook.clusters.embedded.access.users import AUTHENTICATED, service_account
from webhook.clusters.embedded.apiserver.api_server import ApiServer
from webhook.clusters.embedded.protocol.api_resources import BY_KIND
from webhook.clusters.embedded.standins.deletion import GarbageCollector, NamespaceController
from webhook.clusters.model.disruption import NoScaleError
from webhook.clusters.model.workloads import Workload
from webhook.clusters.scheduling.default_preemption import NAME as SCHEDULER_NAME
from webhook.clusters.scheduling.default_preemption import Preemption
from webhook.clusters.scheduling.scheduler import Scheduler
from webhook.kube.client import Client
from webhook.kube.events import EventRecorder
from webhook.kube.informer import Informer
from webhook.kube.instants import SystemClock
from webhook.kube.resources import Resource
from webhook.policy.evaluation.request import UserInfo

SCHEDULER = UserInfo("system:kube-scheduler", (AUTHENTICATED,))
MANAGER = UserInfo("system:kube-controller-manager", (AUTHENTICATED,))


def _check_scale(version: str, kind: str, orphan: str) -> None:
    resource = BY_KIND.get((version, kind))
    if resource is None:
        raise NoScaleError(f'no matches for kind "{kind}" in version "{version}"')
    if "scale" not in resource.sub:
        raise NoScaleError(f"{resource.qualified} does not implement the scale subresource")
    if orphan:
        raise NoScaleError(f'found no controllers for pod "{orphan}"')


_CONTROLLERS: dict[str, tuple[Callable[[ControllerContext, Client], Controller], str]] = {
    "replicaset": (ReplicaSetController, "replicaset-controller"),
    "deployment": (DeploymentController, "deployment-controller"),
    "daemonset": (DaemonSetController, "daemon-set-controller"),
    "statefulset": (StatefulSetController, "statefulset-controller"),
    "job": (JobController, "job-controller"),
    "disruption": (partial(DisruptionController, check_scale=_check_scale), "disruption-controller"),
    "namespace": (NamespaceController, "namespace-controller"),
    "garbage": (GarbageCollector, "generic-garbage-collector"),
}
"""Controllers by their names as stand-ins, with their service accounts in kube-system."""

ACCOUNTS = tuple(account for _, account in _CONTROLLERS.values())
STAND_INS = ("scheduler", "preemption", "kubelet", *_CONTROLLERS)
"""Every stand-in that can be left out; `preemption` is kube-scheduler's own."""


class StandInInformers:
    """Makes the caches that are asked for and runs them; ask before `run()`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._caches: dict[tuple[str, type[Any]], Informer[Any]] = {}

    def cache(self, resource: Resource, type_: type[Any], *, optional: bool = False) -> Informer[Any]:
        """The cache of a resource, decoded to the type; an `optional` one may be missing on the server."""
        key = (resource.path(), type_)
        if key not in self._caches:
            self._caches[key] = Informer(self._client, resource.paths(), type_, optional=optional)
        return self._caches[key]

    async def run(self) -> None:
        """Keep every cache current until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self._caches.values():
                group.create_task(cache.run())

    async def synced(self) -> None:
        """Wait until every cache holds its first list."""
        await asyncio.gather(*(cache.synced.wait() for cache in self._caches.values()))


def context_of(informers: StandInInformers) -> ControllerContext:
    """Where the stand-ins act that share these caches."""
    return ControllerContext(informers, SystemClock(), Workload, controlled_pods(informers))


class ControllerManager:
    """The stand-ins of one API server, but for those named in `without`."""

    def __init__(self, api: ApiServer, without: Collection[str], termination_seconds: float) -> None:
        self._informers = StandInInformers(api.local(MANAGER, "kube-controller-manager"))
        context = context_of(self._informers)
        self.kubelet = Kubelet(
            context,
            lambda node: api.local(UserInfo(f"system:node:{node}", ("system:nodes", AUTHENTICATED)), "kubelet"),
            termination_seconds=termination_seconds,
        )
        self._events: EventRecorder | None = None
        self._members: list[Controller | Scheduler] = [] if "kubelet" in without else [self.kubelet]
        if "scheduler" not in without:
            client = api.local(SCHEDULER, "kube-scheduler")
            events = self._events = EventRecorder(client, SCHEDULER_NAME, f"{SCHEDULER_NAME}-embedded")
            preemption = None if "preemption" in without else Preemption(client, events.event, context.clock)
            self._members.append(Scheduler(self._informers, client, preemption, events.event, context.clock))
        for name, (controller, account) in _CONTROLLERS.items():
            if name not in without:
                stored: Any = api.store.one("serviceaccounts", "kube-system", account)
                user = service_account("kube-system", account, stored["metadata"]["uid"])
                self._members.append(controller(context, api.local(user, "kube-controller-manager")))
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start them and wait until they know the cluster."""
        self._tasks = [asyncio.create_task(self._informers.run(), name="informers")]
        self._tasks += [asyncio.create_task(member.run(), name=type(member).__name__) for member in self._members]
        await self._informers.synced()

    async def stop(self) -> None:
        """Stop them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._events is not None:
            await self._events.close(deadline=0.1)

    def failures(self) -> list[BaseException]:
        """What ended a stand-in that should have run on."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        return [error for task in ended if (error := task.exception()) is not None]
