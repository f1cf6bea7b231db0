"""What of a pod the policies read when it is updated, so that no other UPDATE needs to be judged.

The answer may be too much, never too little. Expressions are not evaluated for it: only paths that start with
`object` or `oldObject` and name a known part are told apart, and everything else counts as reading whatever people
can change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from webhook.policy.evaluation.attributes import PODS
from webhook.policy.evaluation.engine import shielded
from webhook.policy.model import MARK, OWN_ANNOTATIONS, Policies, PriorityPolicy, PriorityRule

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
        for expression in _expressions(policy):
            parts |= _parts_read(expression)
        if any(map(_validates, policy.rules)):
            labels.update(_selected(policy))
    return Reads(frozenset(parts), frozenset(labels), protected_annotations(policies))


def protected_annotations(policies: Policies) -> frozenset[str]:
    """The annotations of a pod that not everyone may change: giveway's own, and those that are shielded."""
    keys = {*OWN_ANNOTATIONS, *shielded(policies.preemption)}
    for policy in policies.priority:
        for rule in policy.rules:
            keys.update(rule.protect_annotations.keys if rule.protect_annotations else ())
    return frozenset(keys)


def _expressions(policy: PriorityPolicy) -> Iterator[str]:
    """The expressions that are evaluated at an UPDATE that changes neither priority nor protected annotations."""
    if any(rule.priority_classes is not None or _validates(rule) for rule in policy.rules):
        yield from (condition.expression for condition in policy.conditions)
    for rule in policy.rules:
        if rule.validate is not None and _validates(rule):
            yield rule.validate.expression


def _validates(rule: PriorityRule) -> bool:
    return rule.validate is not None and PODS in rule.validate.resources


def _selected(policy: PriorityPolicy) -> Iterator[str]:
    for match in (policy.match, policy.exclude, *(one.match for one in policy.exceptions)):
        if match is not None and match.object_selector is not None:
            yield from match.object_selector.match_labels or {}
            yield from (row.key for row in match.object_selector.match_expressions or ())


def _parts_read(expression: str) -> frozenset[str]:
    """The parts that an expression reads. One that names none of the pod can turn on anything, such as who asks."""
    found: frozenset[str] = frozenset()
    for variable, path in _PATH.findall(_IS_NULL.sub("", expression)):
        names = tuple(re.findall(r"\w+", path))
        found |= _of_object(names) if variable in ("object", "oldObject") else _of_others(variable, names)
    return found or _ANY


def _of_object(names: tuple[str, ...]) -> frozenset[str]:
    if names[:1] == ("spec",):
        return frozenset({"spec"})
    if len(names) > 1 and names[0] == "metadata":
        if names[1] in PARTS:
            return frozenset({names[1]})
        if names[1] in _FIXED:
            return frozenset()
    return frozenset(PARTS)


def _of_others(variable: str, names: tuple[str, ...]) -> frozenset[str]:
    known = variable == "request" and names[:1] and names[0] in _OF_REQUEST
    return frozenset() if known else _ANY
