"""Futures of small clusters: who is evicted when and why, what if, when it ends, and that it is always the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.simulation.clusters import (
    POLICY,
    added,
    cluster_of,
    large,
    loaded,
    node,
    pod,
    policy_text,
    replica_set,
    write,
)
from webhook.cli.main import main
from webhook.policy.model import CAN_BE_PREEMPTED, PROTECTION_DURATION, Policies
from webhook.simulation.report.compare import differences, shown
from webhook.simulation.report.html import page
from webhook.simulation.report.summary import METRICS, Summary, summarize
from webhook.simulation.simulation import Options, Result, simulate
from webhook.simulation.snapshot.objects import ClusterObjects
from webhook.simulation.whatif.scenario import read_scenario, step_of, timed
from webhook.simulation.whatif.steps import WhatIfError

OWNER = ("ReplicaSet", "web")


def full(count: int = 2, **more: Any) -> ClusterObjects:
    """Nodes a, b, ... of 2 CPUs, each full of two pods of ReplicaSet web, and a small spare node for replacements."""
    nodes = [node(name, "2", f"zone-{name}") for name in "abcdef"[:count]]
    pods = [pod(f"web-{on}{n}", "1", on=on, owner=OWNER) for on in "abcdef"[:count] for n in range(2)]
    return cluster_of(nodes, [*pods, *more.pop("pods", [])], ReplicaSet=[replica_set("web", len(pods))], **more)


def run(objects: ClusterObjects, policies: Policies | None = None, *steps: str, **options: Any) -> Result:
    found = simulate(objects, policies or loaded(POLICY), [timed(step) for step in steps], Options(**options))
    assert not found.errors, found.errors
    return found


def evicted(result: Result) -> list[tuple[float, str, str]]:
    return [(row.at, row.pod.partition("/")[2], row.by) for row in summarize("x", result).evictions]


def waits(result: Result) -> set[str]:
    return {key.partition("/")[2] for key in result.reasons}


def placed(result: Result) -> dict[str, float]:
    return {row.key.partition("/")[2]: row.placed for row in result.history.pods.values() if row.placed is not None}


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


def test_protection_windows_end():
    """Time jumps to the end of the window, however far that is."""
    young = {PROTECTION_DURATION: "5400"}
    pods = [pod(f"v{n}", "1", on="a", annotations=young, ran=3600) for n in range(2)]
    result = run(cluster_of([node("a", "2")], [*pods, pod("p", "1", "high")]))
    assert [at for at, _, _ in evicted(result)] == [pytest.approx(1800, abs=1.1)]
    assert waits(run(cluster_of([node("a", "2")], [*pods, pod("p", "1", "high")]), until=900.0)) == {"p"}


def test_pods_that_may_not_go_stay_and_the_reason_is_told():
    """Opt-in: who does not say that it may go is no victim, and the preemptor waits for ever, which takes no time."""
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


def test_a_lost_node_and_new_nodes():
    """Pods of a lost node are made again and wait; nodes that are added take them."""
    result = run(full(), None, "1m:without-node a", "10m:add-nodes 1xb")
    assert evicted(result) == [(60.0, "web-a0", "node lost"), (60.0, "web-a1", "node lost")]
    assert set(placed(result).values()) == {600.0}
    assert {row.node for row in result.history.pods.values() if row.placed is not None} == {"added-b-1"}


def test_a_drain_keeps_budgets_and_goes_on_when_they_recover():
    """A zone is cordoned and emptied one pod at a time, as its budget allows."""
    spec = {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1}
    status = {"disruptionsAllowed": 1, "currentHealthy": 4, "desiredHealthy": 3, "expectedPods": 4}
    budget = {"metadata": {"name": "b", "namespace": "default"}, "spec": spec, "status": status}
    objects = added(full(PodDisruptionBudget=[budget]), "Node", node("spare", "4"))
    result = run(objects, None, "0s:drain zone-a")
    assert [by for _, _, by in evicted(result)] == ["drain", "drain"]
    assert [at for at, _, _ in evicted(result)] == [0.0, 5.0]
    assert {row.node for row in result.history.pods.values() if row.made} == {"spare"}
    blocked = run(full(PodDisruptionBudget=[budget]), None, "0s:drain zone-a")
    assert len(evicted(blocked)) == 1
    assert blocked.at_rest, "a drain that no budget will ever let go on keeps nobody waiting"


@pytest.mark.parametrize(("replicas", "running"), [(6, 4), (1, 1), (0, 0)])
def test_a_workload_is_scaled(replicas, running):
    """More pods come and wait if there is no room; if fewer are wanted the surplus is deleted, which is no eviction."""
    result = run(full(), None, f"0s:scale default/web={replicas}")
    alive = [one for one in result.store.all("Pod").values() if one.spec.node_name]
    assert (len(alive), len(waits(result))) == (running, replicas - running)
    assert not evicted(result)


def manifest(tmp_path: Path, *bodies: Any) -> Path:
    file = tmp_path / "objects.yaml"
    file.write_text("\n---\n".join(json.dumps(one) for one in bodies))
    return file


def deployment(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    template = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], **spec}
    labels = {"app": name}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}}
    body["template"] = {"metadata": {"labels": labels}, "spec": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": body,
    }


def test_what_is_applied_goes_through_admission(tmp_path):
    """A new Deployment of a managed class is marked and preempts; one of a class that is not there is refused."""
    files = manifest(
        tmp_path,
        deployment("big", 1, priorityClassName="high"),
        deployment("odd", 1, priorityClassName="nobody"),
    )
    result = run(full(), None, f"1m:apply {files}")
    assert [(at, by) for at, _, by in evicted(result)] == [(60.0, "giveway")]
    assert "no PriorityClass with name nobody was found" in next(iter(result.history.refused.values()))


@pytest.mark.parametrize(
    ("kind", "spec", "names"),
    [
        ("StatefulSet", {"replicas": 2}, ["w-0", "w-1"]),
        ("DaemonSet", {}, ["w-s0001", "w-s0002"]),
        ("Job", {"parallelism": 3, "completions": 2}, ["w-s0001", "w-s0002"]),
        ("ReplicaSet", {}, ["w-s0001"]),
    ],
)
def test_every_kind_of_workload_can_be_applied(tmp_path, kind, spec, names):
    """As many pods as it wants, under the names that its controller gives; a DaemonSet's one on each node."""
    body = {**deployment("w", 1), "kind": kind}
    del body["spec"]["replicas"]
    body["spec"] |= spec
    result = run(cluster_of([node("a", "4"), node("b", "4")], []), None, f"0s:apply {manifest(tmp_path, body)}")
    pods = result.store.all("Pod")
    assert sorted(key.partition("/")[2] for key in pods) == names
    assert all(one.spec.node_name for one in pods.values())
    if kind == "DaemonSet":
        assert {one.spec.node_name for one in pods.values()} == {"a", "b"}


