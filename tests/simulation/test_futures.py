"""Futures of small clusters, a row each: who is evicted when, who takes the place, and who waits in the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from tests.preemption.building import NOW
from tests.simulation.clusters import (
    OWNER,
    POLICY,
    cluster_of,
    full,
    large,
    loaded,
    node,
    pod,
    policy_text,
    replica_set,
    write,
)
from tests.simulation.futures import Future, P, budget, counted, outcome, ring
from webhook.clusters.acting.kubelet import READY_SECONDS
from webhook.clusters.simulated.objects import ClusterObjects
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION
from webhook.simulation.simulation import Running, simulate
from webhook.simulation.whatif import Scale

ONE_BY_ONE = budget("web", 1, counted(4), app="web")
BEGINS = (datetime.fromtimestamp(NOW, UTC) + timedelta(hours=5, minutes=59)).replace(minute=0, second=0, microsecond=0)
BY_DAY = {"schedule": {"cron": f"0 {BEGINS.hour} * * *", "duration": "1h"}}
YOUNG = [pod(f"v{n}", "1", on="a", annotations={PROTECTION_DURATION: "5400"}, ran=3600) for n in range(2)]
PROTECTED = cluster_of([node("a", "2")], [*YOUNG, pod("p", "1", "high")])
EVICTIONS = {
    "a preemptor takes the place of victims who end after their grace": Future(
        full(pods=[P]),
        {
            "evicted": {"web-a0": 0, "web-a1": 0},
            "by": {"giveway"},
            "placed": {"p": 30},
            "waits": {"web-s0001", "web-s0002"},
            "why": "Insufficient cpu",
            "at_rest": True,
            "seconds": 30,
        },
    ),
    "pods end sooner if that is known": Future(full(pods=[P]), {"placed": {"p": 3}}, options={"termination": 3.0}),
    "kube-scheduler preempts for pods that may": Future(
        full(pods=[pod("p", "2", "plain")]), {"by": {"kube-scheduler"}, "placed": {"p": 30}}
    ),
    "a budget lets one go at a time": Future(
        full(pods=[pod("p", "1", "high"), pod("q", "1", "high")], PodDisruptionBudget=[ONE_BY_ONE]),
        {"evicted": {"web-a1": 0}, "waits": {"p", "web-s0001"}},
    ),
    "and nobody more once there is room": Future(
        full(pods=[pod("p", "1", "high"), pod("q", "1", "high")], PodDisruptionBudget=[ONE_BY_ONE]),
        {"evicted": {"web-a1": 0}, "waits": set()},
        ("5m:add-nodes 1xa",),
    ),
    "a rate spreads evictions over time": Future(
        full(pods=[pod("p", "1", "high"), pod("q", "1", "high")]),
        {"evicted": {"web-a1": 0, "web-a0": 60}},
        policy={"limits": {"perOwner": {"evictions": 1, "window": "60s"}}},
    ),
    "a policy does not evict outside its schedule": Future(
        full(pods=[P]),
        {
            "evicted": {},
            "why": f"evicts only by its schedule (0 {BEGINS.hour} * * * UTC for 1h): from {BEGINS:%H}:00 UTC",
        },
        policy=BY_DAY,
        options={"until": 3600.0},
    ),
    "time jumps to the end of a protection": Future(PROTECTED, {"evicted": {"v1": 1800}}),
    "but not beyond the end": Future(PROTECTED, {"evicted": {}, "waits": {"p"}}, options={"until": 900.0}),
    "of a gang nobody is placed without room for all": Future(ring(3, 3), {"evicted": {}, "placed": {}}),
    "who does not say that it may go stays, which takes no time": Future(
        cluster_of([node("a", "2")], [pod("v", "2", on="a", annotations={CAN_BE_PREEMPTED: "false"}), P]),
        {
            "evicted": {},
            "why": "no node where evicting pods that may be evicted makes room",
            "at_rest": True,
            "seconds": 0,
        },
    ),
}


def told(ready: str = "") -> ClusterObjects:
    """A full node and a preemptor; its victim may answer a notice."""
    may_go = {CAN_BE_PREEMPTED: "true", **({READY_SECONDS: ready} if ready else {})}
    return cluster_of([node("a", "2")], [pod("v", "2", on="a", ran=60, annotations=may_go), P])


NOTICED = {"victims": {"mode": "opt-in", "notice": "2m"}}
NOTICES = {
    "nobody answers a notice": Future(told(), {"evicted": {"v": 120}, "placed": {"p": 150}}, policy=NOTICED),
    "a victim that was told runs on, ready as before": Future(
        told(), {"noticed": {"v"}, "ready": {"v"}}, policy=NOTICED, options={"until": 60.0}
    ),
    "a victim is ready to leave after half a minute": Future(
        told("30"), {"evicted": {"v": 30}, "placed": {"p": 60}}, policy=NOTICED
    ),
    "a node that comes takes the notice off": Future(
        told(), {"evicted": {}, "placed": {"p": 30}, "noticed": set()}, ("30s:add-nodes 1xm",), NOTICED
    ),
}


LOST = {"web-a0": 60, "web-a1": 60}
STEPS = {
    "pods of a lost node wait for nodes that are added": Future(
        full(),
        {"evicted": LOST, "by": {"node lost"}, "placed": {"web-s0001": 600, "web-s0002": 600}, "on": {"added-b-1"}},
        ("1m:without-node a", "10m:add-nodes 1xb"),
    ),
    "giveway counts on no lost node": Future(
        full(pods=[P]),
        {"evicted": dict.fromkeys(("web-a0", "web-a1", "web-b0", "web-b1"), 0), "placed": {"p": 30}},
        ("0s:without-node a",),
    ),
    "a drain keeps budgets and goes on when they recover": Future(
        cluster_of(
            [*(node(name, "2", f"zone-{name}") for name in "ab"), node("spare", "4")],
            [pod(f"web-{on}{n}", "1", on=on, owner=OWNER) for on in "ab" for n in range(2)],
            ReplicaSet=[replica_set("web", 4)],
            PodDisruptionBudget=[ONE_BY_ONE],
        ),
        {"evicted": {"web-a0": 0, "web-a1": 5}, "by": {"drain"}, "on": {"spare"}},
        ("0s:drain zone-a",),
    ),
    "a drain that no budget will ever let go on keeps nobody waiting": Future(
        full(PodDisruptionBudget=[ONE_BY_ONE]), {"evicted": {"web-a0": 0}, "at_rest": True}, ("0s:drain zone-a",)
    ),
    "more pods come and wait if there is no room": Future(
        full(), {"evicted": {}, "waits": {"web-s0001", "web-s0002"}}, ("0s:scale default/web=6",)
    ),
    "if fewer are wanted the surplus is deleted, which is no eviction": Future(
        full(), {"evicted": {}, "pods": {"web-b1"}}, ("0s:scale default/web=1",)
    ),
    "none may be wanted": Future(full(), {"evicted": {}, "pods": set()}, ("0s:scale default/web=0",)),
}


@pytest.mark.parametrize("future", (futures := EVICTIONS | NOTICES | STEPS).values(), ids=futures.keys())
def test_the_future(future):
    """A cluster under the row's policy and steps ends as the row says."""
    assert outcome(future) == future.ends


def test_a_part_that_fails_does_not_pass_for_one_that_found_nothing():
    """An exception in a callback of the loop, which nobody awaits, is one of the errors of the result."""

    class Faulty(Scale):
        def make(self, running: Running) -> None:
            running.later(1.0, {}.__getitem__, "absent")

    result = simulate(full(), loaded(POLICY), [Faulty(0.0, "default/web", 1)])
    assert len(result.errors) == 1
    assert "KeyError('absent')" in result.errors[0]


def test_the_same_input_gives_the_same_answer(tmp_path):
    """Byte for byte, in other processes, whatever order their sets have."""
    file = tmp_path / "c.gz"
    write(file, large(12, 120, 20))
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "p.yaml").write_text(policy_text(limits={"perOwner": {"evictions": 2, "window": "60s"}}))
    command = [sys.executable, "-m", "webhook.cli", "simulate", str(file), "--policies", str(policies)]
    command += ["--drain", "z1", "--format", "json"]
    answers = {
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2", "3")
    }
    assert len(answers) == 1
    assert json.loads(next(iter(answers)))["runs"][0]["metrics"]["evictions"] > 10
