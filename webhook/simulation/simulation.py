"""One run: a cluster, policies, and what is changed when, until nothing moves any more or the time is over."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, cast

import msgspec

from webhook.kube.client import Client
from webhook.kube.events import Occurrence
from webhook.policy.model import Policies
from webhook.preemption.snapshot.nodes import Nodes
from webhook.scheduling.default_preemption import Preemption
from webhook.scheduling.scheduler import Scheduler
from webhook.simulation.clock import VirtualClock, VirtualLoop
from webhook.simulation.cluster.admission import Admission
from webhook.simulation.cluster.api import Api, SimulatedClient
from webhook.simulation.cluster.budgets import Budgets
from webhook.simulation.cluster.controllers import Controllers
from webhook.simulation.cluster.store import Store
from webhook.simulation.history import History
from webhook.simulation.policies import Judgeable, judgeable
from webhook.simulation.reconciler import SimulatedReconciler
from webhook.simulation.snapshot.objects import ClusterObjects

__all__ = ["Options", "Result", "Running", "Step", "simulate"]

Progress = Callable[[float, "Running"], None]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """`until` is in seconds; pods end after their grace, or after `termination` seconds if that is less."""

    until: float = 7200.0
    termination: float | None = None


class Step(Protocol):
    """A change of the cluster from outside, made at `at` seconds."""

    @property
    def at(self) -> float:
        """Seconds after the start."""
        ...

    def make(self, running: Running) -> None:
        """Change the cluster."""
        ...


@dataclass(slots=True)
class Running:
    """The parts of a cluster that is being simulated."""

    store: Store
    api: Api
    budgets: Budgets
    admission: Admission
    controllers: Controllers
    scheduler: Scheduler
    reconciler: SimulatedReconciler
    history: History
    clock: VirtualClock
    policies: Judgeable
    objects: ClusterObjects

    def use(self, policies: Policies) -> None:
        """Take other policies into use, from now on."""
        self.policies = judgeable(policies, self.objects)
        self.admission.use(self.policies.policies)
        self.controllers.forget_admitted()
        self.reconciler.use(self.policies.policies)

    def is_at_rest(self) -> bool:
        """Whether nothing will move any more by itself."""
        if self.api.outstanding or not self.scheduler.is_idle:
            return False
        return self.reconciler.is_at_rest()


@dataclass(slots=True)
class Result:
    """How it ended: `seconds` of virtual time, and whether nothing moved any more."""

    history: History
    store: Store
    nodes: Nodes
    """What is used of which node, as kube-scheduler counts it."""
    seconds: float
    at_rest: bool
    policies: Judgeable
    reasons: dict[str, str]
    """Why pods wait, by key, as the reconciler and kube-scheduler say it."""
    preemptors: frozenset[str]
    """Those of them that a policy manages."""
    warnings: dict[str, str]
    """What admission warns of, and the object that it said it of first."""
    evaluations: int
    events: int
    """How many changes of the cluster there were."""
    errors: list[str] = field(default_factory=list)
    """Faults of this program that were logged; none are expected."""


def simulate(
    objects: ClusterObjects,
    policies: Policies,
    steps: Sequence[Step] = (),
    options: Options | None = None,
    progress: Progress = lambda _at, _running: None,
) -> Result:
    """Let the future of a cluster pass. Deterministic: the same input gives the same result."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner, _errors() as errors, _few_collections():
        made = sorted(steps, key=lambda one: one.at)
        return runner.run(_run(objects, policies, made, options or Options(), progress, errors))


