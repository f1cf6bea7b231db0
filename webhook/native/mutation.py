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
from webhook.native.management import managed, managed_if_generated, twins_of
from webhook.native.matching import NEW_POD, excluded, who_is_given
from webhook.native.objects import (
    Condition,
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
from webhook.policy.evaluation.shield import BUILTIN
from webhook.policy.model import DECISION, GIVEN, MANAGED, MARK, PLAN, Policies, PriorityPolicy

__all__ = ["mutating_objects"]

_MIRROR = "kubernetes.io/config.mirror"
_OWN_NAME = "object.spec.?priorityClassName.orValue('')"
_OWN_POLICY = "object.spec.?preemptionPolicy.orValue('')"
_CLASS = "variables.className"
_ANNOTATIONS = "variables.annotations"


def mutating_objects(policies: Policies, table: ClassTable | None, sink: Sink) -> Iterator[Object]:
    """The two policies with their bindings."""
    for made in (_pods(policies, table, sink), _classes(policies)):
        if made is not None:
            yield made
            yield binding(made)


def _pods(policies: Policies, table: ClassTable | None, sink: Sink) -> Object:
    """New pods: class, priority and preemption policy, copied annotations, the mark; what is giveway's own goes."""
    rules: list[str] = []
    variables = [("annotations", "object.metadata.?annotations.orValue({})")]
    variables.append(("given", _given()))
    default = _default(policies, table, rules, sink)
    copying = _copying(policies, table, rules, sink)
    twins = _usable_twins(policies, table, sink)
    named = _OWN_NAME
    if default != quote(""):
        variables.append(("default", default))
        variables.append(("named", f"variables.default == '' ? {_OWN_NAME} : variables.default"))
        named = "variables.named"
    to_twins = mapping((one, quote(twin)) for one, twin in twins.items())
    variables.append(("className", f"{to_twins}[?{named}].orValue({named})" if twins else named))
    given_classes = [*_default_names(policies), *twins.values()]
    numbers = table.numbers(given_classes) if table is not None else ("{}", "{}")
    moves = numbers[0] != "{}"
    if moves:
        variables += [("value", numbers[0]), ("preemptionPolicy", numbers[1])]
    policy = f"variables.preemptionPolicy[?{_CLASS}].orValue({_OWN_POLICY})" if moves else _OWN_POLICY
    ours = all_of([managed(policies.preemption, _CLASS), f"{policy} == {quote(NEVER)}"])
    variables.append(("managed", ours))
    keys = sorted({key for found, _ in copying for key in found if table is not None and table.annotation(key) != "{}"})
    if keys and table is not None:
        variables += [(value_variable(key, keys), table.annotation(key)) for key in keys]
        variables += _copied(copying, keys)
    patch = _patch(copies=bool(keys), moves=moves, defaults=default != quote(""))
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
        conditions=[Condition("no-mirror-pod", f"!({quote(_MIRROR)} in object.metadata.?annotations.orValue({{}}))")],
        variables=variables,
        patch=patch,
    )


def _owned(path: Sequence[str]) -> str:
    """A client set this field: the API server notes so in managedFields before anybody mutates the pod."""
    steps = "".join(f"[?{quote(f'f:{step}')}]" for step in path)
    return f"object.metadata.?managedFields.orValue([]).exists(m, m.?fieldsV1{steps}.hasValue())"


def _given() -> str:
    """The record of an earlier call for this pod; what a client wrote counts for nothing."""
    forged = _owned(["metadata", "annotations", GIVEN])
    return f"{forged}\n? ''\n: object.metadata.?annotations[?{quote(GIVEN)}].orValue('')"


def _default(policies: Policies, table: ClassTable | None, rules: list[str], sink: Sink) -> str:
    """The class for a pod that names none, or the empty string; the first rule that applies decides."""
    found: list[tuple[str, str]] = []
    for policy in policies.priority:
        for rule in policy.rules:
            name = rule.default_priority_class
            if name is None:
                continue
            rule_id = f"{policy.name}/{rule.name}"
            try:
                when = _gives(policy)
            except InexpressibleError as error:
                sink.inexpressible.append(Inexpressible(rule_id, str(error)))
                break
            if table is None:
                reason = "a pod that is given a class must be given its priority, too: give the classes"
                sink.inexpressible.append(Inexpressible(rule_id, reason))
                break
            if name not in table:
                sink.inexpressible.append(
                    Inexpressible(rule_id, f"PriorityClass {name} does not exist, so it is not given")
                )
            rules.append(rule_id)
            found.append((when, name if name in table else ""))
            break
    if not any(name for _, name in found):
        return quote("")
    chosen = quote("")
    for when, name in reversed(found):
        chosen = if_else(when, quote(name), chosen)
    return if_else(_names_none(table), chosen, quote(""))


