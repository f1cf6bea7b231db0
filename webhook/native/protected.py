"""The protected keys of pods natively: giveway's own annotations, the mark, and the annotations that policies shield.

The same keys are judged on pods, on `pods/status` and on Bindings, because all three write the metadata of a pod
(docs/kubernetes-behaviour.md K6), by the rules of `webhook.admission.validating` and `webhook.policy.evaluation.rules`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from webhook.admission.mutating import MIRROR
from webhook.admission.resolving import NEVER
from webhook.admission.validating import (
    AS_IT_IS,
    MARK_STAYS,
    OF_A_NODE,
    ON_NEW_PODS,
    OWN_RECORD,
    UNMARKED,
)
from webhook.native import matching, objects
from webhook.native.expressions import FALSE, TRUE, all_of, any_of, if_else, negate, quote
from webhook.native.objects import CompiledCondition, Validation
from webhook.native.record import GIVEN_VARIABLE, recorded
from webhook.native.rules import CLASS_NAME, CLASS_VARIABLE, applies, rules_with, validations
from webhook.native.sink import Sink, resolved, value_variable
from webhook.policy.evaluation.engine import shielded
from webhook.policy.evaluation.matching import rights_text
from webhook.policy.evaluation.request import CLASSES, PODS
from webhook.policy.evaluation.rules import BUILTIN, SHIELD
from webhook.policy.model.match import RequestMatch
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import Enforcement, PriorityRule, ProtectAnnotations
from webhook.policy.model.values import MANAGED, MARK, OWN_ANNOTATIONS, RECONCILER_ANNOTATIONS

_RESOLVED = resolved(CLASS_NAME, "object.spec.?priority.orValue(0)", "object.spec.?preemptionPolicy.orValue('')")
_OF_BINDING = (
    "dyn({'metadata': {'name': dyn(object.metadata.?name.orValue('')), 'labels': dyn({}),"
    " 'annotations': dyn(object.metadata.?annotations.orValue({}))}})"
)
_FROM_BINDING = [
    ("pod", _OF_BINDING),
    ("podBefore", "dyn({'metadata': {'labels': {}, 'annotations': {}}})"),
]
"""What conditions read of the pod that a Binding changes: its own labels are no pod's (`validate_binding`)."""
_VARIABLES = [*_FROM_BINDING, CLASS_VARIABLE, ("resolved", _RESOLVED), GIVEN_VARIABLE]


class _Place(NamedTuple):
    """Where protected metadata is written; `what` is part of the objects' names."""

    what: str
    asked: matching.Asked
    resources: tuple[str, ...]


_NEW_PODS = _Place("pods", matching.NEW_POD, ("pods",))
_PLACES = (
    _NEW_PODS,
    _Place("annotations", matching.CHANGED_POD, ("pods", "pods/status")),
    _Place("bindings", matching.BINDING, ("pods/binding", "bindings")),
    _Place("newclassannotations", matching.NEW_CLASS, (CLASSES,)),
    _Place("classannotations", matching.CHANGED_CLASS, (CLASSES,)),
)
_ON_TRIAL = "newannotations"
"""What of new pods rules on trial judge; a policy's own rules about pods have the name `pods`."""
Rows = dict[tuple[str, str], list[Validation]]
"""Validations by policy and enforcement."""


class _Shield(NamedTuple):
    """A `protectAnnotations` rule: to whom it applies, and whom it allows, by what is asked."""

    policy: PriorityPolicy
    rule: PriorityRule
    body: ProtectAnnotations

    @property
    def id(self) -> str:
        return f"{self.policy.name}/{self.rule.name}"

    def allow(self, asked: matching.Asked) -> list[RequestMatch]:
        """The rights that hold there: no PriorityClass lies in a namespace."""
        if asked.kind == PODS:
            return list(self.body.allow)
        return [right for right in self.body.allow if not right.in_namespaces]

    def grants(self, asked: matching.Asked) -> str:
        """It applies, and allows the change: the policy's own `match` is part of the right."""
        allowed = matching.may(self.allow(asked), asked)
        return all_of([applies(self.policy, asked, gives=True), allowed])


