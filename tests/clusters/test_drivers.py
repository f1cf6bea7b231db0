"""One model, two drivers: the embedded control plane over HTTP and the simulation in virtual time do the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clusters.both_drivers import BIG, DURING, Json, Scenario, View, embedded_does, in_simulation, job
from tests.workloads import budget, deployment, pod
from webhook.clusters.embedded.embedded_cluster import node


def versioned(body: Json, version: str, *, cpu: str = "100m") -> Json:
    """The workload with a template of this version, which its pods carry as a label."""
    body["spec"]["template"]["metadata"]["labels"] = {**body["spec"]["template"]["metadata"]["labels"], "v": version}
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return body


def web(version: str, *, replicas: int = 4, cpu: str = "100m", **spec: Any) -> Json:
    """A Deployment with a template of that version."""
    return versioned(deployment("web", replicas, **spec), version, cpu=cpu)


def rolling(surge: int | str, unavailable: int | str) -> Json:
    rolling_update = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling_update}}


def tainted(name: str) -> Json:
    made = node(name)
    made["spec"] = {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}
    return made


def owned(name: str, api_version: str, kind: str) -> Json:
    """A pod with a controller that nobody here plays."""
    body = pod(name)
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": True}
    body["metadata"]["ownerReferences"] = [owner]
    return body


def stuck(expected: View, **strategy: Any) -> Scenario:
    return Scenario(
        ("apply", web("1", **strategy), {"web-1 ready": 4}),
        ("apply", web("2", cpu=BIG, **strategy), expected),
        ("apply", web("3", **strategy), {"web-3 ready": 4}),
    )


def stateful(replicas: int = 3, **spec: Any) -> Json:
    return deployment("db", replicas, kind="StatefulSet", serviceName="db", **spec)


ONE_MAY_GO: View = {"db ready": 3, "budget db": (1, 3, 2, 0)}
SCENARIOS = {
    "a rollout by default goes a quarter over and under": stuck({"web-1 ready": 3, "web-2 pending": 2}),
    "a rollout with surge alone keeps all that run": stuck({"web-1 ready": 4, "web-2 pending": 2}, **rolling("50%", 0)),
    "a rollout without surge takes the room of its own pods": stuck(
        {"web-1 ready": 2, "web-2 pending": 2}, **rolling(0, 2)
    ),
    "without either one pod is missing at a time": stuck({"web-1 ready": 3, "web-2 pending": 1}, **rolling(0, "0%")),
    "Recreate waits until all are gone": stuck({"web-2 pending": 4}, strategy={"type": "Recreate"}),
    "a granted eviction counts for two minutes": Scenario(
        ("apply", stateful(), {"db ready": 3}),
        ("apply", budget("db", {"app": "db"}, minAvailable="50%"), ONE_MAY_GO),
        ("grant", "db", {"db ready": 3, "budget db": (0, 2, 2, 1)}, ONE_MAY_GO),
        times={2: (60.0, 900.0)},
    ),
    "a budget refuses a second eviction while the first is under way": Scenario(
        ("apply", stateful(), {"db ready": 3}),
        ("apply", budget("db", {"app": "db"}, maxUnavailable=1), ONE_MAY_GO),
        ("evict_two", "db", {"db ready": 2, "db leaving": 1, "budget db": (0, 2, 2, 0)}, ONE_MAY_GO),
        times={2: DURING},
    ),
    **{
        f"a budget over {what} counts only a number of minAvailable": Scenario(
            ("apply", body, {f"{app} ready": ready}),
            ("apply", budget(app, {"app": app}, maxUnavailable=1), {f"{app} ready": ready, f"budget {app}": none}),
            ("evict", app, {f"{app} ready": ready, f"budget {app}": none}),
            (
                "apply",
                budget(app, {"app": app}, minAvailable=0, maxUnavailable=None),
                {f"{app} ready": ready, f"budget {app}": (ready, ready, 0, 0)},
            ),
        )
        for what, app, body, ready, none in (
            ("a Job", "once", job("once"), 1, (0, 0, 0, 0)),
            ("a DaemonSet", "agent", deployment("agent", 0, kind="DaemonSet"), 2, (0, 0, 0, 0)),
            ("a pod of an operator", "shard", owned("shard", "example.com/v1", "Shard"), 1, (0, 0, 0, 0)),
            ("a pod without a controller", "bare", pod("bare"), 1, (0, 1, 0, 0)),
        )
    },
    "a Job replaces what fails, and fails itself beyond its limit": Scenario(
        ("apply", job("once", backoffLimit=1), {"once ready": 1}),
        ("fail", "once", {"once ready": 1, "once failed": 1}),
        ("fail", "once", {"once failed": 2, "job once": "Failed"}),
    ),
    "a Job is complete once enough pods have ended": Scenario(
        ("apply", job("many", run="5", completions=3, parallelism=2), {"many succeeded": 3, "job many": "Complete"})
    ),
    "a DaemonSet has a pod on each node that takes it": Scenario(
        ("apply", deployment("agent", 0, kind="DaemonSet"), {"agent ready": 2}),
        ("apply", tainted("node-3"), {"agent ready": 2}),
        ("apply", node("node-4"), {"agent ready": 3}),
        ("evict", "agent", {"agent ready": 2, "agent leaving": 1}, {"agent ready": 3}),
        times={3: DURING},
    ),
    "a ReplicaSet replaces an evicted pod at once": Scenario(
        ("apply", deployment("set", 2, kind="ReplicaSet"), {"set ready": 2}),
        ("evict", "set", {"set ready": 2, "set leaving": 1}, {"set ready": 2}),
        ("apply", deployment("set", 1, kind="ReplicaSet"), {"set ready": 1}),
        times={1: DURING},
    ),
    "a StatefulSet waits until the evicted pod's name is free": Scenario(
        ("apply", stateful(), {"db ready": 3}),
        ("evict", "db", {"db ready": 2, "db leaving": 1}, {"db ready": 3}),
        ("apply", stateful(1), {"db ready": 1}),
        times={1: DURING},
    ),
    "a StatefulSet makes the next pod when the one before is ready": Scenario(
        ("apply", stateful(cpu=BIG), {"db pending": 1})
    ),
    "a parallel StatefulSet makes all at once": Scenario(
        ("apply", stateful(cpu=BIG, podManagementPolicy="Parallel"), {"db pending": 3})
    ),
}


IGNORED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def database(version: str, *, cpu: str = "100m", partition: int = 0, **spec: Any) -> Json:
    """A StatefulSet of three pods that rolls down to this partition."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}
    return versioned(stateful(updateStrategy=strategy, **spec), version, cpu=cpu)


