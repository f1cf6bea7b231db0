"""The protected keys of pods: giveway's own annotations and mark, and the annotations that policies shield.

A pod's metadata is written through `pods`, `pods/status` and a Binding, whose annotations and labels the API server
copies to the pod (`registry/core/pod/storage`). The same keys are judged on all three.
"""

from __future__ import annotations

import msgspec

from webhook.admission.decode import MetadataView, PodView, Review
from webhook.admission.judging import change_request, judge_annotations, request_for
from webhook.admission.lookup import Context
from webhook.admission.respond import Answer
from webhook.policy.model import DECISION, MARK, OWN_ANNOTATIONS, PLAN

__all__ = ["check_changes", "check_new", "validate_binding", "validate_status"]

_OWN_RULE = "own-annotations"


def check_new(meta: MetadataView, answer: Answer) -> None:
    """Refuse a new pod that carries what only the reconciler writes; mutation has taken it away if it was asked."""
    for key in (PLAN, DECISION):
        if key in (meta.annotations or {}):
            answer.deny(_OWN_RULE, f"annotation {key} is written by giveway's reconciler only: leave it out")


def check_changes(
    context: Context, review: Review, now: MetadataView | None, before: MetadataView | None, answer: Answer
) -> None:
    """Refuse a change of giveway's own annotations or of the mark by anybody but the reconciler."""
    if review.user.username == context.reconciler:
        return
    new, old = now or MetadataView(), before or MetadataView()
    for key in OWN_ANNOTATIONS:
        if (new.annotations or {}).get(key) != (old.annotations or {}).get(key):
            answer.deny(
                _OWN_RULE,
                f"annotation {key} is giveway's own record: on a pod that exists only {context.reconciler} changes it",
            )
    mark, was = (new.labels or {}).get(MARK), (old.labels or {}).get(MARK)
    if mark != was:
        answer.deny(
            "mark",
            f"label {MARK} says that giveway preempts for this pod; it is set at creation and stays as it is"
            f" (now {was or 'absent'}, requested {mark or 'absent'})",
        )


def validate_status(context: Context, review: Review, answer: Answer) -> None:
    """Judge what an update of `pods/status` does to the protected keys; its status is nobody's policy."""
    if review.operation != "UPDATE" or not review.has_old:
        return
    pod, old = review.pod(), review.old_pod()
    if (pod.metadata or MetadataView()).deletion_timestamp:
        return
    check_changes(context, review, pod.metadata, old.metadata, answer)
    judge_annotations(context, change_request(context, review, pod, old), answer)


def validate_binding(context: Context, review: Review, answer: Answer) -> None:
    """Judge a Binding as an update that sets its annotations and labels on the pod; what the pod had is not known.

    Its own labels give no rights: whoever binds chooses them. So those of the pod are not known here.
    """
    if review.operation != "CREATE":
        return
    binding: PodView = review.pod()
    meta = binding.metadata or MetadataView()
    check_changes(context, review, meta, None, answer)
    data = {"metadata": {"name": review.name or meta.name, "annotations": meta.annotations}}
    request = request_for(context, review, data, {"metadata": {}})
    change = msgspec.structs.replace(request, operation="UPDATE", resource="pods", labels_known=False)
    judge_annotations(context, change, answer)
