"""A stand-in for every node's kubelet: it says that pods run, end and are gone; nothing is run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from webhook.clusters.acting.controller import CONFLICT, NOT_FOUND, Controller, ControllerContext
from webhook.kube.client import Client
from webhook.kube.errors import unless_absent
from webhook.kube.instants import epoch, epoch_or, rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import POD
from webhook.policy.model.values import NOTICE_CONDITION, READY

RUN_SECONDS = "embedded.giveway.dev/run-seconds"
"""Annotation of a pod that ends by itself: after so many seconds its phase is Succeeded."""
READY_SECONDS = "embedded.giveway.dev/ready-seconds"
"""Annotation of a pod that answers a notice: so many seconds after it was told it says that it is ready to leave."""
TERMINATION_SECONDS = 0.2


class Kubelet(Controller):
    """Plays the kubelet of the nodes that `serves(name)` accepts.

    A bound pod is Running and Ready at once; a deleted one is gone after `termination_seconds`, or earlier if its
    grace period is shorter; with None after that. `client_of(node)` gives the client of a node.
    """

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
            elif pod.status.phase in ("", "Pending"):
                self.add(change.key)
            else:
                self._wait(change.key, pod)

    def _plan_removal(self, key: str, pod: Pod, *, is_new: bool) -> None:
        """Let a pod be gone in its time, which is not put off by a later change of it."""
        clock = self.context.clock
        grace = float(pod.metadata.deletion_grace_period_seconds or 0)
        if is_new:  # it was asked before anybody looked
            grace = max(0.0, epoch_or(pod.metadata.deletion_timestamp, clock.wall()) - clock.wall())
        seconds = grace if self.termination_seconds is None else min(grace, self.termination_seconds)
        due = clock.monotonic() + seconds
        if due < self._leaving.get(key, due + 1):
            self._leaving[key] = due
            self.add_after(key, seconds)

    def _to_come(self, pod: Pod) -> list[tuple[float, str]]:
        """What a running pod will do by itself, by annotation, and in how many seconds: answer a notice, and end."""
        annotations, runs = pod.metadata.annotations or {}, pod.status.phase == "Running"
        if annotations.keys().isdisjoint((READY_SECONDS, RUN_SECONDS)):
            return []
        since = {READY_SECONDS: None, RUN_SECONDS: pod.status.start_time if runs else None}
        for row in pod.status.conditions or ():
            if row.type == NOTICE_CONDITION and row.status == "True" and annotations.get(READY) != "true":
                since[READY_SECONDS] = row.last_transition_time
        to_come = []
        for annotation, begun in since.items():
            with suppress(KeyError, ValueError):
                left = epoch(begun or "") + float(annotations[annotation]) - self.context.clock.wall()
                to_come.append((max(0.0, left), annotation))
        return to_come

    def _wait(self, key: str, pod: Pod) -> None:
        """Look at a running pod again when it ends, or answers a notice."""
        if to_come := self._to_come(pod):
            self.add_after(key, min(to_come)[0])

    async def sync(self, key: str) -> None:
        """Let a pod run, answer, end or be gone, as it is due."""
        pod = self._pods.get(key)
        if pod is None:
            return
        path, client = POD.path(pod.metadata.namespace, pod.metadata.name), self._client_of(pod.spec.node_name)
        said: dict[str, Any] = {"metadata": {"uid": pod.metadata.uid}}
        due = [annotation for seconds, annotation in self._to_come(pod) if seconds == 0]
        if pod.metadata.deletion_timestamp:
            left = self._leaving.get(key, 0.0) - self.context.clock.monotonic()
            if left > 0:  # this was for another end of it
                self.add_after(key, left)
            else:
                options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
                await unless_absent(client.delete(path, options), NOT_FOUND, CONFLICT)
            return
        if pod.status.phase in ("", "Pending"):
            said["status"] = self._status(pod, "Running")
        elif READY_SECONDS in due:
            said["metadata"]["annotations"] = {READY: "true"}
        elif RUN_SECONDS in due:
            said["status"] = self._status(pod, "Succeeded")
        else:
            self._wait(key, pod)
            return
        await unless_absent(client.patch(f"{path}/status", said, kind="strategic"), NOT_FOUND, CONFLICT)

    def _status(self, pod: Pod, phase: str) -> dict[str, Any]:
        """What is said of a pod whose containers run, or (Succeeded) have all ended well."""
        runs, now = phase == "Running", rfc3339(self.context.clock.wall())
        status: dict[str, Any] = {"phase": phase}
        same = {"status": str(runs), "lastProbeTime": None, "lastTransitionTime": now}
        types = ["Ready", "ContainersReady"]
        state: dict[str, Any] = {"running": {"startedAt": now}}
        if runs:
            status["startTime"] = now
            types = ["PodReadyToStartContainers", "Initialized", *types, "PodScheduled"]
        else:
            same["reason"] = "PodCompleted"
            ended = {"startedAt": pod.status.start_time, "finishedAt": now}
            state = {"terminated": {"exitCode": 0, "reason": "Completed", **ended}}
        status["conditions"] = [{"type": type_, **same} for type_ in types]
        if not self.context.is_simulated:
            kept = {"imageID": "", "ready": runs, "restartCount": 0, "state": state}
            status["containerStatuses"] = [
                {"name": container.name, "image": container.image, **kept} for container in pod.spec.containers or ()
            ]
        return status
