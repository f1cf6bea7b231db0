"""Faults of asking the API server, and of waiting for what it shows."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.preemption.building import budget, node
from tests.reconciler.builders import policy
from tests.reconciler.faults.fault import (
    Fault,
    Patch,
    later,
    preemptor,
    simulated,
    slow,
    throttle_after_the_first,
    victim,
)
from tests.reconciler.simulation import Simulation
from webhook.kube.errors import ApiError
from webhook.kube.objects.pod import Pod
from webhook.policy.model.limits import Limits
from webhook.policy.model.preemption import EvictionMode
from webhook.reconciler.evict import writer as writing
from webhook.reconciler.evict.writer import Writer
from webhook.reconciler.plans import next_action as actions
from webhook.reconciler.plans import plan_manager
from webhook.reconciler.queue.queue import QueuedPreemptor
from webhook.reconciler.state import disruptions
from webhook.reconciler.state.disruptions import Disruptions
from webhook.reconciler.state.state import State

Json = dict[str, Any]


def fixed(name: str, on: str, cpu: str) -> Json:
    """A pod on a node that may not go."""
    made = victim(name, on, cpu)
    made["metadata"]["annotations"] = {}
    return made


def throttled_in_the_wave() -> Simulation:
    """The server has too much to do once the first of three victims has gone."""
    made = simulated(node("n1", "6"), node("n2", "6"), budgets=(budget("b", {"app": "first"}, 1),))
    made.put(victim("first", "n1", "2", app="first"))
    for name in ("a", "b"):
        made.put(victim(name, "n1", "2"))
    for name in ("c", "d", "e"):
        made.put(victim(name, "n2", "2", priority=20))
    later(2.0, lambda: made.put(preemptor(cpu="6")))
    throttle_after_the_first(made)
    return made


def take_it_for_a_refusal(patch: Patch) -> None:
    patch.setattr(ApiError, "throttled", property(lambda _: False))


def bound_while_it_is_displaced() -> Simulation:
    """A pod of lower priority is bound where it is nominated when a plan is made, and no watch shows that yet."""
    made = slow(simulated(node("n1", "6")))
    made.slow_writes = True
    made.put(victim("a", "n1", "2"))
    made.put(victim("b", "n1", "2"))
    low = preemptor("low", "2", priority=50, managed=False)
    low["status"]["nominatedNodeName"] = "n1"
    made.put(low)
    made.scheduler.away_until = 5.0
    later(2.0, lambda: made.put(preemptor(cpu="6")))

    def bind() -> None:
        if not any(line["message"] == "decision" for line in made.told):
            later(0.001, bind)
            return
        made.hold_watch(3.0)
        made.put({**low, "spec": {**low["spec"], "nodeName": "n1"}, "status": {"phase": "Running"}})

    bind()
    return made


def take_no_notice(patch: Patch) -> None:
    async def once(self: Writer, pod: Pod) -> bool:
        try:
            await self.patch_status("displace", pod, writing._CLEARED)
        except ApiError:
            return False
        return True

    patch.setattr(Writer, "displace", once)


def half_a_relist() -> Simulation:
    """While no watch works a pod is followed by another one, and the list after that takes seconds to apply."""
    made = simulated(node("n1", "8"))
    made.put(victim("v", "n1"))
    made.put(fixed("old", "n1", "4"))
    made.put(preemptor(cpu="8"))
    later(5.0, made.hold_watch, 4.0, 3.0)
    later(5.1, made.remove, "old", "uid-old")
    later(5.1, made.put, fixed("new", "n1", "4"))
    return made


def decide_on_half_of_it(patch: Patch) -> None:
    patch.setattr(State, "whole", property(lambda _: True))


def spends_nothing() -> Simulation:
    """A victim that is not ready spends nothing of its budget, and a finalizer keeps it."""
    counts = {"currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 3}
    made = simulated(node("n1", "4"), node("n2", "4"), budgets=(budget("b", {"app": "db"}, 1, **counts),))
    for name, on, ready, priority in (("broken", "n1", "False", 10), ("good", "n2", "True", 20)):
        pod = victim(name, on, priority=priority, app="db")
        pod["status"]["conditions"] = [{"type": "Ready", "status": ready}]
        made.put(pod)
    made.ends_after["broken"] = 10_000.0
    made.put(preemptor("q"))
    later(5.0, lambda: made.put(preemptor()))
    return made


def count_it_all_the_same(patch: Patch) -> None:
    patch.setattr(disruptions, "is_lenient", lambda _: False)


def waits_for_whom_nobody_asks() -> Simulation:
    """A preemptor counts on victims that a lower one's plan has yet to ask, and takes its nomination."""
    made = simulated(node("n1", "6"), node("n2", "6"))
    made.put(victim("vm", "n1", "2", priority=30))
    made.migrating["vm"] = 20.0
    made.put(victim("a", "n1", "2", priority=20))
    made.put(victim("b", "n1", "2"))
    made.put(victim("c", "n2", "6", priority=40))
    made.put(preemptor("low", "6"))
    later(3.0, lambda: made.put(preemptor(cpu="6", priority=200)))
    return made


