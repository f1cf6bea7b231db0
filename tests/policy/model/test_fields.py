"""Every field of a policy does something: whoever writes it is not told that all is well while nothing reads it."""

import ast
from pathlib import Path

import pytest

from tests.policy.builders import document, element, mappings, policies
from webhook.policy.evaluation.managed_classes import shielded
from webhook.policy.evaluation.rules import KINDS
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.schedule import Schedule
from webhook.policy.model.values import RECOGNISED_ANNOTATION
from webhook.policy.shapes.object_shape import ObjectShape, shape_of
from webhook.reconciler.preemptors import PolicySet

WEBHOOK = Path(__file__).parents[3] / "webhook"
READERS = {
    PriorityPolicy: ("policy/evaluation", "admission"),
    PreemptionPolicy: ("policy/evaluation", "preemption", "reconciler"),
}
"""Where a policy is acted by. What compares policies, shows them or writes them in another form does not count."""
READ_BY_THEMSELVES = {Schedule: "a schedule is asked whether it holds"}


def _read(*places):
    """The attributes that these files and folders read."""
    files = [
        file for place in places for file in ([WEBHOOK / place] if "." in place else (WEBHOOK / place).rglob("*.py"))
    ]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}


@pytest.mark.parametrize("root", READERS, ids=lambda root: root.__name__)
def test_every_field_is_read(root):
    """What acts by policies reads each field by its name, and the body of a rule by the row of its kind."""
    read = _read(*READERS[root]) | KINDS.keys()
    unread = [
        f"{title}.{field.attribute}"
        for title, shape in mappings(shape_of(root)).items()
        for field in shape.fields
        if shape.model not in READ_BY_THEMSELVES and field.attribute not in read
    ]
    assert unread == []


def _annotations(shape, path):
    """Every annotation that a policy may name, each as a spec that names it: path and spec."""
    for field in shape.fields:
        inner = element(field.shape)
        below = []
        if inner is RECOGNISED_ANNOTATION:
            below = [(f"{path}{field.name}", "e.io/named")]
        elif isinstance(inner, ObjectShape):
            below = _annotations(inner, f"{path}{field.name}.")
        for name, value in below:
            yield name, {field.name: value if inner is field.shape else [value]}


NAMED = dict(_annotations(shape_of(PreemptionPolicy), ""))


def test_some_annotations_are_named():
    """The table below has rows."""
    assert "victims.signals.annotation" in NAMED


@pytest.mark.parametrize("path", NAMED)
def test_every_annotation_that_is_named_is_kept(path):
    """The snapshot drops annotations that no policy reads: what a policy names is among those. It is shielded, too."""
    says = {"protects": ["x"]} if path == "victims.signals.annotation" else {}
    spec = {"preemptors": {"priorityClasses": ["online"]}, **NAMED[path]}
    for signal in spec["victims"].get("signals", ()):
        signal.update(says)
    named = policies(document("\n".join(f"{key}: {value}" for key, value in spec.items()), "PreemptionPolicy"))
    assert "e.io/named" in PolicySet(named).annotations()
    assert "e.io/named" in shielded(named.preemption)
