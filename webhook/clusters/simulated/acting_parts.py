"""What acts in a simulated cluster: its kubelets and controllers, over caches that are told of everything at once."""

from __future__ import annotations

from typing import cast

from webhook.clusters.acting.controller import Controller, ControllerContext, controlled_pods
from webhook.clusters.acting.deployments import DeploymentController
from webhook.clusters.acting.disruption import DisruptionController
from webhook.clusters.acting.kubelet import Kubelet
from webhook.clusters.acting.workload_controllers import WORKLOAD_CONTROLLERS
from webhook.clusters.model.disruption import NoScaleError, needs_scale, unconfirmed
from webhook.clusters.simulated.api import Api, SimulatedClient
from webhook.clusters.simulated.objects import SimulatedWorkload
from webhook.clusters.simulated.workloads import Workloads
from webhook.kube.client import Client
from webhook.kube.pods import SCALED, sync_failure

_WITHOUT_SCALE = frozenset({"DaemonSet", "Job", "Node"})


class ActingParts:
    """The controllers and kubelets of a simulated cluster, which have not begun.

    Pods end after their grace, or after `termination` seconds if that is less. What is told of budgets and workloads
    holds until something changes: nothing is looked at because a file was read.
    """

    def __init__(self, api: Api, termination: float | None) -> None:
        pods = controlled_pods(api.tracker)
        self.workloads = Workloads(api, pods)
        context = ControllerContext(
            informers=api.tracker,
            clock=api.clock,
            workload_type=SimulatedWorkload,
            pods=pods,
            template_of=self.workloads.template_of,
            is_simulated=True,
        )
        client = cast("Client", SimulatedClient(api))
        kubelet = Kubelet(context, lambda _: client, termination_seconds=termination)
        self._disruption = DisruptionController(context, client, self._check_scale)
        workloads = [controller(context, client) for controller in WORKLOAD_CONTROLLERS]
        self._deployments = DeploymentController(context, client)
        self._controllers: list[Controller] = [self._disruption, *workloads, self._deployments]
        pods.cache.handlers.append(self.workloads.pod_changed)
        self._parts = [kubelet, *self._controllers]
        self._scaled = set(SCALED)
        """Kinds of controllers with a scale: Kubernetes' own, and those whose pods a budget has counted."""
        api.covering = self._disruption.covering

    def take_in(self, now: float) -> None:
        """Begin with what the tracker has told of: what stands in a file keeps no controller busy."""
        filled = self.workloads.fill()
        for controller in self._controllers:
            controller.forget()
        for key in filled:
            self._deployments.add(key)
        for key, budget in self._disruption.budgets.items().items():
            if needs_scale(budget.spec) and budget.status.expected_pods and not sync_failure(budget.status):
                self._scaled |= {kind for kind, _ in self._disruption.covered_by(key).owners()} - _WITHOUT_SCALE
            if granted := budget.status.disrupted_pods:
                waiting = unconfirmed(granted, granted, now)
                self._disruption.add_after(key, min(waiting.values(), default=0.0) + 1)

    @property
    def are_idle(self) -> bool:
        """Whether none of them has something to do, now or later."""
        return all(part.is_idle for part in self._parts)

    def start(self) -> None:
        """Begin."""
        for part in self._parts:
            part.start()

    def _check_scale(self, _version: str, kind: str, _orphan: str) -> None:
        """Of a workload that is not in the file it is assumed that it has as many pods as it should."""
        if kind not in self._scaled:
            raise NoScaleError(f"{kind} does not implement the scale subresource")
