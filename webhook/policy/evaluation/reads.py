"""What of a pod the policies read when it is updated, so that no other UPDATE needs to be judged.

The answer may be too much, never too little. Rules say what they read by their declarations
(`webhook.policy.model.rules`); of a rule that does not say it, every part counts. Expressions are not evaluated
for it: only paths that start with `object` or `oldObject` and name a known part are told apart, and everything else
counts as reading whatever people can change.
"""

import re

import msgspec

from webhook.policy.evaluation.engine import shielded
from webhook.policy.evaluation.request import PODS
from webhook.policy.model.match import keys_of
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import MARK, OWN_ANNOTATIONS

PRESERVED = ("preemptionPolicy", "priority", "priorityClassName")
"""Fields of a pod's spec that no UPDATE may change, whatever the policies say."""

PARTS = ("annotations", "finalizers", "labels", "ownerReferences", "spec")
"""The parts of a pod that an UPDATE can change; all but the last are metadata."""

_ANY = frozenset({"annotations", "labels", "spec"})
"""What stands for every change, if an expression does not say what it reads."""
_FIXED = frozenset({"creationTimestamp", "deletionTimestamp", "generateName", "name", "namespace", "uid"})
"""Metadata that no UPDATE changes, or that ends judging altogether."""
_OF_REQUEST = frozenset({"dryRun", "kind", "name", "namespace", "operation", "resource", "subResource"})
"""What of `request` tells nothing of who asks."""

_IS_NULL = re.compile(r"\b(?:object|oldObject)\s*[!=]=\s*null\b")
_PATH = re.compile(r"\b(object|oldObject|request|namespaceObject|priorityClass)\b((?:\s*\.\s*\??\s*[A-Za-z_]\w*)*)")


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
    preserved = [(field,) for field in PRESERVED]
    for policy in policies.priority:
        if policy.match.operations is not None and "UPDATE" not in policy.match.operations:
            continue
        declared = [rule.declaration for rule in policy.rules]
        asked = [declaration for declaration in declared if declaration.always_asked and PODS in declaration.about]
        for condition in policy.conditions if asked else ():
            parts |= _parts_read(condition.expression)
        matches = (policy.match, policy.exclude, *(exception.match for exception in policy.exceptions))
        selecting = set[str]().union(*(keys_of(match.object_selector) for match in matches if match is not None))
        for declaration in asked:
            fields = {path for path in declaration.fields if path[1:] not in preserved or path[0] != "spec"}
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
    """The pod annotations that not everyone may change: giveway's own, and those that are shielded."""
    keys = {*OWN_ANNOTATIONS, *shielded(policies.preemption)}
    for policy in policies.priority:
        for rule in policy.rules:
            keys.update(rule.declaration.keys if PODS in rule.declaration.about else ())
    return frozenset(keys)


def _parts_read(expression: str) -> frozenset[str]:
    """The parts that an expression reads. One that names none of the pod can turn on anything, such as who asks."""
    parts: frozenset[str] = frozenset()
    for variable, path in _PATH.findall(_IS_NULL.sub("", expression)):
        first, second, *_ = [*re.findall(r"\w+", path), "", ""]
        if variable not in ("object", "oldObject"):
            parts |= frozenset() if variable == "request" and first in _OF_REQUEST else _ANY
        elif first == "spec":
            parts |= {"spec"}
        elif first == "metadata" and second in PARTS:
            parts |= {second}
        elif first != "metadata" or second not in _FIXED:
            parts |= frozenset(PARTS)
    return parts or _ANY
