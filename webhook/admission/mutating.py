"""Mutation: fill in priorities, copy annotations, mark pods, make managed classes Never. It refuses nothing.

What is filled in goes out as a minimal JSON Patch (RFC 6902). What was given to a new pod is written on it (`Given`).
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from webhook.admission.context import Context, Lookup
from webhook.admission.resolving import NEVER, Resolution, policy_of, resolve, written
from webhook.admission.review import Json, Operation, PodSpecView, Review
from webhook.kube.bounded import bounded_cache
from webhook.kube.json_patch import escape
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.policy.evaluation.engine import Engine, scale_up_delay
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import (
    CREATION,
    GIVEN,
    MANAGED,
    MARK,
    OWN_ANNOTATIONS,
    POD_SCALE_UP_DELAY,
    RECONCILER_ANNOTATIONS,
    WEBHOOK_ANNOTATIONS,
)

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a mirror pod: the API's picture of a static pod, which nobody may change."""

_NO_POLICIES = Engine(Policies())
_LONGEST = 64 * 1024
LONGEST_VALUE = 64
"""Characters of a value of which the record has the digest if there are more."""
_MADE_NEVER = "{} {}: PreemptionPolicy {} manages it, so giveway preempts for its pods and kube-scheduler does not."
_TAKEN_OFF = f"label {MARK} is giveway's own mark, for pods of the PriorityClasses it manages: taken off; leave it out"


def mutate_pod(context: Context, review: Review) -> None:
    """Patch a pod: what it resolves to, or what an UPDATE leaves out of what it was given."""
    pod = review.pod
    if MIRROR in pod.metadata.annotations:
        return
    if review.operation == "CREATE":
        _create(context, review)
    elif review.has_old and pod.sent_metadata is not None and pod.sent_spec is not None:
        _put_back(context, review)


def mutate_priority(context: Context, review: Review) -> None:
    """Patch a new pod of the system as the Priority plugin does where it is off, and by no policy."""
    mutate_pod(replace(context, engine=_NO_POLICIES), review)


def mutate_class(context: Context, review: Review) -> None:
    """A managed class gets `preemptionPolicy: Never` at CREATE: kube-scheduler leaves it to the reconciler.

    The field is immutable: a class that exists and is not Never needs a twin. An UPDATE of one that is Never keeps it
    so: the API server compares after mutation (`ValidateUpdate`), and a manifest without it can be applied again.
    """
    class_, created = review.typed(PriorityClass), review.operation == "CREATE"
    was = NEVER if created else review.typed(PriorityClass, old=True).preemption_policy
    if class_.preemption_policy == NEVER or was != NEVER:
        return
    name, prefix = class_.metadata.name, class_.metadata.generate_name
    managed = context.managed(name) if name else context.engine.managed_if_generated(prefix)
    if managed is None:
        return
    field, answer = "preemptionPolicy", review.answer
    answer.patch = _set("", {field: class_.preemption_policy}, {field: NEVER})
    how = f"{name or f'{prefix}*'} {'was made' if created else 'stays'}"
    text = _MADE_NEVER.format(how, NEVER, managed.policy.name)
    answer.warnings.append(f'PriorityClass {text} Write "{field}: {NEVER}" in the manifest')


def mutate_group(context: Context, review: Review) -> None:
    """Patch a new PodGroup as a pod in its place: class, value, and Never if it is managed.

    An API server that does not know `preemptionPolicy` of a PodGroup drops it (docs/kubernetes-behaviour.md K28).
    """
    group, answer = review.pod, review.answer
    spec, annotations = group.spec, group.metadata.annotations or None
    if review.operation != "CREATE":
        old = review.old_pod
        given = old.metadata.annotations.get(GIVEN, "")
        if _moved(context, spec, old.spec, _decoded(given)):
            record = {GIVEN: given} if given else {}
            answer.patch = _class_back(spec, old.spec, named=True)
            answer.patch += _set("/metadata/annotations", annotations, record)
        return
    resolution = resolve(context, review, spec, context.request(review, review.object))
    if not resolution.settled:
        return
    if resolution.set_by:
        answer.audit["applied"] = resolution.set_by
    wanted = _priority(resolution, spec)
    if not resolution.managed:
        wanted["preemptionPolicy"] = spec.preemption_policy
    answer.patch = _set("/spec", carried(spec), wanted)
    if resolution.moved_from:
        record = {GIVEN: _encoded(resolution.name, resolution.moved_from, ())}
        answer.patch += _set("/metadata/annotations", annotations, record)


