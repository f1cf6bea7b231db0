"""The protected keys of pods natively: giveway's own annotations, the mark, and the annotations that policies shield.

The same keys are judged on pods, on `pods/status` and on Bindings, because all three write the metadata of a pod
(docs/kubernetes-behaviour.md K6). The rules are those of `webhook.admission.validating` and of
`webhook.policy.evaluation.shield`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from webhook.native.expressions import FALSE, TRUE, Cel, all_of, any_of, concatenation, if_else, negate, quote
from webhook.native.management import managed
from webhook.native.matching import BINDING, CHANGED_POD, NEW_POD, USER, Asked, may, who_is_given
from webhook.native.objects import (
    EXCEPTED,
    Condition,
    Object,
    Validation,
    binding,
    namespaces_reached,
    object_name,
    resource_rule,
    validating_policy,
)
from webhook.native.rewriting import InexpressibleError
from webhook.native.rules import CLASS_NAME, Inexpressible, Sink, applies, excepting
from webhook.native.table import NEVER, ClassTable
from webhook.policy.evaluation.describing import excepted_text, rights_text
from webhook.policy.evaluation.engine import shielded
from webhook.policy.evaluation.shield import BUILTIN, SHIELD
from webhook.policy.model import (
    DECISION,
    MANAGED,
    MARK,
    OWN_ANNOTATIONS,
    PLAN,
    Enforcement,
    Policies,
    PriorityPolicy,
    PriorityRule,
    ProtectAnnotations,
)

__all__ = ["protected_objects", "value_variable"]

_MIRROR = "kubernetes.io/config.mirror"


_WHAT = {
    "pods": "Judges giveway's own keys and protected annotations of new pods",
    "newannotations": "Judges annotations of new pods by rules on trial",
    "annotations": "Keeps protected annotations and giveway's own keys of pods as they are",
    "bindings": "Keeps Bindings from setting protected annotations and giveway's own keys of pods",
}
"""What the objects of this module do."""


class _Shield(NamedTuple):
    """A `protectAnnotations` rule: to whom it applies, and whom it allows, by what is asked."""

    policy: PriorityPolicy
    rule: PriorityRule
    body: ProtectAnnotations

    @property
    def id(self) -> str:
        return f"{self.policy.name}/{self.rule.name}"

    def applies(self, asked: Asked) -> str:
        return applies(self.policy, asked)

    def grants(self, asked: Asked) -> str:
        """It applies, and allows the change: the policy's own `match` is part of the right."""
        return all_of([self.applies(asked), who_is_given(self.policy.match, asked), may(self.body.allow, asked)])


def protected_objects(policies: Policies, table: ClassTable | None, sink: Sink) -> Iterator[Object]:
    """The policies about new pods, about changes of pods, and about Bindings, with their bindings."""
    shields = list(_shields(policies, table, sink))
    yield from _new_pods(policies, shields, table, sink)
    yield from _changes(policies, shields, sink)
    yield from _bindings(policies, shields, sink)
    yield from _on_trial(shields, table, sink)


def value_variable(key: str, keys: Sequence[str]) -> str:
    """The variable with what each class says for an annotation, named after the end of its key."""
    name = "".join(word.capitalize() for word in key.rpartition("/")[2].replace(".", "-").replace("_", "-").split("-"))
    same = [one for one in keys if one.rpartition("/")[2] == key.rpartition("/")[2]]
    return f"class{name}{same.index(key) + 1 if len(same) > 1 else ''}"


def _shields(policies: Policies, table: ClassTable | None, sink: Sink) -> Iterator[_Shield]:
    for policy in policies.priority:
        for rule in policy.rules:
            if rule.protect_annotations is None:
                continue
            rule_id = f"{policy.name}/{rule.name}"
            try:
                applies(policy, CHANGED_POD)
            except InexpressibleError as error:
                sink.inexpressible.append(Inexpressible(rule_id, str(error)))
                continue
            if table is None and "CREATE" in rule.protect_annotations.operations:
                reason = "at CREATE it turns on what the pod's class says: give the classes"
                sink.inexpressible.append(Inexpressible(rule_id, reason))
            yield _Shield(policy, rule, rule.protect_annotations)


