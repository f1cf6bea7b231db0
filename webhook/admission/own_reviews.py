"""AdmissionReviews that giveway makes itself: PolicyTests, scans, trials and simulations ask as an API server would.

There is one maker of them, so each asks about every kind that the webhook judges, in the same words.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from webhook.admission.context import Context
from webhook.admission.review import Answer, enveloped
from webhook.admission.webhook import Phase, review
from webhook.kube.pods import WORKLOADS
from webhook.policy.evaluation.request import UserInfo

RESOURCES: dict[str, tuple[str, str]] = {
    "ConfigMap": ("", "configmaps"),
    "Pod": ("", "pods"),
    "PodGroup": ("scheduling.k8s.io", "podgroups"),
    "PriorityClass": ("scheduling.k8s.io", "priorityclasses"),
    "Workload": ("scheduling.k8s.io", "workloads"),
    **{workload.kind: resource for resource, workload in WORKLOADS.items()},
}
"""Kind to group and plural of what the webhook judges."""
Json = dict[str, Any]
_encode = msgspec.json.Encoder().encode


def review_of(
    kind: str,
    obj: Any,
    user: UserInfo | Mapping[str, Any],
    *,
    operation: str = "CREATE",
    old_object: Any = None,
    namespace: str = "",
    name: str = "",
    dry_run: bool = False,
    uid: str = "giveway",
) -> Json:
    """The AdmissionReview (v1) that asks about an object.

    `obj` and `old_object` are JSON data or `msgspec.Raw`; `user` is the `userInfo`. A kind that is not in RESOURCES
    counts as one of the core group.
    """
    group, plural = RESOURCES.get(kind, ("", f"{kind.lower()}s"))
    request = {
        "uid": uid,
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": plural},
        "operation": operation,
        "namespace": namespace,
        "name": name,
        "userInfo": user,
        "object": obj,
        "oldObject": old_object,
        "dryRun": dry_run,
    }
    return enveloped(request)


def ask(context: Context, phase: Phase, body: Json) -> Answer:
    """What the webhook answers to a review."""
    return review(context, phase, _encode(body)).answer