def _create(context: Context, review: Review) -> None:
    """Patch a new pod: class, priority, copied annotations, mark, and what was given."""
    pod, answer = review.pod, review.answer
    spec, meta = pod.spec, pod.metadata
    present, engine = meta.annotations, context.engine
    earlier = given_earlier(present, review)
    given = earlier or Given()
    request = context.pod_request(review)
    as_sent = given.as_sent(spec, context.lookup)
    resolution = resolve(context, review, as_sent, request, again=earlier is not None)
    class_ = resolution.priority_class
    offered = (class_ and class_.metadata.annotations) or {}
    ours = given.still_there(present, engine.copied)
    # What the pod says by itself stays, and what only giveway writes is not copied
    kept = present.keys() - ours
    values: dict[str, str] = {}
    rules = [resolution.set_by] if resolution.set_by else []
    if resolution.settled:
        request.priority_class, request.priority = class_, resolution.value
        if context.trace is not None:
            engine.judge(request, context.trace)
        for key, rule in engine.annotations_to_copy(request) if offered else ():
            if key in offered and key not in kept and key not in OWN_ANNOTATIONS:
                values[key] = offered[key]
                if present.get(key) != values[key]:
                    rules.append(rule)
        managed = context.managed(resolution.name) if resolution.managed else None
        # Nodes wait, if neither the pod nor its class says how long
        if managed is not None and POD_SCALE_UP_DELAY not in {*kept, *offered}:
            waits = scale_up_delay(managed.policy.preemptors)
            values |= {POD_SCALE_UP_DELAY: waits} if waits else {}
    moved_from = resolution.moved_from
    if not moved_from and given.name == resolution.name:
        moved_from = given.moved_from
    # What an earlier call copied and this one does not is taken away again. What only the reconciler writes is taken
    # off, since a restored or copied manifest may carry it
    annotations: dict[str, str | None] = {**dict.fromkeys(ours), **values}
    annotations |= {key: None for key in RECONCILER_ANNOTATIONS if key in present}
    annotations[GIVEN] = None
    if values or rules or moved_from or earlier:
        annotations[GIVEN] = _encoded(resolution.name, moved_from, tuple(values.items()))
    annotations[CREATION] = engine.creation_record(meta.sent_labels, meta.sent_annotations)
    patch = _set("/metadata/annotations", meta.sent_annotations, annotations)
    patch += _set("/metadata/labels", meta.sent_labels, _labels(review, resolution))
    # What it lacks as a whole is made before anything is put into it
    lacking = ["/metadata"] if pod.sent_metadata is None and patch else []
    if resolution.settled:
        lacking += [] if pod.sent_spec else ["/spec"]
        patch += _set("/spec", carried(spec), _priority(resolution, spec))
    answer.patch = [{"op": "add", "path": path, "value": {}} for path in lacking] + patch
    if rules:
        answer.audit["applied"] = ",".join(dict.fromkeys(rules))


def _put_back(context: Context, review: Review) -> None:
    """Put back what an update leaves out, so that a manifest can be sent again.

    A value that the update changes is left for validation. Keys are put back if the mark and the records are all gone.
    """
    meta, spec, answer = review.pod.metadata, review.pod.spec, review.answer
    old = review.old_pod
    annotations, labels = old.metadata.annotations, old.metadata.labels
    given = _decoded(annotations.get(GIVEN, ""))
    named = _moved(context, spec, old.spec, given)
    own = frozenset(WEBHOOK_ANNOTATIONS)
    left = MARK in meta.labels or own & meta.annotations.keys()
    if left or not (MARK in labels or own & annotations.keys()):
        answer.patch = _class_back(spec, old.spec, named=named)
        return
    copied = given.still_there(annotations, annotations) if given else ()
    missing = annotations.keys() - meta.annotations.keys()
    lost = {key: annotations[key] for key in (*OWN_ANNOTATIONS, *copied) if key in missing}
    mark = {MARK: labels[MARK]} if MARK in labels else {}
    keeps = ", ".join((*mark, *lost))
    answer.warnings.append(f"the pod keeps what giveway gave it: {keeps}")
    named = named or (given is not None and not spec.priority_class_name)
    answer.patch = _class_back(spec, old.spec, named=named)
    answer.patch += _set("/metadata/annotations", meta.sent_annotations, lost)
    answer.patch += _set("/metadata/labels", meta.sent_labels, mark)


def _moved(context: Context, spec: PodSpecView, before: PodSpecView, given: "Given | None") -> bool:
    """Whether an update names the class of whose twin the pod is, by policies or its record."""
    name, twin = spec.priority_class_name, before.priority_class_name
    if not name:
        return False
    if given is not None and (given.moved_from, given.name) == (name, twin):
        return True
    managed = context.managed(name)
    return managed is not None and managed.twin is not None and managed.twin == twin


