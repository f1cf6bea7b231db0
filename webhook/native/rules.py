"""PriorityPolicies as ValidatingAdmissionPolicies: one for each policy, kind of object and enforcement.

The texts are those of `webhook.policy.evaluation.rules`, so that people read the same whoever refuses.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from webhook.kube.instants import rfc3339
from webhook.native import matching, objects, rewriting
from webhook.native.expressions import FALSE, TRUE, all_of, any_of, name_is, negate, quote
from webhook.native.objects import CompiledCondition, Validation
from webhook.native.rewriting import InexpressibleError
from webhook.native.sink import Sink
from webhook.policy.cel.program import LONGEST_MESSAGE
from webhook.policy.evaluation.matching import ANYONE, rights_text
from webhook.policy.evaluation.reads import RESIZED, reads_on_update
from webhook.policy.evaluation.request import CLASSES, GROUPS, PODS
from webhook.policy.evaluation.rules import Twins, classes_text, excepted_text
from webhook.policy.model.globs import WILDCARD, name_matcher
from webhook.policy.model.match import RequestMatch
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import Enforcement, PriorityClasses, PriorityRule, Reserve
from webhook.policy.model.values import MARK
from webhook.registration.entries import changed, changed_key, changed_metadata

CLASS_NAME, PRIORITY = "variables.className", "variables.priority"
CLASS_VARIABLE = ("className", "object.spec.?priorityClassName.orValue('')")
_VARIABLES = [CLASS_VARIABLE, ("priority", "object.spec.?priority.orValue(0)")]
_OF_BINDING = {"object": "variables.pod", "oldObject": "variables.podBefore"}
_SHORTENED = f"words.size() > {LONGEST_MESSAGE} ? words.substring(0, {LONGEST_MESSAGE}) : words"
_CREATE, _UPDATE = frozenset({"CREATE"}), frozenset({"UPDATE"})
_BOTH = _CREATE | _UPDATE
_HAVING_PRIORITY = (PODS, GROUPS)
"""What has a class and a value. No template of a Workload is judged natively: the groups made of it are."""
_NO_CLOCK = (
    "does not hold for changes: the API server has no clock there, so it would not end; `giveway compile --watch` keeps"
    " it on time"
)
_GOING = "deletions"
"""PriorityClasses that go or are to go; of them the rules about ranges speak, and no expression."""
_ASKED = {
    PODS: (matching.NEW_POD, matching.CHANGED_POD),
    GROUPS: (matching.NEW_POD, matching.CHANGED_POD),
    CLASSES: (matching.NEW_CLASS, matching.CHANGED_CLASS),
    _GOING: (matching.DELETED_CLASS, matching.CHANGED_CLASS),
}


class _Row(NamedTuple):
    """What one rule asks of one kind of object, before it is put into the policy of its group."""

    rule: PriorityRule
    kind: str
    operations: frozenset[str]
    test: str
    message: str
    words: str = ""
    """An expression that makes the message."""


def policy_objects(policy: PriorityPolicy, twins: Twins, sink: Sink) -> Iterator[objects.Object]:
    """The ValidatingAdmissionPolicies and bindings of a policy's rules: priorities and `validate`."""
    groups: dict[tuple[str, str], list[tuple[_Row, Validation]]] = {}
    for rule in policy.rules:
        try:
            rows = list(_rows(policy, rule, twins))
            if rows:
                conditions_of(policy)
        except InexpressibleError as error:
            sink.lacks(f"{policy.name}/{rule.name}", error)
            continue
        for row in rows:
            about = tuple(asked for asked in _ASKED[row.kind] if asked.operation in row.operations)
            for enforcement, validation in validations(
                policy,
                rule,
                about,
                row.test,
                row.message,
                sink,
                row.words,
            ):
                groups.setdefault((row.kind, enforcement), []).append((row, validation))
    for (kind, enforcement), group in groups.items():
        yield from _group(policy, kind, enforcement, group, sink.settings)


