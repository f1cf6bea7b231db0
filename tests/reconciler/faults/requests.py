"""Faults of asking the API server, and of waiting for what it shows."""

from tests.reconciler.faults.fault import fault, throttle_after_the_first
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import fixed, preemptor, victim
from tests.reconciler.harness.scenarios import changed, later
from webhook.policy.model.limits import Limits
from webhook.policy.model.preemption import EvictionMode


@fault("6", "6", evicted=3)
def the_server_throttles(made: Cluster) -> None:
    """The server has too much to do once the first of three victims has gone."""
    made.cover("first", 1)
    made.put(victim("first", "n1", "2", app="first"))
    made.add(*(victim(name, "n1", "2") for name in "ab"), *(victim(name, "n2", "2", priority=20) for name in "cde"))
    later(2.0, made.put, preemptor(cpu="6"))
    throttle_after_the_first(made)


@fault("6", bound=False, is_slow=True)
def a_lower_pod_is_bound_before_it_is_displaced(made: Cluster) -> None:
    """It is bound where it is nominated when a plan is made, and no watch shows that yet."""
    made.slow_writes = True
    made.add(victim("a", "n1", "2"), victim("b", "n1", "2"))
    low = preemptor("low", "2", priority=50, managed=False)
    low["status"]["nominatedNodeName"] = "n1"
    made.put(low)
    made.scheduler.away_until = 5.0
    later(2.0, made.put, preemptor(cpu="6"))

    def bind() -> None:
        if not any(line["message"] == "decision" for line in made.told):
            later(0.001, bind)
            return
        made.hold_watch(3.0)
        made.put({**low, "spec": {**low["spec"], "nodeName": "n1"}, "status": {"phase": "Running"}})

    bind()


@fault("8", bound=False, seconds=60.0)
def a_list_is_applied_bit_by_bit(made: Cluster) -> None:
    """While no watch works pods are followed by another one, and the machine is busy when the list after that comes."""
    made.put(victim("v", "n1"))
    for name in ("old", *(f"small{number}" for number in range(40))):
        made.put(fixed(name, "n1", "4" if name == "old" else "0"))
        later(5.1, made.remove, name, f"uid-{name}")
    made.put(preemptor(cpu="8"))
    later(5.0, made.hold_watch, 4.0, 0.05)
    later(5.1, made.put, fixed("new", "n1", "4"))


@fault("4", "4", evicted=2)
def a_disruption_that_is_never_spent(made: Cluster) -> None:
    """A victim that is not ready spends nothing of its budget, and a finalizer keeps it."""
    made.cover("db", 1, currentHealthy=2, desiredHealthy=1, expectedPods=3)
    for name, on, ready, priority in (("broken", "n1", "False", 10), ("good", "n2", "True", 20)):
        pod = victim(name, on, priority=priority, app="db")
        pod["status"]["conditions"] = [{"type": "Ready", "status": ready}]
        made.put(pod)
    made.ends_after["broken"] = 10_000.0
    made.put(preemptor("q"))
    later(5.0, made.put, preemptor())


@fault("6", "6", evicted=4)
def victims_that_nobody_asks(made: Cluster) -> None:
    """A preemptor counts on victims that a lower one's plan has yet to ask, and takes its nomination."""
    made.put(victim("vm", "n1", "2", priority=30))
    made.migrating["vm"] = 20.0
    made.add(victim("a", "n1", "2", priority=20), victim("b", "n1", "2"), victim("c", "n2", "6", priority=40))
    made.put(preemptor("low", "6"))
    later(3.0, made.put, preemptor(cpu="6", priority=200))


@fault("4", "4", evicted=2, seconds=300.0, plan_timeout=60.0)
def a_long_grace_period_that_ends_early(made: Cluster) -> None:
    """A victim with an hour of grace ends after a second, and kube-scheduler does not take its node."""
    made.add(victim("v1", "n1", grace=3600), victim("v2", "n2", priority=20))
    made.ends_after["v1"] = 1.0
    made.shunned.add("n1")
    made.put(preemptor())


@fault("4", bound=False, is_slow=True)
def a_victim_that_was_opted_out_a_moment_ago(made: Cluster) -> None:
    """Somebody says that it may not go, just before a watch could show that to whoever asks for it."""
    made.put(victim("a", "n1"))
    later(2.0, made.put, preemptor())
    later(2.15, lambda: made.put({**made.pods["a"], "metadata": {**made.pods["a"]["metadata"], "annotations": {}}}))


@fault("4", bound=False, is_slow=True, eviction=EvictionMode.DELETE)
def the_same_deleted(made: Cluster) -> None:
    """The same, by requests that ask no budget."""
    a_victim_that_was_opted_out_a_moment_ago(made)


@fault("6", evicted=2, bound=False, is_slow=True, eviction=EvictionMode.DELETE)
def a_mark_that_takes_long(made: Cluster) -> None:
    """While the mark on a victim is written, a pod of higher priority comes that needs the whole node."""
    made.slow_writes = True
    made.add(victim("a", "n1", "3"), victim("b", "n1", "3", priority=20))
    later(2.0, made.put, preemptor(cpu="3"))
    later(2.8, made.put, preemptor("higher", "6", priority=200))


@fault("4", evicted=1, seconds=30.0, is_slow=True)
def a_covered_victim_that_has_changed(made: Cluster) -> None:
    """The status of a victim under a budget changes just before a watch could show it to whoever asks for it."""
    made.cover("db", 1)
    made.put(victim("a", "n1", app="db"))
    later(2.0, made.put, preemptor())
    later(2.15, changed, made, "a")


@fault("4", evicted=1, seconds=30.0)
def a_victim_that_changes_all_the_time(made: Cluster) -> None:
    """A victim's status changes faster than anybody can read it."""
    made.put(victim("a", "n1"))
    later(2.0, made.put, preemptor())

    def change() -> None:
        if "a" in made.pods and "deletionTimestamp" not in made.pods["a"]["metadata"]:
            changed(made, "a")
            later(0.001, change)

    later(1.9, change)


@fault("6", "6", evicted=3)
def an_eviction_that_was_done_and_answered_with_500(made: Cluster) -> None:
    """So are the next two."""
    made.add(*(victim(name, "n1", "2", grace=10) for name in "abc"), victim("d", "n2", "6", priority=20))
    made.answers_lost = 3
    later(2.0, made.put, preemptor(cpu="6"))


@fault(
    *("4",) * 20,
    evicted=6,
    bound=False,
    seconds=1800.0,
    wait_for_terminating=0.0,
    plan_timeout=20.0,
    limits=Limits(attempts_per_preemptor=3),
)
def two_components_that_nominate(made: Cluster) -> None:
    """Another component nominates the preemptor elsewhere whenever it is nominated, and no victim ends soon."""
    for number in range(1, 20):
        made.put(victim(f"v{number}", f"n{number}", grace=3600))
        made.ends_after[f"v{number}"] = 3600.0
    made.put(fixed("fixed", "n20", "4"))
    later(2.0, made.put, preemptor())

    def nominate() -> None:
        if made.pods.get("p", {"status": {}})["status"].get("nominatedNodeName", "n20") != "n20":
            made.outcomes.outside("somebody else nominated it", "uid-p")
            changed(made, "p", nominatedNodeName="n20")
        later(0.5, nominate)

    nominate()
