"""New pods ask for what the API server completes; `tests/e2e/test_new_pods.py` compares them field by field."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clusters.both_drivers import Json, Scenario, simulation_does
from tests.workloads import deployment


def containing(*containers: Json, **spec: Any) -> Json:
    """A ReplicaSet of three pods with these containers; a node has room for 8 CPUs."""
    made = deployment("set", 3, kind="ReplicaSet")
    made["spec"]["template"]["spec"] = {
        "containers": [{"name": "c", "image": "c", **row} for row in containers],
        **spec,
    }
    return made


LIMITED = {"resources": {"limits": {"cpu": "5"}}}
LIMIT_RANGE_OF_5 = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "five"},
    "spec": {"limits": [{"type": "Container", "default": {"cpu": "5"}}]},
}
KATA = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "5"}},
    "scheduling": {"nodeSelector": {"kubernetes.io/hostname": "node-1"}},
}


SCENARIOS = {
    "limits are requests": Scenario([("apply", containing(LIMITED), [{"set ready": 2, "set pending": 1}])]),
    "limits of an init container are requests": Scenario(
        [
            (
                "apply",
                containing({}, initContainers=[{"name": "i", "image": "i", **LIMITED}]),
                [{"set ready": 2, "set pending": 1}],
            )
        ]
    ),
    "limits of a pod are requests": Scenario(
        [("apply", containing({}, **LIMITED), [{"set ready": 2, "set pending": 1}])]
    ),
    "a LimitRange gives what is not named": Scenario(
        [("apply", LIMIT_RANGE_OF_5, [{}]), ("apply", containing({}), [{"set ready": 2, "set pending": 1}])]
    ),
    "a RuntimeClass gives overhead and a node": Scenario(
        [
            ("apply", KATA, [{}]),
            ("apply", containing({}, runtimeClassName="kata"), [{"set ready": 1, "set pending": 2}]),
        ]
    ),
    "ports are those of the host on its network": Scenario(
        [
            (
                "apply",
                containing({"ports": [{"containerPort": 80}]}, hostNetwork=True),
                [{"set ready": 2, "set pending": 1}],
            )
        ]
    ),
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_the_simulation_does_it(scenario):
    """Each action is followed by the same views, in virtual time."""
    simulation_does(scenario)