def validations(  # noqa: PLR0917 - a rule, and what it says of a request
    policy: PriorityPolicy,
    rule: PriorityRule,
    about: Sequence[matching.Asked],
    test: str,
    message: str,
    sink: Sink,
    words: str = "",
) -> Iterator[tuple[str, Validation]]:
    """The validation of a rule, and those by which whoever uses an exception is told, each with its enforcement.

    The API server's CEL has no clock. At CREATE the object's creationTimestamp is one, which
    the API server sets itself before it validates (`FillObjectMetaSystemFields`). Elsewhere
    an exception stands in the objects only if somebody compiles again when it ends.
    """
    rule_id, told, holding = f"{policy.name}/{rule.name}", list[Validation](), list[str]()
    for exception in policy.exceptions:
        if rule.name not in exception.rules or exception.until <= sink.now:
            continue
        end = rfc3339(exception.until)
        if not sink.settings.kept and any(asked.operation != "CREATE" for asked in about):
            reason = f"its exception until {end} ({exception.owner}) {_NO_CLOCK}"
            sink.lacks(rule_id, reason, enforced=True)

        def excepts(
            asked: matching.Asked,
            match: RequestMatch = exception.match,
            end: str = end,
        ) -> str:
            outside = matching.excluded(match, asked)
            if asked.operation == "CREATE" and asked.labels_known:
                clock = "timestamp(object.metadata.creationTimestamp)"
                return all_of([outside, f"{clock} < timestamp({quote(end)})"])
            return outside if sink.settings.kept else FALSE

        excepted = matching.by_operation(excepts, *about)
        if excepted != FALSE:
            unless = any_of([test, negate(excepted)])
            told.append(
                Validation(rule_id, unless, excepted_text(rule_id, exception, message)),
            )
            holding.append(excepted)
    validation = Validation(rule_id, any_of([test, *holding]), message, words)
    yield rule.enforcement.value, validation
    if rule.enforcement is not Enforcement.AUDIT:
        yield from ((objects.EXCEPTED, row) for row in told)


def conditions_of(policy: PriorityPolicy, asked: matching.Asked | None = None) -> list[CompiledCondition]:
    """The policy's conditions; of a Binding they read its pod. Raises InexpressibleError."""
    instead = _OF_BINDING if asked is not None and not asked.labels_known else {}
    return [
        CompiledCondition(
            f"condition-{condition.name if len(condition.name) <= 50 else place}",
            bracketed(rewriting.condition(condition.expression, instead)),
            may_fail=True,
        )
        for place, condition in enumerate(policy.conditions, 1)
    ]


def rules_with(
    body: str, policies: Policies, sink: Sink, asked: matching.Asked | None = None
) -> Iterator[tuple[PriorityPolicy, PriorityRule, Any]]:
    """The rules with this body, of policies whose conditions can be given; others are noted."""
    for policy in policies.priority:
        for rule in policy.rules:
            if (value := getattr(rule, body)) is not None:
                try:
                    conditions_of(policy, asked)
                except InexpressibleError as error:
                    sink.lacks(f"{policy.name}/{rule.name}", error)
                else:
                    yield policy, rule, value


def applies(policy: PriorityPolicy, asked: matching.Asked, *, gives: bool = False) -> str:
    """The policy applies to the request, or gives to it, in CEL. Raises InexpressibleError."""
    tests = [
        matching.holds(policy.match, asked, gives=gives),
        negate(matching.excluded(policy.exclude, asked)),
    ]
    tests += [condition.expression for condition in conditions_of(policy, asked)]
    return all_of(tests)


def bracketed(expression: str) -> str:
    """Somebody else's expression, so that no operator of it can reach out."""
    return f"({expression})"