def _new_pods(policies: Policies, shields: list[_Shield], table: ClassTable | None, sink: Sink) -> Iterator[Object]:
    ours = managed(policies.preemption, CLASS_NAME)
    is_ours = all_of([ours, f"object.spec.?preemptionPolicy.orValue('') == {quote(NEVER)}"])
    mark = f"object.metadata.?labels[?{quote(MARK)}]"
    validations = [
        Validation(
            rule=f"{BUILTIN}/own-annotations",
            expression=f"!{_annotation('object', key)}.hasValue()",
            text=(
                f"rule {BUILTIN}/own-annotations: annotation {key} is written by giveway's reconciler",
                " only: leave it out",
            ),
        )
        for key in (PLAN, DECISION)
    ]
    filled_in = "has(object.spec.priority) && has(object.spec.preemptionPolicy)"
    resolved = [filled_in, f"{_annotation('object', _MIRROR)}.hasValue()"]
    validations.append(
        Validation(
            rule=f"{BUILTIN}/priority-resolved",
            expression=any_of(resolved),
            text=(
                f"rule {BUILTIN}/priority-resolved: spec.priority and spec.preemptionPolicy were never filled in: the",
                " pod did not pass the API server's Priority plugin, without which giveway's policies do not work",
            ),
        )
    )
    marked = all_of([is_ours, f"{mark}.value() == {quote(MANAGED)}"])
    validations.append(
        Validation(
            rule=f"{BUILTIN}/mark",
            expression=any_of([f"!{mark}.hasValue()", marked]),
            text=(f"rule {BUILTIN}/mark: label {MARK} is ", Cel(if_else(is_ours, _wrong_mark(mark), _STRAY_MARK))),
        )
    )
    unmarked = all_of([is_ours, f"!{mark}.hasValue()", f"!{_annotation('object', _MIRROR)}.hasValue()"])
    nobody = (f"no label {MARK}: {MANAGED}, so nothing preempts for this pod of class ", Cel(CLASS_NAME))
    if not sink.settings.mutates and unmarked != FALSE:
        text = (f"rule {BUILTIN}/mark: ", *nobody, ": it did not pass giveway's mutating webhook; try again")
        validations.append(Validation(rule=f"{BUILTIN}/mark", expression=negate(unmarked), text=text))
    enforced = [one for one in shields if one.rule.enforcement is Enforcement.ENFORCE]
    variables = [("className", "object.spec.?priorityClassName.orValue('')")]
    keys = sorted({key for one in shields for key in one.body.keys if "CREATE" in one.body.operations})
    if table is not None:
        rows, told = _key_rows(NEW_POD, enforced, frozenset(), keys, sink)
        validations += rows
        variables += [(value_variable(key, keys), table.annotation(key)) for key in keys]
        yield from _policy(BUILTIN, "pods", EXCEPTED, ["pods"], "CREATE", told, sink, variables)
    yield from _policy(BUILTIN, "pods", "enforce", ["pods"], "CREATE", validations, sink, variables)
    warned = list(_served_by_nobody(ours, unmarked, nobody, sink))
    yield from _policy(BUILTIN, "pods", "warn", ["pods"], "CREATE", warned, sink, variables[:1])


def _wrong_mark(mark: str) -> str:
    said = [
        Cel(f"'\\'' + {mark}.value() + '\\''"),
        f"; its only value is {MANAGED!r}, and giveway sets it by itself: leave it out",
    ]
    return concatenation(said)


_STRAY_MARK = (
    "'giveway\\'s own mark and ' + (variables.className == '' ? 'no PriorityClass is named'"
    " : 'PriorityClass ' + variables.className + ' is not one that it manages') + ': leave the label out'"
)


def _served_by_nobody(ours: str, unmarked: str, nobody: tuple[str, ...], sink: Sink) -> Iterator[Validation]:
    """Pods of managed classes for which giveway does not preempt: their authors are warned."""
    if ours == FALSE:
        return
    if sink.settings.mutates:
        yield Validation(rule=f"{BUILTIN}/mark", expression=negate(unmarked), text=nobody)
    preempting = all_of([ours, f"object.spec.?preemptionPolicy.orValue('') != {quote(NEVER)}"])
    text = (
        "PriorityClass ",
        Cel(CLASS_NAME),
        " is managed but has preemptionPolicy PreemptLowerPriority and no usable twin: kube-scheduler preempts for the",
        " pod, giveway does not",
    )
    yield Validation(rule=f"{BUILTIN}/twins", expression=negate(preempting), text=text)