def protected_objects(policies: Policies, sink: Sink) -> Iterator[objects.Object]:
    """The policies about new and changed pods, Bindings and PriorityClasses, with bindings."""
    shields = list(_shields(policies, sink))
    keys = sorted({key for shield in shields for key in shield.body.keys})
    variables = [
        *_VARIABLES,
        *((value_variable(key, keys), sink.annotation(key)[0]) for key in keys),
    ]
    for place in _PLACES:
        asked, builtin = place.asked, frozenset[str]()
        rows: Rows = {}
        if place is _NEW_PODS:
            rows = _new_pods(policies, sink)
        elif asked.kind == PODS:
            rows = {(BUILTIN, "enforce"): _own_keys(asked, sink.settings.reconciler)}
            builtin = shielded(policies.preemption)
        if place is not _NEW_PODS or sink.known:
            here = [shield for shield in shields if asked.kind in shield.body.resources]
            _add_key_rows(rows, asked, here, builtin, keys, sink)
        for (policy, enforcement), group in rows.items():
            conditions = []
            if asked == matching.CHANGED_POD:
                # A pod that is being deleted is no exception: until
                # it is gone, its keys decide about other pods
                reconciler = f"{matching.USER} != {quote(sink.settings.reconciler)}"
                other = any_of(["request.?subResource.orValue('') != 'status'", reconciler])
                conditions.append(CompiledCondition("not-the-reconciler", other))
            operation = asked.operation if asked.labels_known else "CREATE"
            yield from objects.validating_policy(
                policy,
                _ON_TRIAL if place is _NEW_PODS and policy != BUILTIN else place.what,
                enforcement,
                constraints=objects.constraints(sink.settings, place.resources, [operation]),
                conditions=conditions,
                validations=group,
                variables=variables,
            )


def _shields(policies: Policies, sink: Sink) -> Iterator[_Shield]:
    """The rules; what cannot be expressed of them is noted."""
    for row in rules_with("protect_annotations", policies, sink, matching.CHANGED_POD):
        shield = _Shield(*row)
        if PODS in shield.body.resources and "CREATE" in shield.body.operations:
            if not sink.known:
                reason = "at CREATE it turns on what the pod's class says: give the classes"
                others = shield.body.operations != ("CREATE",)
                sink.lacks(shield.id, reason, enforced=others)
            for key in shield.body.keys:
                sink.differs(shield.id, key)
        yield shield


def _builtin(rule: str, expression: str, message: str) -> Validation:
    """A validation of a built-in rule, which its message names."""
    rule_id = f"{BUILTIN}/{rule}"
    return Validation(rule_id, expression, f"rule {rule_id}: {message}")


def _new_pods(policies: Policies, sink: Sink) -> Rows:
    """What new pods may not say, and the warning to authors that nobody preempts for them."""
    mark = f"object.metadata.?labels[?{quote(MARK)}]"
    mirror = f"{_annotation('object', MIRROR)}.hasValue()"
    preemption_policy = "object.spec.?preemptionPolicy.orValue('')"
    managed_class = matching.managed(policies.preemption, CLASS_NAME)
    served = all_of(
        [managed_class, f"{preemption_policy} == {quote(NEVER)}", negate(matching.STATIC_POD)],
    )
    by_node = "o.?controller.orValue(false) && o.kind == 'Node'"
    of_node = f"object.metadata.?ownerReferences.orValue([]).exists(o, {by_node})"
    enforced = []
    for key, text in ON_NEW_PODS.items():
        there = [
            TRUE if key in RECONCILER_ANNOTATIONS else mirror,
            f"{_annotation('object', key)}.hasValue()",
        ]
        enforced.append(_builtin("own-annotations", negate(all_of(there)), text.format(key)))
    enforced += [
        _builtin(
            "priority-resolved",
            any_of(["has(object.spec.priority) && has(object.spec.preemptionPolicy)", mirror]),
            _NEVER_RESOLVED,
        ),
        _builtin("static-pods", any_of([f"!{of_node}", matching.STATIC_POD]), OF_A_NODE),
        _builtin(
            "mark",
            any_of(
                [
                    f"!{mark}.hasValue()",
                    all_of([served, f"{mark}.value() == {quote(MANAGED)}"]),
                ],
            ),
            _OTHER_MARK,
        ),
    ]
    if managed_class == FALSE:
        return {(BUILTIN, "enforce"): enforced}
    marked = negate(all_of([served, f"!{mark}.hasValue()", f"!{mirror}"]))
    by_itself = all_of([managed_class, f"{preemption_policy} != {quote(NEVER)}"])
    warned = [Validation(f"{BUILTIN}/twins", negate(by_itself), _NO_TWIN)]
    if sink.settings.mutates:
        warned.append(Validation(f"{BUILTIN}/mark", marked, UNMARKED))
    else:
        enforced.append(
            _builtin(
                "mark",
                marked,
                f"{UNMARKED}: it did not pass giveway's mutating webhook; try again",
            )
        )
    return {(BUILTIN, "enforce"): enforced, (BUILTIN, "warn"): warned}


