"""Futures of small clusters: who is evicted when and why, who takes the place, and that it is always the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from tests.preemption.building import NOW
from tests.simulation.clusters import (
    POLICY,
    added,
    cluster_of,
    evicted,
    full,
    large,
    loaded,
    node,
    placed,
    pod,
    policy_text,
    replica_set,
    run,
    waits,
    write,
)
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION
from webhook.simulation.report.summary import summarize
from webhook.simulation.simulation import Running, simulate
from webhook.simulation.whatif import Scale


def test_a_preemptor_takes_the_place_of_victims_who_end_after_their_grace():
    """Two pods leave at once, their node is taken 30 s later, and their replacements wait for room."""
    result = run(full(pods=[pod("p", "2", "high")]))
    assert evicted(result) == [(0.0, "web-a0", "giveway"), (0.0, "web-a1", "giveway")]
    assert placed(result) == {"p": 30.0}
    assert waits(result) == {"web-s0001", "web-s0002"}
    assert all("Insufficient cpu" in reason for reason in result.reasons.values())
    assert (result.seconds, result.at_rest) == (30.0, True)
    row = summarize("x", result).evictions[0]
    assert (row.preemptor, row.policy, row.rule, row.ran) == ("default/p", "high", "high/opt-in", 3600.0)


def test_replacements_go_where_room_is_and_budgets_recover():
    """A budget that lets one go at a time lets the second one go once the first was replaced and is ready."""
    spec = {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1}
    status = {"disruptionsAllowed": 1, "currentHealthy": 4, "desiredHealthy": 3, "expectedPods": 4}
    budget = {"metadata": {"name": "b", "namespace": "default"}, "spec": spec, "status": status}
    objects = full(pods=[pod("p", "1", "high"), pod("q", "1", "high")], PodDisruptionBudget=[budget])
    stuck = run(objects)
    assert len(evicted(stuck)) == 1
    assert len(waits(stuck)) == 2
    helped = run(objects, None, "5m:add-nodes 1xa")
    assert [at for at, _, _ in evicted(helped)] == [0.0]
    assert not waits(helped)


def test_rates_spread_evictions_over_time():
    """One eviction a minute for each owner: the second preemptor is acted for when the window is over."""
    under = loaded(policy_text(limits={"perOwner": {"evictions": 1, "window": "60s"}}))
    preemptors = [pod(name, "1", "high") for name in ("p", "q")]
    result = run(full(pods=preemptors), under)
    assert [at for at, _, _ in evicted(result)] == [0.0, pytest.approx(60.0, abs=0.01)]
    limit = summarize("x", result).limits[0]
    assert (limit.owner, limit.evicted, limit.most, limit.allowed) == ("ReplicaSet/default/web", 2, 1, 1)


def test_a_policy_evicts_when_its_schedule_begins():
    """The preemptor waits with the reason until then, and gets its place."""
    begins = datetime.fromtimestamp(NOW, UTC) + timedelta(hours=5, minutes=59)
    cron = f"0 {begins.hour} * * *"
    under = loaded(policy_text(schedule={"cron": cron, "duration": "1h"}))
    objects = full(pods=[pod("p", "2", "high")])
    waiting = run(objects, under, until=3600.0)
    assert not evicted(waiting)
    assert (
        f"evicts only by its schedule ({cron} UTC for 1h): from {begins.hour:02}:00 UTC" in waiting.reasons["default/p"]
    )
    at = begins.replace(minute=0, second=0, microsecond=0).timestamp() - NOW
    result = run(objects, under, until=8 * 3600.0)
    assert [when for when, _, _ in evicted(result)] == [pytest.approx(at, abs=0.1)] * 2
    assert set(placed(result)) == {"p"}


def test_protection_windows_end():
    """Time jumps to the end of the window, however far that is."""
    young = {PROTECTION_DURATION: "5400"}
    pods = [pod(f"v{n}", "1", on="a", annotations=young, ran=3600) for n in range(2)]
    result = run(cluster_of([node("a", "2")], [*pods, pod("p", "1", "high")]))
    assert [at for at, _, _ in evicted(result)] == [pytest.approx(1800, abs=1.1)]
    assert waits(run(cluster_of([node("a", "2")], [*pods, pod("p", "1", "high")]), until=900.0)) == {"p"}


def test_pods_that_may_not_go_stay_and_the_reason_is_told():
    """Opt-in: who does not say that it may go is no victim, and the preemptor waits, which takes no time."""
    pods = [pod("v", "2", on="a", annotations={CAN_BE_PREEMPTED: "false"}), pod("p", "1", "high")]
    result = run(cluster_of([node("a", "2")], pods))
    assert not evicted(result)
    assert "no node where evicting pods that may be evicted makes room" in result.reasons["default/p"]
    assert result.at_rest
    assert result.seconds < 1


def test_kube_scheduler_preempts_for_pods_that_may():
    """A pod of PreemptLowerPriority that no policy manages is kube-scheduler's own to preempt for."""
    result = run(full(pods=[pod("p", "2", "plain")]))
    assert [by for _, _, by in evicted(result)] == ["kube-scheduler"] * 2
    assert {row.preemptor for row in summarize("x", result).evictions} == {"default/p"}
    assert placed(result)["p"] == 30.0


