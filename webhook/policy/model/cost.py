"""What an eviction costs beyond the priority of the pod, as a PreemptionPolicy counts it. Durations are seconds."""

from __future__ import annotations

from typing import Annotated

import msgspec

from webhook.kube.pods import POD_DELETION_COST
from webhook.policy.model.values import Annotation
from webhook.policy.shapes.object_shape import mapping
from webhook.policy.shapes.shapes import DURATION


@mapping("lost work")
class LostWork(msgspec.Struct, frozen=True, kw_only=True):
    """How much work a pod loses: the time since its start, or since its last checkpoint."""

    checkpoints: Annotated[
        tuple[Annotation, ...],
        "Annotations of the pod with the time of its last checkpoint (RFC 3339); the first one that can be read"
        " counts.",
    ] = ()


@mapping("cost")
class EvictionCost(msgspec.Struct, frozen=True, kw_only=True):
    """By what victims of equal priority are compared. The keys that are named count in the order of this table."""

    readiness: Annotated[bool, "Fewest pods that are ready go; those that are not go first."] = False
    group_restarts: Annotated[
        bool, "Fewest groups of pods lose a member, because a group often starts again as a whole."
    ] = False
    deletion_cost: Annotated[
        bool, "The lowest sum of controller.kubernetes.io/pod-deletion-cost; a pod without it counts 0."
    ] = False
    lost_work: Annotated[LostWork | None, "The least work lost, in whole seconds."] = None
    recent_evictions: Annotated[
        float | None, DURATION, "Workloads that were evicted least often within this time go first."
    ] = None
    grace_period: Annotated[bool, "The shortest grace period."] = False

    @property
    def annotations_read(self) -> frozenset[str]:
        """Every annotation of pods that says what they cost."""
        checkpoints = self.lost_work.checkpoints if self.lost_work else ()
        return frozenset((*checkpoints, *((POD_DELETION_COST,) if self.deletion_cost else ())))