def _names_none(table: ClassTable | None) -> str:
    """The pod names no class: it has none, or the Priority plugin filled in the global default."""
    tests = [f"{_OWN_NAME} == ''"]
    defaults = table.global_defaults if table is not None else []
    if defaults:
        sent = "object.metadata.?managedFields.orValue([])"
        tests.append(
            all_of(
                [
                    "variables.given == ''",
                    f"{_OWN_NAME} in {listing(defaults)}",
                    f"{sent}.exists(m, m.?fieldsV1[?'f:spec'].hasValue())",
                    negate(_owned(["spec", "priorityClassName"])),
                ]
            )
        )
    return any_of(tests)


def _default_names(policies: Policies) -> list[str]:
    rules = (rule for policy in policies.priority for rule in policy.rules)
    return [rule.default_priority_class for rule in rules if rule.default_priority_class is not None]


def _gives(policy: PriorityPolicy) -> str:
    """The policy fills something in for the pod. Raises InexpressibleError."""
    tests = [who_is_given(policy.match, NEW_POD), negate(excluded(policy.exclude, NEW_POD))]
    return all_of([*tests, *(bracketed(one.expression) for one in conditions_of(policy))])


def _copying(
    policies: Policies, table: ClassTable | None, rules: list[str], sink: Sink
) -> list[tuple[tuple[str, ...], str]]:
    """The annotations that are copied, in groups of keys, each with when."""
    found: list[tuple[tuple[str, ...], str]] = []
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
                found.append((rule.copy_annotations, _gives(policy)))
            except InexpressibleError as error:
                sink.inexpressible.append(Inexpressible(rule_id, str(error)))
                continue
            rules.append(rule_id)
            for key in rule.copy_annotations:
                if classes := table.unrecordable(key):
                    reason = f"{key} of PriorityClass {', '.join(classes)} is not copied: it has quotes, or is too long"
                    sink.inexpressible.append(Inexpressible(rule_id, reason))
    return found


def _usable_twins(policies: Policies, table: ClassTable | None, sink: Sink) -> dict[str, str]:
    wanted = twins_of(policies.preemption)
    if table is not None:
        return table.usable_twins(wanted)
    if wanted:
        reason = "a pod that is moved to a twin must be given its priority, too: give the classes"
        sink.inexpressible.append(Inexpressible(f"{BUILTIN}/twins", reason))
    return {}


def _copied(copying: list[tuple[tuple[str, ...], str]], keys: Sequence[str]) -> list[tuple[str, str]]:
    """Variables: what the class offers, what an earlier call copied, and what is copied now."""
    offers = (f"?{quote(key)}: variables.{value_variable(key, keys)}[?{_CLASS}]" for key in keys)
    when: dict[str, list[str]] = {}
    for found, condition in copying:
        for key in found:
            when.setdefault(key, []).append(condition)
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(any_of(when[key]), []).append(key)
    lists = [if_else(condition, listing(found), "[]") for condition, found in groups.items()]
    asked = " + ".join(one if one.startswith("[") else f"({one})" for one in lists if one != "[]") or "[]"
    ours = (
        f"{listing(keys)}.filter(k, k in {_ANNOTATIONS} &&"
        f" variables.given.contains('\"' + k + '\":\"' + {_ANNOTATIONS}[k] + '\"'))"
    )
    copied = f"({asked}).filter(k, k in variables.offered && (!(k in {_ANNOTATIONS}) || k in variables.copiedBefore))"
    return [("offered", f"{{{', '.join(offers)}}}"), ("copiedBefore", ours), ("copied", copied)]


