"""Faults of asking the API server, and of waiting for what it shows."""

from functools import partial
from typing import Any

from tests.preemption.building import budget, node
from tests.reconciler.builders import policy
from tests.reconciler.faults.fault import Fault, throttle_after_the_first
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import fixed, preemptor, victim
from tests.reconciler.harness.scenarios import later, simulated, slow
from webhook.policy.model.limits import Limits
from webhook.policy.model.preemption import EvictionMode

Json = dict[str, Any]


def throttled_in_the_wave() -> Cluster:
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


def bound_while_it_is_displaced() -> Cluster:
    """A pod of lower priority is bound where it is nominated when a plan is made, and no watch shows that yet."""
    made = slow(simulated(node("n1", "6")))
    made.slow_writes = True
    made.add(victim("a", "n1", "2"), victim("b", "n1", "2"))
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


def half_a_relist() -> Cluster:
    """While no watch works pods are followed by another one, and the machine is busy when the list after that comes."""
    made = simulated(node("n1", "8"))
    gone = ["old", *(f"small{number}" for number in range(40))]
    made.put(victim("v", "n1"))
    for name in gone:
        made.put(fixed(name, "n1", "4" if name == "old" else "0"))
        later(5.1, made.remove, name, f"uid-{name}")
    made.put(preemptor(cpu="8"))
    later(5.0, made.hold_watch, 4.0, 0.05)
    later(5.1, made.put, fixed("new", "n1", "4"))
    return made


def spends_nothing() -> Cluster:
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


def waits_for_whom_nobody_asks() -> Cluster:
    """A preemptor counts on victims that a lower one's plan has yet to ask, and takes its nomination."""
    made = simulated(node("n1", "6"), node("n2", "6"))
    made.put(victim("vm", "n1", "2", priority=30))
    made.migrating["vm"] = 20.0
    made.add(victim("a", "n1", "2", priority=20), victim("b", "n1", "2"), victim("c", "n2", "6", priority=40))
    made.put(preemptor("low", "6"))
    later(3.0, lambda: made.put(preemptor(cpu="6", priority=200)))
    return made


def ends_early() -> Cluster:
    """A victim with an hour of grace ends after a second, and kube-scheduler does not take its node."""
    made = simulated(node("n1", "4"), node("n2", "4"), under=policy(plan_timeout=60.0))
    made.add(victim("v1", "n1", grace=3600), victim("v2", "n2", priority=20))
    made.ends_after["v1"] = 1.0
    made.shunned.add("n1")
    made.put(preemptor())
    return made


def opted_out(how: str) -> Cluster:
    """Somebody says that a victim may not go, just before a watch could show it to whoever asks for that victim."""
    made = slow(simulated(node("n1", "4"), under=policy(eviction=EvictionMode(how))))
    made.put(victim("a", "n1"))
    later(2.0, lambda: made.put(preemptor()))

    def say() -> None:
        made.put({**made.pods["a"], "metadata": {**made.pods["a"]["metadata"], "annotations": {}}})

    later(2.15, say)
    return made


def marked_slowly() -> Cluster:
    """While the mark on a victim is written, a pod of higher priority comes that needs the whole node."""
    made = slow(simulated(node("n1", "6"), under=policy(eviction=EvictionMode.DELETE)))
    made.slow_writes = True
    made.add(victim("a", "n1", "3"), victim("b", "n1", "3", priority=20))
    later(2.0, lambda: made.put(preemptor(cpu="3")))
    later(2.8, lambda: made.put(preemptor("higher", "6", priority=200)))
    return made


def covered_and_changed() -> Cluster:
    """The status of a victim under a budget changes just before a watch could show it to whoever asks for it."""
    made = slow(simulated(node("n1", "4"), budgets=(budget("b", {"app": "db"}, 1),)))
    made.put(victim("a", "n1", app="db"))
    later(2.0, lambda: made.put(preemptor()))
    later(2.15, lambda: made.put({**made.pods["a"], "metadata": dict(made.pods["a"]["metadata"])}))
    return made


def changes_all_the_time() -> Cluster:
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


def answer_is_lost() -> Cluster:
    """Evictions are done and answered with 500."""
    made = simulated(node("n1", "6"), node("n2", "6"))
    for name in ("a", "b", "c"):
        made.put(victim(name, "n1", "2", grace=10))
    made.put(victim("d", "n2", "6", priority=20))
    made.answers_lost = 3
    later(2.0, lambda: made.put(preemptor(cpu="6")))
    return made


def fought_over() -> Cluster:
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


FAULTS = {
    "the server throttles": Fault(throttled_in_the_wave, 100.0, 3),
    "a lower pod is bound before it is displaced": Fault(bound_while_it_is_displaced, 100.0, 0, bound=False),
    "a list is applied bit by bit": Fault(half_a_relist, 60.0, 0, bound=False),
    "a disruption that is never spent": Fault(spends_nothing, 100.0, 2),
    "victims that nobody asks": Fault(waits_for_whom_nobody_asks, 100.0, 4),
    "a victim that was opted out a moment ago": Fault(partial(opted_out, "evict"), 100.0, 0, bound=False),
    "the same, deleted": Fault(partial(opted_out, "delete"), 100.0, 0, bound=False),
    "a mark that takes long": Fault(marked_slowly, 100.0, 2, bound=False),
    "a covered victim that has changed": Fault(covered_and_changed, 30.0, 1),
    "a victim that changes all the time": Fault(changes_all_the_time, 30.0, 1),
    "an eviction that was done and answered with 500": Fault(answer_is_lost, 100.0, 3),
    "two components that nominate": Fault(fought_over, 1800.0, 6, bound=False),
    "a long grace period that ends early": Fault(ends_early, 300.0, 2),
}
