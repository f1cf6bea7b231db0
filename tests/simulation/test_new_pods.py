"""Pods in the place of others ask for what the API server gives them, and what is not played is named."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tests.simulation.clusters import (
    CLASSES,
    OWNER,
    POLICY,
    cluster_of,
    evicted,
    loaded,
    node,
    pod,
    replica_set,
    run,
    waits,
)
from webhook.cli.main import main
from webhook.clusters.simulated.objects import BY_KIND, ClusterObjects
from webhook.clusters.simulated.tracker import ObjectTracker
from webhook.simulation.cluster_file.format import read_cluster
from webhook.simulation.report.html import page
from webhook.simulation.report.not_played import not_played
from webhook.simulation.report.sections import markdown
from webhook.simulation.report.summary import summarize


def bare(**resources):
    """The spec of a template whose one container has these resources."""
    return {"containers": [{"name": "c", "resources": resources}]}


def with_template(spec, **more) -> ClusterObjects:
    """Two full nodes of 2 CPUs, a pod of ReplicaSet web of 2 CPUs on each, made of this template, and a preemptor."""
    pods = [pod(f"web-{on}", "2", on=on, owner=OWNER) for on in "ab"]
    made = replica_set("web", 2, **spec)
    return cluster_of([node("a", "2"), node("b", "2")], [*pods, pod("p", "1", "high")], ReplicaSet=[made], **more)


def rules(name, **fields):
    return {"metadata": {"name": name, "namespace": "default"}, **fields}


LIMIT_RANGE = rules("lr", spec={"limits": [{"type": "Container", "defaultRequest": {"cpu": "2"}, "min": {"cpu": "1"}}]})
RUNTIME_CLASS = {"metadata": {"name": "kata"}, "overhead": {"podFixed": {"cpu": "1900m"}}}
KATA = {**bare(requests={"cpu": "100m"}), "runtimeClassName": "kata"}


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        pytest.param(bare(limits={"cpu": "2"}), {}, id="limits alone"),
        pytest.param(
            {"containers": [{"name": "c"}], "initContainers": bare(limits={"cpu": "2"})["containers"]}, {}, id="init"
        ),
        pytest.param({"containers": [{"name": "c"}], "resources": {"limits": {"cpu": "2"}}}, {}, id="of the pod"),
        pytest.param(bare(), {"LimitRange": [LIMIT_RANGE]}, id="a LimitRange"),
        pytest.param(KATA, {"RuntimeClass": [RUNTIME_CLASS]}, id="overhead"),
    ],
)
def test_a_pod_in_the_place_of_another_asks_for_as_much(spec, more):
    """It does not fit beside the preemptor, so it waits."""
    result = run(with_template(spec, **more))
    assert len(evicted(result)) == len(waits(result)) == 1


def test_a_runtime_class_that_is_not_there_is_named():
    """Its overhead is not known, so the pod in the place takes too little room; the report says so."""
    result = run(with_template(KATA))
    assert not waits(result)
    assert summarize("x", result).not_played == {
        "Pod spec.runtimeClassName": "pods have no overhead and run on every node, because RuntimeClass kata is not in"
        " the snapshot"
    }


QUOTAS = [rules(f"q{number}", spec={"hard": {"pods": "1"}}) for number in range(5)]
NOT_PLAYED = {
    "LimitRange spec.limits[].min": "no pod is refused by it (default/lr)",
    "ResourceQuota spec.hard": "no pod is refused by it (default/q0, default/q1, default/q2 and 2 more)",
    "CronJob spec.schedule": "no Job is made (default/cj)",
    "ReplicaSet spec.minReadySeconds": "a ready pod is available (default/web)",
}


def test_every_layout_names_what_is_not_played(tmp_path):
    """By kind and field, with the objects that ask for it: table, JSON, Markdown and HTML."""
    slow = with_template(
        bare(limits={"cpu": "2"}),
        LimitRange=[LIMIT_RANGE],
        ResourceQuota=QUOTAS,
        CronJob=[rules("cj", spec={"schedule": "* * * * *"})],
    )
    slow.of("ReplicaSet")["default/web"].spec.min_ready_seconds = 5
    summary = summarize("x", run(slow))
    assert summary.not_played == NOT_PLAYED
    assert "#### Not played" in markdown([summary])
    assert "CronJob spec.schedule" in page([summary], ["x"])
    (tmp_path / "policy.yaml").write_text(POLICY)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", **QUOTAS[0]}
    items = [{"apiVersion": "v1", "kind": "Node", **node("a", "2")}, quota]
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    arguments = ["simulate", str(tmp_path / "cluster.json"), "--policies", str(tmp_path / "policy.yaml")]
    said = CliRunner().invoke(main, arguments)
    assert "ResourceQuota spec.hard  no pod is refused by it (default/q0)" in said.stdout


def test_a_pod_on_the_network_of_its_host_keeps_its_ports(tmp_path):
    """Two of them do not run on one node, though their template names no port of the host."""
    spec = {"hostNetwork": True, "containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}
    made = replica_set("web", 1, **spec)
    cluster = [("Node", node("a", "8")), *(("PriorityClass", one) for one in CLASSES), ("ReplicaSet", made)]
    items = [{"apiVersion": BY_KIND[kind].resource.api_version, "kind": kind, **body} for kind, body in cluster]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert len(waits(run(read_cluster([file]), loaded(POLICY), "0s:scale default/web=2"))) == 1


CLAIMS = {"claims": [{"metadata": {"name": "data"}}], "policy": {"whenDeleted": "Retain", "whenScaled": "Delete"}}
RULES_ABOUT_CODES = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]}


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        pytest.param(
            "Job", {"podFailurePolicy": RULES_ABOUT_CODES}, "podFailurePolicy.rules[].onExitCodes", id="codes"
        ),
        pytest.param("Job", {"successPolicy": {"rules": [{"succeededCount": 1}]}}, "successPolicy", id="success"),
        pytest.param("Job", {"activeDeadlineSeconds": 5}, "activeDeadlineSeconds", id="deadline"),
        pytest.param("Job", {"ttlSecondsAfterFinished": 0}, "ttlSecondsAfterFinished", id="ttl"),
        pytest.param("Job", {"managedBy": "kueue"}, "managedBy", id="managed"),
        pytest.param("StatefulSet", {"volumeClaimTemplates": CLAIMS["claims"]}, "volumeClaimTemplates", id="claims"),
        pytest.param(
            "StatefulSet",
            {"persistentVolumeClaimRetentionPolicy": CLAIMS["policy"]},
            "persistentVolumeClaimRetentionPolicy.whenScaled",
            id="retention",
        ),
        pytest.param(
            "StatefulSet",
            {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}},
            "updateStrategy.rollingUpdate.maxUnavailable",
            id="several at a time",
        ),
        pytest.param("DaemonSet", {"minReadySeconds": 5}, "minReadySeconds", id="min ready"),
        pytest.param(
            "DaemonSet",
            {"template": {"spec": {"resourceClaims": [{"name": "g"}]}}},
            "template.spec.resourceClaims",
            id="devices",
        ),
    ],
)
def test_fields_that_are_not_played_are_named(kind, spec, expected, tmp_path):
    """By kind and field, of what a file holds; without the field nothing is named."""
    for number, given in enumerate((spec, {"podFailurePolicy": {"rules": [{}]}, "updateStrategy": {}})):
        body = {"apiVersion": BY_KIND[kind].resource.api_version, "kind": kind, **rules("x", spec=given)}
        file = tmp_path / f"{number}.json"
        items = [{"apiVersion": "v1", "kind": "Node", **node("a", "8")}, body]
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        named = set(not_played(ObjectTracker(read_cluster([file]))))
        assert named == ({f"{kind} spec.{expected}"} if number == 0 else set())
