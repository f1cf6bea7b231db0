"""What giveway fills in, natively: one MutatingAdmissionPolicy for new pods and one for PriorityClasses.

One policy for pods and not one for each rule, because the parts build on each other (the default class decides the
twin, the twin what is copied, all of it the mark), and no order is promised between policies. The in-tree plugin
Priority runs before it and again after it, so class, priority and preemption policy are set together
(docs/kubernetes-behaviour.md K1, K2).

What was given is recorded on the pod (`webhook.native.record`), so that a second call, by the API
server or by the webhook, replaces what does not hold any more.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.native import objects
from webhook.native.expressions import FALSE, TRUE, all_of, any_of, if_else, listing, mapping, quote
from webhook.native.giving import MOVES, OWN_NAME, OWN_POLICY, PARAMETER_POLICY, gives, giving
from webhook.native.matching import HAS_CONTROLLER, MIRROR, managed, managed_if_generated, twins_of
from webhook.native.record import GIVEN_VARIABLE, LONGEST_VALUE, RECORD, creation_text, sent
from webhook.native.rewriting import InexpressibleError
from webhook.native.rules import bracketed
from webhook.native.sink import Inexpressible, Sink
from webhook.native.table import LONGEST_EXPRESSION, NEVER, ClassTable, resolved, value_variable
from webhook.policy.evaluation.managed_classes import scale_up_delay
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
    RECONCILER_ANNOTATIONS,
)
from webhook.registration.entries import MANIFEST_AGAIN, NOTHING_LEFT

_CLASS = "variables.className"
_ANNOTATIONS = "variables.annotations"


def mutating_objects(policies: Policies, table: ClassTable | None, sink: Sink) -> Iterator[objects.Object]:
    """The policy for new pods, and one by which a managed PriorityClass is made `Never`; each with its binding."""
    yield from _pods(policies, table, sink)
    yield from _manifests_again(policies, sink)
    name, prefix = "object.metadata.?name.orValue('')", "object.metadata.?generateName.orValue('')"
    ours = if_else(
        f"{name} != ''", managed(policies.preemption, name), managed_if_generated(policies.preemption, prefix)
    )
    if ours == FALSE:
        return
    # It stays `Never` when its manifest is applied again. The field is immutable: a class that exists and is not
    # `Never` is left alone, and needs a twin.
    was_never = f"oldObject.?preemptionPolicy.orValue('') == {quote(NEVER)}"
    classes = objects.mutating_policy(
        objects.object_name(BUILTIN, "priorityclasses", "mutate"),
        [f"{BUILTIN}/managed-classes"],
        description="Makes managed PriorityClasses `Never`, so that kube-scheduler leaves preemption to giveway.",
        constraints={"resourceRules": [objects.classes_rule(["CREATE", "UPDATE"])]},
        conditions=[
            objects.CompiledCondition("managed", ours),
            objects.CompiledCondition("not-never", f"object.?preemptionPolicy.orValue('') != {quote(NEVER)}"),
            objects.CompiledCondition("new-or-never", f"request.operation == 'CREATE' || {was_never}"),
        ],
        patch=f"[{_add(quote('/preemptionPolicy'), quote(NEVER))}]",
    )
    yield classes
    yield objects.binding(classes)


def _pods(policies: Policies, table: ClassTable | None, sink: Sink) -> Iterator[objects.Object]:
    """New pods: class, priority and preemption policy, copied annotations, the mark; what is giveway's own goes.

    One binding is for the pod in the class that it has, and one for each class that pods are given, as a parameter.
    Each evaluation leaves the pod whole, so that their order makes no difference.
    """
    given = giving(policies, table, sink)
    rules = list(given.rules)
    copies = _copies(policies, table, given.settled, rules, sink)
    # The class that the pod gets, and what the plugin resolves it to
    name, priority, policy = OWN_NAME, "object.spec.?priority.orValue(0)", OWN_POLICY
    if given.classes:
        name = f"{MOVES} ? params.metadata.name : {name}"
        priority = f"{MOVES} ? params.value : {priority}"
        policy = f"{MOVES} ? {PARAMETER_POLICY} : {policy}"
    ours = all_of([managed(policies.preemption, _CLASS), f"variables.preemptionPolicy == {quote(NEVER)}"])
    variables = [
        ("annotations", "object.metadata.?annotations.orValue({})"),
        GIVEN_VARIABLE,
        *given.variables,
        ("className", name),
        ("preemptionPolicy", policy),
        ("managed", ours),
        *(
            [("resolved", resolved(_CLASS, bracketed(priority), "variables.preemptionPolicy")), *copies]
            if copies
            else []
        ),
    ]
    for _, expression in variables:
        if len(expression) > LONGEST_EXPRESSION:
            reason = f"its table of classes has {len(expression)} characters; the API server takes {LONGEST_EXPRESSION}"
            sink.inexpressible.append(Inexpressible(", ".join(rules) or f"{BUILTIN}/copy", reason))
    keys = labels_recorded(policies.preemption)
    if keys is not None:
        variables.append(("creation", creation_text(keys)))
    patch = _patch(given.moved_from, copies=bool(copies), moves=bool(given.classes), records=keys is not None)
    twins = [f"{BUILTIN}/twins"] if twins_of(policies.preemption) else []
    made = objects.mutating_policy(
        objects.object_name(BUILTIN, "pods", "mutate"),
        [*rules, *twins, f"{BUILTIN}/mark", f"{BUILTIN}/own-annotations"],
        description="Fills in new pods: default class, twin, copied annotations, and the mark of pods to serve.",
        constraints={
            "namespaceSelector": objects.namespaces_reached(sink.settings),
            "resourceRules": [objects.resource_rule(["pods"], ["CREATE"])],
        },
        conditions=[
            objects.CompiledCondition(
                "no-mirror-pod", f"!({quote(MIRROR)} in object.metadata.?annotations.orValue({{}}))"
            ),
            *given.conditions,
        ],
        variables=variables,
        patch=f"params != null && !{MOVES}\n? []\n: {bracketed(patch)}" if given.classes else patch,
        parameters=True,
    )
    yield made
    yield objects.binding(made)
    yield from (objects.binding_for_class(made, class_name) for class_name in given.classes)


def _manifests_again(policies: Policies, sink: Sink) -> Iterator[objects.Object]:
    """What a pod's own manifest leaves out of what the pod was given is put back (`webhook.admission.mutating`)."""
    was = "oldObject.spec.?priorityClassName.orValue('')"
    twins = twins_of(policies.preemption)
    twin = f"{mapping((name, quote(twins[name])) for name in sorted(twins))}[?{OWN_NAME}].orValue('')"
    moved = [f"({twin} != '' && {twin} == {was})" if twins else FALSE]
    moved.append(f'{RECORD}.startsWith(\'{{"class":"\' + {was} + \'","from":"\' + {OWN_NAME} + \'"\')')
    moved.append(all_of(["variables.replaced", f"{OWN_NAME} == ''", f"{was} != ''", f"{RECORD} != ''"]))
    lost = f"k in variables.before && !(k in {_ANNOTATIONS})"
    value = f"(variables.before[k].size() > {LONGEST_VALUE} ? 'sha256:' : variables.before[k] + '\"')"
    in_record = f"{RECORD}.contains('\"' + k + '\":\"' + {value})"
    left = f"variables.before.filter(k, {lost} && (k in {listing(OWN_ANNOTATIONS)} || {in_record}))"
    label = f"oldObject.metadata.?labels[?{quote(MARK)}]"
    mark = f"variables.replaced && {label}.hasValue()"
    fields = {"priorityClassName": was, "preemptionPolicy": f"oldObject.spec.?preemptionPolicy.orValue({quote(NEVER)})"}
    parts = [
        _when(any_of(moved), *(_add(quote(f"/spec/{field}"), before) for field, before in fields.items())),
        _when(f"variables.lost.size() > 0 && {_ANNOTATIONS}.size() == 0", _add(quote("/metadata/annotations"), "{}")),
        f"variables.lost.map(k, {_add(_path('annotations', 'k'), 'variables.before[k]')})",
        _when(all_of([mark, "!has(object.metadata.labels)"]), _add(quote("/metadata/labels"), "{}")),
        _when(mark, _add(_path("labels", quote(MARK)), f"{label}.orValue('')")),
    ]
    made = objects.mutating_policy(
        objects.object_name(BUILTIN, "podupdates", "mutate"),
        [f"{BUILTIN}/twins", f"{BUILTIN}/mark", f"{BUILTIN}/own-annotations"],
        description="Lets the manifest of a pod be applied and replaced again, whatever the pod was given.",
        constraints={
            "namespaceSelector": objects.namespaces_reached(sink.settings),
            "resourceRules": [objects.resource_rule(["pods"], ["UPDATE"])],
        },
        conditions=[objects.CompiledCondition("leaves-something-out", MANIFEST_AGAIN)],
        variables=[
            ("annotations", "object.metadata.?annotations.orValue({})"),
            ("before", "oldObject.metadata.?annotations.orValue({})"),
            ("replaced", NOTHING_LEFT),
            ("given", f"variables.before[?{quote(GIVEN)}].orValue('')"),
            ("lost", if_else("variables.replaced", left, "[]")),
        ],
        patch=" +\n".join(parts),
    )
    yield made
    yield objects.binding(made)