def _changes(policies: Policies, shields: list[_Shield], sink: Sink) -> Iterator[Object]:
    """Changes through the pod and through its status; the reconciler writes the latter."""
    validations = list(_own_keys("object", "oldObject", sink.settings.reconciler))
    enforced = [one for one in shields if one.rule.enforcement is Enforcement.ENFORCE]
    builtin = shielded(policies.preemption)
    keys = sorted(builtin | {key for one in shields for key in one.body.keys})
    rows, told = _key_rows(CHANGED_POD, enforced, builtin, keys, sink)
    resources = ["pods", "pods/status"]
    yield from _policy(BUILTIN, "annotations", "enforce", resources, "UPDATE", [*validations, *rows], sink)
    yield from _policy(BUILTIN, "annotations", EXCEPTED, resources, "UPDATE", told, sink)


def _bindings(policies: Policies, shields: list[_Shield], sink: Sink) -> Iterator[Object]:
    """A Binding's annotations and labels go to its pod, whose own are not known here."""
    validations = list(_own_keys("object", "", sink.settings.reconciler))
    enforced = [one for one in shields if one.rule.enforcement is Enforcement.ENFORCE]
    builtin = shielded(policies.preemption)
    keys = sorted(builtin | {key for one in shields for key in one.body.keys})
    rows, told = _key_rows(BINDING, enforced, builtin, keys, sink)
    resources = ["pods/binding", "bindings"]
    yield from _policy(BUILTIN, "bindings", "enforce", resources, "CREATE", [*validations, *rows], sink)
    yield from _policy(BUILTIN, "bindings", EXCEPTED, resources, "CREATE", told, sink)


def _on_trial(shields: list[_Shield], table: ClassTable | None, sink: Sink) -> Iterator[Object]:
    """Rules under `warn` and `audit` report, each for itself, and give no rights."""
    groups: dict[tuple[str, str], list[_Shield]] = {}
    for one in shields:
        if one.rule.enforcement is not Enforcement.ENFORCE:
            groups.setdefault((one.policy.name, one.rule.enforcement.value), []).append(one)
    asked_about: list[tuple[Asked, str, list[str], str]] = [
        (NEW_POD, "newannotations", ["pods"], "CREATE"),
        (CHANGED_POD, "annotations", ["pods", "pods/status"], "UPDATE"),
        (BINDING, "bindings", ["pods/binding", "bindings"], "CREATE"),
    ]
    for (policy, how), found in groups.items():
        keys = sorted({key for one in found for key in one.body.keys})
        variables = [("className", "object.spec.?priorityClassName.orValue('')")]
        variables += [(value_variable(key, keys), table.annotation(key)) for key in keys] if table is not None else []
        for asked, what, resources, operation in asked_about:
            if asked == NEW_POD and table is None:
                continue
            made = [_key_rows(asked, [one], frozenset(), keys, sink) for one in found]
            rows, told = ([row for pair in made for row in pair[side]] for side in (0, 1))
            yield from _policy(policy, what, how, resources, operation, rows, sink, variables)
            if how == "warn":
                yield from _policy(policy, what, EXCEPTED, resources, operation, told, sink, variables)


def _own_keys(now: str, before: str, reconciler: str) -> Iterator[Validation]:
    writes = f"{USER} == {quote(reconciler)}"
    for key in OWN_ANNOTATIONS:
        yield Validation(
            rule=f"{BUILTIN}/own-annotations",
            expression=any_of([_same(now, before, "annotations", key), writes]),
            text=(
                f"rule {BUILTIN}/own-annotations: annotation {key} is giveway's own record: on a pod that exists only",
                f" {reconciler} changes it",
            ),
        )
    was = f"{before}.metadata.?labels[?{quote(MARK)}].orValue('absent')" if before else quote("absent")
    yield Validation(
        rule=f"{BUILTIN}/mark",
        expression=any_of([_same(now, before, "labels", MARK), writes]),
        text=(
            f"rule {BUILTIN}/mark: label {MARK} says that giveway preempts for this pod; it is set at creation and",
            " stays as it is (now ",
            Cel(was),
            ", requested ",
            Cel(f"{now}.metadata.?labels[?{quote(MARK)}].orValue('absent')"),
            ")",
        ),
    )