def test_a_changed_deployment_rolls_step_by_step(tmp_path):
    """New pods come while old ones go, never more than a quarter too many or missing; all are new in the end."""
    objects = cluster_of([node("a", "20")], [])
    first, second = manifest(tmp_path, deployment("d", 8)), tmp_path / "second.yaml"
    second.write_text(json.dumps(deployment("d", 8, terminationGracePeriodSeconds=5)))
    result = run(objects, None, f"0s:apply {first}", f"1m:apply {second}")
    alive = result.store.all("Pod").values()
    assert len(alive) == 8
    assert {one.spec.termination_grace_period_seconds for one in alive} == {5}
    assert not evicted(result)


def test_a_policy_and_a_class_can_be_applied_later(tmp_path):
    """Rules that come later decide from then on."""
    policies = tmp_path / "policy.yaml"
    policies.write_text(POLICY)
    result = run(full(pods=[pod("p", "2", "high")]), Policies(), f"10m:apply {policies}")
    assert {at for at, _, _ in evicted(result)} == {600.0}


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
    made = {row.key.partition("/")[2] for row in result.history.pods.values() if row.made}
    assert "db-0" in made
    assert not any(name.startswith("bare") for name in made)


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


SCENARIO = {
    "apiVersion": "giveway.dev/v1alpha1",
    "kind": "Scenario",
    "metadata": {"name": "s"},
    "spec": {"until": "1h", "steps": [{"at": "1m", "scale": {"workload": "default/web", "replicas": 0}}]},
}


def test_a_scenario_file_is_a_list_of_steps(tmp_path):
    """Steps at their times, and until when."""
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps(SCENARIO))
    steps, until = read_scenario(file)
    result = simulate(full(), loaded(POLICY), steps, Options(until=until or 0))
    assert (until, len(result.store.all("Pod"))) == (3600.0, 0)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"steps": [{"at": "soon", "drain": "z"}]}, "spec.steps[0].at: 'soon' is no duration"),
        ({"steps": [{"drain": "z", "removeNode": "n"}]}, "spec.steps[0]: expected exactly one of"),
        ({"steps": [{}]}, "expected exactly one of apply, scale, removeNode, drain and addNodes, found 0"),
        ({"steps": [{"dran": "z"}]}, "unknown field `dran`"),
        (
            {"steps": [{"scale": {"workload": "web", "replicas": 1}}]},
            "spec.steps[0]: --scale 'web=1': expected NAMESPACE/NAME=REPLICAS",
        ),
        ({"steps": [{"scale": {"workload": "a/b"}}]}, "missing required field `replicas`"),
        ({"steps": [{"apply": ["none.yaml"]}]}, "No such file"),
        ({}, "missing required field `steps`"),
    ],
)
def test_a_faulty_scenario_is_refused_with_the_place(tmp_path, spec, said):
    """Which file, which step, which field, and what would be right."""
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps({**SCENARIO, "spec": spec}))
    with pytest.raises(WhatIfError) as raised:
        read_scenario(file)
    assert said in str(raised.value)
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("0s:scale default/none=3", "there is no such workload in the snapshot"),
        ("0s:without-node z", "not in the snapshot; there are a, b"),
        ("1m:drain nowhere", "there are zone-a, zone-b"),
        ("1m:add-nodes 2xhuge", "there are m"),
        ("1m:add-nodes huge", "expected COUNTxTYPE"),
        ("1m:explode a", "'explode' is no change"),
        ("scale default/web=3", "expected TIME:CHANGE"),
        ("later:drain a", "is no duration"),
    ],
)
def test_a_change_that_cannot_be_made_is_named(step, said):
    """What there is instead is told, also if the time for it comes only later."""
    with pytest.raises(WhatIfError, match=said):
        run(full(), None, step)