def _copies(
    policies: Policies, table: ClassTable | None, settled: str, rules: list[str], sink: Sink
) -> list[tuple[str, str]]:
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
                when_given = gives(policy)
            except InexpressibleError as error:
                sink.inexpressible.append(Inexpressible(rule_id, str(error)))
                continue
            rules.append(rule_id)
            for key in rule.copy_annotations:
                when.setdefault(key, []).append(when_given)
                sink.differs(rule_id, table, key)
    waits = _scale_up_delay(policies)
    if waits != quote(""):
        when.setdefault(POD_SCALE_UP_DELAY, [])
    said = {key: table.annotation(key) if table is not None else "{}" for key in sorted(when)}
    if not said:
        return []
    # Also keys that no class has: what a webhook that knows newer classes has copied is taken back, and copied again
    keys = list(said)
    nothing = "{'': ''}"  # a map of texts that has no class
    names = {key: value_variable(key, keys) for key in keys}
    offers = {key: f"variables.{names[key]}[?variables.resolved]" for key in keys}
    if waits != quote(""):
        silent = all_of(["variables.managed", f"{waits} != ''", f"!{offers[POD_SCALE_UP_DELAY]}.hasValue()"])
        when[POD_SCALE_UP_DELAY].append(silent)
        offers[POD_SCALE_UP_DELAY] += f".or(optional.of({waits}))"
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(any_of(when[key]), []).append(key)
    lists = [if_else(test, listing(group), "[]") for test, group in groups.items()]
    asked = " + ".join(part if part.startswith("[") else f"({part})" for part in lists if part != "[]") or "[]"
    ours = (
        f"{listing(keys)}.filter(k, k in {_ANNOTATIONS} &&"
        f" {RECORD}.contains('\"' + k + '\":\"' + {_ANNOTATIONS}[k] + '\"'))"
    )
    if settled != TRUE:
        asked = if_else(settled, bracketed(asked), "[]")
    copied = f"({asked}).filter(k, k in variables.offered && (!(k in {_ANNOTATIONS}) || k in variables.copiedBefore))"
    values = [(names[key], nothing if said[key] == "{}" else said[key]) for key in keys]
    offered = ", ".join(f"?{quote(key)}: {value}" for key, value in offers.items())
    return [*values, ("offered", f"{{{offered}}}"), ("copiedBefore", ours), ("copied", copied)]