def _class_back(spec: PodSpecView, before: PodSpecView, *, named: bool) -> list[Operation]:
    """Put back the numbers that were left out; with `named` also class and policy."""
    now, was = carried(spec), carried(before)
    wanted = {}
    for key in ("priority", "preemptionPolicy"):
        wanted[key] = was[key] if now[key] is None else now[key]
    if named:
        wanted |= {key: was[key] or now[key] for key in ("priorityClassName", "preemptionPolicy")}
    return _set("/spec", now, wanted)


def carried(spec: PodSpecView) -> Json:
    """What a pod says of its priority, by field; None where it says nothing."""
    return {
        "priorityClassName": spec.priority_class_name,
        "priority": spec.priority,
        "preemptionPolicy": spec.preemption_policy,
    }


def _priority(resolution: Resolution, spec: PodSpecView) -> Json:
    return {
        "priorityClassName": resolution.name or spec.priority_class_name,
        "priority": resolution.value,
        "preemptionPolicy": resolution.preemption_policy,
    }


def _labels(review: Review, resolution: Resolution) -> dict[str, str | None]:
    """The mark on a pod of a managed class, and no mark on any other, whoever set it.

    What a client set on a pod with a controller stays, and validation judges it: the controller may select its pods by
    it, would not see a pod without it, and would make the next, without end.
    """
    meta = review.pod.metadata
    marked = MARK in meta.labels
    sent = marked and written(review, "metadata", "labels", MARK)
    untold = marked and not review.object["metadata"].get("managedFields")
    if (sent or untold) and meta.has_controller:
        return {}
    if resolution.managed:
        return {MARK: MANAGED}
    if sent:
        review.answer.warnings.append(_TAKEN_OFF)
    return {MARK: None}


class Given(msgspec.Struct, frozen=True, omit_defaults=True):
    """What mutation gave a new pod, written on the pod, so that a second call takes back what does not hold any more.

    If another webhook changes the class after giveway, the API server calls giveway again with the same pod
    (`reinvocationPolicy: IfNeeded`). A value that was copied and one that the user set look the same by then.

    A user who sends the annotation achieves nothing: `metadata.managedFields` show that a client set it, and it is
    taken off. Without any (`giveway review`, tests) it is believed; all it can do then is to have a value that policies
    copy treated as if the pod had been sent without it.

    `name` is the PriorityClass the pod had after the call, and `moved_from` the one of which that is the twin; `copied`
    are annotations with their values, or the digests of values longer than LONGEST_VALUE.
    """

    name: str = msgspec.field(default="", name="class")
    moved_from: str = msgspec.field(default="", name="from")
    copied: dict[str, str] = {}

    def still_there(self, annotations: Mapping[str, str], copyable: Collection[str]) -> set[str]:
        """The keys that were copied and have not been changed since."""
        if not self.copied:
            return set()
        there = (self.copied.keys() & annotations.keys()).intersection(copyable)
        return {key for key in there if _brief(annotations[key]) == self.copied[key]}

    def as_sent(self, spec: PodSpecView, lookup: Lookup) -> PodSpecView:
        """The spec without the numbers of its class, if another was named since."""
        before, named = lookup.priority_class(self.name), spec.priority_class_name
        if (named or "") == self.name or before is None:
            return spec
        if (spec.priority, spec.preemption_policy) != (before.value, policy_of(before)):
            return spec
        return PodSpecView(priority_class_name=named)


_decoder = msgspec.json.Decoder(Given)


@bounded_cache(1024, 4096)
def _encoded(name: str, moved_from: str, copied: tuple[tuple[str, str], ...]) -> str:
    """The annotation's text, compact JSON; the pods of one class mostly get the same."""
    given = Given(name, moved_from, {key: _brief(value) for key, value in copied})
    return msgspec.json.encode(given).decode()


def given_earlier(annotations: Mapping[str, str], sent: Review | None = None) -> Given | None:
    """What an earlier call gave this pod; None in the first call, whatever a client wrote."""
    text = annotations.get(GIVEN, "")
    if not text or len(text) > _LONGEST:
        return None
    by_client = sent is not None and written(sent, "metadata", "annotations", GIVEN)
    return None if by_client else _decoded(text)


def _decoded(text: str) -> Given | None:
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


def _brief(value: str) -> str:
    if len(value) <= LONGEST_VALUE:
        return value
    content = value.encode(errors="surrogatepass")
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _set(parent: str, present: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> list[Operation]:
    """Set members of `parent`, made if `present` is None; a value of None is absent."""
    if present is None:
        made = {key: value for key, value in wanted.items() if value is not None}
        return [{"op": "add", "path": parent, "value": made}] if made else []
    operations: list[Operation] = []
    for key, value in wanted.items():
        before = present.get(key)
        if before == value:
            continue
        path = f"{parent}/{key if key.isalpha() else escape(key)}"
        if value is None:
            operations.append({"op": "remove", "path": path})
        else:
            operations.append({"op": "add" if before is None else "replace", "path": path, "value": value})
    return operations