def _rows(policy: PriorityPolicy, rule: PriorityRule, twins: Twins) -> Iterator[_Row]:
    """What a rule asks of requests. Raises InexpressibleError, also for a body that is unknown here."""
    rule_id, operations = (
        f"{policy.name}/{rule.name}",
        frozenset(policy.match.operations or _BOTH),
    )
    match rule.body:
        case "priority_classes", classes:
            if "CREATE" in operations:
                message = f"rule {rule_id} {classes_text(classes)}"
                message = f"its PriorityClass may not be used in this namespace: {message}"
                test = any_of([f"{CLASS_NAME} == ''", _may_name(classes, twins)])
                for kind in _HAVING_PRIORITY:
                    yield _Row(rule, kind, _CREATE, test, message)
        case "reserve", reserve:
            yield from _reserve_rows(rule, reserve, rule_id, operations)
        case "validate", body:
            test = bracketed(rewriting.condition(body.expression))
            message = body.message or f"the expression {body.expression!r} is false"
            words = ""
            if body.message_expression:
                # One that cannot be given natively, or that fails there, is replaced by the message
                with suppress(InexpressibleError):
                    made = rewriting.text(body.message_expression)
                    one_line = f"({_SHORTENED}).replace('\\n', ' ')"
                    words = f"[{made}].map(words, {one_line})[0]"
                    words += f" + {quote(f' (rule {rule_id})')}"
            message += f" (rule {rule_id})"
            for kind in body.resources:
                yield _Row(rule, kind, operations, test, message, words)
        case (("default_priority_class" | "copy_annotations" | "protect_annotations"), _):
            pass  # `webhook.native.mutation` and `webhook.native.protected`
        case _:
            raise InexpressibleError("rules of its kind are not compiled")


def _may_name(classes: PriorityClasses, twins: Twins) -> str:
    """The class may be used; a twin counts as the class whose pods it takes, too."""
    allow = (WILDCARD,) if classes.allow is None else classes.allow
    denied, allowed = name_matcher(classes.deny), name_matcher(allow)
    test = all_of([negate(name_is(CLASS_NAME, classes.deny)), name_is(CLASS_NAME, allow)])
    for twin, originals in sorted(twins.items()):
        names = (twin, *originals)
        if not any(map(denied, names)) and any(map(allowed, names)):
            test = any_of([f"{CLASS_NAME} == {quote(twin)}", test])
        else:
            test = all_of([f"{CLASS_NAME} != {quote(twin)}", test])
    return test


def _reserve_rows(
    rule: PriorityRule,
    reserve: Reserve,
    rule_id: str,
    operations: frozenset[str],
) -> Iterator[_Row]:
    """Who may use a priority of the range, and who may define a class with one."""
    lies = f"lies in the range {reserve.from_} to {reserve.to}, which rule {rule_id} reserves"

    def unless(value: str, *passes: str) -> str:
        return any_of([f"{value} < {reserve.from_}", f"{value} > {reserve.to}", *passes])

    if "CREATE" in operations:
        right = rights_text(reserve.use)
        message = f"its priority {lies} for {right}"
        message += "; choose a PriorityClass with a value outside that range"
        test = unless(PRIORITY, matching.may(reserve.use, matching.NEW_POD))
        for kind in _HAVING_PRIORITY:
            yield _Row(rule, kind, _CREATE, test, message)
    message = f"its value {lies}: classes there may be defined by {rights_text(reserve.define, ANYONE)}"
    passes = all_of(["request.operation == 'UPDATE'", *map(negate, matching.DEFINITION)])
    test = unless(
        "object.value",
        matching.may_define(reserve.define, matching.NEW_CLASS),
        passes if "UPDATE" in operations else FALSE,
    )
    yield _Row(rule, CLASSES, operations, test, message)
    if "UPDATE" in operations:
        test = unless(
            "oldObject.value",
            matching.may_define(reserve.define, matching.DELETED_CLASS),
        )
        yield _Row(rule, _GOING, _UPDATE | {"DELETE"}, test, message)


