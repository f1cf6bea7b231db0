"""Calls of `giveway review`: policies, classes of a cluster, manifests, and what is said of them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from webhook.cli.review import command

POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: teams}
spec:
  match: {namespaces: ["team-*"]}
  rules:
  - {name: default, defaultPriorityClass: standard}
  - {name: allowed, priorityClasses: {allow: [standard]}}
---
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: trial}
spec:
  enforcement: warn
  match: {namespaces: ["team-*"]}
  rules:
  - {name: standard, priorityClasses: {deny: [standard]}}
---
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: bands}
spec:
  rules:
  - {name: top, reserve: {from: 1000, to: 2000, define: {subjects: [{kind: Group, name: platform}]}}}
  - {name: labelled, reserve: {from: 500, to: 600, use: {namespaceSelector: {matchLabels: {urgent: allowed}}}}}
"""
CLASSES = """\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: standard}
value: 7
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 550
"""
CONTAINERS = "containers: [{name: c, image: x}]"


def deployment(class_name: str, namespace: str = "team-a") -> str:
    spec = f"{{priorityClassName: {class_name}, {CONTAINERS}}}"
    return (
        f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: {namespace}}}\n"
        f"spec: {{template: {{metadata: {{labels: {{a: b}}}}, spec: {spec}}}}}\n"
    )


def said(result) -> dict[str, list[str]]:
    """Each object with what rules said of it, as `verdict rule`."""
    body = json.loads(result.stdout)
    rows = {}
    for one in body["judged"]:
        name = f"{one['kind']} {one['namespace']}/{one['name']}"
        rows[name] = [f"{row['verdict']} {row['rule']}" for row in one["said"]]
    return rows


@pytest.fixture
def review(tmp_path):
    """Run the command on manifests, over the classes of the cluster; returns its result."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "teams.yaml").write_text(POLICY)
    (tmp_path / "classes.yaml").write_text(CLASSES)

    def run(*arguments: object, stdin: str | None = None, objects: bool = True):
        known = ["--objects", str(tmp_path / "classes.yaml")] if objects else []
        given = ["--policies", str(tmp_path / "policies"), *known, *map(str, arguments)]
        return CliRunner().invoke(command, given, input=stdin, env={"COLUMNS": "500"})

    return run
