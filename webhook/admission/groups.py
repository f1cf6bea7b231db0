"""Validation of PodGroups, and of the templates of them in Workloads (`scheduling.k8s.io`, docs/semantics.md A9).

kube-scheduler preempts for a group by the group's own priority. So a group is judged by the rules about the priority of
pods: whether its class exists and agrees with its numbers, who may use the value, and which classes are allowed.
"""

from collections.abc import Iterator
from typing import Any

from webhook.admission.context import Context
from webhook.admission.review import Answer, PodSpecView, PodView, Review
from webhook.admission.validating import check_class, judge, warn_of_controllers
from webhook.policy.evaluation.request import GROUPS, PolicyRequest

_PRIORITY = ("priorityClassName", "priority")


def validate_group(context: Context, review: Review, answer: Answer) -> None:
    """Judge a PodGroup as it would be stored. An update is judged in the same way: what it names cannot change."""
    group = review.typed(PodView)
    if group.metadata is None or not group.metadata.deletion_timestamp:
        _judge(context, review.as_created(review.object, GROUPS), answer)


def validate_group_templates(context: Context, review: Review, answer: Answer) -> None:
    """Judge the groups that a Workload describes, so that its author reads the message; they are judged again."""
    metadata = review.object.get("metadata")
    if isinstance(metadata, dict) and metadata.get("deletionTimestamp"):
        return
    for template in _templates(review.object.get("spec")):
        group = {"metadata": metadata if isinstance(metadata, dict) else {}, "spec": template}
        request = _judge(context, review.as_created(group, GROUPS), answer)
        if answer.allowed:
            warn_of_controllers(context, request, "PodGroups", answer)


def _judge(context: Context, group: Review, answer: Answer) -> PolicyRequest:
    spec, request = group.typed(PodView).spec or PodSpecView(), context.request(group)
    judge(context, request, spec, check_class(context, group, answer), answer)
    return request


def _templates(spec: Any) -> Iterator[dict[str, Any]]:
    """Every mapping below that names a class or a priority: where a version keeps its templates is its own affair."""
    if isinstance(spec, dict):
        if any(field in spec for field in _PRIORITY):
            yield spec
        for part in spec.values():
            yield from _templates(part)
    elif isinstance(spec, list):
        for part in spec:
            yield from _templates(part)
