"""From a review to what the policy engine judges, and from its verdicts to the answer."""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.admission.decode import PodSpecView, PodView, Review
from webhook.admission.lookup import Context
from webhook.admission.respond import Answer, say
from webhook.policy.evaluation.request import PolicyRequest
from webhook.policy.evaluation.requester import CONTROLLER
from webhook.policy.evaluation.verdict import Verdict

__all__ = ["by_controller", "change_request", "judge", "judge_annotations", "pod_request", "request_for"]


def request_for(
    context: Context, review: Review, data: dict[str, Any], old: dict[str, Any] | None = None
) -> PolicyRequest:
    """The request without its priority, which admission fills in once it is resolved."""
    namespace = review.namespace
    return PolicyRequest(
        operation=review.operation,
        resource=review.resource,
        object=data,
        old_object=old,
        namespace=namespace,
        name=review.name,
        user=review.user,
        namespace_object=context.lookup.namespace(namespace) if namespace else None,
        raw=review.raw if context.reads_everything else {},
        dry_run=review.dry_run,
        allowance=context.allowance,
        now=context.clock(),
    )


def pod_request(context: Context, review: Review, pod: PodView, old: PodView | None = None) -> PolicyRequest:
    """The request for a pod: in full if an expression may read any field, else with what other rules look at."""
    if context.reads_everything:
        return request_for(context, review, review.object, review.old_object)
    return request_for(context, review, _reduced(pod), _reduced(old) if old is not None else None)


def by_controller(request: PolicyRequest) -> PolicyRequest:
    """The request as a controller makes it: what the pods of a workload will meet, whoever its author is."""
    raw = request.raw
    if raw:
        raw = {**raw, "userInfo": {"username": CONTROLLER.username, "groups": list(CONTROLLER.groups)}}
    return msgspec.structs.replace(request, user=CONTROLLER, raw=raw)


def change_request(context: Context, review: Review, pod: PodView, old: PodView) -> PolicyRequest:
    """The request for an UPDATE of a pod: its priority is the one it was created with."""
    spec = pod.spec or PodSpecView()
    request = pod_request(context, review, pod, old)
    request.priority_class = (
        context.lookup.priority_class(spec.priority_class_name) if spec.priority_class_name else None
    )
    request.priority = spec.priority
    return request


def _reduced(pod: PodView) -> dict[str, Any]:
    """The fields of a pod that rules without expressions look at, as JSON data."""
    data: dict[str, Any] = {}
    if pod.metadata is not None:
        meta = pod.metadata
        data["metadata"] = {
            "name": meta.name,
            "labels": meta.labels,
            "annotations": meta.annotations,
            "deletionTimestamp": meta.deletion_timestamp,
            "ownerReferences": [{"controller": owner.controller} for owner in meta.owner_references or ()],
        }
    if pod.spec is not None:
        spec = pod.spec
        data["spec"] = {
            "priorityClassName": spec.priority_class_name,
            "priority": spec.priority,
            "preemptionPolicy": spec.preemption_policy,
        }
    return data


def judge(context: Context, request: PolicyRequest, answer: Answer) -> None:
    """Add what the policies say. A rule under `warn` becomes a warning, one under `audit` an audit annotation."""
    _take(context.engine.judge(request, context.trace), answer)


def judge_annotations(context: Context, request: PolicyRequest, answer: Answer) -> None:
    """Add what the policies say of the protected annotations that an update changes, and of nothing else."""
    _take(context.engine.judge_annotations(request), answer)


def _take(found: list[Verdict], answer: Answer) -> None:
    answer.verdicts += found
    for verdict in found:
        if verdict.warns:
            answer.warnings.append(say(verdict))
    silent = [say(verdict) for verdict in found if verdict.silent]
    if silent:
        answer.audit["would-deny"] = "; ".join(silent)
