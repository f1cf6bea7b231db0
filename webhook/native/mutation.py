"""What giveway fills in, natively: one MutatingAdmissionPolicy for new pods and one for PriorityClasses.

One policy for pods and not one for each rule, because the parts build on each other (the default class decides the
twin, the twin what is copied, all of it the mark), and no order is promised between policies. The in-tree plugin
Priority runs before it and again after it, so class, priority and preemption policy are set together
(docs/kubernetes-behaviour.md K1, K2).

What was given is recorded on the pod in the form of `webhook.admission.mutating`, so that a second call, by the API
server or by the webhook, replaces what does not hold any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webhook.native.expressions import FALSE, all_of, any_of, if_else, listing, mapping, negate, quote
from webhook.native.matching import NEW_POD, excluded, managed, managed_if_generated, twins_of, who_is_given
from webhook.native.objects import (
    CompiledCondition,
    Object,
    binding,
    classes_rule,
    mutating_policy,
    namespaces_reached,
    object_name,
    resource_rule,
)
from webhook.native.protected import value_variable
from webhook.native.rewriting import InexpressibleError
from webhook.native.rules import Inexpressible, Sink, bracketed, conditions_of
from webhook.native.table import LONGEST_EXPRESSION, NEVER, ClassTable
from webhook.policy.evaluation.rules import BUILTIN
from webhook.policy.model import DECISION, GIVEN, MANAGED, MARK, PLAN, Policies, PriorityPolicy

__all__ = ["mutating_objects"]

_MIRROR = "kubernetes.io/config.mirror"
_OWN_NAME = "object.spec.?priorityClassName.orValue('')"
_OWN_POLICY = "object.spec.?preemptionPolicy.orValue('')"
_CLASS = "variables.className"
_ANNOTATIONS = "variables.annotations"


def mutating_objects(policies: Policies, table: ClassTable | None, sink: Sink) -> Iterator[Object]:
    """The policy for new pods, and one by which a managed PriorityClass is made `Never`; each with its binding."""
    pods = _pods(policies, table, sink)
    yield pods
    yield binding(pods)
    name, prefix = "object.metadata.?name.orValue('')", "object.metadata.?generateName.orValue('')"
    ours = if_else(
        f"{name} != ''", managed(policies.preemption, name), managed_if_generated(policies.preemption, prefix)
    )
    if ours == FALSE:
        return
    # It stays `Never` when its manifest is applied again. The field is immutable: a class that exists and is not
    # `Never` is left alone, and needs a twin.
    was_never = f"oldObject.?preemptionPolicy.orValue('') == {quote(NEVER)}"
    classes = mutating_policy(
        object_name(BUILTIN, "priorityclasses", "mutate"),
        [f"{BUILTIN}/managed-classes"],
        description="Makes managed PriorityClasses `Never`, so that kube-scheduler leaves preemption to giveway.",
        constraints={"resourceRules": [classes_rule(["CREATE", "UPDATE"])]},
        conditions=[
            CompiledCondition("managed", ours),
            CompiledCondition("not-never", f"object.?preemptionPolicy.orValue('') != {quote(NEVER)}"),
            CompiledCondition("new-or-never", f"request.operation == 'CREATE' || {was_never}"),
        ],
        patch=f"[{_add(quote('/preemptionPolicy'), quote(NEVER))}]",
    )
    yield classes
    yield binding(classes)


def _pods(policies: Policies, table: ClassTable | None, sink: Sink) -> Object:
    """New pods: class, priority and preemption policy, copied annotations, the mark; what is giveway's own goes."""
    # The record of an earlier call for this pod; what a client wrote counts for nothing
    forged = _owned(["metadata", "annotations", GIVEN])
    given = f"{forged}\n? ''\n: object.metadata.?annotations[?{quote(GIVEN)}].orValue('')"
    variables = [("annotations", "object.metadata.?annotations.orValue({})"), ("given", given)]
    rules: list[str] = []
    default = _default(policies, table, rules, sink)
    copies = _copies(policies, table, rules, sink)
    twins = _twins(policies, table, sink)
    # The class that the pod gets
    named = _OWN_NAME
    if default != quote(""):
        variables.append(("default", default))
        variables.append(("named", f"variables.default == '' ? {_OWN_NAME} : variables.default"))
        named = "variables.named"
    to_twins = mapping((one, quote(twin)) for one, twin in twins.items())
    variables.append(("className", f"{to_twins}[?{named}].orValue({named})" if twins else named))
    # What the Priority plugin fills in for it, and whether giveway serves it
    given_classes = [rule.default_priority_class or "" for policy in policies.priority for rule in policy.rules]
    given_classes += twins.values()
    values, preemption_policies = table.numbers(given_classes) if table is not None else ("{}", "{}")
    policy = _OWN_POLICY
    if moves := values != "{}":
        variables += [("value", values), ("preemptionPolicy", preemption_policies)]
        policy = f"variables.preemptionPolicy[?{_CLASS}].orValue({_OWN_POLICY})"
    ours = all_of([managed(policies.preemption, _CLASS), f"{policy} == {quote(NEVER)}"])
    variables += [("managed", ours), *copies]
    for _, expression in variables:
        if len(expression) > LONGEST_EXPRESSION:
            reason = f"its table of classes has {len(expression)} characters; the API server takes {LONGEST_EXPRESSION}"
            sink.inexpressible.append(Inexpressible(", ".join(rules) or f"{BUILTIN}/copy", reason))
    return mutating_policy(
        object_name(BUILTIN, "pods", "mutate"),
        [*rules, *([f"{BUILTIN}/twins"] if twins else []), f"{BUILTIN}/mark", f"{BUILTIN}/own-annotations"],
        description="Fills in new pods: default class, twin, copied annotations, and the mark of pods to serve.",
        constraints={
            "namespaceSelector": namespaces_reached(sink.settings),
            "resourceRules": [resource_rule(["pods"], ["CREATE"])],
        },
        conditions=[
            CompiledCondition("no-mirror-pod", f"!({quote(_MIRROR)} in object.metadata.?annotations.orValue({{}}))")
        ],
        variables=variables,
        patch=_patch(copies=bool(copies), moves=moves, defaults=default != quote("")),
    )