def agent(version: str, *, cpu: str = "100m", **rolling: Any) -> Json:
    """A DaemonSet that rolls like this."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    return versioned(deployment("agent", 0, kind="DaemonSet", updateStrategy=strategy), version, cpu=cpu)


def pausing(version: str, replicas: int, *, paused: bool, cpu: str = "100m") -> Json:
    """A Deployment that makes one pod more while it rolls."""
    return web(version, replicas=replicas, cpu=cpu, paused=paused, **rolling(1, 0))


def evicted(expected: View, after: View, **spec: Any) -> Scenario:
    """A Job of one pod that is evicted: what there is while it is leaving, and then."""
    made = job("once", backoffLimit=0, **spec)
    return Scenario(("apply", made, {"once ready": 1}), ("evict", "once", expected, after), times={1: DURING})


INDEXED = {"completionMode": "Indexed", "completions": 3, "parallelism": 2}
SCENARIOS |= {
    "an eviction counts as a failure of its Job": evicted(
        {"once leaving": 1, "job once": "Failed"}, {"job once": "Failed"}
    ),
    "an eviction that a pod failure policy ignores is no failure": evicted(
        {"once leaving": 1}, {"once ready": 1}, podFailurePolicy={"rules": [IGNORED]}
    ),
    "a pod failure policy ends the Job": evicted(
        {"once leaving": 1},
        {"job once": "Failed"},
        podFailurePolicy={"rules": [{**IGNORED, "action": "FailJob"}]},
    ),
    "a rule that does not match leaves the failure counted": evicted(
        {"once leaving": 1},
        {"job once": "Failed"},
        podFailurePolicy={"rules": [{"action": "Ignore", "onPodConditions": [{"type": "Other", "status": "True"}]}]},
    ),
    "a pod is replaced once it has ended": Scenario(
        ("apply", job("once", podReplacementPolicy="Failed"), {"once ready": 1}),
        ("evict", "once", {"once leaving": 1}, {"once ready": 1}),
        times={1: DURING},
    ),
    "or as soon as it is leaving": Scenario(
        ("apply", job("once", podReplacementPolicy="TerminatingOrFailed"), {"once ready": 1}),
        ("evict", "once", {"once leaving": 1, "once ready": 1}, {"once ready": 1}),
        times={1: DURING},
    ),
    "each index is done once": Scenario(
        ("apply", job("many", **INDEXED), {"many ready": 2, "names many": "many-0 many-1"}),
        ("evict", "many", {"many ready": 2, "names many": "many-0 many-1"}),
        ("succeed", "many", {"many ready": 1, "many succeeded": 2, "names many": "many-0 many-1 many-2"}),
        ("succeed", "many", {"many succeeded": 3, "names many": "many-0 many-1 many-2", "job many": "Complete"}),
    ),
    "a pod that leaves keeps its grace period, though it would have ended by itself": Scenario(
        ("apply", job("once", run="1003", backoffLimit=0), {"once ready": 1}),
        ("evict", "once", {"once leaving": 1, "job once": "Failed"}, {"job once": "Failed"}),
        times={0: (900.0,), 1: (5.0, 900.0)},
    ),
    "a suspended Job has no pods": Scenario(
        ("apply", job("once", suspend=True), {}),
        ("apply", job("once", suspend=False), {"once ready": 1}),
        ("apply", job("once", suspend=True), {}),
    ),
    "ordinals begin where they are to": Scenario(
        ("apply", database("1", ordinals={"start": 5}), {"db-1 ready": 3, "names db": "db-5 db-6 db-7"}),
        ("evict", "db", {"db-1 ready": 3, "names db": "db-5 db-6 db-7"}),
        ("apply", database("1", ordinals={"start": 6}), {"db-1 ready": 3, "names db": "db-6 db-7 db-8"}),
    ),
    "a rollout stops at its partition": Scenario(
        ("apply", database("1"), {"db-1 ready": 3, "names db": "db-0 db-1 db-2"}),
        ("apply", database("2", partition=2), {"db-1 ready": 2, "db-2 ready": 1, "names db": "db-0 db-1 db-2"}),
        ("evict", "db", {"db-1 ready": 2, "db-2 ready": 1, "names db": "db-0 db-1 db-2"}),
        ("apply", database("2"), {"db-2 ready": 3, "names db": "db-0 db-1 db-2"}),
    ),
    "a parallel rollout takes one pod at a time": Scenario(
        ("apply", database("1", podManagementPolicy="Parallel"), {"db-1 ready": 3, "names db": "db-0 db-1 db-2"}),
        (
            "apply",
            database("2", cpu=BIG, podManagementPolicy="Parallel"),
            {"db-1 ready": 2, "db-2 pending": 1, "names db": "db-0 db-1 db-2"},
        ),
    ),
    "a DaemonSet replaces as many at a time as may be missing": Scenario(
        ("apply", node("node-3"), {}),
        ("apply", agent("1", maxUnavailable=2), {"agent-1 ready": 3}),
        ("apply", agent("2", cpu=BIG, maxUnavailable=2), {"agent-1 ready": 1, "agent-2 pending": 2}),
    ),
    "a paused Deployment goes on with the pods that it has": Scenario(
        ("apply", pausing("1", 3, paused=False), {"web-1 ready": 3}),
        ("apply", pausing("2", 3, paused=False, cpu=BIG), {"web-1 ready": 3, "web-2 pending": 1}),
        ("apply", pausing("3", 3, paused=True), {"web-1 ready": 3, "web-2 pending": 1}),
        ("evict", "web", {"web-1 ready": 3, "web-2 pending": 1}),
        ("apply", pausing("3", 7, paused=True), {"web-1 ready": 6, "web-2 pending": 2}),
        ("apply", pausing("3", 3, paused=False), {"web-3 ready": 3}),
    ),
    "a Deployment that begins paused has no pods": Scenario(
        ("apply", pausing("1", 2, paused=True), {}),
        ("apply", pausing("1", 2, paused=False), {"web-1 ready": 2}),
        ("apply", pausing("2", 4, paused=True), {"web-1 ready": 4}),
    ),
}


@pytest.mark.skipped_waits
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
async def test_the_embedded_cluster_does_it(scenario):
    """Each action is followed by its views, one after the other, over HTTP."""
    await embedded_does(scenario)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_the_simulation_does_it(scenario):
    """Each action is followed by the same views, in virtual time."""
    assert in_simulation(scenario) == [one for _, _, views in scenario.steps for one in views]
