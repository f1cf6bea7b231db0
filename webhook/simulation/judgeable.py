"""What policies read of a cluster, and which of their rules can be judged by what a cluster file has of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec

from webhook.clusters.simulated.objects import ClusterObjects
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.pod import Pod
from webhook.policy.cel.fields import ELEMENT, fields_read
from webhook.policy.cel.program import Program, compile_bool, compile_text
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import PriorityRule
from webhook.policy.model.values import OWN_ANNOTATIONS
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.pod_view import KEPT_ANNOTATIONS

_ABOUT = ("pods", "priorityclasses")
_ANNOTATIONS = ("metadata", "annotations")
_MAPS = frozenset({"annotations", "labels", "nodeSelector", "requests", "limits"})
"""Fields that have keys below them and no fields."""
_LEFT_OUT = frozenset({"image", "message", "description", "finalizers", "ports"})
"""Fields that the types have and a cluster file does not (`cluster_file.redacting`)."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
"""A text as JSON writes it."""
_OF_REQUEST = frozenset({"operation", "namespace", "name", "dryRun", "resource", "kind", "group", "version", "userInfo",
                         "username", "groups", "subResource"})  # fmt: skip


class Judgeable(NamedTuple):
    """The policies without the rules that a cluster file cannot answer, and why each is left out, by its id."""

    policies: Policies
    left_out: dict[str, str]


def annotations_read(policies: Iterable[Policies]) -> frozenset[str]:
    """The annotations of pods, classes and namespaces that these policies read, beside those that are always kept."""
    keys = set(KEPT_ANNOTATIONS)
    for loaded in policies:
        for preemption in loaded.preemption:
            keys |= preemption.victims.annotations_read
        for policy in loaded.priority:
            for rule in policy.rules:
                paths = rule.declaration.fields
                keys.update(path[2] for path in paths if path[:2] == ("metadata", "annotations") and len(path) == 3)
                for program in _expressions(policy, rule):
                    keys.update(_annotations_in(program))
    return frozenset(keys - set(OWN_ANNOTATIONS))


def words_of(policies: Policies) -> frozenset[str]:
    """Every text in the policies: what must keep its name in an anonymous file if they are to mean the same."""
    return frozenset(map(msgspec.json.decode, _STRING.findall(msgspec.json.encode(policies))))


def unreadable(policy: PreemptionPolicy, objects: ClusterObjects) -> str:
    """Why a PreemptionPolicy cannot be judged by these objects; empty if it can."""
    if objects.annotations is None or not (lacking := sorted(policy.victims.annotations_read - objects.annotations)):
        return ""
    return f"it reads the annotation {', '.join(lacking)} of pods, which the snapshot does not have"


def check_judgeable(policies: Policies, objects: ClusterObjects) -> None:
    """Raise ClusterError if a PreemptionPolicy reads of pods what these objects do not have."""
    for policy in policies.preemption:
        if why := unreadable(policy, objects):
            raise ClusterError(f"policy {policy.name} cannot be judged: {why}; take it with --policies")


def judgeable(policies: Policies, objects: ClusterObjects) -> Judgeable:
    """The policies that can be judged by these objects, and why the other rules cannot be, by rule.

    Extenders are left out as well: nobody is there to be asked.
    """
    left_out: dict[str, str] = {}
    kept: list[PriorityPolicy] = []
    for policy in policies.priority:
        whys = {rule.name: _unjudgeable(policy, rule, objects) for rule in policy.rules}
        left_out |= {f"{policy.name}/{name}": why for name, why in whys.items() if why}
        kept.append(msgspec.structs.replace(policy, rules=tuple(rule for rule in policy.rules if not whys[rule.name])))
    preemption = []
    for preemption_policy in policies.preemption:
        if why := unreadable(preemption_policy, objects):
            left_out[preemption_policy.name] = why
            continue
        if preemption_policy.extenders:
            left_out[f"{preemption_policy.name}: extenders"] = "nobody is there to be asked, so all candidates stand"
        preemption.append(msgspec.structs.replace(preemption_policy, extenders=()))
    return Judgeable(Policies(priority=tuple(kept), preemption=tuple(preemption)), left_out)


def _unjudgeable(policy: PriorityPolicy, rule: PriorityRule, objects: ClusterObjects) -> str:
    """Why a rule cannot be judged by these objects; empty if it can."""
    fields = rule.declaration.fields
    if unknown := sorted(".".join(path) for path in fields if not _KNOWN.issuperset(path[:2])):
        return f"it reads {', '.join(unknown)}, which the snapshot does not have"
    return next(filter(None, (_lacking(program, objects) for program in _expressions(policy, rule))), "")


def _expressions(policy: PriorityPolicy, rule: PriorityRule) -> Iterator[Program]:
    yield from (compile_bool(condition.expression) for condition in policy.conditions)
    if rule.validate is not None:
        yield compile_bool(rule.validate.expression)
        if rule.validate.message_expression:
            yield compile_text(rule.validate.message_expression)


def _lacking(program: Program, objects: ClusterObjects) -> str:
    """What an expression reads that a cluster file does not have: said of too much rather than of too little."""
    paths = fields_read(program.tree, _ABOUT)
    if objects.annotations is not None:
        if any(path[1:] == _ANNOTATIONS for path in paths):
            return "it reads annotations whatever their keys are, and the snapshot has only some"
        if keys := sorted(_annotations_in(program) - objects.annotations):
            return f"it reads the annotation {', '.join(keys)}, which the snapshot does not have"
    if ("object",) in paths or ("oldObject",) in paths:
        return "it reads an object as a whole, and the snapshot has only what decides of it"
    fields = {field for path in paths for above, field in pairwise(path) if above not in _MAPS and field != ELEMENT}
    unknown = sorted(fields - _KNOWN)
    return f"it reads {', '.join(unknown)}, which the snapshot does not have" if unknown else ""


def _annotations_in(program: Program) -> set[str]:
    return {path[3] for path in fields_read(program.tree, _ABOUT) if path[1:3] == _ANNOTATIONS and len(path) > 3}


def _fields(*types: type[msgspec.Struct]) -> set[str]:
    """The names of all fields of these types and of what they hold, as in JSON."""
    _, parts = msgspec.json.schema_components(types)
    return {name for part in parts.values() for name in part.get("properties", ())}


_KNOWN = frozenset((*_fields(Pod, PriorityClass), *_OF_REQUEST, "request", "metadata")) - _LEFT_OUT