def _owned(path: Sequence[str]) -> str:
    """A client set this field: the API server notes so in managedFields before anybody mutates the pod."""
    steps = "".join(f"[?{quote(f'f:{step}')}]" for step in path)
    return f"object.metadata.?managedFields.orValue([]).exists(m, m.?fieldsV1{steps}.hasValue())"


def _gives(policy: PriorityPolicy) -> str:
    """The policy fills something in for the pod. Raises InexpressibleError."""
    tests = [who_is_given(policy.match, NEW_POD), negate(excluded(policy.exclude, NEW_POD))]
    return all_of([*tests, *(bracketed(one.expression) for one in conditions_of(policy))])


def _default(policies: Policies, table: ClassTable | None, rules: list[str], sink: Sink) -> str:
    """The class for a pod that names none, or the empty string; the first rule that applies decides."""
    found: list[tuple[str, str]] = []
    for policy in policies.priority:
        rule = next((one for one in policy.rules if one.default_priority_class is not None), None)
        if rule is None:
            continue
        name, rule_id = rule.default_priority_class or "", f"{policy.name}/{rule.name}"
        try:
            when = _gives(policy)
        except InexpressibleError as error:
            sink.inexpressible.append(Inexpressible(rule_id, str(error)))
            continue
        if table is None:
            reason = "a pod that is given a class must be given its priority, too: give the classes"
            sink.inexpressible.append(Inexpressible(rule_id, reason))
            continue
        if name not in table:
            reason = f"PriorityClass {name} does not exist, so it is not given"
            sink.inexpressible.append(Inexpressible(rule_id, reason))
        rules.append(rule_id)
        found.append((when, name if name in table else ""))
    if table is None or not any(name for _, name in found):
        return quote("")
    chosen = quote("")
    for when, name in reversed(found):
        chosen = if_else(when, quote(name), chosen)
    # A pod names no class if it has none, or if the Priority plugin filled in the global default
    names_none = [f"{_OWN_NAME} == ''"]
    if defaults := table.global_defaults:
        filled_in = [
            "variables.given == ''",
            f"{_OWN_NAME} in {listing(defaults)}",
            _owned(["spec"]),
            negate(_owned(["spec", "priorityClassName"])),
        ]
        names_none.append(all_of(filled_in))
    return if_else(any_of(names_none), chosen, quote(""))


def _twins(policies: Policies, table: ClassTable | None, sink: Sink) -> dict[str, str]:
    """The classes whose pods are moved to a twin."""
    wanted = twins_of(policies.preemption)
    if table is not None:
        return table.usable_twins(wanted)
    if wanted:
        reason = "a pod that is moved to a twin must be given its priority, too: give the classes"
        sink.inexpressible.append(Inexpressible(f"{BUILTIN}/twins", reason))
    return {}