async def _run(  # noqa: PLR0917 - one caller
    objects: ClusterObjects,
    policies: Policies,
    steps: Sequence[Step],
    options: Options,
    progress: Progress,
    errors: list[str],
) -> Result:
    loop = cast("VirtualLoop", asyncio.get_running_loop())
    running = _assembled(objects, policies, VirtualClock(loop, objects.taken_at), options)
    finished = asyncio.Event()
    at_rest = False

    def before_jump() -> bool:
        nonlocal at_rest
        progress(loop.time(), running)
        if finished.is_set() or not running.is_at_rest():
            return True
        at_rest = True
        finished.set()
        return False

    running.store.fill()
    running.api.start()
    failures: list[Exception] = []

    def make(step: Step) -> None:
        try:
            step.make(running)
        except Exception as error:  # noqa: BLE001 - it ends the run, and is raised there
            failures.append(error)
            finished.set()

    for step in steps:
        if step.at <= 0:
            step.make(running)
        elif step.at < options.until:
            running.api.later(step.at, make, step)
    tasks = [asyncio.create_task(running.scheduler.run()), asyncio.create_task(running.reconciler.run())]
    loop.call_later(options.until, finished.set)
    loop.before_jump = before_jump
    stopped = asyncio.create_task(finished.wait())
    await asyncio.wait((stopped, *tasks), return_when=asyncio.FIRST_COMPLETED)
    loop.before_jump = lambda: True
    seconds = loop.time()
    reasons = _reasons(running)
    evaluations = running.reconciler.evaluations
    for task in (stopped, *tasks):
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    if failures:
        raise failures[0]
    errors += [repr(error) for error in ended if isinstance(error, Exception)]
    return Result(
        running.history,
        running.store,
        running.scheduler.snapshot.nodes,
        seconds,
        at_rest,
        running.policies,
        reasons,
        frozenset(key for key in reasons if running.reconciler.policy_of(running.store.pod(key))),
        running.admission.warnings,
        evaluations,
        running.store.delivered,
        errors,
    )


def _assembled(objects: ClusterObjects, policies: Policies, clock: VirtualClock, options: Options) -> Running:
    store, history = Store(objects), History(clock.start)
    known = judgeable(policies, objects)
    budgets = Budgets(store)
    api = Api(store, budgets, clock, history, options.termination)
    admission = Admission(known.policies, store, clock)
    controllers = Controllers(api, admission, budgets)
    budgets.fill()
    controllers.fill()
    client = cast("Client", SimulatedClient(api, "kube-scheduler"))
    told = _Told(history)
    scheduler = Scheduler(store, client, Preemption(client, told, clock), told, clock, everybody=True)
    reconciler = SimulatedReconciler(api, known.policies, clock)
    return Running(store, api, budgets, admission, controllers, scheduler, reconciler, history, clock, known, objects)


def _reasons(running: Running) -> dict[str, str]:
    """Why pods wait: what the reconciler says of its preemptors, and what kube-scheduler says."""
    reasons: dict[str, str] = {}
    for key, pod in running.store.all("Pod").items():
        if pod.spec.node_name or pod.metadata.deletion_timestamp or pod.status.phase in {"Succeeded", "Failed"}:
            continue
        told = next((one.message for one in pod.status.conditions or () if one.type == "PodScheduled"), "")
        if pod.spec.scheduling_gates:
            told = "it has scheduling gates"
        own = running.reconciler.why(key)
        reasons[key] = f"{own} ({told})" if own and told else own or told or "it was not tried yet"
    return reasons


class _Told:
    """Takes kube-scheduler's Events: whom a victim went for."""

    def __init__(self, history: History) -> None:
        self._history = history

    def event(self, occurrence: Occurrence) -> None:
        """Note an occurrence."""
        regarding, related = occurrence.regarding, occurrence.related
        if occurrence.reason == "Preempted" and related:
            self._history.preempted(regarding["uid"], f"{related['namespace']}/{related['name']}")


@contextmanager
def _few_collections() -> Iterator[None]:
    """Keep the garbage collector from walking a whole cluster again and again: next to nothing of it is garbage."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class _Collector(logging.Handler):
    """Keeps the errors that the parts log, because a part that fails must not pass for one that found nothing."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record's text, with the exception behind it."""
        if len(self.found) < 100:
            error = f": {record.exc_info[1]!r}" if record.exc_info and record.exc_info[1] else ""
            self.found.append(record.getMessage() + error)


@contextmanager
def _errors() -> Iterator[list[str]]:
    collector, log = _Collector(), logging.getLogger("webhook")
    before = log.level, log.propagate
    log.addHandler(collector)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield collector.found
    finally:
        log.removeHandler(collector)
        log.setLevel(before[0])
        log.propagate = before[1]
