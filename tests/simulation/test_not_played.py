"""What the objects of a cluster ask for and a simulation does not do is named, by kind and field."""

from __future__ import annotations

import json
import tomllib
from importlib.resources import files
from itertools import product

import msgspec
import pytest
from click.testing import CliRunner

from tests.simulation.clusters import OWNER, POLICY, cluster_of, node, pod, replica_set, run, waits
from webhook.cli.main import main
from webhook.clusters.simulated.objects import BY_KIND, ClusterObjects
from webhook.clusters.simulated.tracker import ObjectTracker
from webhook.simulation.cluster_file.redacting import redact
from webhook.simulation.report.html import page
from webhook.simulation.report.not_played import not_played
from webhook.simulation.report.sections import markdown
from webhook.simulation.report.summary import summarize


def with_template(spec, **more) -> ClusterObjects:
    """Two full nodes of 2 CPUs, a pod of ReplicaSet web of 2 CPUs on each, made of this template, and a preemptor."""
    pods = [pod(f"web-{on}", "2", on=on, owner=OWNER) for on in "ab"]
    made = replica_set("web", 2, **spec)
    return cluster_of([node("a", "2"), node("b", "2")], [*pods, pod("p", "1", "high")], ReplicaSet=[made], **more)


def rules(name, **fields):
    return {"metadata": {"name": name, "namespace": "default"}, **fields}


def test_a_runtime_class_that_is_not_there_is_named():
    """Its overhead is not known, so the pod in the place takes too little room; the report says so."""
    containers = [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]
    result = run(with_template({"containers": containers, "runtimeClassName": "kata"}))
    assert not waits(result)
    assert summarize("x", result).not_played == {
        "Pod spec.runtimeClassName": "pods have no overhead and run on every node, because RuntimeClass kata is not in"
        " the snapshot"
    }


QUOTAS = [rules(f"q{number}", spec={"hard": {"pods": "1"}}) for number in range(5)]


def test_every_layout_names_what_is_not_played(tmp_path):
    """By kind and field, with the objects that ask for it: table, JSON, Markdown and HTML."""
    cron_job = rules("cj", spec={"schedule": "* * * * *"})
    summary = summarize("x", run(with_template({}, ResourceQuota=QUOTAS, CronJob=[cron_job])))
    assert summary.not_played == {
        "ResourceQuota spec.hard": "no pod is refused by it (default/q0, default/q1, default/q2 and 2 more)",
        "CronJob spec.schedule": "no Job is made (default/cj)",
    }
    assert "#### Not played" in markdown([summary])
    assert "CronJob spec.schedule" in page([summary], ["x"])
    (tmp_path / "policy.yaml").write_text(POLICY)
    items = [{"kind": "Node", **node("a", "2")}, {"kind": "ResourceQuota", **QUOTAS[0]}]
    (tmp_path / "cluster.json").write_text(json.dumps({"kind": "List", "items": items}))
    arguments = [str(tmp_path / "cluster.json"), "--policies", str(tmp_path / "policy.yaml")]
    said = CliRunner().invoke(main, ["simulate", *arguments])
    assert "ResourceQuota spec.hard  no pod is refused by it (default/q0)" in said.stdout


FIELDS = tomllib.loads(files("webhook.simulation.report").joinpath("not_played.toml").read_text())["fields"]
VALUES = (5, "x", {"limits": "1"}, [{"name": "x"}])
"""Of some of these types each field can be."""


def asking(kind, path, value):
    """An object of the kind with this value in the field; None if its type cannot have it."""
    for step in reversed(path.split(".")):
        value = {step.removesuffix("[]"): [value] if step.endswith("[]") else value}
    try:
        return msgspec.convert({**rules("x"), **value}, BY_KIND[kind].type)
    except msgspec.ValidationError:
        return None


@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for row in FIELDS for kind, path in product(row["kinds"], row["paths"])]
)
def test_every_field_of_the_table_is_read_and_named(kind, path):
    """A file keeps it, and an object that asks for it is named; one without it is not."""
    named = []
    for made in (asking(kind, "metadata.name", "x"), *(asking(kind, path, value) for value in VALUES)):
        objects = ClusterObjects(0.0)
        if made is not None:
            objects.add(BY_KIND[kind], redact(made, ()))
        named.append(set(not_played(ObjectTracker(objects))))
    assert named[0] <= {"CronJob spec.schedule"}, "every CronJob asks for Jobs"
    assert {f"{kind} {path}"} in named
