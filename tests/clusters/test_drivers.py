"""One model, two drivers: the embedded control plane over HTTP and the simulation in virtual time do the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clusters.both_drivers import BIG, DURING, Json, Scenario, View, embedded_does, job, simulation_does
from tests.workloads import budget, deployment, pod
from webhook.clusters.embedded.embedded_cluster import node


def web(version: str, *, replicas: int = 4, cpu: str = "100m", **spec: Any) -> Json:
    body = deployment("web", replicas, cpu=cpu, **spec)
    body["spec"]["template"]["metadata"] = {"labels": {"app": "web", "v": version}}
    return body


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
        [
            ("apply", web("1", **strategy), [{"web-1 ready": 4}]),
            ("apply", web("2", cpu=BIG, **strategy), [expected]),
            ("apply", web("3", **strategy), [{"web-3 ready": 4}]),
        ]
    )


DB = deployment("db", 3, kind="StatefulSet", serviceName="db")
SCENARIOS = {
    "a rollout by default goes a quarter over and under": stuck({"web-1 ready": 3, "web-2 pending": 2}),
    "a rollout with surge alone keeps all that run": stuck({"web-1 ready": 4, "web-2 pending": 2}, **rolling("50%", 0)),
    "a rollout without surge takes the room of its own pods": stuck(
        {"web-1 ready": 2, "web-2 pending": 2}, **rolling(0, 2)
    ),
    "without either one pod is missing at a time": stuck({"web-1 ready": 3, "web-2 pending": 1}, **rolling(0, "0%")),
    "Recreate waits until all are gone": stuck({"web-2 pending": 4}, strategy={"type": "Recreate"}),
    "a granted eviction counts for two minutes": Scenario(
        [
            ("apply", DB, [{"db ready": 3}]),
            ("apply", budget("db", {"app": "db"}, minAvailable="50%"), [{"db ready": 3, "budget db": (1, 3, 2, 0)}]),
            (
                "grant",
                "db",
                [{"db ready": 3, "budget db": (0, 2, 2, 1)}, {"db ready": 3, "budget db": (1, 3, 2, 0)}],
            ),
        ],
        {2: (60.0, 900.0)},
    ),
    "a budget refuses a second eviction while the first is under way": Scenario(
        [
            ("apply", DB, [{"db ready": 3}]),
            ("apply", budget("db", {"app": "db"}, maxUnavailable=1), [{"db ready": 3, "budget db": (1, 3, 2, 0)}]),
            (
                "evict_two",
                "db",
                [
                    {"db ready": 2, "db leaving": 1, "budget db": (0, 2, 2, 0)},
                    {"db ready": 3, "budget db": (1, 3, 2, 0)},
                ],
            ),
        ],
        {2: DURING},
    ),
    **{
        f"a budget over {what} counts only a number of minAvailable": Scenario(
            [
                ("apply", body, [{f"{app} ready": ready}]),
                (
                    "apply",
                    budget(app, {"app": app}, maxUnavailable=1),
                    [{f"{app} ready": ready, f"budget {app}": none}],
                ),
                ("evict", app, [{f"{app} ready": ready, f"budget {app}": none}]),
                (
                    "apply",
                    budget(app, {"app": app}, minAvailable=0, maxUnavailable=None),
                    [{f"{app} ready": ready, f"budget {app}": (ready, ready, 0, 0)}],
                ),
            ],
        )
        for what, app, body, ready, none in (
            ("a Job", "once", job("once"), 1, (0, 0, 0, 0)),
            ("a DaemonSet", "agent", deployment("agent", 0, kind="DaemonSet"), 2, (0, 0, 0, 0)),
            ("a pod of an operator", "shard", owned("shard", "example.com/v1", "Shard"), 1, (0, 0, 0, 0)),
            ("a pod without a controller", "bare", pod("bare"), 1, (0, 1, 0, 0)),
        )
    },
    "a Job replaces what fails, and fails itself beyond its limit": Scenario(
        [
            ("apply", job("once", backoffLimit=1), [{"once ready": 1}]),
            ("fail", "once", [{"once ready": 1, "once failed": 1}]),
            ("fail", "once", [{"once failed": 2, "job once": "Failed"}]),
        ]
    ),
    "an eviction counts as a failure of its Job": Scenario(
        [
            ("apply", job("once", backoffLimit=0), [{"once ready": 1}]),
            ("evict", "once", [{"once leaving": 1, "job once": "Failed"}, {"job once": "Failed"}]),
        ],
        {1: DURING},
    ),
    "a Job is complete once enough pods have ended": Scenario(
        [("apply", job("many", run="5", completions=3, parallelism=2), [{"many succeeded": 3, "job many": "Complete"}])]
    ),
    "a DaemonSet has a pod on each node that takes it": Scenario(
        [
            ("apply", deployment("agent", 0, kind="DaemonSet"), [{"agent ready": 2}]),
            ("apply", tainted("node-3"), [{"agent ready": 2}]),
            ("apply", node("node-4"), [{"agent ready": 3}]),
            ("evict", "agent", [{"agent ready": 2, "agent leaving": 1}, {"agent ready": 3}]),
        ],
        {3: DURING},
    ),
    "a ReplicaSet replaces an evicted pod at once": Scenario(
        [
            ("apply", deployment("set", 2, kind="ReplicaSet"), [{"set ready": 2}]),
            ("evict", "set", [{"set ready": 2, "set leaving": 1}, {"set ready": 2}]),
            ("apply", deployment("set", 1, kind="ReplicaSet"), [{"set ready": 1}]),
        ],
        {1: DURING},
    ),
    "a StatefulSet waits until the evicted pod's name is free": Scenario(
        [
            ("apply", DB, [{"db ready": 3}]),
            ("evict", "db", [{"db ready": 2, "db leaving": 1}, {"db ready": 3}]),
            ("apply", deployment("db", 1, kind="StatefulSet", serviceName="db"), [{"db ready": 1}]),
        ],
        {1: DURING},
    ),
    "a StatefulSet makes the next pod when the one before is ready": Scenario(
        [("apply", deployment("db", 3, cpu=BIG, kind="StatefulSet", serviceName="db"), [{"db pending": 1}])]
    ),
    "a parallel StatefulSet makes all at once": Scenario(
        [
            (
                "apply",
                deployment("db", 3, cpu=BIG, kind="StatefulSet", serviceName="db", podManagementPolicy="Parallel"),
                [{"db pending": 3}],
            )
        ]
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
    simulation_does(scenario)
