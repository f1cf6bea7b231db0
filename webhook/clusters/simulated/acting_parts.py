"""What acts in a simulated cluster: its kubelets and controllers, over caches that are told of everything at once."""

from __future__ import annotations

from typing import cast

from webhook.clusters.acting.controller import ControlledPods, Controller, ControllerContext
from webhook.clusters.acting.deployments import DeploymentController
from webhook.clusters.acting.disruption import DisruptionController
from webhook.clusters.acting.kubelet import Kubelet
from webhook.clusters.acting.workload_controllers import (
    DaemonSetController,
    JobController,
    ReplicaSetController,
    ReplicationControllerController,
    StatefulSetController,
)
from webhook.clusters.model.disruption import NoScaleError, needs_scale, unconfirmed
from webhook.clusters.simulated.api import Api, SimulatedClient
from webhook.clusters.simulated.objects import SimulatedWorkload
from webhook.clusters.simulated.tracker import LiveInformers
from webhook.clusters.simulated.workloads import Workloads
from webhook.kube.client import Client
from webhook.kube.pods import SCALED, sync_failure

_WITHOUT_SCALE = frozenset({"DaemonSet", "Job", "Node"})


class ActingParts:
    """The controllers and kubelets of a simulated cluster, which know what is in it and have not begun.

    Pods end after their grace, or after `termination` seconds if that is less. What is told of budgets and workloads
    holds until something changes: nothing is looked at because a file was read.
    """

    def __init__(self, api: Api, termination: float | None) -> None:
        informers = LiveInformers(api.tracker)
        pods = ControlledPods(informers)
        self.workloads = Workloads(api, pods)
        context = ControllerContext(
            informers=informers,
            clock=api.clock,
            workload_type=SimulatedWorkload,
            pods=pods,
            template_of=self.workloads.template_of,
            retries=False,
            reports=False,
        )
        client = cast("Client", SimulatedClient(api))
        kubelet = Kubelet(context, lambda _: client, termination_seconds=termination)
        self._disruption = DisruptionController(context, client, self._check_scale)
        controllers: list[Controller] = [
            self._disruption,
            ReplicaSetController(context, client),
            ReplicationControllerController(context, client),
            StatefulSetController(context, client),
            DaemonSetController(context, client),
            JobController(context, client),
            deployments := DeploymentController(context, client),
        ]
        self._parts = [kubelet, *controllers]
        self._scaled = set(SCALED)
        """Kinds of controllers with a scale: Kubernetes' own, and those whose pods a budget has counted."""
        api.covering = self._disruption.covering
        pods.quiet = True
        informers.fill()
        pods.quiet = False
        filled = self.workloads.fill()
        for part in controllers:
            part.forget()
        for key in filled:
            deployments.add(key)
        self._take_in_budgets(api.clock.wall())

    @property
    def are_idle(self) -> bool:
        """Whether none of them has something to do, now or later."""
        return all(part.is_idle for part in self._parts)

    def start(self) -> None:
        """Begin."""
        for part in self._parts:
            part.start()

    def _take_in_budgets(self, now: float) -> None:
        """Learn of the budgets that are there which controllers have a scale, and which evictions were granted."""
        for key, budget in self._disruption.budgets.items().items():
            if needs_scale(budget.spec) and budget.status.expected_pods and not sync_failure(budget.status):
                self._scaled |= {kind for kind, _ in self._disruption.covered_by(key).owners()} - _WITHOUT_SCALE
            if granted := budget.status.disrupted_pods:
                waiting = unconfirmed(granted, granted, now)
                self._disruption.add_after(key, min(waiting.values(), default=0.0) + 1)

    def _check_scale(self, _version: str, kind: str, _orphan: str) -> None:
        """Of a workload that is not in the file it is assumed that it has as many pods as it should."""
        if kind not in self._scaled:
            raise NoScaleError(f"{kind} does not implement the scale subresource")