def test_the_multiplication_sign_is_understood():
    """20×m is 20xm."""  # noqa: RUF002
    assert step_of("add-nodes", "20×m") == step_of("add-nodes", "20xm")  # noqa: RUF001


def both() -> tuple[Summary, Summary]:
    """The same cluster without preemption, and with it."""
    objects = full(pods=[pod("p", "2", "high")])
    return summarize("A", run(objects, Policies())), summarize("B", run(objects))


def test_differences_are_told_as_sentences():
    """The totals first, then whose pods."""
    assert differences(*both()) == [
        "With B 2 more pods evicted: 2, not 0.",
        "With B 1 more pod waiting in the end: 2, not 1.",
        "With B 2 h more of work is lost.",
        "With B 2 pods of ReplicaSet/default/web are evicted that stay with A.",
        "With B 2 pods of ReplicaSet/default/web wait in the end that run with A.",
        "With A 1 pod of Pod/default/p waits in the end that runs with B.",
    ]
    a, _ = both()
    assert differences(a, a) == ["With A nothing is otherwise than with A."]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.25 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3660, "1 h 1 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_times_for_people(seconds, text):
    """The two largest units."""
    assert shown(seconds) == text


def test_the_page_is_one_file_and_everything_in_it_is_escaped():
    """Names cannot become markup, and nothing is loaded from anywhere."""
    objects = full(pods=[pod("p", "2", "high")])
    evil = "<script>alert(1)</script>"
    one = summarize(evil, run(objects))
    one.waiting[0].reason = evil
    text = page([one, one], [evil])
    assert evil not in text
    assert "&lt;script&gt;" in text
    assert 'class="plot"' in text
    assert not any(word in text for word in ('src="http', "@import", "url(http", 'href="http'))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A small snapshot and two sets of policies: files of the command."""
    write(tmp_path / "c.gz", large(3, 30, 2))
    for name, text in (
        ("a", POLICY),
        ("b", policy_text(victims={"mode": "opt-in", "pairs": [{"victims": {"namespaces": ["nowhere"]}}]})),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "p.yaml").write_text(text)
    return [str(tmp_path / "c.gz"), "--policies", str(tmp_path / "a"), "--against", str(tmp_path / "b")]


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["simulate", *arguments])


@pytest.mark.parametrize("layout", ["table", "json", "markdown"])
def test_every_format_says_the_difference_first(files, layout):
    """Tables, JSON and Markdown."""
    result = invoke(*files, "--format", layout)
    assert result.exit_code == 0, result.output
    assert "With b 4 fewer pods evicted: 0, not 4." in result.output[:300]


@pytest.mark.parametrize(
    ("condition", "code"),
    [("evictions > 3", 1), ("evictions > 4", 0), ("placed-max >= 1m", 1), ("cpu-free < 1%", 0), ("waiting != 0", 1)],
)
def test_thresholds_decide_the_exit_code(files, condition, code):
    """One that holds in any run is named, and the exit code is 1."""
    result = invoke(*files, "--fail-on", condition)
    assert result.exit_code == code, result.output
    assert ("threshold: " in result.output) == bool(code)


def test_what_is_not_understood_is_explained(files, tmp_path):
    """A threshold of an unknown name names the known ones; a file that is no snapshot ends with 2."""
    result = invoke(*files, "--fail-on", "sorrow > 3")
    assert result.exit_code == 2
    assert all(name in result.output for name in METRICS)
    (tmp_path / "bad").write_text("hello")
    result = invoke(str(tmp_path / "bad"), *files[1:])
    assert (result.exit_code, "neither a snapshot" in result.output) == (2, True)


def test_the_page_and_the_schema_are_written(files, tmp_path):
    """`--html` writes a file; `--scenario-schema` prints what a scenario may say."""
    assert invoke(*files, "--html", str(tmp_path / "r.html")).exit_code == 0
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    schema = json.loads(invoke("--scenario-schema").output)
    assert "addNodes" in json.dumps(schema)
