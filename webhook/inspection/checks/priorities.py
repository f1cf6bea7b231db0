"""Resources with priorities of their own, which no rule of giveway judges."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, names
from webhook.inspection.observed import Observed


def unjudged(observed: Observed) -> Iterator[ClusterFinding]:
    """Each served resource with a `priorityClassName` that is for no pod, and that no rule looks at."""
    for resource, fields in observed.priorities.fields.items():
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"{resource} have a PriorityClass ({names(fields)}), and giveway does not judge {resource}.",
            "If a scheduler or a queue goes by it, whoever may make these objects may have a priority that the policies"
            " reserve for others.",
            "Let only those make them who may have every priority, or judge them by a ValidatingAdmissionPolicy of"
            " yours.",
        )
    for document, why in observed.priorities.unread.items():
        yield ClusterFinding(
            FindingSeverity.NOT_CHECKED,
            f"Not checked: the OpenAPI document {document} could not be read: {why}.",
            "A resource that it describes may have a PriorityClass that no rule judges.",
            "See what the API server says: kubectl get --raw /openapi/v3; kubectl get apiservices shows what others"
            " serve.",
        )
