"""Mutation: fill in priorities, copy annotations, mark pods, make managed classes Never. It refuses nothing.

What is filled in goes out as a minimal JSON Patch (RFC 6902). What was given to a new pod is written on it (`Given`).
"""

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from webhook.admission.context import Context, Lookup
from webhook.admission.resolving import NEVER, Resolution, owned, policy_of, resolve
from webhook.admission.review import Answer, MetadataView, Operation, PodSpecView, PodView, Review
from webhook.kube.bounded import bounded_cache
from webhook.kube.json_patch import escape
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.policy.evaluation.managed_classes import scale_up_delay
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

_LONGEST = 64 * 1024
LONGEST_VALUE = 64
"""Characters of a value of which the record has the digest if there are more."""


def mutate_pod(context: Context, review: Review, answer: Answer) -> None:
    """Patch a pod: at CREATE what it resolves to, at UPDATE what its own manifest leaves out of what it was given."""
    pod = review.typed(PodView)
    if MIRROR in ((pod.metadata and pod.metadata.annotations) or {}):
        return
    if review.operation == "CREATE":
        _create(context, review, pod, answer)
    elif review.has_old and pod.metadata is not None and pod.spec is not None:
        answer.patch = _put_back(context, review, pod.metadata, pod.spec, answer)


def mutate_priority(context: Context, review: Review, answer: Answer) -> None:
    """Patch a new pod as the Priority plugin does, and by no policy: where pods of the system are made without it."""
    mutate_pod(context.without_policies(), review, answer)


def mutate_class(context: Context, review: Review, answer: Answer) -> None:
    """A managed class gets `preemptionPolicy: Never` at CREATE, so that kube-scheduler leaves it to the reconciler.

    The field is immutable afterwards: a class that exists and is not Never needs a twin instead. An UPDATE of a class
    that is Never keeps it so. The API server compares old and new after mutation (`ValidateUpdate` of PriorityClass),
    so a manifest without `Never` can be applied again.
    """
    priority_class, created = review.typed(PriorityClass), review.operation == "CREATE"
    changes = created or (review.has_old and policy_of(review.typed(PriorityClass, old=True)) == NEVER)
    if priority_class.preemption_policy == NEVER or not changes:
        return
    name, prefix = priority_class.metadata.name, priority_class.metadata.generate_name
    managed = context.managed(name) if name else context.engine.managed_if_generated(prefix)
    if managed is None:
        return
    now = {"preemptionPolicy": priority_class.preemption_policy}
    answer.patch = _set("", now, {"preemptionPolicy": NEVER})
    answer.warnings.append(
        f"PriorityClass {name or f'{prefix}*'} {'was made' if created else 'stays'} {NEVER}: PreemptionPolicy"
        f" {managed.policy.name} manages it, so giveway preempts for its pods and kube-scheduler does not."
        f' Write "preemptionPolicy: {NEVER}" in the manifest'
    )


def mutate_group(context: Context, review: Review, answer: Answer) -> None:
    """Patch a new PodGroup with what a pod in its place would get: class, value, and Never if its class is managed.

    An API server that does not know `preemptionPolicy` of a PodGroup drops it (docs/kubernetes-behaviour.md K28).
    """
    group = review.typed(PodView)
    spec, annotations = group.spec or PodSpecView(), group.metadata and group.metadata.annotations
    if review.operation != "CREATE":
        old = review.typed(PodView, old=True) if review.has_old else PodView()
        before, given = old.spec or PodSpecView(), ((old.metadata and old.metadata.annotations) or {}).get(GIVEN, "")
        if _moved(context, spec, before, _decoded(given)):
            kept = _set("/metadata/annotations", annotations or None, {GIVEN: given} if given else {})
            answer.patch = [*_class_back(spec, before, named=True), *kept]
        return
    resolution = resolve(context, spec, context.request(review, review.object), review, answer)
    if not resolution.settled:
        return
    if resolution.set_by:
        answer.audit["applied"] = resolution.set_by
    wanted = _priority(resolution, spec)
    if not resolution.managed:
        wanted["preemptionPolicy"] = spec.preemption_policy
    record = {GIVEN: _encoded(resolution.name, resolution.moved_from, ())} if resolution.moved_from else {}
    answer.patch = [
        *_set("/spec", _carried(spec), wanted),
        *_set("/metadata/annotations", annotations or None, record),
    ]