def test_pods_end_sooner_if_that_is_known():
    """`--termination` bounds how long a pod takes to end."""
    assert placed(run(full(pods=[pod("p", "2", "high")]), termination=3.0))["p"] == 3.0


def test_workload_controllers_replace_in_their_own_ways():
    """A StatefulSet's pod comes back under its name when the old one is gone, a bare pod not."""
    pods = [
        pod("db-0", "1", on="a", owner=("StatefulSet", "db")),
        pod("agent-x", "1", on="a", owner=("DaemonSet", "agent")),
        pod("bare", "1", on="a"),
    ]
    sets = [{**replica_set("db", 1), "metadata": {"name": "db", "namespace": "default", "uid": "uid-db"}}]
    objects = cluster_of(
        [node("a", "3"), node("b", "3")], [*pods, pod("p", "3", "high", spec={"nodeName": ""})], StatefulSet=sets
    )
    objects.objects["Node"]["b"].spec.unschedulable = True
    result = run(objects, None, "2m:add-nodes 1xa")
    made = [one for one in result.tracker.all("Pod").values() if one.metadata.uid.startswith("simulated-")]
    assert "db-0" in {one.metadata.name for one in made}
    assert not any(one.metadata.name.startswith("bare") for one in made)


def test_pods_of_an_operators_own_controller_come_back_under_their_names():
    """A controller of a kind that no cluster file has is taken to do as a StatefulSet's does, and nothing fails."""
    pods = [pod("v-0", "2", on="a", owner=("Rollout", "v")), pod("p", "2", "high")]
    objects = cluster_of([node("a", "2"), node("b", "2")], pods)
    objects.objects["Node"]["b"].spec.unschedulable = True
    result = run(objects, None, "2m:add-nodes 1xa")
    assert placed(result) == {"p": 30.0, "v-0": 120.0}


def test_a_part_that_fails_does_not_pass_for_one_that_found_nothing():
    """An exception in a callback of the loop, which nobody awaits, is one of the errors of the result."""

    class Faulty(Scale):
        def make(self, running: Running) -> None:
            running.later(1.0, {}.__getitem__, "absent")

    result = simulate(full(), loaded(POLICY), [Faulty(0.0, "default/web", 1)])
    assert len(result.errors) == 1
    assert "KeyError('absent')" in result.errors[0]


def test_a_budget_whose_amount_cannot_be_read_lets_nobody_go():
    """As the disruption controller's `failSafe`; the other budgets are counted all the same."""
    budgets = [
        {
            "metadata": {"name": name, "namespace": "default", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": amount},
            "status": {"disruptionsAllowed": 1, "observedGeneration": 1},
        }
        for name, app, amount in (("broken", "bare", "x%"), ("web", "web", 1))
    ]
    pods = [pod("bare", "1", on="b"), pod("p", "2", "high")]
    objects = cluster_of([node("b", "1")], pods, PodDisruptionBudget=budgets)
    objects = added(objects, "Node", node("a", "2"))
    objects = added(objects, "Pod", pod("web-1", "1", on="a", owner=("ReplicaSet", "web")))
    objects = added(objects, "ReplicaSet", replica_set("web", 1))
    result = run(objects, None, "1m:scale default/web=2")
    status = {key: one.status for key, one in result.tracker.all("PodDisruptionBudget").items()}
    assert status["default/broken"].disruptions_allowed == 0
    assert status["default/web"].expected_pods == 2


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
