"""Every field of a policy does something, and the table of what giveway writes on pods is whole.

Whoever writes a field is not told that all is well while nothing reads it.
"""

import ast
import re
from pathlib import Path

import pytest

from tests.manifests.objects import ROOT
from tests.policy.builders import document, element, mappings, policies
from webhook.policy.evaluation.engine import shielded
from webhook.policy.evaluation.rules import KINDS
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.schedule import Schedule
from webhook.policy.model.values import MARK, POD_ANNOTATIONS, POD_CONDITIONS, RECOGNISED_ANNOTATION
from webhook.policy.shapes.object_shape import ObjectShape, shape_of
from webhook.reconciler.preemptors import PolicySet
from webhook.registration.entries import EXEMPT

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


KEY = re.compile(r"giveway\.dev/[A-Za-z-]+")
ELSEWHERE = {
    MARK: "the label of pods that giveway preempts for; stays",
    EXEMPT: "a label of namespaces",
    "giveway.dev/entries": "on webhook configurations",
    "giveway.dev/probe": "on the ConfigMap by which webhooks are tried",
    "giveway.dev/canary": "a label of what the doctor makes and deletes",
    "giveway.dev/given-up": "on the ConfigMap of the policies in force",
    "giveway.dev/written-by": "on the ConfigMap of the policies in force",
    "giveway.dev/allow-removal": "on ConfigMaps of policies",
    "giveway.dev/evictions": "on the Lease",
    "giveway.dev/policy": "a label of native policies",
    "giveway.dev/rules": "on native policies",
    "giveway.dev/reconciler": "the name of a controller in Events",
    "giveway.dev/snapshot": "the format of a file",
}
"""Names of giveway that are on no pod, or stay there for a reason."""


def test_every_key_of_giveway_is_in_the_table_or_is_elsewhere():
    """An annotation or a condition that the table does not know would stay after uninstalling, and be told others."""
    used = set()
    for path in sorted((ROOT / "webhook").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and KEY.fullmatch(node.value):
                used.add(node.value)
    apis = {key for key in used if re.fullmatch(r"giveway\.dev/v\d\w*", key)}
    assert used - apis == {row.key for row in POD_ANNOTATIONS} | set(POD_CONDITIONS) | ELSEWHERE.keys()