_NEVER_RESOLVED = (
    "spec.priority and spec.preemptionPolicy were never filled in: the pod did not pass the API server's Priority"
    " plugin, without which giveway's policies do not work"
)
_OTHER_MARK = (
    f"label {MARK} is giveway's own mark for pods of the PriorityClasses that it manages, with the one value {MANAGED}:"
    " leave it out"
)
_NO_TWIN = (
    "its PriorityClass is managed but has preemptionPolicy PreemptLowerPriority and no usable twin: kube-scheduler"
    " preempts for the pod, giveway does not"
)


def _own_keys(asked: matching.Asked, reconciler: str) -> list[Validation]:
    """The keys that only the reconciler writes once a pod exists."""
    writes, instead = f"{matching.USER} == {quote(reconciler)}", AS_IT_IS[asked.labels_known]
    rows = []
    for key in OWN_ANNOTATIONS:
        test = any_of([_unchanged(asked, "annotations", key), writes])
        text = OWN_RECORD.format(key, reconciler, instead)
        rows.append(_builtin("own-annotations", test, text))
    test = any_of([_unchanged(asked, "labels", MARK), writes])
    return [*rows, _builtin("mark", test, f"{MARK_STAYS}; {instead}")]


def _add_key_rows(  # noqa: PLR0917 - the place and the rules
    rows: Rows,
    asked: matching.Asked,
    shields: list[_Shield],
    builtin: frozenset[str],
    keys: Sequence[str],
    sink: Sink,
) -> None:
    """Who may change each key, and what whoever uses an exception is told.

    A rule that grants the change suffices; if no rule that applies speaks of a key, the built-in
    rule does. Rules under `warn` and `audit` report, each for itself, and give no rights.
    """
    for key in sorted({*keys, *builtin}):
        of_key = (shield for shield in shields if key in shield.body.keys)
        speaking = [shield for shield in of_key if asked.operation in shield.body.operations]
        enforced = [row for row in speaking if row.rule.enforcement is Enforcement.ENFORCE]
        unchanged = _unchanged(asked, "annotations", key)
        if asked == matching.NEW_POD and speaking:
            # What giveway copied is never held against the pod, however old the table is by now
            offered = f"variables.{value_variable(key, keys)}[?variables.resolved]"
            unchanged = any_of(
                [
                    unchanged,
                    f"{_annotation('object', key)} == {offered}",
                    recorded(key),
                    matching.STATIC_POD,
                ]
            )
        for shield in speaking:
            granting = enforced if shield in enforced else [shield]
            granted = (granting_shield.grants(asked) for granting_shield in granting)
            # A condition that fails refuses, whatever another rule grants
            allowed = if_else(applies(shield.policy, asked), any_of(granted), TRUE)
            test = any_of([unchanged, allowed])
            rows_of = validations(
                shield.policy,
                shield.rule,
                (asked,),
                test,
                _text(asked, key, shield),
                sink,
            )
            for how, validation in rows_of:
                policy = BUILTIN if shield in enforced else shield.policy.name
                if validation.expression != TRUE:
                    rows.setdefault((policy, how), []).append(validation)
        if key in builtin:
            spoken_of = [applies(shield.policy, asked) for shield in enforced]
            test = any_of([unchanged, *spoken_of])
            if test != TRUE:
                text = _text(asked, key, None)
                shielding = Validation(f"{BUILTIN}/{SHIELD}", test, text)
                rows.setdefault((BUILTIN, "enforce"), []).append(shielding)


def _unchanged(asked: matching.Asked, field: str, key: str) -> str:
    """A label or annotation is as it was; it was not there if nothing is known of before."""
    path = f"metadata.?{field}[?{quote(key)}]"
    if asked in (matching.CHANGED_POD, matching.CHANGED_CLASS):
        return f"object.{path} == oldObject.{path}"
    return f"!object.{path}.hasValue()"


def _annotation(of: str, key: str) -> str:
    return f"{of}.metadata.?annotations[?{quote(key)}]"


def _text(asked: matching.Asked, key: str, shield: _Shield | None) -> str:
    """What whoever changed a key is told; without a shield the built-in rule speaks."""
    rule, who = f"{BUILTIN}/{SHIELD}", "nobody once the pod exists"
    if shield:
        rule, who = shield.id, rights_text(shield.allow(asked))
    done, instead = "changed", "leave it as it is"
    if asked.operation == "CREATE" or not asked.labels_known:
        done, instead = "set", "leave it out"
    text = f"annotation {key} may not be {done}"
    return f"{text}: rule {rule} leaves that to {who}; {instead}"
