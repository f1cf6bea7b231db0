"""A stand-in for every node's kubelet: it says that pods run, end and are gone; nothing is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webhook.clusters.acting.controller import CONFLICT, NOT_FOUND, Controller, ControllerContext, tolerating
from webhook.clusters.model.kubelet import is_starting, seconds_to_end, seconds_to_ready, seconds_to_removal
from webhook.kube.client import Client
from webhook.kube.instants import epoch_or, rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import POD
from webhook.policy.model.values import READY

TERMINATION_SECONDS = 0.2


class Kubelet(Controller):
    """Plays the kubelet of the nodes that `serves(name)` accepts.

    A bound pod is Running and Ready at once; a deleted one is gone after `termination_seconds`, or earlier where
    its grace period is shorter; with None after that. `client_of(node)` gives the client of a node.
    """

    name = "kubelet"

    def __init__(
        self,
        context: ControllerContext,
        client_of: Callable[[str], Client],
        *,
        termination_seconds: float | None = TERMINATION_SECONDS,
        serves: Callable[[str], bool] = lambda _: True,
    ) -> None:
        super().__init__(context)
        self.termination_seconds = termination_seconds
        self._client_of = client_of
        self._serves = serves
        self._pods = context.pods.cache
        self._pods.handlers.append(self._notice)
        self._leaving: dict[str, float] = {}
        """When the pods that were asked to leave are gone, in monotonic seconds."""

    def _notice(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None:
            self._leaving.pop(change.key, None)
        elif pod.spec.node_name and self._serves(pod.spec.node_name):
            if pod.metadata.deletion_timestamp:
                self._plan_removal(change.key, pod, is_new=change.old is None)
            elif is_starting(pod):
                self.queue.add(change.key)
            else:
                self._wait(change.key, pod)

    def _plan_removal(self, key: str, pod: Pod, *, is_new: bool) -> None:
        """Let a pod be gone in its time, which is not put off by a later change of it."""
        clock = self.context.clock
        grace: float | None = pod.metadata.deletion_grace_period_seconds
        if is_new:  # it was asked before anybody looked
            grace = max(0, epoch_or(pod.metadata.deletion_timestamp, clock.wall()) - clock.wall())
        seconds = seconds_to_removal(grace, self.termination_seconds)
        due = clock.monotonic() + seconds
        if due < self._leaving.get(key, due + 1):
            self._leaving[key] = due
            self.queue.add_after(key, seconds)

    def _wait(self, key: str, pod: Pod) -> None:
        """Look at a running pod again when it ends, or answers a notice."""
        now = self.context.clock.wall()
        waits = [seconds for seconds in (seconds_to_end(pod, now), seconds_to_ready(pod, now)) if seconds is not None]
        if waits:
            self.queue.add_after(key, min(waits))

    async def sync(self, key: str) -> None:
        """Let a pod run, answer, end or be gone, as it is due."""
        pod, now = self._pods.get(key), self.context.clock.wall()
        if pod is None:
            return
        path, client = POD.path(pod.metadata.namespace, pod.metadata.name), self._client_of(pod.spec.node_name)
        if pod.metadata.deletion_timestamp:
            left = self._leaving.get(key, 0.0) - self.context.clock.monotonic()
            if left > 0:  # this was for another end of it
                self.queue.add_after(key, left)
                return
            body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
            with tolerating(NOT_FOUND, CONFLICT):
                await client.delete(path, body)
        elif is_starting(pod):
            await self._set_status(client, pod, "Running")
        elif seconds_to_ready(pod, now) == 0:
            said = {"metadata": {"uid": pod.metadata.uid, "annotations": {READY: "true"}}}
            with tolerating(NOT_FOUND, CONFLICT):
                await client.patch(f"{path}/status", said)
        elif seconds_to_end(pod, now) == 0:
            await self._set_status(client, pod, "Succeeded")
        else:
            self._wait(key, pod)

    async def _set_status(self, client: Client, pod: Pod, phase: str) -> None:
        """Say that the containers of a pod run, or (Succeeded) that all have ended well."""
        now, runs = rfc3339(self.context.clock.wall()), phase == "Running"
        status: dict[str, Any] = {"phase": phase}
        if runs:
            status["startTime"] = now
            types, reason = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"], {}
            state: dict[str, Any] = {"running": {"startedAt": now}}
        else:
            types, reason = ["Ready", "ContainersReady"], {"reason": "PodCompleted"}
            ended = {"startedAt": pod.status.start_time, "finishedAt": now}
            state = {"terminated": {"exitCode": 0, "reason": "Completed", **ended}}
        same = {"status": "True" if runs else "False", "lastProbeTime": None, "lastTransitionTime": now}
        status["conditions"] = [{"type": type_, **same, **reason} for type_ in types]
        status["containerStatuses"] = [
            {
                "name": container.name,
                "image": container.image,
                "imageID": "",
                "ready": runs,
                "restartCount": 0,
                "state": state,
            }
            for container in pod.spec.containers or ()
        ]
        path = POD.path(pod.metadata.namespace, pod.metadata.name, "status")
        body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        with tolerating(NOT_FOUND, CONFLICT):
            await client.patch(path, body, kind="strategic")