def _patch(*, copies: bool, moves: bool, defaults: bool) -> str:
    """One JSON patch; each part is empty if there is nothing to do."""
    given_class = f"{_CLASS} != {_OWN_NAME}"
    noted = [given_class] if moves else []
    noted += ["variables.default != ''"] if defaults else []
    record = [f"({_CLASS} == '' ? '' : '\"class\":\"' + {_CLASS} + '\"')"]
    if copies:
        noted.append("variables.copied.size() > 0")
        pairs = "variables.copied.map(k, '\"' + k + '\":\"' + variables.offered[k] + '\"').join(',')"
        comma = f"({_CLASS} == '' ? '' : ',')"
        record.append(f"(variables.copied.size() == 0 ? '' : {comma} + '\"copied\":{{' + {pairs} + '}}')")
    noted.append("variables.given != ''")
    parts = []
    if moves:
        parts.append(
            _when(
                given_class,
                _add("/spec/priorityClassName", _CLASS),
                _add("/spec/priority", f"variables.value[{_CLASS}]"),
                _add("/spec/preemptionPolicy", f"variables.preemptionPolicy[{_CLASS}]"),
            )
        )
    parts.append(
        _when(
            all_of([bracketed(any_of(noted)), "!has(object.metadata.annotations)"]), _add("/metadata/annotations", "{}")
        )
    )
    if copies:
        add = f'JSONPatch{{op: "add", path: {_path("annotations", "k")}, value: variables.offered[k]}}'
        remove = f'JSONPatch{{op: "remove", path: {_path("annotations", "k")}}}'
        parts.append(f"variables.copiedBefore.filter(k, !(k in variables.copied)).map(k, {remove})")
        parts.append(f"variables.copied.map(k, {add})")
    parts += [_when(f"{quote(key)} in {_ANNOTATIONS}", _remove("annotations", key)) for key in (PLAN, DECISION)]
    text = f"'{{' + {' + '.join(record)} + '}}'"
    note = _add_at(_path("annotations", quote(GIVEN)), text)
    parts.append(
        f"({any_of(noted)}\n? [{note}]\n: {quote(GIVEN)} in {_ANNOTATIONS}\n? [{_remove('annotations', GIVEN)}]\n: [])"
    )
    marked = "variables.managed"
    parts.append(_when(f"{marked} && !has(object.metadata.labels)", _add("/metadata/labels", "{}")))
    parts.append(
        f"({marked}\n? [{_add_at(_path('labels', quote(MARK)), quote(MANAGED))}]"
        f"\n: {quote(MARK)} in object.metadata.?labels.orValue({{}})\n? [{_remove('labels', MARK)}]\n: [])"
    )
    return " +\n".join(parts)


def _when(condition: str, *operations: str) -> str:
    rows = ",\n ".join(operations)
    return f"({condition}\n? [{rows}]\n: [])"


def _add(path: str, value: str) -> str:
    return _add_at(quote(path), value)


def _add_at(path: str, value: str) -> str:
    return f'JSONPatch{{op: "add", path: {path}, value: {value}}}'


def _remove(field: str, key: str) -> str:
    return f'JSONPatch{{op: "remove", path: {_path(field, quote(key))}}}'


def _path(field: str, key: str) -> str:
    return f"'/metadata/{field}/' + jsonpatch.escapeKey({key})"


def _classes(policies: Policies) -> Object | None:
    """A managed PriorityClass is made `Never`, and stays so when its manifest is applied again.

    The field is immutable: one that exists and is not `Never` is left alone and needs a twin.
    """
    name, prefix = "object.metadata.?name.orValue('')", "object.metadata.?generateName.orValue('')"
    ours = if_else(
        f"{name} != ''", managed(policies.preemption, name), managed_if_generated(policies.preemption, prefix)
    )
    if ours == FALSE:
        return None
    never = _add("/preemptionPolicy", quote(NEVER))
    return mutating_policy(
        object_name(BUILTIN, "priorityclasses", "mutate"),
        [f"{BUILTIN}/managed-classes"],
        description="Makes managed PriorityClasses `Never`, so that kube-scheduler leaves preemption to giveway.",
        constraints={"resourceRules": [classes_rule(["CREATE", "UPDATE"])]},
        conditions=[
            Condition("managed", ours),
            Condition("not-never", f"object.?preemptionPolicy.orValue('') != {quote(NEVER)}"),
            Condition(
                "new-or-never",
                f"request.operation == 'CREATE' || oldObject.?preemptionPolicy.orValue('') == {quote(NEVER)}",
            ),
        ],
        patch=f"[{never}]",
    )
