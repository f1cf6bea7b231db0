"""What giveway fills in, natively: one MutatingAdmissionPolicy for new pods and one for PriorityClasses.

One policy for pods and not one for each rule, because the parts build on each other (the default class decides the
twin, the twin what is copied, all of it the mark), and no order is promised between policies. The plugin Priority runs
before it and after it, so class, priority and policy are set together (docs/kubernetes-behaviour.md K1, K2).

What is given must be what the plugin resolves, or it refuses the pod. So the class is a parameter of the policy: the
API server reads parameters from the same cache as its plugin, and evaluates nothing while there is no such class. A
table could be old. What was given is recorded on the pod (`webhook.native.record`), so that a second call, by the API
server or by the webhook, replaces what does not hold any more.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from webhook.admission.mutating import LONGEST_VALUE, MIRROR
from webhook.admission.resolving import NEVER, PREEMPT
from webhook.native import objects
from webhook.native.expressions import (
    FALSE,
    TRUE,
    all_of,
    any_of,
    if_else,
    listing,
    mapping,
    name_is,
    negate,
    quote,
)
from webhook.native.matching import (
    HAS_CONTROLLER,
    NEW_POD,
    managed,
    managed_if_generated,
    twins_of,
)
from webhook.native.objects import CompiledCondition
from webhook.native.record import GIVEN_VARIABLE, RECORD, creation_text, owned, sent
from webhook.native.rules import applies, bracketed, rules_with
from webhook.native.sink import Sink, resolved, value_variable
from webhook.policy.evaluation.engine import scale_up_delay
from webhook.policy.evaluation.request import CLASSES
from webhook.policy.evaluation.rules import BUILTIN
from webhook.policy.model.creation import labels_recorded
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import (
    CREATION,
    GIVEN,
    MANAGED,
    MARK,
    OWN_ANNOTATIONS,
    POD_SCALE_UP_DELAY,
)
from webhook.registration.entries import MANIFEST_AGAIN, NOTHING_LEFT

_NAME = "object.spec.?priorityClassName.orValue('')"
_POLICY = "object.spec.?preemptionPolicy.orValue('')"
_CLASS_POLICY = f"params.?preemptionPolicy.orValue({quote(PREEMPT)})"
_MOVES = "variables.moves"
"""The pod gets the class that is the parameter; false in the evaluation without one."""

_DEFAULT = "variables.default"
_TWIN = '\'{"class":"\' + variables.className + \'","from":"\''
_MOVED_EARLIER = if_else(f"{RECORD}.startsWith({_TWIN})", f"{RECORD}.substring(size({_TWIN})).split('\"')[0]", "''")
"""The class of whose twin an earlier call made the pod, by its record, if it has that twin still."""
_CLASS = "variables.className"
_ANNOTATIONS = "variables.annotations"
_NONE = "optional.none()"
_UNKNOWN = (
    "what a class says, and which class is the global default that pods without one have by then, is not known: give"
    " the classes"
)
_NOTHING = "{'': ''}"
"""A map of texts without any entry that is looked up."""


class _Giving(NamedTuple):
    """What an evaluation for a class that pods may be given needs.

    `settled` says that the pod's class is final as far as this evaluation can tell, `moved_from` whose twin it is.
    """

    variables: list[tuple[str, str]]
    may_be_given: CompiledCondition
    settled: str
    moved_from: str


def mutating_objects(policies: Policies, sink: Sink) -> Iterator[objects.Object]:
    """The policies for new pods, and for managed PriorityClasses to be `Never`, with bindings."""
    yield from _pods(policies, sink)
    yield from _manifests_again(policies, sink)
    name, prefix = (
        "object.metadata.?name.orValue('')",
        "object.metadata.?generateName.orValue('')",
    )
    ours = if_else(
        f"{name} != ''",
        managed(policies.preemption, name),
        managed_if_generated(policies.preemption, prefix),
    )
    if ours == FALSE:
        return
    # It stays `Never` when its manifest is applied again. The field is immutable:
    # a class that exists and is not `Never` is left alone, and needs a twin.
    was_never = f"oldObject.?preemptionPolicy.orValue('') == {quote(NEVER)}"
    yield from objects.mutating_policy(
        "priorityclasses",
        [f"{BUILTIN}/managed-classes"],
        description="Makes managed PriorityClasses `Never`, so that kube-scheduler leaves preemption to giveway.",
        constraints=objects.constraints(sink.settings, [CLASSES], ["CREATE", "UPDATE"]),
        conditions=[
            CompiledCondition("managed", ours),
            CompiledCondition(
                "not-never",
                f"object.?preemptionPolicy.orValue('') != {quote(NEVER)}",
            ),
            CompiledCondition(
                "new-or-never",
                f"request.operation == 'CREATE' || {was_never}",
            ),
        ],
        patch=f"[{_add(quote('/preemptionPolicy'), quote(NEVER))}]",
    )


def _pods(policies: Policies, sink: Sink) -> list[objects.Object]:
    """New pods: class, priority and preemption policy, copied annotations, the mark; what is giveway's own goes.

    One binding is for the pod in the class that it has, and one for each class that pods are given,
    as a parameter. Each evaluation leaves the pod whole, so that their order makes no difference.
    """
    cases = list(_given_by("default_priority_class", policies, sink))
    given = _giving(cases, policies, sink)
    rules, when = [rule_id for rule_id, _, _ in cases], dict[str, list[str]]()
    for rule_id, copied, when_given in _given_by("copy_annotations", policies, sink):
        rules.append(rule_id)
        for key in copied:
            when.setdefault(key, []).append(when_given)
            sink.differs(rule_id, key)
    # The class that the pod gets, and what the plugin resolves it to
    priority = if_else(_MOVES, "params.value", "object.spec.?priority.orValue(0)")
    never = f"variables.preemptionPolicy == {quote(NEVER)}"
    variables = [
        ("annotations", "object.metadata.?annotations.orValue({})"),
        GIVEN_VARIABLE,
        *given.variables,
        ("className", if_else(_MOVES, "params.metadata.name", _NAME)),
        ("preemptionPolicy", if_else(_MOVES, _CLASS_POLICY, _POLICY)),
        ("managed", all_of([managed(policies.preemption, _CLASS), never])),
        ("resolved", resolved(_CLASS, bracketed(priority), "variables.preemptionPolicy")),
        *_copied(policies, sink, when, given.settled),
    ]
    # The annotations that giveway writes: copies, the record of what
    # was given, and that of what the pod says
    keys = sorted({*when, POD_SCALE_UP_DELAY})
    copied = f"{listing(keys)}.filter(k, k in variables.copied)"
    pair = "'\"' + k + '\":\"' + variables.copied[k] + '\"'"
    pairs = f"{copied}.map(k, {pair}).join(',')"
    record = [
        f"[{_CLASS}].map(c, c == '' ? '' : '\"class\":\"' + c + '\"')[0]",
        f"[{given.moved_from}].map(c, c == '' ? '' : '\"from\":\"' + c + '\"')[0]",
        f"[{pairs}].map(c, c == '' ? '' : '\"copied\":{{' + c + '}}')[0]",
    ]
    parts = f"[{', '.join(record)}].filter(part, part != '')"
    note = f"'{{' + {parts}.join(',') + '}}'"
    noted = any_of([_MOVES, "variables.copied.size() > 0", f"{RECORD} != ''"])
    written = {key: f"variables.copied[?{quote(key)}]" for key in keys}
    written[GIVEN] = if_else(noted, f"optional.of({note})", _NONE)
    labels = labels_recorded(policies.preemption)
    if labels is not None:
        written[CREATION] = f"optional.of({creation_text(labels)})"
    variables.append(("written", _optionals(written)))
    twins = [f"{BUILTIN}/twins"] if twins_of(policies.preemption) else []
    no_mirror = f"!({quote(MIRROR)} in object.metadata.?annotations.orValue({{}}))"
    return objects.mutating_policy(
        "pods",
        [*rules, *twins, f"{BUILTIN}/mark", f"{BUILTIN}/own-annotations"],
        description="Fills in new pods: default class, twin, copied annotations, and the mark of pods to serve.",
        constraints=objects.constraints(sink.settings, ["pods"], ["CREATE"]),
        conditions=[CompiledCondition("no-mirror-pod", no_mirror), given.may_be_given],
        variables=variables,
        patch=f"params != null && !{_MOVES}\n? []\n: {bracketed(_patch(list(written)))}",
        classes=sorted({*(name for _, name, _ in cases), *twins_of(policies.preemption).values()}),
    )


def _manifests_again(policies: Policies, sink: Sink) -> list[objects.Object]:
    """What a manifest leaves out of what the pod was given is put back (`webhook.admission.mutating`)."""
    was = "oldObject.spec.?priorityClassName.orValue('')"
    twin = _twin_of(policies)
    moved = [all_of([f"{twin} != ''", f"{twin} == {was}"])]
    moved.append(f'{RECORD}.startsWith(\'{{"class":"\' + {was} + \'","from":"\' + {_NAME} + \'"\')')
    moved.append(
        all_of(["variables.replaced", f"{_NAME} == ''", f"{was} != ''", f"{RECORD} != ''"]),
    )
    lost = f"k in variables.before && !(k in {_ANNOTATIONS})"
    value = f"(variables.before[k].size() > {LONGEST_VALUE} ? 'sha256:' : variables.before[k] + '\"')"
    in_record = f"{RECORD}.contains('\"' + k + '\":\"' + {value})"
    left = f"variables.before.filter(k, {lost} && (k in {listing(OWN_ANNOTATIONS)} || {in_record}))"
    label = f"oldObject.metadata.?labels[?{quote(MARK)}]"
    mark = f"variables.replaced && {label}.hasValue()"
    fields = {
        "priorityClassName": was,
        "preemptionPolicy": f"oldObject.spec.?preemptionPolicy.orValue({quote(NEVER)})",
    }
    parts = [
        _when(
            any_of(moved),
            *(_add(quote(f"/spec/{field}"), before) for field, before in fields.items()),
        ),
        _when(
            f"variables.lost.size() > 0 && {_ANNOTATIONS}.size() == 0",
            _add(quote("/metadata/annotations"), "{}"),
        ),
        f"variables.lost.map(k, {_add(_path('annotations', 'k'), 'variables.before[k]')})",
        _when(
            all_of([mark, "!has(object.metadata.labels)"]),
            _add(quote("/metadata/labels"), "{}"),
        ),
        _when(mark, _add(_path("labels", quote(MARK)), f"{label}.orValue('')")),
    ]
    return objects.mutating_policy(
        "podupdates",
        [f"{BUILTIN}/twins", f"{BUILTIN}/mark", f"{BUILTIN}/own-annotations"],
        description="Lets the manifest of a pod be applied and replaced again, whatever the pod was given.",
        constraints=objects.constraints(sink.settings, ["pods"], ["UPDATE"]),
        conditions=[CompiledCondition("leaves-something-out", MANIFEST_AGAIN)],
        variables=[
            ("annotations", "object.metadata.?annotations.orValue({})"),
            ("before", "oldObject.metadata.?annotations.orValue({})"),
            ("replaced", NOTHING_LEFT),
            ("given", f"variables.before[?{quote(GIVEN)}].orValue('')"),
            ("lost", if_else("variables.replaced", left, "[]")),
        ],
        patch=" +\n".join(parts),
    )


def _giving(cases: list[tuple[str, str, str]], policies: Policies, sink: Sink) -> _Giving:
    """Default classes, by the cases of `_given_by`, and twins."""
    defaults = {name for _, name, _ in cases}
    default = quote("")
    global_defaults = sink.names(default=True)
    for _, name, when in reversed(cases):
        default = if_else(when, quote(name), default)
    # A pod names no class if it has none, or if the Priority plugin filled in the global default
    filled_in = [f"{RECORD} == ''", f"{_NAME} in {listing(global_defaults)}"]
    filled_in += [owned(["spec"]), negate(owned(["spec", "priorityClassName"]))]
    names_none = f"{_NAME} == ''"
    if global_defaults:
        names_none = any_of([names_none, all_of(filled_in)])
    # If a default class is there, what follows from the class that the pod has now is no matter.
    # If it has gone since the table was made, the pod stays in its class, without twin and copies
    there = sorted(defaults.intersection(sink.names()))
    settled = f"!({_DEFAULT} in {listing(there)})" if there else TRUE
    by_default = f"{_DEFAULT} == params.metadata.name" if defaults else FALSE
    # A twin takes pods if it has the value of their class, and is `Never` while that is not
    is_twin = FALSE
    if twins_of(policies.preemption):
        is_twin = f"{_twin_of(policies)} == params.metadata.name"
    usable = [is_twin, f"{_CLASS_POLICY} == {quote(NEVER)}", f"{_POLICY} != {quote(NEVER)}"]
    usable.append("params.value == object.spec.?priority.orValue(0)")
    by_twin = all_of([*usable, settled])
    moves = all_of(["params != null", any_of([by_default, by_twin])])
    # Most pods get no other class, and a match condition finds it out at the least cost
    has_none = name_is(_NAME, ["", *global_defaults])
    takes_default = name_is("params.metadata.name", sorted(defaults))
    is_default = all_of([has_none, takes_default])
    given = if_else(names_none, default, quote(""))
    moved = if_else(by_default, quote(""), _NAME)
    return _Giving(
        variables=[("default", given), ("moves", moves)],
        may_be_given=CompiledCondition(
            "may-be-given",
            any_of(["params == null", is_default, is_twin]),
        ),
        settled=any_of([_MOVES, settled]),
        moved_from=if_else(_MOVES, moved, _MOVED_EARLIER),
    )


def _given_by(body: str, policies: Policies, sink: Sink) -> Iterator[tuple[str, Any, str]]:
    """The rules with this body: id, body, and when the policy applies to a pod; others are noted."""
    for policy, rule, value in rules_with(body, policies, sink):
        rule_id = f"{policy.name}/{rule.name}"
        if sink.known:
            yield rule_id, value, applies(policy, NEW_POD, gives=True)
        else:
            sink.lacks(rule_id, _UNKNOWN)


def _twin_of(policies: Policies) -> str:
    """The twin of the class that the pod names, or the empty string."""
    twins = sorted(twins_of(policies.preemption).items())
    if not twins:
        return quote("")
    return f"{mapping((name, quote(twin)) for name, twin in twins)}[?{_NAME}].orValue('')"


def _copied(
    policies: Policies,
    sink: Sink,
    when: dict[str, list[str]],
    settled: str,
) -> Iterator[tuple[str, str]]:
    """Variables: what classes say of annotations, what an earlier call copied, what is copied now.

    A key that no class has is there as well: what a webhook that
    knows newer classes has copied is taken back.
    """
    waits = quote("")
    for policy in reversed(policies.preemption):
        delay = quote(scale_up_delay(policy.preemptors))
        waits = if_else(managed([policy], _CLASS), delay, waits)
    keys = sorted({*when, POD_SCALE_UP_DELAY})
    ours = f"{RECORD}.contains('\"' + k + '\":\"' + {_ANNOTATIONS}[k] + '\"')"
    copies = dict[str, str]()
    for key in keys:
        name, (said, _) = value_variable(key, keys), sink.annotation(key)
        yield name, _NOTHING if said == "{}" else said
        offered = f"variables.{name}[?variables.resolved]"
        copied = if_else(any_of(when.get(key, ())), offered, _NONE)
        if key == POD_SCALE_UP_DELAY:
            # Nodes wait, if neither the pod nor its class says how long
            yield "waits", waits
            silent = all_of(
                ["variables.managed", "variables.waits != ''", f"!{offered}.hasValue()"],
            )
            copied = f"({copied}).or({if_else(silent, 'optional.of(variables.waits)', _NONE)})"
        free = f"(!({quote(key)} in {_ANNOTATIONS}) || {quote(key)} in variables.copiedBefore)"
        copies[key] = if_else(all_of([settled, free]), copied, _NONE)
    yield "copiedBefore", f"{listing(keys)}.filter(k, k in {_ANNOTATIONS} && {ours})"
    yield "copied", _optionals(copies)


def _patch(keys: Sequence[str]) -> str:
    """One JSON patch, of parts that may be empty; `keys` are annotations that may be written."""
    values = {
        "priorityClassName": _CLASS,
        "priority": "params.value",
        "preemptionPolicy": _CLASS_POLICY,
    }
    path = _path("annotations", "k")
    gone = f"({listing(OWN_ANNOTATIONS)} + variables.copiedBefore).filter(k, k in {_ANNOTATIONS}"
    present = f"{listing(keys)}.filter(k, k in variables.written)"
    # The mark; what a client set on a pod with a controller is left
    # to validation (`webhook.admission.mutating`)
    mark = _path("labels", quote(MARK))
    there = f"{quote(MARK)} in object.metadata.?labels.orValue({{}})"
    unmark = f"{there}\n? [{_remove(mark)}]\n: []"
    left = all_of([there, HAS_CONTROLLER, bracketed(sent(["metadata", "labels", MARK]))])
    parts = [
        _when(_MOVES, *(_add(quote(f"/spec/{field}"), value) for field, value in values.items())),
        _when(
            "variables.written.size() > 0 && !has(object.metadata.annotations)",
            _add(quote("/metadata/annotations"), "{}"),
        ),
        f"{gone} && !(k in variables.written)).map(k, {_remove(path)})",
        f"{present}.map(k, {_add(path, 'variables.written[k]')})",
        _when(
            "variables.managed && !has(object.metadata.labels)",
            _add(quote("/metadata/labels"), "{}"),
        ),
        f"({left}\n? []\n: variables.managed\n? [{_add(mark, quote(MANAGED))}]\n: {unmark})",
    ]
    return " +\n".join(parts)


def _optionals(rows: dict[str, str]) -> str:
    """A map with the keys whose expressions give something."""
    body = ",\n ".join(f"?{quote(key)}: {value}" for key, value in rows.items())
    return f"{{{body}}}"


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
