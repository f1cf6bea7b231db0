"""Validation of pods and of the pod templates of workloads: what holds without any policy file."""

from __future__ import annotations

import msgspec

from webhook.admission.decode import MetadataView, PodSpecView, PodView, Review
from webhook.admission.judging import by_controller, change_request, judge, pod_request, request_for
from webhook.admission.lookup import CLASSES, Context
from webhook.admission.mutating import MIRROR
from webhook.admission.protecting import check_changes, check_new
from webhook.admission.resolving import NEVER, PREEMPT, disagreement, global_default, policy_of, resolve
from webhook.admission.respond import Answer
from webhook.kube.objects import PriorityClass
from webhook.kube.workloads import template_of
from webhook.policy.model import MANAGED, MARK

__all__ = ["validate_pod", "validate_workload"]


def validate_pod(context: Context, review: Review, answer: Answer) -> None:
    """Judge a pod as it would be stored; an UPDATE is judged by what it changes."""
    pod = review.pod()
    meta = pod.metadata or MetadataView()
    if meta.deletion_timestamp:
        return
    if review.operation == "CREATE":
        _validate_new(context, review, pod, answer)
    elif review.has_old:
        old = review.old_pod()
        now, before = pod.spec or PodSpecView(), old.spec or PodSpecView()
        for field, value, was in (
            ("priorityClassName", now.priority_class_name or None, before.priority_class_name or None),
            ("priority", now.priority, before.priority),
            ("preemptionPolicy", now.preemption_policy, before.preemption_policy),
        ):
            if value != was:
                shown = tuple("absent" if item is None else item for item in (was, value))
                answer.deny(
                    "priority-immutable",
                    f"spec.{field} of a pod cannot change (now {shown[0]}, requested {shown[1]});"
                    " make a new pod instead",
                )
        check_changes(context, review, pod.metadata, old.metadata, answer)
        judge(context, change_request(context, review, pod, old), answer)


def validate_workload(context: Context, review: Review, answer: Answer) -> None:
    """Judge the pods a workload is about to make, so that its author reads the message and not only a controller.

    A template that an UPDATE leaves alone is not judged: scaling or deleting what exists always works.
    """
    data = review.object
    template = template_of(data, review.resource)
    metadata = data.get("metadata")
    if template is None or (isinstance(metadata, dict) and metadata.get("deletionTimestamp")):
        return
    if review.operation == "UPDATE" and template == template_of(review.old_object, review.resource):
        return
    pod = review.template(template)
    meta, spec = pod.metadata or MetadataView(), pod.spec or PodSpecView()
    as_pod = msgspec.structs.replace(request_for(context, review, template), operation="CREATE", resource="pods")
    found = resolve(context, spec, by_controller(as_pod), lambda: template)
    answer.unsure |= found.unsure
    answer.warnings += found.warnings
    if found.missing:
        _deny_missing(answer, found.name)
    elif found.conflict:
        _deny_disagreement(answer, spec, context, found.priority_class)
    _check_mark(answer, meta, found.name, managed=found.managed)
    request = request_for(context, review, data, review.old_object)
    request.priority_class = found.priority_class
    request.priority = spec.priority if spec.priority is not None else found.value
    judge(context, request, answer)
    if answer.allowed and context.engine.asks_who:
        # A controller makes the pods: tell the author of the workload which rule will refuse those
        for verdict in context.engine.judge(by_controller(request)):
            if verdict.denies:
                answer.warnings.append(
                    f"a controller makes the pods, and rule {verdict.id} will refuse them: {verdict.message}"
                )


def _validate_new(context: Context, review: Review, pod: PodView, answer: Answer) -> None:
    """Judge a new pod: its class, its priority, its mark, and then what the policies say."""
    meta, spec = pod.metadata or MetadataView(), pod.spec or PodSpecView()
    name = spec.priority_class_name or ""
    named = context.lookup.priority_class(name) if name else None
    if name and named is None:
        answer.unsure.add((CLASSES, name))
        _deny_missing(answer, name)
    else:
        _check_priority(context, meta, spec, named, answer)
    managed = named is not None and policy_of(named) == NEVER and context.is_managed(name)
    _check_mark(answer, meta, name, managed=managed)
    if managed and MARK not in (meta.labels or {}) and MIRROR not in (meta.annotations or {}):
        answer.warnings.append(f"no label {MARK}: {MANAGED}, so nothing preempts for this pod of class {name}")
    check_new(meta, answer)
    request = pod_request(context, review, pod)
    request.priority_class = named
    request.priority = spec.priority if spec.priority is not None else (named.value if named else 0)
    judge(context, request, answer)


def _check_priority(
    context: Context, meta: MetadataView, spec: PodSpecView, named: PriorityClass | None, answer: Answer
) -> None:
    """Refuse a new pod whose priority or preemption policy disagrees with its class, or was never filled in."""
    expected = named or global_default(context)
    value, policy = (expected.value, policy_of(expected)) if expected else (0, PREEMPT)
    if disagreement(spec, value, policy):
        if expected:
            answer.unsure.add((CLASSES, expected.metadata.name))
        _deny_disagreement(answer, spec, context, named)
    elif (spec.priority is None or spec.preemption_policy is None) and MIRROR not in (meta.annotations or {}):
        answer.deny(
            "priority-resolved",
            "spec.priority and spec.preemptionPolicy were never filled in: the pod passed neither the Priority plugin"
            " nor giveway's mutating webhook. Try again; if that does not help, check the MutatingWebhookConfiguration",
        )


def _check_mark(answer: Answer, meta: MetadataView, name: str, *, managed: bool) -> None:
    mark = (meta.labels or {}).get(MARK)
    if mark is None or (managed and mark == MANAGED):
        return
    if managed:
        text = f"label {MARK} is {mark!r}; its only value is {MANAGED!r}, and giveway sets it by itself: leave it out"
    else:
        whose = f"PriorityClass {name} is not one that it manages" if name else "no PriorityClass is named"
        text = f"label {MARK} is giveway's own mark and {whose}: leave the label out"
    answer.deny("mark", text)


def _deny_missing(answer: Answer, name: str) -> None:
    answer.deny(
        "class-exists",
        f"no PriorityClass with name {name} was found; `kubectl get priorityclasses` lists the ones that exist",
    )


def _deny_disagreement(answer: Answer, spec: PodSpecView, context: Context, named: PriorityClass | None) -> None:
    """Say which of priority and preemption policy disagree, and with what."""
    expected = named or global_default(context)
    value, policy = (expected.value, policy_of(expected)) if expected else (0, PREEMPT)
    if named:
        source = f"PriorityClass {named.metadata.name}"
    elif expected:
        source = f"the default PriorityClass {expected.metadata.name}"
    else:
        source = "a pod without a PriorityClass"
    if spec.priority is not None and spec.priority != value:
        answer.deny(
            "priority-agrees",
            f"spec.priority is {spec.priority}, but {source} has {value}; leave spec.priority out, it is filled in",
        )
    if spec.preemption_policy is not None and spec.preemption_policy != policy:
        answer.deny(
            "preemption-policy-agrees",
            f"spec.preemptionPolicy is {spec.preemption_policy}, but {source} has {policy};"
            " leave spec.preemptionPolicy out, it is filled in",
        )