def _create(context: Context, review: Review, pod: PodView, answer: Answer) -> None:
    """Patch a new pod: its class and priority, copied annotations, the mark, and the note of what was given."""
    spec, meta = pod.spec or PodSpecView(), pod.metadata or MetadataView()
    present = meta.annotations or {}
    given = given_earlier(present, review)
    # The API server takes a deletionTimestamp off a new pod after mutation
    request = context.pod_request(review, pod)
    if meta.deletion_timestamp:
        metadata = {key: value for key, value in request.object["metadata"].items() if key != "deletionTimestamp"}
        request.object = {**request.object, "metadata": metadata}
    if given is None:
        resolution = resolve(context, spec, request, review, answer)
    else:
        resolution = resolve(context, given.as_sent(spec, context.lookup), request, None, answer)
    ours = given.still_there(present, context.engine.copied) if given else set()
    values: dict[str, str] = {}
    rules = [resolution.set_by] * bool(resolution.set_by)
    offered = (resolution.priority_class.metadata.annotations if resolution.priority_class else None) or {}
    settled = resolution.settled
    if settled:
        request.priority_class, request.priority = resolution.priority_class, resolution.value
        if context.trace is not None:
            context.engine.judge(request, context.trace)
        if offered:
            # What the pod says by itself stays, and what only giveway writes is not copied
            kept = {*present.keys() - ours, *OWN_ANNOTATIONS}
            for key, rule in context.engine.annotations_to_copy(request):
                if key in offered and key not in kept:
                    values[key] = offered[key]
                    if present.get(key) != values[key]:
                        rules.append(rule)
    managed = context.managed(resolution.name) if settled and resolution.managed else None
    # Nodes wait, if neither the pod nor its class says how long
    if managed is not None and POD_SCALE_UP_DELAY not in {*present.keys() - ours, *offered}:
        waits = scale_up_delay(managed.policy.preemptors)
        values |= {POD_SCALE_UP_DELAY: waits} if waits else {}
    # What an earlier call copied and this one does not is taken away again. What only the reconciler writes is taken
    # off, since a restored or copied manifest may carry it
    moved_from, record = resolution.moved_from, None
    if not moved_from and given is not None and given.name == resolution.name:
        moved_from = given.moved_from
    if values or rules or moved_from or given is not None:
        record = _encoded(resolution.name, moved_from, tuple(values.items()))
    said = context.engine.creation_record(meta.labels, meta.annotations)
    forged = {key: None for key in RECONCILER_ANNOTATIONS if key in present}
    annotations = {**dict.fromkeys(ours), **values, **forged, GIVEN: record, CREATION: said}
    answer.patch = _patch(pod, resolution, annotations, _labels(review, meta, resolution, answer))
    if rules:
        answer.audit["applied"] = ",".join(dict.fromkeys(rules))


def _put_back(
    context: Context, review: Review, meta: MetadataView, spec: PodSpecView, answer: Answer
) -> list[Operation]:
    """What an update leaves out of what the pod was given, so that a manifest without it can be sent again.

    A value that the update changes is left for validation. Keys are put back if the mark and the records are all gone.
    """
    old = review.typed(PodView, old=True)
    before, was = old.spec or PodSpecView(), old.metadata or MetadataView()
    annotations, labels = was.annotations or {}, was.labels or {}
    now = meta.annotations or {}
    given = _decoded(annotations.get(GIVEN, ""))
    named = _moved(context, spec, before, given)
    own = frozenset(WEBHOOK_ANNOTATIONS)
    if MARK in (meta.labels or {}) or own & now.keys() or not (MARK in labels or own & annotations.keys()):
        return _class_back(spec, before, named=named)
    kept = [*OWN_ANNOTATIONS, *(given.still_there(annotations, annotations) if given else ())]
    lost = {key: annotations[key] for key in kept if key in annotations and key not in now}
    mark = {key: labels[key] for key in (MARK,) if key in labels}
    answer.warnings.append(f"the pod keeps what giveway gave it: {', '.join((*mark, *lost))}")
    return [
        *_class_back(spec, before, named=named or (given is not None and not spec.priority_class_name)),
        *_set("/metadata/annotations", meta.annotations, lost),
        *_set("/metadata/labels", meta.labels, mark),
    ]


def _moved(context: Context, spec: PodSpecView, before: PodSpecView, given: "Given | None") -> bool:
    """Whether an update names the class of whose twin the pod is: by the policies, or by its record if they changed."""
    name, twin = spec.priority_class_name or "", before.priority_class_name
    managed = context.managed(name)
    moved = given is not None and (given.moved_from, given.name) == (name, twin)
    return bool(name) and (moved or (managed is not None and managed.twin is not None and managed.twin == twin))


def _class_back(spec: PodSpecView, before: PodSpecView, *, named: bool) -> list[Operation]:
    """Put back the numbers that were left out; with `named` also the class, and whatever policy that class had."""
    carried, was = _carried(spec), _carried(before)
    wanted = {key: was[key] if carried[key] is None else carried[key] for key in ("priority", "preemptionPolicy")}
    if named:
        wanted |= {key: was[key] or carried[key] for key in ("priorityClassName", "preemptionPolicy")}
    return _set("/spec", carried, wanted)


def _carried(spec: PodSpecView) -> dict[str, Any]:
    return {
        "priorityClassName": spec.priority_class_name,
        "priority": spec.priority,
        "preemptionPolicy": spec.preemption_policy,
    }