def ask_nobody(patch: Patch) -> None:
    look = actions.unasked
    patch.setattr(actions, "unasked", lambda plan, *given: [] if plan.announced else look(plan, *given))


def ends_early() -> Simulation:
    """A victim with an hour of grace ends after a second, and kube-scheduler does not take its node."""
    made = simulated(node("n1", "4"), node("n2", "4"), under=policy(plan_timeout=60.0))
    made.put(victim("v1", "n1", grace=3600))
    made.put(victim("v2", "n2", priority=20))
    made.ends_after["v1"] = 1.0
    made.shunned.add("n1")
    made.put(preemptor())
    return made


def count_from_its_grace_period(patch: Patch) -> None:
    patch.setattr(plan_manager, "time_limit", lambda plan, _, timeout: max(plan.ends.values(), default=0.0) + timeout)


def opted_out(how: str) -> Simulation:
    """Somebody says that a victim may not go, just before a watch could show it to whoever asks for that victim."""
    made = slow(simulated(node("n1", "4"), under=policy(eviction=EvictionMode(how))))
    made.put(victim("a", "n1"))
    later(2.0, lambda: made.put(preemptor()))

    def say() -> None:
        made.put({**made.pods["a"], "metadata": {**made.pods["a"]["metadata"], "annotations": {}}})

    later(2.15, say)
    return made


def ask_whatever_has_changed(patch: Patch) -> None:
    def as_it_is(victim: Any, version: str, grace: int | None) -> Json:
        del version
        return {"preconditions": {"uid": victim.uid}} | ({} if grace is None else {"gracePeriodSeconds": grace})

    patch.setattr(writing, "_options", as_it_is)
    patch.setattr(Writer, "_as_seen", lambda _self, _victim, _seen, _wanted, ask: ask(""))


def marked_slowly() -> Simulation:
    """While the mark on a victim is written, a pod of higher priority comes that needs the whole node."""
    made = slow(simulated(node("n1", "6"), under=policy(eviction=EvictionMode.DELETE)))
    made.slow_writes = True
    made.put(victim("a", "n1", "3"))
    made.put(victim("b", "n1", "3", priority=20))
    later(2.0, lambda: made.put(preemptor(cpu="3")))
    later(2.8, lambda: made.put(preemptor("higher", "6", priority=200)))
    return made


def delete_whatever_came(patch: Patch) -> None:
    delete = Writer._mark_and_delete
    patch.setattr(Writer, "_mark_and_delete", lambda self, *given: delete(self, *given[:-1], writing.always))


def covered_and_changed() -> Simulation:
    """The status of a victim under a budget changes just before a watch could show it to whoever asks for it."""
    made = slow(simulated(node("n1", "4"), budgets=(budget("b", {"app": "db"}, 1),)))
    made.put(victim("a", "n1", app="db"))
    later(2.0, lambda: made.put(preemptor()))
    later(2.15, lambda: made.put({**made.pods["a"], "metadata": dict(made.pods["a"]["metadata"])}))
    return made


def spend_it_on_a_conflict(patch: Patch) -> None:
    patch.setattr(Disruptions, "covering", lambda *_: [])


