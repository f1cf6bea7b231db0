"""kube-scheduler, played: its queue, the project's own filters, its scores, nominations kept, and its messages.

One pod after the other: pop, filter all nodes, take the nominated one or the one with the best score, assume it there,
bind in the background. A pod that fits nowhere waits for an event that could help it (docs/kubernetes-behaviour.md K7
to K15).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import numpy as np

from webhook.clusters.scheduling import queueing_hints
from webhook.clusters.scheduling.cluster_state import ClusterState, Informers
from webhook.clusters.scheduling.default_preemption import NAME, NOT_FOUND, Preemption, patch_status
from webhook.clusters.scheduling.queue import Entry, SchedulingQueue
from webhook.clusters.scheduling.scores import best_node
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.events import EventType, Occurrence, Recorder, reference
from webhook.kube.instants import Clock, rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import (
    CSI_NODE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
    Resource,
)
from webhook.preemption.filters.devices import needs_devices
from webhook.preemption.filters.filtering import Failures, prefilter, run_filters
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.snapshot.snapshot import Snapshot

log = logging.getLogger(__name__)

_NO_DEVICES = "it asks for devices, which are not allocated here"
NO_NODES = "no nodes available to schedule pods"
NEVER = "preemption: not eligible due to preemptionPolicy=Never."


class Scheduler:
    """Schedules the pods of `default-scheduler`, or with `everybody` those of every scheduler.

    `preemption` is kube-scheduler's own. None makes this a profile without PostFilter plugins: it preempts for nobody,
    and clears whatever nomination a pod has at every failed attempt (`handleSchedulingFailure`).
    """

    def __init__(
        self,
        informers: Informers,
        client: Client,
        preemption: Preemption | None,
        record: Recorder,
        clock: Clock,
        *,
        everybody: bool = False,
    ) -> None:
        self._client = client
        self._preemption = preemption
        self._clock = clock
        self._queue = SchedulingQueue(clock)
        self._state = ClusterState(informers, self._pod_changed, self._other_changed)
        self.snapshot = self._state.snapshot
        """The cluster as it sees it, with the pods it has placed."""
        self._record = record
        self._everybody = everybody
        self._binding: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to try and nothing to bind: only an event can bring it work."""
        return self._queue.is_idle and not self._binding and (self._preemption is None or self._preemption.is_idle)

    async def run(self) -> None:
        """Schedule until it is cancelled."""
        flush = asyncio.create_task(self._queue.flush())
        try:
            while True:
                entry = await self._queue.pop()
                await self._schedule(entry)
                await asyncio.sleep(0)
        finally:
            for task in (flush, *self._binding):
                task.cancel()
            if self._preemption is not None:
                await self._preemption.close()

    async def _schedule(self, entry: Entry) -> None:
        """One attempt for one pod."""
        snapshot, incoming, pod = self.snapshot, entry.incoming, entry.incoming.pod
        if needs_devices(snapshot, incoming):
            incoming = incoming._replace(beyond=_NO_DEVICES)
        failures = run_filters(prefilter(snapshot, incoming))
        node = best_node(self._state.view, incoming, failures)
        if node is None:
            self._queue.failed(entry)
            await self._report(pod, failures)
            return
        self._queue.remove(entry.key)
        self._state.assume(entry.key, pod, node)
        task = asyncio.create_task(self._bind(entry, pod, node))
        self._binding.add(task)
        task.add_done_callback(self._bound)

    def _bound(self, task: asyncio.Task[None]) -> None:
        self._binding.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("binding failed", exc_info=error)

    async def _bind(self, entry: Entry, pod: Pod, node: str) -> None:
        metadata = pod.metadata
        about = {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}
        body = {"metadata": about, "target": {"kind": "Node", "name": node}}
        try:
            await self._client.create(POD.path(metadata.namespace, metadata.name, "binding"), body)
        except ApiError as error:
            self._state.forget(entry.key)
            known = self._state.pods.get(entry.key)
            if error.status == NOT_FOUND or known is None or not _is_pending(known):
                return  # it is gone, or has a node
            log.info("binding %s: %s", entry.key, error)
            if self._queue.get(entry.key) is None and known.metadata.uid == pod.metadata.uid:
                self._queue.failed(entry, error=True)
            return
        self._event(pod, "Normal", "Scheduled", "Binding", f"Successfully assigned {entry.key} to {node}")

    async def _report(self, pod: Pod, failures: Failures) -> None:
        """Preempt where that is this scheduler's to do, and write the reasons into the pod's status."""
        snapshot, nominated, outcome = self.snapshot, "", ""
        if self._preemption is not None and pod.spec.preemption_policy == "Never":
            outcome = NEVER
        elif self._preemption is not None and len(snapshot.nodes.known()):
            nominated, outcome = self._preemption.attempt(snapshot, pod)
        message = no_fit_message(snapshot, failures, outcome)
        known = next((condition for condition in pod.status.conditions or () if condition.type == "PodScheduled"), None)
        since = known.last_transition_time if known and known.status == "False" else rfc3339(self._clock.wall())
        status: dict[str, Any] = {}
        if known is None or (known.status, known.message) != ("False", message):
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "observedGeneration": pod.metadata.generation or 0,
                "lastProbeTime": None,
                "lastTransitionTime": since,
                "reason": "Unschedulable",
                "message": message,
            }
            status["conditions"] = [condition]
        if nominated and nominated != pod.status.nominated_node_name:
            status["nominatedNodeName"] = nominated
        if self._preemption is None and pod.status.nominated_node_name:
            status["nominatedNodeName"] = None
        if status:
            body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
            await patch_status(self._client, pod.metadata.namespace, pod.metadata.name, body)
        self._event(pod, "Warning", "FailedScheduling", "Scheduling", message)

    def _event(self, pod: Pod, type_: EventType, reason: str, action: str, note: str) -> None:
        self._record(Occurrence(reference(POD, pod.metadata), None, type_, reason, action, note))

    def _pod_changed(self, change: Change[Pod]) -> None:
        helps = queueing_hints.after_pod_change(self.snapshot, change)
        if helps is not None:
            self._queue.wake(helps)
        pod, key = change.new, change.key
        known = self._queue.get(key)
        if known is not None and (pod is None or pod.metadata.uid != known.incoming.pod.metadata.uid):
            self._queue.remove(key)
            known = None
        if pod is None or not (self._everybody or pod.spec.scheduler_name == NAME):
            return
        if not _is_pending(pod):
            self._queue.remove(key)
        elif known is None:
            try:
                self._queue.add(key, compile_pod(pod))
            except ValueError as error:
                log.warning("%s cannot be scheduled: %s", key, error)
        else:
            reshaped = queueing_hints.is_reshaped(known.incoming.pod, pod)
            incoming = compile_pod(pod) if reshaped else known.incoming._replace(pod=pod)
            self._queue.update(key, incoming, wake=reshaped)

    def _other_changed(self, resource: Resource, change: Change[Any]) -> None:
        helps = None
        if resource is NODE:
            helps = queueing_hints.after_node_change(self.snapshot, change)
        elif resource in (PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS, CSI_NODE):
            helps = queueing_hints.after_volume_change
        if helps is not None:
            self._queue.wake(helps)


def _is_pending(pod: Pod) -> bool:
    """Whether a pod waits for a node; one with scheduling gates does not wait yet."""
    return (
        not pod.spec.node_name
        and not pod.metadata.deletion_timestamp
        and not pod.spec.scheduling_gates
        and pod.status.phase in ("", "Pending")
    )


def no_fit_message(snapshot: Snapshot, failures: Failures, preemption: str) -> str:
    """kube-scheduler's sentence: how many nodes fail for which reason, and what became of preemption."""
    known = snapshot.nodes.known()
    if not len(known):
        return NO_NODES
    counts = Counter[str]()
    for code in np.unique(failures.code[failures.code > 0]):
        check, at = failures.state.checks[code - 1], failures.code == code
        if check.reason:
            counts[check.reason] += int(at.sum())
            continue
        for counter, lacking in zip(failures.state.counters, failures.lacking, strict=False):  # these come first
            reason = f"Insufficient {counter.name}" if counter.name else "Too many pods"
            counts[reason] += int(lacking[at].sum())
    rows = sorted(f"{count} {reason}" for reason, count in counts.items() if count)
    tail = f" {preemption}" if preemption else ""
    return f"0/{len(known)} nodes are available: {', '.join(rows)}.{tail}"
