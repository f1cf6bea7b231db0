"""Rights, and what is probably not meant when a policy or a right names `subjects`.

A policy that treats the author of a workload and the controller that makes its pods differently is pointed out, and
a right that controllers would open to everybody is refused (docs/policies.md, "Who asks").
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.policy.evaluation.matching import subjects_text
from webhook.policy.model import RequestMatch, SourcePosition, Subject
from webhook.policy.model.match import reads_user
from webhook.policy.shapes.nodes import YamlNode, YamlSequence
from webhook.policy.shapes.object_shape import Values
from webhook.policy.shapes.reader import Reader

__all__ = ["check_requesters", "check_rights"]

_MEND = 'add "namespaces" or "namespaceSelector" (not "*", {} or all but some: a new namespace must not be meant)'


def check_rights(rights: tuple[RequestMatch, ...], node: YamlNode, reader: Reader, *, at_create: bool) -> None:
    """Check the alternatives of a right, which stand at `node`; `at_create`: whether it is asked for new pods."""
    for right, place in _places(rights, node):
        if right.by_namespace:
            continue
        if right.subjects is not None and at_create:
            _check_subjects(right, place, reader)
        elif right.subjects is None and right.object_selector is not None:
            reader.warn(
                place,
                "whoever makes a pod chooses its labels, so everybody can take this right; leave it only if something"
                f' else guards the labels, else {_MEND} or "subjects"',
            )


def _check_subjects(right: RequestMatch, place: YamlNode, reader: Reader) -> None:
    """Note what is wrong, or probably not meant, in a right to make pods that names subjects and no namespace."""
    subjects = right.subjects or ()
    controllers = [one for one in subjects if one.covers_controllers]
    loose = [one for one in subjects if _means_service_accounts(one) and not one.exact_user]
    if controllers:
        reader.error(
            place,
            f"{subjects_text(controllers)} means the controllers, which make pods for whoever makes a workload: the"
            f" right would be everybody's; leave this subject out and say for which pods the right is: {_MEND}",
        )
    elif loose:
        reader.warn(
            place,
            f"{subjects_text(loose)} gives this right to no service account, because each may make pods for someone"
            f" else; name those that make pods for themselves exactly, or {_MEND}",
        )
    else:
        reader.warn(
            place,
            "workloads of these subjects are let in and their pods refused, because controllers make the pods and have"
            f" a right by namespace only; {_MEND}",
        )


def _means_service_accounts(subject: Subject) -> bool:
    return subject.kind == "ServiceAccount" or subject.name.startswith("system:serviceaccount")


def check_requesters(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    """Check `match`, `exclude` and the expressions of a policy: who asks for a pod is often a controller."""
    match, exclude = values.get("match") or RequestMatch(), values.get("exclude") or RequestMatch()
    rules = [rule for rule in values.get("rules", ()) if _about_new_pods(rule)]
    if not rules:
        return
    if "CREATE" not in (match.operations or ("CREATE",)):
        if match.subjects is not None and any("validate" in rule for rule in rules):
            reader.warn(
                nodes["match"],
                "the rules also hold for changes that service accounts make, because they may make them for someone"
                " else; leave the subjects out, or let the expression pass what controllers change",
            )
        return
    if match.subjects is not None:
        narrow = match.by_namespace
        reader.warn(
            nodes["match"],
            f"the rules also hold for pods that controllers and service accounts make in"
            f" {'these namespaces' if narrow else 'every namespace'}, whoever the author of the workload is: workloads"
            f" of others are let in and their pods may be refused; {'leave the subjects out' if narrow else _MEND}",
        )
    if exclude.subjects is not None and not exclude.by_namespace:
        reader.warn(
            nodes["exclude"],
            "workloads of these subjects are let in and their pods may be refused, because controllers make the pods"
            f" and are excluded by namespace only; {_MEND}",
        )
    for expression, source in _expressions(values, rules):
        if reads_user(expression):
            reader.warn(
                YamlNode(source.line, source.column, 1),
                "request.userInfo is a controller when it makes the pods of a workload, so the author is judged in one"
                " way and the pods in another; read namespaceObject instead, or match operations [UPDATE]",
            )


def _expressions(values: Values, rules: list[Values]) -> Iterator[tuple[str, SourcePosition]]:
    yield from ((one.expression, one.source) for one in values.get("conditions", ()))
    yield from ((rule["validate"].expression, rule["source"]) for rule in rules if "validate" in rule)


def _about_new_pods(rule: Values) -> bool:
    """Whether a rule says anything of a pod that is made, or of a template."""
    if "validate" in rule:
        return "pods" in rule["validate"].resources
    return "protect_annotations" not in rule or "CREATE" in rule["protect_annotations"].operations


def _places(rights: tuple[RequestMatch, ...], node: YamlNode) -> Iterator[tuple[RequestMatch, YamlNode]]:
    """Each right with the place where it stands; all of them with the whole, if some could not be read."""
    nodes = node.items if isinstance(node, YamlSequence) else [node]
    return zip(rights, nodes if len(nodes) == len(rights) else [node] * len(rights), strict=True)
