"""What must hold between the fields of one mapping, by the type of the model that it makes.

What may stand in one field, its annotation in the model says; what must hold between policies, `consistency`.
"""

from __future__ import annotations

from webhook.kube.objects import LabelSelector, Requirement
from webhook.kube.selectors import SelectorError, label_matcher
from webhook.policy.files.check_rights import check_requesters, check_rights
from webhook.policy.model import (
    Enforcement,
    ExtenderConfig,
    PolicyException,
    PreemptionPolicy,
    Preemptors,
    PriorityClasses,
    PriorityPolicy,
    PriorityRule,
    ProtectAnnotations,
    Protection,
    RequestMatch,
    Reserve,
    SourcePosition,
    Subject,
    Validate,
)
from webhook.policy.model.match import requirement
from webhook.policy.shapes.findings import nearest
from webhook.policy.shapes.nodes import YamlNode
from webhook.policy.shapes.object_shape import Values
from webhook.policy.shapes.reader import Checks, Reader

__all__ = ["CHECKS"]

_LONGEST_TIMEOUT = 60
"""Seconds."""


def _subject(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    account = values.get("kind") == "ServiceAccount"
    if account and "namespace" not in values and "kind" in nodes:
        reader.error(nodes["kind"], 'a ServiceAccount needs "namespace"; "*" is any')
    if not account and "namespace" in nodes and "kind" in values:
        reader.error(nodes["namespace"], f'a {values["kind"]} has no "namespace"; only ServiceAccounts do')
    name = values.get("name", "")
    if values.get("kind") == "User" and name.startswith("system:serviceaccount:") and "*" not in name:
        reader.warn(
            nodes["name"], "this is a service account; kind: ServiceAccount with namespace and name says it plainly"
        )


def _requirement(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    if "key" not in values or "operator" not in values:
        return
    try:
        label_matcher(LabelSelector(match_expressions=[requirement(values, SourcePosition())]))
    except SelectorError as error:
        reader.error(nodes.get("values", nodes["operator"]), str(error))


def _priority_classes(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    for name in sorted(set(values.get("allow") or ()) & set(values.get("deny", ()))):
        reader.warn(nodes["deny"], f'"{name}" is in allow and in deny; deny wins')
    if values.get("allow") == ():
        reader.warn(nodes["allow"], "an empty allow refuses every PriorityClass")


def _reserve(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    if "from_" in values and "to" in values and values["from_"] > values["to"]:
        reader.error(nodes["from_"], f"the range ends at {values['to']}, before it begins; swap from and to")
    if values.get("use"):
        check_rights(values["use"], nodes["use"], reader, at_create=True)


def _protect_annotations(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    if values.get("allow"):
        at_create = "CREATE" in values.get("operations", ())
        check_rights(values["allow"], nodes["allow"], reader, at_create=at_create)


def _validate(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    if "expression" in values and "message" not in nodes and "message_expression" not in nodes:
        reader.warn(nodes["expression"], 'without "message" the author is told the expression; say what would be right')


def _exception(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    if values.get("match") == RequestMatch():
        reader.error(nodes["match"], "this excepts everybody: name who is meant, or turn the rules to warn")
    elif "match" in values:
        check_rights((values["match"],), nodes["match"], reader, at_create=True)


def _priority_policy(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    _names(values, nodes, reader)
    check_requesters(values, nodes, reader)
    if "rules" in values:
        _exceptions(values, reader)


def _names(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    """Rules and conditions share the names by which `policy/name` is found in messages, so no two may be alike."""
    seen: dict[str, int] = {}
    rows = [(rule["name"], rule["source"]) for rule in values.get("rules", ())]
    rows += [(one.name, one.source) for one in values.get("conditions", ())]
    for name, source in rows:
        if name in seen:
            node = YamlNode(source.line, source.column, 1)
            reader.error(node, f'name "{name}" is there twice in this policy; the other one is on line {seen[name]}')
        seen.setdefault(name, source.line)
    if "exclude" in nodes and values.get("exclude") is not None and values["exclude"] == RequestMatch():
        reader.warn(nodes["exclude"], "an empty exclude excludes nothing; leave it out or name something")


def _exceptions(values: Values, reader: Reader) -> None:
    """An exception names rules of its own policy, and such as can refuse something."""
    refusing = {
        rule["name"]: PriorityRule(**{"enforcement": Enforcement.ENFORCE, **rule}).refuses for rule in values["rules"]
    }
    for exception in values.get("exceptions", ()):
        node = YamlNode(exception.source.line, exception.source.column, 1)
        for name in exception.rules:
            if name not in refusing:
                reader.error(
                    node, f'the exception names a rule "{name}" that this policy does not have{nearest(name, refusing)}'
                )
            elif not refusing[name]:
                reader.error(node, f'rule "{name}" refuses nothing, so there is nothing to except from; use "exclude"')


def _preemptors(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    for name in values.get("priority_classes", ()):
        if name.startswith("system-"):
            reader.error(nodes["priority_classes"], f'"{name}": Kubernetes\' own classes are never managed')
    for original, twin in values.get("twins", {}).items():
        if original == twin:
            reader.error(nodes["twins"], f'"{original}" is its own twin; name the class of the same value with Never')
        elif twin in values["twins"]:
            reader.error(nodes["twins"], f'"{twin}" is the twin of "{original}" and has a twin itself')
        if "system-" in (original[:7], twin[:7]):
            reader.error(nodes["twins"], "Kubernetes' own classes are never managed")


def _protection(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    maximum = values.get("maximum")
    if maximum is not None and values.get("default", 0.0) > maximum:
        reader.error(nodes["default"], f"the default is longer than the maximum of {maximum:g} s")


def _extender(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    if not 0 < values.get("http_timeout", 1.0) <= _LONGEST_TIMEOUT:
        reader.error(nodes["http_timeout"], f"more than 0s and at most {_LONGEST_TIMEOUT}s, for the preemptor waits")


def _preemption_policy(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    preemptors = values.get("preemptors")
    if preemptors is not None and not preemptors.priority_classes and not preemptors.twins:
        reader.warn(
            nodes["preemptors"], "no class is named, so the policy manages no pod; name priorityClasses or twins"
        )


CHECKS: Checks = {
    Subject: _subject,
    Requirement: _requirement,
    PriorityClasses: _priority_classes,
    Reserve: _reserve,
    ProtectAnnotations: _protect_annotations,
    Validate: _validate,
    PolicyException: _exception,
    PriorityPolicy: _priority_policy,
    Preemptors: _preemptors,
    Protection: _protection,
    ExtenderConfig: _extender,
    PreemptionPolicy: _preemption_policy,
}
"""A type without a row needs no check beyond those of its fields."""
