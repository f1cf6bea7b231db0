"""Which annotations expressions read, and which rules a cluster file can answer."""

from __future__ import annotations

import json

import pytest

from tests.simulation.clusters import cluster_of, loaded, node, policy_text
from webhook.policy.model.values import DECISION
from webhook.simulation.judgeable import annotations_read, judgeable

HEAD = "apiVersion: giveway.dev/v1alpha1\nkind: PriorityPolicy\nmetadata: {name: p}\nspec:\n  rules:\n"


@pytest.mark.parametrize(
    ("expression", "keys"),
    [
        ("object.metadata.annotations[?'team'].orValue('') != ''", {"team"}),
        ("object.metadata.?annotations.orValue({})['team'] == 'x'", {"team"}),
        ("has(object.metadata.annotations) && 'a/b' in object.metadata.annotations", {"a/b"}),
        ("cel.bind(a, object.metadata.annotations, a['k'] == 'v')", {"k"}),
        ("namespaceObject.metadata.annotations['team'] == 'x'", {"team"}),
        ("oldObject == null || object != null && object.metadata.name != ''", set()),
        ("object.metadata.labels.team == \"annotations['x']\"", set()),
        ("object.metadata.annotations.exists(k, k.startsWith('a'))", None),
        ("object.metadata.annotations['a' + object.metadata.name] == 'x'", None),
    ],
)
def test_annotations_are_read_off_the_syntax_tree(expression, keys):
    """However an expression says it: those are kept, and what reads all of them cannot be judged."""
    rule = json.dumps({"name": "r", "validate": {"expression": expression, "message": "m"}})
    policies = loaded(f"{HEAD}    - {rule}\n")
    objects = cluster_of([node("a", "1")], [])
    objects.annotations = frozenset(keys or ())
    why = judgeable(policies, objects).left_out.get("p/r", "")
    assert why == (
        "" if keys is not None else "it reads annotations whatever their keys are, and the snapshot has only some"
    )
    assert annotations_read([policies]) - annotations_read([]) == frozenset(keys or ())
    objects.annotations = frozenset()
    assert bool(judgeable(policies, objects).left_out) == (keys != set())


RULES = (
    HEAD
    + """\
    - {name: env, validate: {expression: "object.spec.containers.all(c, !has(c.env))", message: m}}
    - {name: image, validate: {expression: "object.spec.containers.all(c, c.image != '')", message: m}}
    - {name: whole, validate: {expression: "size(object) > 1", message: m}}
    - {name: note, validate: {expression: "object.metadata.annotations['note'] == 'x'", message: m}}
    - {name: in, validate: {expression: "'other' in object.metadata.annotations", message: m}}
    - {name: grace, validate: {expression: "object.spec.terminationGracePeriodSeconds < 60", message: m}}
    - {name: labels, validate: {expression: "'team' in object.metadata.labels", message: m}}
"""
)


def test_rules_that_read_what_is_not_there_cannot_be_judged():
    """By rule: fields, annotations and whole objects that a cluster file lacks; the others are judged."""
    objects = cluster_of([node("a", "1")], [])
    objects.annotations = frozenset({"note"})
    found = judgeable(loaded(RULES), objects)
    assert [rule.name for rule in found.policies.priority[0].rules] == ["note", "grace", "labels"]
    assert {rule.removeprefix("p/"): why for rule, why in found.left_out.items()} == {
        "env": "it reads env, which the snapshot does not have",
        "image": "it reads image, which the snapshot does not have",
        "whole": "it reads an object as a whole, and the snapshot has only what decides of it",
        "in": "it reads the annotation other, which the snapshot does not have",
    }


def test_policies_say_which_annotations_they_read():
    """Victims', copied and protected annotations and those in expressions; giveway's own are no policy's."""
    custom = policy_text(victims={"mode": "opt-in", "annotations": {"preemptible": ["example.com/may-go"]}})
    read = annotations_read([loaded(RULES), loaded(custom)])
    assert {"note", "other", "example.com/may-go"} <= read
    assert DECISION not in read
    objects = cluster_of([node("a", "1")], [])
    objects.annotations = frozenset()
    assert "example.com/may-go" in judgeable(loaded(custom), objects).left_out["high"]
