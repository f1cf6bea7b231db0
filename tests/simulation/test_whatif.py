"""What if: nodes, workloads, policies and classes that change on the way, from options and from scenario files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.preemption.building import NOW
from tests.simulation.clusters import POLICY, cluster_of, full, loaded, node, placed, pod, run
from tests.simulation.futures import VIEWS
from webhook.kube.instants import rfc3339
from webhook.policy.model.policies import Policies
from webhook.simulation.simulation import Options, simulate
from webhook.simulation.whatif import WhatIfError, applied, read_scenario, step_of


def manifest(tmp_path: Path, *bodies: Any) -> Path:
    file = tmp_path / "objects.yaml"
    file.write_text("\n---\n".join(json.dumps(one) for one in bodies))
    return file


def test_files_are_read_as_kubectl_reads_them(tmp_path):
    """Numbers as Helm writes them; what decides nothing and what stands twice is told, and stops nothing."""
    file = tmp_path / "load.yaml"
    pod = "metadata: {name: a}, spec: {priorityClassName: helm, containers: [{name: c}]}"
    file.write_text(f"""\
{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: helm}}, value: 5, value: 1e+06}}
---
{{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {{name: =}}}}
---
{{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {{name: a}}, spec: {{}}}}
---
{{apiVersion: v1, kind: List, items: [{{apiVersion: v1, kind: Pod, {pod}}}]}}
""")
    step = applied([file])
    twice = f"{file}:1:91: `value` stands twice in one mapping; the last one holds, as for kubectl"
    assert step.remarks == (twice, f"{file}: passed over, for it decides nothing here: 1 Role, 1 Job")
    assert simulate(full(), Policies(), [step]).tracker.pod("default/a").spec.priority == 1_000_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no Kubernetes object is in it"),
        ("# nothing\n", "no Kubernetes object is in it"),
        ("a: [\n---\nb: 5\n", r"load.yaml:2:1: .*\n.*load.yaml:3: not a Kubernetes object: `kind` is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: 5\n", "load.yaml:1: a Pod has no metadata.name"),
    ],
    ids=["nothing", "a comment", "several that cannot be read", "without a name"],
)
def test_files_that_cannot_be_applied(tmp_path, text, said):
    """Everything that is wrong in them, with its place."""
    (tmp_path / "load.yaml").write_text(text)
    with pytest.raises(WhatIfError, match=said):
        applied([tmp_path / "load.yaml"])


def test_an_exception_from_a_rule_ends_for_the_pods_that_controllers_make(tmp_path):
    """What admission has answered for a pod holds only as long as the exception that let it pass."""
    until = rfc3339(NOW + 600)
    rules = f"""\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {{name: p}}
spec:
  rules: [{{name: none, priorityClasses: {{deny: [low]}}}}]
  exceptions: [{{rules: [none], until: "{until}", owner: me, reason: soon, match: {{namespaces: [default]}}}}]
"""
    more = ["1m:add-nodes 1xa", "2m:scale default/web=5", "20m:scale default/web=6"]
    result = run(full(), loaded(POLICY, rules), *more)
    assert sorted(placed(result).values()) == [120.0]
    assert "rule p/none" in result.history.refused["ReplicaSet/default/web"]


def test_a_run_leaves_what_is_applied_as_it_was_for_the_next_one(tmp_path):
    """Two sets of policies are compared on the same files: the second run is not given what the first filled in."""
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    body["spec"] = {"priorityClassName": "low", "containers": [{"name": "c"}]}
    step = applied([manifest(tmp_path, body)])
    assert simulate(full(), Policies(), [step]).tracker.pod("default/p").spec.priority == 10
    assert step == applied([manifest(tmp_path, body)])


def test_a_budget_that_the_api_server_would_refuse_is_named(tmp_path):
    """An amount that is neither a number nor a percentage is a mistake of the file."""
    spec = {"selector": {}, "minAvailable": "half"}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec}
    with pytest.raises(WhatIfError, match="PodDisruptionBudget default/b: 'half' is neither a number nor a percentage"):
        run(full(), None, f"0s:apply {manifest(tmp_path, body)}")


def test_a_policy_and_a_class_can_be_applied_later(tmp_path):
    """Rules that come later decide from then on."""
    policies = tmp_path / "policy.yaml"
    policies.write_text(POLICY)
    result = run(full(pods=[pod("p", "2", "high")]), Policies(), f"10m:apply {policies}")
    assert set(VIEWS["evicted"](result).values()) == {600.0}


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
    assert (until, len(result.tracker.all("Pod"))) == (3600.0, 0)


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


def test_names_of_a_cluster_file_do_nothing_to_the_terminal_of_who_reads_a_message():
    """What there is instead is told with its control characters as text."""
    with pytest.raises(WhatIfError) as raised:
        run(cluster_of([node("\x1b[2Jn", "1")], []), None, "0s:without-node z")
    assert r"there are \u001b[2Jn" in str(raised.value)


def test_the_multiplication_sign_is_understood():
    """20×m is 20xm."""  # noqa: RUF002
    assert step_of("add-nodes", "20×m") == step_of("add-nodes", "20xm")  # noqa: RUF001
