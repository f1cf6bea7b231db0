"""A stand-in for every node's kubelet: it says that pods run, end and are gone; nothing is run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from webhook.clusters.embedded.standins.controller import CONFLICT, NOT_FOUND, Controller, StandInInformers, tolerating
from webhook.clusters.model.kubelet import is_starting, seconds_to_end, seconds_to_ready, seconds_to_removal
from webhook.kube.client import Client
from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import POD
from webhook.policy.model.values import READY

TERMINATION_SECONDS = 0.2
WORKERS = 16


class Kubelet(Controller):
    """Plays the kubelet of the nodes that `serves(name)` accepts.

    A bound pod is Running and Ready at once; a deleted one is gone after `termination_seconds`, or earlier where
    its grace period is shorter. `client_of(node)` gives the client of a node.
    """

    name = "kubelet"

    def __init__(
        self,
        informers: StandInInformers,
        client_of: Callable[[str], Client],
        *,
        termination_seconds: float = TERMINATION_SECONDS,
        serves: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.termination_seconds = termination_seconds
        self._client_of = client_of
        self._serves = serves
        super().__init__(workers=WORKERS)
        self._pods = informers.cache(POD, Pod)
        self._pods.handlers.append(self._notice)
        self._addresses = 0

    def _notice(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None or not pod.spec.node_name or not self._serves(pod.spec.node_name):
            return
        if pod.metadata.deletion_timestamp:
            grace = pod.metadata.deletion_grace_period_seconds
            self._queue.add_after(change.key, seconds_to_removal(grace, self.termination_seconds))
        elif is_starting(pod) or seconds_to_end(pod, time.time()) is not None:
            self._queue.add(change.key)
        elif (answers := seconds_to_ready(pod, time.time())) is not None:
            self._queue.add_after(change.key, answers)

    async def sync(self, key: str) -> None:
        """Let a pod run, end or be gone, as it is due."""
        pod = self._pods.get(key)
        if pod is None:
            return
        if pod.metadata.deletion_timestamp:
            body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
            client = self._client_of(pod.spec.node_name)
            with tolerating(NOT_FOUND, CONFLICT):
                await client.delete(POD.path(pod.metadata.namespace, pod.metadata.name), body)
        elif is_starting(pod):
            await self._set_status(pod, "Running")
        elif seconds_to_ready(pod, time.time()) == 0:
            path = POD.path(pod.metadata.namespace, pod.metadata.name, "status")
            body = {"metadata": {"uid": pod.metadata.uid, "annotations": {READY: "true"}}}
            with tolerating(NOT_FOUND, CONFLICT):
                await self._client_of(pod.spec.node_name).patch(path, body)
        elif (left := seconds_to_end(pod, time.time())) is not None:
            if left > 0:
                self._queue.add_after(key, left)
            else:
                await self._set_status(pod, "Succeeded")

    async def _set_status(self, pod: Pod, phase: str) -> None:
        """Say that the containers of a pod run, or (Succeeded) that all have ended well."""
        now, runs = rfc3339(time.time()), phase == "Running"
        status: dict[str, Any] = {"phase": phase}
        if runs:
            self._addresses += 1
            address = f"10.{self._addresses >> 16 & 255}.{self._addresses >> 8 & 255}.{self._addresses & 255}"
            status |= {"hostIP": "192.168.0.1", "podIP": address, "podIPs": [{"ip": address}], "startTime": now}
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
                "started": runs,
                "restartCount": 0,
                "state": state,
                "lastState": {},
            }
            for container in pod.spec.containers or ()
        ]
        path = POD.path(pod.metadata.namespace, pod.metadata.name, "status")
        body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        with tolerating(NOT_FOUND, CONFLICT):
            await self._client_of(pod.spec.node_name).patch(path, body, kind="strategic")
