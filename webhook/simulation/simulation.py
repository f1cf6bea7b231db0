"""One run: a cluster, policies, and what is changed when, until nothing moves any more or the time is over."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, cast

import msgspec

from webhook.clusters.scheduling.default_preemption import Preemption
from webhook.clusters.scheduling.scheduler import Scheduler
from webhook.clusters.simulated.acting_parts import ActingParts
from webhook.clusters.simulated.api import Api, SimulatedClient
from webhook.clusters.simulated.clock import VirtualClock, VirtualLoop
from webhook.clusters.simulated.history import SimulationHistory
from webhook.clusters.simulated.objects import ClusterObjects
from webhook.clusters.simulated.simulated_admission import SimulatedAdmission
from webhook.clusters.simulated.tracker import ObjectTracker
from webhook.kube.client import Client
from webhook.kube.pods import is_terminal
from webhook.policy.model.policies import Policies
from webhook.simulation.judgeable import judgeable
from webhook.simulation.simulated_reconciler import SimulatedReconciler

Progress = Callable[[float, "Running"], None]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """`until` is in seconds; pods end after their grace, or after `termination` seconds if that is less.

    `checkpoints` are annotations that say when a pod's work was saved, beside those that the policies name.
    """

    until: float = 7200.0
    termination: float | None = None
    checkpoints: tuple[str, ...] = ()


def checkpoints_of(policies: Policies) -> tuple[str, ...]:
    """The annotations by which the policies know when a pod's work was saved, sorted."""
    costs = [policy.victims.cost.lost_work for policy in policies.preemption]
    return tuple(sorted({key for cost in costs if cost is not None for key in cost.checkpoints}))


class Step(Protocol):
    """A change of the cluster from outside."""

    @property
    def at(self) -> float:
        """When it is made, in seconds after the start."""

    def make(self, running: Running) -> None:
        """Change the cluster."""