def _key_rows(
    asked: Asked, enforced: list[_Shield], builtin: frozenset[str], keys: Sequence[str], sink: Sink
) -> tuple[list[Validation], list[Validation]]:
    """Who may change each key, and what whoever uses an exception is told.

    A rule that grants the change suffices. If no rule that applies speaks of a key, the built-in rule does.
    """
    rows: list[Validation] = []
    told: list[Validation] = []
    operation = asked.operation
    for key in keys:
        speaking = [one for one in enforced if key in one.body.keys and operation in one.body.operations]
        unchanged = _unchanged(asked, key, keys)
        granted = [one.grants(asked) for one in speaking]
        for one in speaking:
            test = any_of([unchanged, negate(one.applies(asked)), *granted])
            text = _text(asked, key, one)
            excepted = excepting(one.policy, one.rule, (asked,), sink)
            expression = any_of([test, *(holds for _, holds in excepted)])
            rows.append(Validation(rule=one.id, expression=expression, text=text))
            for exception, holds in excepted:
                said = (excepted_text(one.id, exception, ""), *text)
                told.append(Validation(rule=one.id, expression=any_of([test, negate(holds)]), text=said))
        if key in builtin:
            test = any_of([unchanged, *(one.applies(asked) for one in speaking)])
            rows.append(Validation(rule=f"{BUILTIN}/{SHIELD}", expression=test, text=_text(asked, key, None)))
    return [one for one in rows if one.expression != TRUE], told


def _unchanged(asked: Asked, key: str, keys: Sequence[str]) -> str:
    now = _annotation("object", key)
    if asked == NEW_POD:
        copied = f"{now} == variables.{value_variable(key, keys)}[?{CLASS_NAME}]"
        return any_of([f"!{now}.hasValue()", copied])
    return _same("object", "oldObject" if asked.labels_known else "", "annotations", key)


def _same(now: str, before: str, field: str, key: str) -> str:
    path = f"metadata.?{field}[?{quote(key)}]"
    return f"{now}.{path} == {before}.{path}" if before else f"!{now}.{path}.hasValue()"


def _annotation(of: str, key: str) -> str:
    return f"{of}.metadata.?annotations[?{quote(key)}]"


def _text(asked: Asked, key: str, shield: _Shield | None) -> tuple[str, ...]:
    rule = shield.id if shield else f"{BUILTIN}/{SHIELD}"
    who = rights_text(shield.body.allow) if shield else "nobody once the pod exists"
    now, was = _annotation("object", key), _annotation("oldObject", key)
    set_to = concatenation(['set to "', Cel(f"{now}.value()"), '"'])
    if asked.operation == "CREATE" or not asked.labels_known:
        did = set_to
    else:
        removed = concatenation(['removed (it is "', Cel(f"{was}.value()"), '")'])
        did_change = concatenation(['changed from "', Cel(f"{was}.value()"), '" to "', Cel(f"{now}.value()"), '"'])
        did = if_else(f"!{was}.hasValue()", set_to, if_else(f"!{now}.hasValue()", removed, did_change))
    end = "; set it in the pod template or on the PriorityClass, where it holds for new pods"
    text = (f"annotation {key} may not be ", Cel(did), f": rule {rule} leaves that to {who}")
    return (*text, end) if asked.operation == "UPDATE" else text


def _policy(  # noqa: PLR0917 - a row of a table
    policy: str,
    what: str,
    enforcement: str,
    resources: list[str],
    operation: str,
    validations: list[Validation],
    sink: Sink,
    variables: Sequence[tuple[str, str]] = (),
) -> Iterator[Object]:
    if not validations:
        return
    conditions = []
    if operation == "UPDATE":
        conditions.append(Condition("not-being-deleted", "!has(object.metadata.deletionTimestamp)"))
        by_reconciler = ["request.?subResource.orValue('') != 'status'", f"{USER} != {quote(sink.settings.reconciler)}"]
        conditions.append(Condition("not-the-reconciler", any_of(by_reconciler)))
    used = repr([(one.expression, one.text) for one in validations])
    constraints: Object = {
        "namespaceSelector": namespaces_reached(sink.settings),
        "resourceRules": [resource_rule(resources, [operation])],
    }
    made = validating_policy(
        object_name(policy, what, enforcement),
        policy,
        description=f"{_WHAT[what]} ({enforcement}).",
        constraints=constraints,
        conditions=conditions,
        validations=validations,
        variables=[(name, text) for name, text in variables if f"variables.{name}" in used],
    )
    yield made
    yield binding(made, enforcement)