def _group(
    policy: PriorityPolicy,
    kind: str,
    enforcement: str,
    group: list[tuple[_Row, Validation]],
    settings: objects.Settings,
) -> list[objects.Object]:
    """The object of the rules of one kind and enforcement, and its binding."""
    rows = [row for row, _ in group]
    operations = frozenset[str]().union(*(row.operations for row in rows))
    made = []
    for row, validation in group:
        expression = validation.expression
        if row.operations < operations:
            other = f"request.operation != {quote(min(row.operations))}"
            expression = any_of([other, expression])
        if expression != TRUE:
            made.append(validation._replace(expression=expression))
    if not made:
        return []
    # What of the policy's `match` the API server looks at by itself, before any expression
    labels = None
    if kind in (PODS, GROUPS):
        labels = objects.filled(msgspec.to_builtins(policy.match.namespace_selector))
    resources = [CLASSES if kind == _GOING else kind]
    if kind == PODS and "UPDATE" in operations and "spec" in reads_on_update(Policies(priority=(policy,))).parts:
        resources += RESIZED
    conditions = _conditions(policy, kind, operations, rows)
    return objects.validating_policy(
        policy.name,
        kind,
        enforcement,
        constraints=objects.constraints(
            settings,
            resources,
            operations,
            labels=labels,
            object_selector=policy.match.object_selector,
        ),
        conditions=[row for row in conditions if row.expression != TRUE],
        validations=made,
        variables=_VARIABLES,
    )


def _conditions(
    policy: PriorityPolicy, kind: str, operations: frozenset[str], rows: Sequence[_Row]
) -> Iterator[CompiledCondition]:
    """What else must hold for the policy to apply."""
    about = tuple(asked for asked in _ASKED[kind] if asked.operation in operations)
    match = policy.match
    if kind in (PODS, GROUPS) and match.namespaces is not None:
        yield CompiledCondition(
            "namespaces",
            name_is("request.namespace", match.namespaces),
        )
    subjects = matching.holds(RequestMatch(subjects=match.subjects), about[0])
    yield CompiledCondition("subjects", subjects)
    outside = matching.by_operation(
        lambda asked: negate(matching.excluded(policy.exclude, asked)),
        *about,
    )
    yield CompiledCondition("not-excluded", outside)
    if kind == _GOING:
        yield CompiledCondition("goes", matching.GOES)
        return
    if kind == PODS and "CREATE" in operations:
        new = [] if operations == _CREATE else ["request.operation != 'CREATE'"]
        yield CompiledCondition(
            "no-static-pod",
            any_of([*new, negate(matching.STATIC_POD)]),
        )
    if "UPDATE" in operations:
        yield CompiledCondition(
            "not-being-deleted",
            "!has(object.metadata.deletionTimestamp)",
        )
    if "UPDATE" in operations and kind == PODS:
        # Otherwise a pod that violates a newer rule could not lose a
        # finalizer, or renew a leader election's label
        reads = reads_on_update(Policies(priority=(policy,)))
        parts = sorted(reads.parts)
        tests = [changed(part) if part == "spec" else changed_metadata(part) for part in parts]
        if "labels" not in reads.parts:
            tests += [changed_key("labels", key) for key in sorted(reads.labels - {MARK})]
        yield CompiledCondition(
            "changes-what-is-read",
            any_of(["request.operation == 'CREATE'", *tests]),
        )
    ranges = [row.rule.reserve for row in rows if row.rule.reserve is not None]
    if policy.conditions and len(ranges) == len(rows):
        # A condition that fails refuses; so it is not evaluated for a
        # value that no rule here is about.
        value = "object.value" if kind == CLASSES else "object.spec.?priority.orValue(0)"
        inside = (f"({value} >= {reserve.from_} && {value} <= {reserve.to})" for reserve in ranges)
        yield CompiledCondition("in-a-reserved-range", any_of(inside))
    yield from conditions_of(policy)