class Running:
    """The parts of a cluster that is being simulated, made in the loop in which they run; as yet nothing moves."""

    def __init__(
        self, objects: ClusterObjects, policies: Policies, clock: VirtualClock, termination: float | None
    ) -> None:
        self.objects, self.clock = objects, clock
        self.policies = judgeable(policies, objects)
        self.tracker, self.history = ObjectTracker(objects), SimulationHistory(clock)
        self.admission = SimulatedAdmission(self.policies.policies, self.tracker, clock)
        self.api = Api(self.tracker, self.admission, clock, self.history)
        self.acting = ActingParts(self.api, termination)
        client = cast("Client", SimulatedClient(self.api, "kube-scheduler"))
        preemption = Preemption(client, self.history.event, clock)
        self.scheduler = Scheduler(self.tracker, client, preemption, self.history.event, clock, everybody=True)
        self.reconciler = SimulatedReconciler(self.api, self.policies.policies, clock)
        self.end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether nothing moves any more; or why a step cannot be made."""
        self.to_come = 0
        """How many things will happen by themselves."""
        self.seconds = 0.0
        """How much virtual time has passed in the end."""
        self.reasons: dict[str, str] = {}
        """Why pods wait in the end, by key, as the reconciler and kube-scheduler say it."""
        self.errors: list[str] = []
        """Faults of this program that were logged; none are expected."""
        self.tracker.fill()
        self.acting.take_in(clock.wall())

    @property
    def at_rest(self) -> bool:
        """Whether nothing moved any more in the end."""
        return self.end.done() and self.end.result()

    def use(self, policies: Policies) -> None:
        """Take other policies into use, from now on."""
        self.policies = judgeable(policies, self.objects)
        self.admission.use(self.policies.policies)
        self.reconciler.use(self.policies.policies)

    def is_at_rest(self) -> bool:
        """Whether nothing will move any more by itself."""
        is_quiet = not self.to_come and self.acting.are_idle and self.scheduler.is_idle
        return is_quiet and self.reconciler.is_at_rest()

    def later(self, seconds: float, what: Callable[..., Any], *arguments: Any) -> None:
        """Let something happen in so many seconds; nothing is at rest before."""
        self.to_come += 1

        def happen() -> None:
            self.to_come -= 1
            what(*arguments)

        self.clock.call_later(seconds, happen)

    def waiting_preemptors(self) -> int:
        """How many of the pods that wait in the end a policy manages."""
        return sum(bool(self.reconciler.policy_of(self.tracker.pod(key))) for key in self.reasons)

    def make(self, step: Step) -> None:
        """Make a step; one that cannot be made ends the run."""
        try:
            step.make(self)
        except Exception as error:  # noqa: BLE001 - whoever waits for the end gets it
            if not self.end.done():
                self.end.set_exception(error)

    def stop(self, *, at_rest: bool = False) -> None:
        """End the run: the time is over, or nothing moves any more."""
        if not self.end.done():
            self.end.set_result(at_rest)

    def stopped(self, seconds: float) -> None:
        """Note when it has ended, and why pods wait: what the reconciler says of its preemptors, and kube-scheduler."""
        self.seconds = seconds
        for key, pod in self.tracker.all("Pod").items():
            if pod.spec.node_name or pod.metadata.deletion_timestamp or is_terminal(pod):
                continue
            said = [row.message for row in pod.status.conditions or () if row.type == "PodScheduled"]
            told = "it has scheduling gates" if pod.spec.scheduling_gates else "".join(said[:1])
            own = self.reconciler.why(key)
            self.reasons[key] = f"{own} ({told})" if own and told else own or told or "it was not tried yet"


def simulate(
    objects: ClusterObjects,
    policies: Policies,
    steps: Sequence[Step] = (),
    options: Options | None = None,
    progress: Progress = lambda _at, _running: None,
) -> Running:
    """Let the future of a cluster pass. Deterministic: the same input gives the same result."""
    # Next to nothing of a cluster is garbage, so its collector must not walk all of it again and again
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 1000)
    try:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(_run(objects, policies, steps, options or Options(), progress))
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def _run(
    objects: ClusterObjects, policies: Policies, steps: Sequence[Step], options: Options, progress: Progress
) -> Running:
    loop = cast("VirtualLoop", asyncio.get_running_loop())
    with _ErrorLog() as errors:
        loop.set_exception_handler(lambda _, context: errors.keep(context["message"], context.get("exception")))
        running = Running(objects, policies, VirtualClock(loop, objects.taken_at), options.termination)
        running.errors = errors.texts
        running.history.checkpoints = tuple(dict.fromkeys((*checkpoints_of(policies), *options.checkpoints)))

        def before_jump() -> bool:
            progress(loop.time(), running)
            if running.end.done() or not running.is_at_rest():
                return True
            running.stop(at_rest=True)
            return False

        running.api.start()
        running.acting.start()
        for step in sorted(steps, key=lambda step: step.at):
            if step.at <= 0:
                step.make(running)
            elif step.at < options.until:
                running.later(step.at, running.make, step)
        loop.call_later(options.until, running.stop)
        loop.before_jump = before_jump
        tasks = [asyncio.create_task(running.scheduler.run()), asyncio.create_task(running.reconciler.run())]
        parts: list[asyncio.Future[Any]] = [running.end, *tasks]
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        loop.before_jump = lambda: True
        running.stopped(loop.time())
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                errors.keep("a part has ended", ended)
    if running.end.done():
        running.end.result()  # raises why a step could not be made
    return running


class _ErrorLog(logging.Handler):
    """Keeps the errors that the parts log, because a part that fails must not pass for one that found nothing."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []
        self._log = logging.getLogger("webhook")
        self._propagates = self._log.propagate

    def __enter__(self) -> Self:
        self._log.addHandler(self)
        self._log.propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)
        self._log.propagate = self._propagates

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record's text, with the exception behind it."""
        self.keep(record.getMessage(), record.exc_info[1] if record.exc_info else None)

    def keep(self, text: str, error: BaseException | None) -> None:
        """Keep what went wrong, unless there is more than enough of it."""
        if len(self.texts) < 100:
            self.texts.append(f"{text}: {error!r}" if error else text)
