"""Mutation: fill in priorities, copy annotations, mark pods, make managed classes Never. It refuses nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from webhook.admission.decode import MetadataView, PodSpecView, PodView, Review
from webhook.admission.given import encode, given_earlier
from webhook.admission.judging import pod_request
from webhook.admission.lookup import Context
from webhook.admission.patching import Operation, fields, members
from webhook.admission.resolving import NEVER, Resolution, owned, policy_of, resolve
from webhook.admission.respond import Answer
from webhook.policy.evaluation.request import PolicyRequest
from webhook.policy.model import DECISION, GIVEN, MANAGED, MARK, OWN_ANNOTATIONS, PLAN

__all__ = ["MIRROR", "mutate_class", "mutate_pod"]

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a mirror pod: the API's picture of a static pod, which nobody may change."""


def mutate_pod(context: Context, review: Review, answer: Answer) -> None:
    """Patch a pod: at CREATE what it resolves to, at UPDATE only what the update would have dropped."""
    pod = review.pod()
    if MIRROR in ((pod.metadata and pod.metadata.annotations) or {}):
        return
    if review.operation == "CREATE":
        _create(context, review, pod, answer)
    elif review.has_old:
        answer.patch = _preserve(pod, review.old_pod())


def mutate_class(context: Context, review: Review, answer: Answer) -> None:
    """A managed class gets `preemptionPolicy: Never` at CREATE, so that kube-scheduler leaves it to the reconciler.

    The field is immutable afterwards: a class that exists and is not Never needs a twin instead. An UPDATE of a class
    that is Never keeps it so. The API server compares old and new after mutation (`ValidateUpdate` of PriorityClass),
    so a manifest without `Never` can be applied again.
    """
    found = review.priority_class()
    if found.preemption_policy == NEVER:
        return
    created = review.operation == "CREATE"
    if not created and not (review.has_old and policy_of(review.old_priority_class()) == NEVER):
        return
    name, prefix = found.metadata.name, found.metadata.generate_name
    managed = context.managed(name) if name else context.engine.managed_if_generated(prefix)
    if managed is None:
        return
    answer.patch = fields("", [("preemptionPolicy", found.preemption_policy, NEVER)])
    answer.warnings.append(
        f"PriorityClass {name or f'{prefix}*'} {'was made' if created else 'stays'} {NEVER}: PreemptionPolicy"
        f" {managed.policy.name} manages it, so giveway preempts for its pods and kube-scheduler does not."
        f' Write "preemptionPolicy: {NEVER}" in the manifest'
    )


def _create(context: Context, review: Review, pod: PodView, answer: Answer) -> None:
    """Patch a new pod: its class and priority, copied annotations, the mark, and the note of what was given."""
    spec, meta = pod.spec or PodSpecView(), pod.metadata or MetadataView()
    present = meta.annotations or {}
    given = given_earlier(present, lambda: review.object)
    # The API server takes a deletionTimestamp off a new pod after mutation
    request = pod_request(context, review, pod)
    if pod.metadata is not None and pod.metadata.deletion_timestamp:
        metadata = {key: value for key, value in request.object["metadata"].items() if key != "deletionTimestamp"}
        request.object = {**request.object, "metadata": metadata}
    if given is None:
        found = resolve(context, spec, request, lambda: review.object)
    else:
        found = resolve(context, given.as_sent(spec, context.lookup), request, dict)
    answer.warnings += found.warnings
    answer.unsure |= found.unsure
    settled = not (found.conflict or found.missing)
    ours = given.still_there(present, context.engine.copied) if given else set()
    copied: dict[str, tuple[str, str]] = {}
    if settled:
        request.priority_class, request.priority = found.priority_class, found.value
        if context.trace is not None:
            context.engine.judge(request, context.trace)
        copied = _copied(context, request, present.keys() - ours, found)
    values = {key: value for key, (value, _) in copied.items()}
    # What an earlier call copied and this one does not is taken away again. What only the reconciler writes is taken
    # off, since a restored or copied manifest may carry it
    record = encode(found.name, values) if values or found.overwrite or given is not None else None
    annotations = {**dict.fromkeys(ours), **values, PLAN: None, DECISION: None, GIVEN: record}
    labels = _labels(review, meta, found, answer)
    answer.patch = (
        (_parents(pod, found, annotations) if settled else [])
        + members("/metadata/annotations", meta.annotations, annotations)
        + members("/metadata/labels", meta.labels, labels)
        + (_priority(spec, found) if settled else [])
    )
    rules = [found.set_by] * bool(found.set_by)
    rules += [rule for key, (value, rule) in copied.items() if present.get(key) != value]
    if rules:
        answer.audit["applied"] = ",".join(dict.fromkeys(rules))


def _labels(review: Review, meta: MetadataView, found: Resolution, answer: Answer) -> dict[str, str | None]:
    """The mark on a pod of a managed class, and no mark on any other, whoever set it."""
    if found.managed:
        return {MARK: MANAGED}
    if MARK in (meta.labels or {}) and any(f"f:{MARK}" in keys for keys in owned(review.object, "metadata", "labels")):
        answer.warnings.append(
            f"label {MARK} is giveway's own mark, for pods of the PriorityClasses it manages: taken off; leave it out"
        )
    return {MARK: None}


def _priority(spec: PodSpecView, found: Resolution) -> list[Operation]:
    named = spec.priority_class_name
    wanted: tuple[tuple[str, object, object], ...] = (
        ("priorityClassName", named, found.name or named),
        ("priority", spec.priority, found.value),
        ("preemptionPolicy", spec.preemption_policy, found.preemption_policy),
    )
    return fields("/spec", wanted)


def _copied(
    context: Context, request: PolicyRequest, present: Collection[str], found: Resolution
) -> dict[str, tuple[str, str]]:
    """Annotations that a rule copies from the class to a pod if they are not `present`, as (value, rule) by key."""
    offered = found.priority_class.metadata.annotations if found.priority_class else None
    if not offered:
        return {}
    return {
        key: (offered[key], rule)
        for key, rule in context.engine.annotations_to_copy(request)
        if key in offered and key not in present and key not in OWN_ANNOTATIONS
    }


def _parents(pod: PodView, found: Resolution, annotations: Mapping[str, str | None]) -> list[Operation]:
    """Objects to make before anything can be put into them."""
    needed = ["spec"] if pod.spec is None else []
    if pod.metadata is None and (found.managed or any(value is not None for value in annotations.values())):
        needed.insert(0, "metadata")
    return [{"op": "add", "path": f"/{field}", "value": {}} for field in needed]


def _preserve(pod: PodView, old: PodView) -> list[Operation]:
    """Put back what the pod had and the update left out; a value that it changes is left for validation."""
    now, before = pod.spec or PodSpecView(), old.spec or PodSpecView()
    kept = [
        (field, None, was)
        for field, value, was in (
            ("priority", now.priority, before.priority),
            ("preemptionPolicy", now.preemption_policy, before.preemption_policy),
        )
        if value is None
    ]
    return fields("/spec", kept) if pod.spec is not None else []
