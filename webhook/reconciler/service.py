"""One reconciler in one process: caches, leader election, the loop, and what its private port shows."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import socket
import uuid
from functools import partial

import msgspec
from prometheus_client import CollectorRegistry

from webhook.component_base.supervision import Supervisor
from webhook.kube.client import Client
from webhook.kube.events import EventRecorder
from webhook.kube.lease import LeaderElector
from webhook.kube.owner_events import OwnerEvents
from webhook.policy.model.policies import Policies
from webhook.reconciler.clock import MeasuringClock, Now, SteadyClock
from webhook.reconciler.evictions.store import NOTHING, EvictionRecord, evictions_lease, record_of
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.queue.queue import QueueState
from webhook.reconciler.reconciler import Reconciler
from webhook.reconciler.reporting import CONTROLLER, ReconcilerMetrics, Reporter, Tell
from webhook.reconciler.state.state import State

_SHOWN = 50
"""Workloads whose evictions are metrics."""
_DAY = 86_400.0


class ReconcilerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a reconciler runs; durations are in seconds."""

    leader_elect: bool = True
    lease_namespace: str = "giveway-system"
    lease_name: str = "giveway-reconciler"
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    dry_run: bool = False


class ReconcilerService:
    """Runs a reconciler against the cluster of `client`; `tell` takes structured log lines."""

    def __init__(
        self,
        client: Client,
        policies: Policies,
        options: ReconcilerOptions,
        *,
        tell: Tell,
        registry: CollectorRegistry | None = None,
        clock: MeasuringClock | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        policy_set = PolicySet(policies)
        self.identity = f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        self.options = options
        self._supervisor = supervisor or Supervisor()
        self.metrics = ReconcilerMetrics(registry or CollectorRegistry())
        self.state = State(client, policy_set.annotations())
        self.clock = clock or SteadyClock()
        self.policies_since = self.clock.wall()
        """When the policies were taken into use, in seconds since the epoch."""
        self._evictions = NOTHING
        self._reading: asyncio.Task[EvictionRecord] | None = None
        dropped = self.metrics.events_dropped
        self._recorder = EventRecorder(client, CONTROLLER, self.identity, lambda why: dropped.labels(why).inc())
        self._owners = OwnerEvents(client, self._recorder.event)
        self._elector = self._elector_of(client)
        recorder, owners = (None, None) if options.dry_run else (self._recorder, self._owners)
        reporter = Reporter(self.metrics, tell, recorder, owners=owners, policy_set=policy_set)
        self.reconciler = Reconciler(
            client,
            self.state,
            policy_set,
            reporter,
            self.clock,
            fence=self.time_to_write,
            in_doubt=self._elector.is_in_doubt if self._elector else bool,
            dry_run=options.dry_run,
            lease=(options.lease_namespace, evictions_lease(options.lease_name)),
        )
        reconciler, metrics = self.reconciler, self.metrics
        metrics.leader.set_function(lambda: reconciler.leading)
        metrics.nominations.set_function(lambda: len(reconciler.plans))
        for state in QueueState:
            metrics.queue_depth.labels(state.value).set_function(partial(self._depth, state))
        counts, now = reconciler.evaluator.log.counts, self.clock.monotonic
        metrics.most_evicted = lambda: counts(_DAY, now()).most_common(_SHOWN)

    def _elector_of(self, client: Client) -> LeaderElector | None:
        """What contends for the lease; None if nothing does."""
        options = self.options
        if options.dry_run or not options.leader_elect:
            return None
        return LeaderElector(
            client,
            options.lease_namespace,
            options.lease_name,
            self.identity,
            lease_duration=options.lease_duration,
            renew_deadline=options.renew_deadline,
            retry_period=options.retry_period,
            clock=self.clock.monotonic,
        )

    def _depth(self, state: QueueState) -> float:
        return sum(row.state is state for row in self.reconciler.queue.entries.values())

    def time_to_write(self) -> float:
        """Seconds in which nobody else may lead; 0 if this process may not write."""
        if self.options.dry_run:
            return 0.0
        if self._elector is None:
            return math.inf
        remaining = self._elector.remaining()
        return remaining and remaining + self.options.lease_duration - self.options.renew_deadline

    def use(self, policies: Policies) -> None:
        """Take other policies into use (`Reconciler.use`)."""
        self.reconciler.use(policies)
        self.policies_since = self.clock.wall()

    async def run(self) -> None:
        """Run until cancelled: caches and leadership fail each on their own."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._supervisor.keep("caches", self.state.run))
                tasks.create_task(self._supervisor.keep("leader", self._contend))
        finally:
            if self._reading:
                self._reading.cancel()
            await self._owners.close()
            await self._recorder.close()

    def evictions(self) -> EvictionRecord:
        """What is known of evictions; who writes none reads them for the next call."""
        if self.reconciler.leading and not self.options.dry_run:
            now = Now(self.clock.monotonic(), self.clock.wall())
            return record_of(self.reconciler.evaluator.log, now)
        if self._reading is None or self._reading.done():
            self._evictions = self._reading.result() if self._reading else NOTHING
            self._reading = asyncio.create_task(self.reconciler.store.read())
        return self._evictions

    def led_elsewhere(self) -> str | None:
        """Who else leads, empty if nobody does; None if this process leads."""
        if self._elector is None or self.reconciler.leading:
            return None
        return "" if self._elector.holder == self.identity else self._elector.holder

    def way_to(self, leader: str, port: int) -> tuple[str, str]:
        """What to tell who asked a follower, and the command that reaches the leader.

        `leader` is as from `led_elsewhere`; without one the command is empty, too.
        """
        namespace, name = self.options.lease_namespace, self.options.lease_name
        if not leader:
            return f"nobody leads just now: the lease {namespace}/{name} is not held", ""
        pod = leader.partition("_")[0]
        command = f"kubectl -n {namespace} port-forward pod/{pod} {port}"
        return "this replica does not lead; ask the one that does", command

    async def _contend(self) -> None:
        await self.state.wait_for_sync()
        gc.collect()
        gc.freeze()  # what is there mostly stays: the collector need not walk it again
        if self._elector is None:
            await self.reconciler.lead()
        else:
            await self._elector.run(self.reconciler.lead)  # which cleans up by itself