def _priority(resolution: Resolution, spec: PodSpecView) -> dict[str, Any]:
    return {
        "priorityClassName": resolution.name or spec.priority_class_name,
        "priority": resolution.value,
        "preemptionPolicy": resolution.preemption_policy,
    }


def _labels(review: Review, meta: MetadataView, resolution: Resolution, answer: Answer) -> dict[str, str | None]:
    """The mark on a pod of a managed class, and no mark on any other, whoever set it.

    What a client set on a pod with a controller stays, and validation judges it: the controller may select its pods by
    it, would not see a pod without it, and would make the next, without end.
    """
    marked = MARK in (meta.labels or {})
    sent = marked and any(f"f:{MARK}" in keys for keys in owned(review, "metadata", "labels"))
    if (sent or (marked and not review.object["metadata"].get("managedFields"))) and meta.has_controller:
        return {}
    if resolution.managed:
        return {MARK: MANAGED}
    if sent:
        answer.warnings.append(
            f"label {MARK} is giveway's own mark, for pods of the PriorityClasses it manages: taken off; leave it out"
        )
    return {MARK: None}


def _patch(
    pod: PodView, resolution: Resolution, annotations: dict[str, str | None], labels: dict[str, str | None]
) -> list[Operation]:
    """The patch of a new pod; what it lacks as a whole is made before anything is put into it."""
    meta, spec = pod.metadata or MetadataView(), pod.spec or PodSpecView()
    patch = _set("/metadata/annotations", meta.annotations, annotations) + _set("/metadata/labels", meta.labels, labels)
    lacking = ["/metadata"] if pod.metadata is None and patch else []
    if resolution.settled:
        lacking += [] if pod.spec else ["/spec"]
        patch += _set("/spec", _carried(spec), _priority(resolution, spec))
    return [{"op": "add", "path": path, "value": {}} for path in lacking] + patch


class Given(msgspec.Struct, frozen=True, omit_defaults=True):
    """What mutation gave a new pod, written on the pod, so that a second call takes back what does not hold any more.

    Another webhook may change the class after giveway, and the API server then calls giveway again with the same pod
    (`reinvocationPolicy: IfNeeded`). A value that was copied and one that the user set look the same by then. So the
    annotation `giveway.dev/given` says which class the pod had after the first call and what was copied to it.

    A user who sends the annotation achieves nothing: `metadata.managedFields` show that a client set it, and then it
    counts for nothing and is taken off. Without any managedFields (`giveway review`, tests) it is believed; all it can
    do then is to have a value that policies copy treated as if the pod had been sent without it.

    `name` is the PriorityClass the pod had after the call, and `moved_from` the one of which that is the twin; `copied`
    are annotations with their values, or the digests of values longer than LONGEST_VALUE.
    """

    name: str = msgspec.field(default="", name="class")
    moved_from: str = msgspec.field(default="", name="from")
    copied: dict[str, str] = {}

    def still_there(self, annotations: Mapping[str, str], copyable: Collection[str]) -> set[str]:
        """The keys that were copied and have not been changed since."""
        return {
            key
            for key, value in self.copied.items()
            if key in copyable and key in annotations and _brief(annotations[key]) == value
        }

    def as_sent(self, spec: PodSpecView, lookup: Lookup) -> PodSpecView:
        """The spec without the numbers of the class it had, if another class was named since."""
        before, named = lookup.priority_class(self.name), spec.priority_class_name
        numbers = spec.priority, spec.preemption_policy
        if (named or "") == self.name or before is None or numbers != (before.value, policy_of(before)):
            return spec
        return PodSpecView(priority_class_name=named)


_decoder = msgspec.json.Decoder(Given)


@bounded_cache(1024, 4096)
def _encoded(name: str, moved_from: str, copied: tuple[tuple[str, str], ...]) -> str:
    """The annotation's text, compact JSON: the class that the pod has now, and what was copied to it.

    The pods of one class mostly get the same.
    """
    return msgspec.json.encode(Given(name, moved_from, {key: _brief(value) for key, value in copied})).decode()


def given_earlier(annotations: Mapping[str, str], sent: Review | None = None) -> Given | None:
    """What an earlier call gave this pod; None in the first call, whatever a client wrote in the review of the pod."""
    text = annotations.get(GIVEN, "")
    if not text or len(text) > _LONGEST:
        return None
    by_client = sent is not None and any(f"f:{GIVEN}" in keys for keys in owned(sent, "metadata", "annotations"))
    return None if by_client else _decoded(text)


def _decoded(text: str) -> Given | None:
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _brief(value: str) -> str:
    if len(value) <= LONGEST_VALUE:
        return value
    return "sha256:" + hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()


def _set(parent: str, present: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> list[Operation]:
    """Set members of what is at `parent`, made if `present` is None; a value of None is absent."""
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
