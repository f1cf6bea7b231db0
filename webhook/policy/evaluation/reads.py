"""What of a pod the policies read when it is updated, so that no other UPDATE needs to be judged.

The answer may be too much, never too little. Expressions are not evaluated for it: only paths that start with
`object` or `oldObject` and name a known part are told apart, and everything else counts as reading whatever people
can change.
"""

from __future__ import annotations

import re

import msgspec

from webhook.policy.evaluation.managed_classes import shielded
from webhook.policy.evaluation.request import PODS
from webhook.policy.model import MARK, OWN_ANNOTATIONS, Policies

__all__ = ["PARTS", "PRESERVED", "Reads", "protected_annotations", "reads_on_update"]

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

    Rules on PriorityClasses and reserved ranges look at an UPDATE only if it changes the priority; so only
    protected annotations, and expressions over pods with what narrows them, add to it.
    """
    parts: set[str] = set()
    labels = {MARK}
    for policy in policies.priority:
        if policy.match.operations is not None and "UPDATE" not in policy.match.operations:
            continue
        bodies = [rule.validate for rule in policy.rules if rule.validate and PODS in rule.validate.resources]
        expressions = [body.expression for body in bodies]
        if bodies or any(rule.priority_classes is not None for rule in policy.rules):
            expressions += [condition.expression for condition in policy.conditions]
        parts.update(*map(_parts_read, expressions))
        matches = (policy.match, policy.exclude, *(one.match for one in policy.exceptions)) if bodies else ()
        for selector in (one.object_selector for one in matches if one is not None):
            if selector is not None:
                labels.update(selector.match_labels or (), (row.key for row in selector.match_expressions or ()))
    return Reads(frozenset(parts), frozenset(labels), protected_annotations(policies))


def protected_annotations(policies: Policies) -> frozenset[str]:
    """The annotations of a pod that not everyone may change: giveway's own, and those that are shielded."""
    keys = {*OWN_ANNOTATIONS, *shielded(policies.preemption)}
    for policy in policies.priority:
        for rule in policy.rules:
            keys.update(rule.protect_annotations.keys if rule.protect_annotations else ())
    return frozenset(keys)


def _parts_read(expression: str) -> frozenset[str]:
    """The parts that an expression reads. One that names none of the pod can turn on anything, such as who asks."""
    found: frozenset[str] = frozenset()
    for variable, path in _PATH.findall(_IS_NULL.sub("", expression)):
        first, second, *_ = [*re.findall(r"\w+", path), "", ""]
        if variable not in ("object", "oldObject"):
            found |= frozenset() if variable == "request" and first in _OF_REQUEST else _ANY
        elif first == "spec":
            found |= {"spec"}
        elif first == "metadata" and second in PARTS:
            found |= {second}
        elif first != "metadata" or second not in _FIXED:
            found |= frozenset(PARTS)
    return found or _ANY