def _scale_up_delay(policies: Policies) -> str:
    """For how long cluster-autoscaler waits for a pod of a managed class, by the first policy that names the class."""
    chosen = quote("")
    for policy in reversed(policies.preemption):
        chosen = if_else(managed([policy], _CLASS), quote(scale_up_delay(policy.preemptors)), chosen)
    return chosen if chosen == quote("") else bracketed(chosen)


def _patch(moved_from: str, *, copies: bool, moves: bool, records: bool) -> str:
    """One JSON patch; each part is empty if there is nothing to do."""
    parts = []
    # Class, priority and preemption policy
    if moves:
        values = {"priorityClassName": _CLASS, "priority": "params.value", "preemptionPolicy": PARAMETER_POLICY}
        parts.append(_when(MOVES, *(_add(quote(f"/spec/{field}"), value) for field, value in values.items())))
    # Annotations: those that are copied, and without giveway's own
    noted = [MOVES] if moves else []
    noted += ["variables.copied.size() > 0"] if copies else []
    noted.append(f"{RECORD} != ''")
    writes = [] if records else [bracketed(any_of(noted))]
    has_none = all_of([*writes, "!has(object.metadata.annotations)"])
    parts.append(_when(has_none, _add(quote("/metadata/annotations"), "{}")))
    record = [f"({_CLASS} == '' ? '' : '\"class\":\"' + {_CLASS} + '\"')"]
    if moved_from != quote(""):
        record.append(f"[{moved_from}].map(c, c == '' ? '' : ',\"from\":\"' + c + '\"')[0]")
    if copies:
        path = _path("annotations", "k")
        parts.append(f"variables.copiedBefore.filter(k, !(k in variables.copied)).map(k, {_remove(path)})")
        parts.append(f"variables.copied.map(k, {_add(path, 'variables.offered[k]')})")
        pairs = "variables.copied.map(k, '\"' + k + '\":\"' + variables.offered[k] + '\"').join(',')"
        comma = f"({_CLASS} == '' ? '' : ',')"
        record.append(f"(variables.copied.size() == 0 ? '' : {comma} + '\"copied\":{{' + {pairs} + '}}')")
    own = map(quote, RECONCILER_ANNOTATIONS)
    parts += [_when(f"{key} in {_ANNOTATIONS}", _remove(_path("annotations", key))) for key in own]
    # The record of what was given
    given = _path("annotations", quote(GIVEN))
    note = _add(given, f"'{{' + {' + '.join(record)} + '}}'")
    parts.append(f"({any_of(noted)}\n? [{note}]\n: {quote(GIVEN)} in {_ANNOTATIONS}\n? [{_remove(given)}]\n: [])")
    # The record of what it says
    creation = _path("annotations", quote(CREATION))
    taken_off = _when(f"{quote(CREATION)} in {_ANNOTATIONS}", _remove(creation))
    parts.append(f"[{_add(creation, 'variables.creation')}]" if records else taken_off)
    # The mark; what a client set on a pod with a controller is left to validation (`webhook.admission.mutating`)
    ours, mark, labels = "variables.managed", _path("labels", quote(MARK)), "object.metadata.?labels.orValue({})"
    parts.append(_when(f"{ours} && !has(object.metadata.labels)", _add(quote("/metadata/labels"), "{}")))
    there = f"{quote(MARK)} in {labels}"
    left = all_of([there, HAS_CONTROLLER, bracketed(sent(["metadata", "labels", MARK]))])
    set_mark = _add(mark, quote(MANAGED))
    parts.append(f"({left}\n? []\n: {ours}\n? [{set_mark}]\n: {there}\n? [{_remove(mark)}]\n: [])")
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