def changes_all_the_time() -> Simulation:
    """A victim's status changes faster than anybody can read it."""
    made = simulated(node("n1", "4"))
    made.put(victim("a", "n1"))
    later(2.0, lambda: made.put(preemptor()))

    def change() -> None:
        if "a" in made.pods and "deletionTimestamp" not in made.pods["a"]["metadata"]:
            made.put({**made.pods["a"], "metadata": dict(made.pods["a"]["metadata"])})
            later(0.001, change)

    later(1.9, change)
    return made


def insist(patch: Patch) -> None:
    async def always_as_seen(_self: Writer, _victim: Any, seen: Pod, _wanted: Any, ask: Any) -> None:
        await ask(seen.metadata.resource_version)

    patch.setattr(Writer, "_as_seen", always_as_seen)


def answer_is_lost() -> Simulation:
    """Evictions are done and answered with 500."""
    made = simulated(node("n1", "6"), node("n2", "6"))
    for name in ("a", "b", "c"):
        made.put(victim(name, "n1", "2", grace=10))
    made.put(victim("d", "n2", "6", priority=20))
    made.answers_lost = 3
    later(2.0, lambda: made.put(preemptor(cpu="6")))
    return made


def take_it_for_its_word(patch: Patch) -> None:
    patch.setattr("webhook.reconciler.evict.writer.may_pass", lambda _: False)

    async def stays(_self: Writer, _victim: Any, error: ApiError) -> None:
        raise error

    patch.setattr(Writer, "_fate", stays)


def fought_over() -> Simulation:
    """Another component nominates the preemptor elsewhere whenever it is nominated, and no victim ends soon."""
    made = simulated(
        *(node(f"n{number}", "4") for number in range(20)),
        under=policy(wait_for_terminating=0.0, plan_timeout=20.0, limits=Limits(attempts_per_preemptor=3)),
    )
    for number in range(19):
        made.put(victim(f"v{number}", f"n{number}", grace=3600))
        made.ends_after[f"v{number}"] = 3600.0
    made.put(fixed("fixed", "n19", "4"))
    later(2.0, lambda: made.put(preemptor()))

    def nominate() -> None:
        pod = made.pods.get("p")
        if pod is not None and pod["status"].get("nominatedNodeName", "n19") != "n19":
            made.outcomes.outside("somebody else nominated it", "uid-p")
            made.put({**pod, "status": {**pod["status"], "nominatedNodeName": "n19"}})
        later(0.5, nominate)

    nominate()
    return made


def fight_on(patch: Patch) -> None:
    patch.setattr(QueuedPreemptor, "attempt_failed", lambda *_: None)


FAULTS = {
    "the server throttles": Fault(throttled_in_the_wave, 100.0, take_it_for_a_refusal, 3),
    "a lower pod is bound before it is displaced": Fault(
        bound_while_it_is_displaced, 100.0, take_no_notice, 0, bound=False
    ),
    "a list is applied bit by bit": Fault(half_a_relist, 60.0, decide_on_half_of_it, 0, bound=False),
    "a disruption that is never spent": Fault(spends_nothing, 100.0, count_it_all_the_same, 2),
    "victims that nobody asks": Fault(waits_for_whom_nobody_asks, 100.0, ask_nobody, 4),
    "a victim that was opted out a moment ago": Fault(
        partial(opted_out, "evict"), 100.0, ask_whatever_has_changed, 0, bound=False
    ),
    "the same, deleted": Fault(partial(opted_out, "delete"), 100.0, ask_whatever_has_changed, 0, bound=False),
    "a mark that takes long": Fault(marked_slowly, 100.0, delete_whatever_came, 2, bound=False),
    "a covered victim that has changed": Fault(covered_and_changed, 30.0, spend_it_on_a_conflict, 1),
    "a victim that changes all the time": Fault(changes_all_the_time, 30.0, insist, 1),
    "an eviction that was done and answered with 500": Fault(answer_is_lost, 100.0, take_it_for_its_word, 3),
    "two components that nominate": Fault(fought_over, 1800.0, fight_on, 6, bound=False),
    "a long grace period that ends early": Fault(ends_early, 300.0, count_from_its_grace_period, 2),
}
