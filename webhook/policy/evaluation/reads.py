"""What of a pod the policies read when it is updated, so that no other UPDATE needs to be judged.

The answer may be too much, never too little. Rules say what they read by their declarations
(`webhook.policy.model.rules`); of a rule that does not say it, every part counts. Of expressions the fields of
`object` and `oldObject` that they read are told apart (`webhook.policy.cel.fields`); everything else counts as reading
whatever people can change.
"""

import msgspec

from webhook.policy.cel.fields import fields_read
from webhook.policy.cel.program import compile_bool
from webhook.policy.evaluation.engine import shielded
from webhook.policy.evaluation.request import PODS
from webhook.policy.model.match import keys_of
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import MARK, OWN_ANNOTATIONS

PRESERVED = ("preemptionPolicy", "priority", "priorityClassName")
"""Fields of a pod's spec that no UPDATE may change, whatever the policies say."""

PARTS = ("annotations", "finalizers", "labels", "ownerReferences", "spec")
"""The parts of a pod that an UPDATE can change; all but the last are metadata."""

RESIZED = ("pods/ephemeralcontainers", "pods/resize")
"""The sub-resources through which an UPDATE changes a pod's spec and nothing of its metadata."""

_ANY = frozenset({"annotations", "labels", "spec"})
"""What stands for every change, if an expression does not say what it reads."""
_FIXED = frozenset({"creationTimestamp", "deletionTimestamp", "generateName", "name", "namespace", "uid"})
"""Metadata that no UPDATE changes, or that ends judging altogether."""
_OF_REQUEST = frozenset({"dryRun", "kind", "name", "namespace", "operation", "resource", "subResource"})
"""What of `request` tells nothing of who asks."""


class Reads(msgspec.Struct, frozen=True):
    """Parts of a pod that are read as a whole, and single labels and annotations, by key."""

    parts: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()


def reads_on_update(policies: Policies) -> Reads:
    """What decides about an UPDATE of a pod, beyond the fields in PRESERVED.

    Rules on PriorityClasses and reserved ranges read nothing else, so they
    add nothing to it. What else a rule reads is read with what narrows it:
    the conditions of its policy, and the labels by which the policy selects.
    """
    parts, labels, annotations = set[str](), {MARK}, set(protected_annotations(policies))
    preserved = {("spec", field) for field in PRESERVED}
    for policy in policies.priority:
        if policy.match.operations is not None and "UPDATE" not in policy.match.operations:
            continue
        declared = [rule.declaration for rule in policy.rules]
        asked = [row for row in declared if row.always_asked and PODS in row.about]
        for condition in policy.conditions if asked else ():
            parts |= _parts_read(condition.expression)
        selecting = set[str]()
        for match in policy.matches:
            selecting |= keys_of(match.object_selector)
        for declaration in asked:
            fields = declaration.fields - preserved
            for expression in declaration.expressions:
                parts |= _parts_read(expression)
            for path in fields:
                match path:
                    case ("metadata", "annotations", key):
                        annotations.add(key)
                    case ("spec", *_):
                        parts.add("spec")
                    case _:  # a field that names no part stands for all of them
                        parts.update(PARTS)
            if fields or declaration.expressions:
                labels |= selecting
    return Reads(frozenset(parts), frozenset(labels), frozenset(annotations))


def protected_annotations(policies: Policies) -> frozenset[str]:
    """The pod annotations that not everyone may change: giveway's own and shielded ones."""
    keys = {*OWN_ANNOTATIONS, *shielded(policies.preemption)}
    for _, rule in policies.rules:
        keys.update(rule.declaration.keys if PODS in rule.declaration.about else ())
    return frozenset(keys)


def _parts_read(expression: str) -> frozenset[str]:
    """The parts that an expression reads; all that people change if it names none."""
    parts: frozenset[str] = frozenset()
    for variable, *below in fields_read(compile_bool(expression).tree, (PODS,)):
        first, second, *_ = [*below, "", ""]
        if variable not in ("object", "oldObject"):
            parts |= frozenset() if variable == "request" and first in _OF_REQUEST else _ANY
        elif first == "spec":
            parts |= {"spec"}
        elif first == "metadata" and second in PARTS:
            parts |= {second}
        elif first != "metadata" or second not in _FIXED:
            parts |= frozenset(PARTS)
    return parts or _ANY
