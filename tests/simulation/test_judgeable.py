"""Which annotations expressions read, and which rules a cluster file can answer."""

from __future__ import annotations

import json

import pytest

from tests.simulation.clusters import cluster_of, loaded, node
from webhook.simulation.judgeable import annotations_read, judgeable

HEAD = "apiVersion: giveway.dev/v1alpha1\nkind: PriorityPolicy\nmetadata: {name: p}\nspec:\n"


@pytest.mark.parametrize(
    ("expression", "keys"),
    [
        ("object.metadata.annotations[?'team'].orValue('') != ''", {"team"}),
        ("object.metadata.?annotations[?'team'].hasValue()", {"team"}),
        ("object.metadata.?annotations.orValue({})['team'] == 'x'", {"team"}),
        ("object['metadata']['annotations'].team == 'x'", {"team"}),
        ("has(object.metadata.annotations) && 'a/b' in object.metadata.annotations", {"a/b"}),
        ("has(object.metadata.annotations.team)", {"team"}),
        ("cel.bind(a, object.metadata.annotations, a['k'] == 'v')", {"k"}),
        ("namespaceObject.metadata.annotations['team'] == 'x'", {"team"}),
        ("oldObject == null || object != null && object.metadata.name != ''", set()),
        ("object.metadata.labels.team == \"annotations['x']\"", set()),
        ("object.metadata.annotations.exists(k, k.startsWith('a'))", None),
        ("object.metadata.annotations['a' + object.metadata.name] == 'x'", None),
        ("object.metadata.annotations.size() == 0", None),
        ("object.metadata.annotations == oldObject.metadata.annotations", None),
    ],
)
def test_annotations_are_read_off_the_syntax_tree(expression, keys):
    """However an expression says it: those are kept, and what reads all of them cannot be judged."""
    rule = json.dumps({"name": "r", "validate": {"expression": expression, "message": "m"}})
    policies = loaded(f"{HEAD}  rules: [{rule}]\n")
    objects = cluster_of([node("a", "1")], [])
    objects.annotations = frozenset(keys or ())
    why = judgeable(policies, objects).left_out.get("p/r", "")
    assert why == (
        "" if keys is not None else "it reads annotations whatever their keys are, and the snapshot has only some"
    )
    assert annotations_read([policies]) - annotations_read([]) == frozenset(keys or ())
    objects.annotations = frozenset()
    assert bool(judgeable(policies, objects).left_out) == (keys != set())