def _copies(policies: Policies, table: ClassTable | None, rules: list[str], sink: Sink) -> list[tuple[str, str]]:
    """Variables: what the class offers of the annotations to copy, what an earlier call copied, what is copied now."""
    when: dict[str, list[str]] = {}
    for policy in policies.priority:
        for rule in policy.rules:
            if rule.copy_annotations is None:
                continue
            rule_id = f"{policy.name}/{rule.name}"
            if table is None:
                reason = "what a class says is not known to the API server's expressions: give the classes"
                sink.inexpressible.append(Inexpressible(rule_id, reason))
                continue
            try:
                gives = _gives(policy)
            except InexpressibleError as error:
                sink.inexpressible.append(Inexpressible(rule_id, str(error)))
                continue
            rules.append(rule_id)
            for key in rule.copy_annotations:
                when.setdefault(key, []).append(gives)
                if classes := table.unrecordable(key):
                    reason = f"{key} of PriorityClass {', '.join(classes)} is not copied: it has quotes, or is too long"
                    sink.inexpressible.append(Inexpressible(rule_id, reason))
    said = {key: table.annotation(key) for key in sorted(when)} if table is not None else {}
    keys = [key for key, values in said.items() if values != "{}"]
    if not keys:
        return []
    names = {key: value_variable(key, keys) for key in keys}
    offers = (f"?{quote(key)}: variables.{names[key]}[?{_CLASS}]" for key in keys)
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(any_of(when[key]), []).append(key)
    lists = [if_else(gives, listing(found), "[]") for gives, found in groups.items()]
    asked = " + ".join(one if one.startswith("[") else f"({one})" for one in lists if one != "[]") or "[]"
    ours = (
        f"{listing(keys)}.filter(k, k in {_ANNOTATIONS} &&"
        f" variables.given.contains('\"' + k + '\":\"' + {_ANNOTATIONS}[k] + '\"'))"
    )
    copied = f"({asked}).filter(k, k in variables.offered && (!(k in {_ANNOTATIONS}) || k in variables.copiedBefore))"
    values = [(names[key], said[key]) for key in keys]
    return [*values, ("offered", f"{{{', '.join(offers)}}}"), ("copiedBefore", ours), ("copied", copied)]


def _patch(*, copies: bool, moves: bool, defaults: bool) -> str:
    """One JSON patch; each part is empty if there is nothing to do."""
    given_class = f"{_CLASS} != {_OWN_NAME}"
    parts = []
    # Class, priority and preemption policy
    if moves:
        values = {
            "priorityClassName": _CLASS,
            "priority": f"variables.value[{_CLASS}]",
            "preemptionPolicy": f"variables.preemptionPolicy[{_CLASS}]",
        }
        parts.append(_when(given_class, *(_add(quote(f"/spec/{field}"), value) for field, value in values.items())))
    # Annotations: those that are copied, and without giveway's own
    noted = [given_class] if moves else []
    noted += ["variables.default != ''"] if defaults else []
    noted += ["variables.copied.size() > 0"] if copies else []
    noted.append("variables.given != ''")
    has_none = all_of([bracketed(any_of(noted)), "!has(object.metadata.annotations)"])
    parts.append(_when(has_none, _add(quote("/metadata/annotations"), "{}")))
    record = [f"({_CLASS} == '' ? '' : '\"class\":\"' + {_CLASS} + '\"')"]
    if copies:
        one = _path("annotations", "k")
        parts.append(f"variables.copiedBefore.filter(k, !(k in variables.copied)).map(k, {_remove(one)})")
        parts.append(f"variables.copied.map(k, {_add(one, 'variables.offered[k]')})")
        pairs = "variables.copied.map(k, '\"' + k + '\":\"' + variables.offered[k] + '\"').join(',')"
        comma = f"({_CLASS} == '' ? '' : ',')"
        record.append(f"(variables.copied.size() == 0 ? '' : {comma} + '\"copied\":{{' + {pairs} + '}}')")
    own = map(quote, (PLAN, DECISION))
    parts += [_when(f"{key} in {_ANNOTATIONS}", _remove(_path("annotations", key))) for key in own]
    # The record of what was given
    given = _path("annotations", quote(GIVEN))
    note = _add(given, f"'{{' + {' + '.join(record)} + '}}'")
    parts.append(f"({any_of(noted)}\n? [{note}]\n: {quote(GIVEN)} in {_ANNOTATIONS}\n? [{_remove(given)}]\n: [])")
    # The mark
    ours, mark, labels = "variables.managed", _path("labels", quote(MARK)), "object.metadata.?labels.orValue({})"
    parts.append(_when(f"{ours} && !has(object.metadata.labels)", _add(quote("/metadata/labels"), "{}")))
    set_mark = _add(mark, quote(MANAGED))
    parts.append(f"({ours}\n? [{set_mark}]\n: {quote(MARK)} in {labels}\n? [{_remove(mark)}]\n: [])")
    return " +\n".join(parts)


def _when(condition: str, *operations: str) -> str:
    rows = ",\n ".join(operations)
    return f"({condition}\n? [{rows}]\n: [])"


def _add(path: str, value: str) -> str:
    return f'JSONPatch{{op: "add", path: {path}, value: {value}}}'


def _remove(path: str) -> str:
    return f'JSONPatch{{op: "remove", path: {path}}}'


def _path(field: str, key: str) -> str:
    """The path of an annotation or label whose key is an expression."""
    return f"'/metadata/{field}/' + jsonpatch.escapeKey({key})"
