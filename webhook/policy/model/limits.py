"""How much a PreemptionPolicy lets the reconciler evict, and how often. Durations are seconds."""

from typing import Annotated

import msgspec

from webhook.policy.model.schedule import Schedule
from webhook.policy.model.values import LABEL_KEY
from webhook.policy.shapes.object_shape import Choice, mapping
from webhook.policy.shapes.shapes import Duration, duration_up_to, integer

MANY = 1_000_000
"""The most that a count in a policy may be."""
_WHEN = "When it holds; always if absent. It counts evictions always."
_EVICTIONS = integer("a number of evictions", 1, MANY)
_MONTH = duration_up_to(30 * 86_400.0)
"""For as long the reconciler remembers evictions of workloads."""


@mapping("rate")
class Rate(msgspec.Struct, frozen=True):
    """At most so many evictions within a window."""

    evictions: Annotated[int, _EVICTIONS, "How many."]
    window: Annotated[Duration, "Within which time."] = 60.0
    schedule: Annotated[Schedule | None, _WHEN] = None


@mapping("label rate")
class LabelRate(msgspec.Struct, frozen=True):
    """At most so many evictions within a window of pods that have one value of a label in common."""

    label: Annotated[str, LABEL_KEY, "The label's key, such as team; pods without it do not count."]
    evictions: Annotated[int, _EVICTIONS, "How many."]
    window: Annotated[Duration, "Within which time."] = 60.0
    schedule: Annotated[Schedule | None, _WHEN] = None


@mapping("workload limit")
class WorkloadLimit(msgspec.Struct, frozen=True):
    """At most so many evictions of one workload within a long time, which outlives its pods and the leader."""

    evictions: Annotated[int, integer("a number of evictions", 1, 64), "How many."]
    window: Annotated[float, _MONTH, "Within which time, at most 720h."] = 7 * 86_400.0


class CycleKeeper(Choice, what="who stays in a cycle"):
    """Which of two workloads stays that would evict each other in turn."""

    EVICTOR = "Evictor", "pods of the workload that evicted first stay; the preemptor finds others, or waits"
    NOBODY = "Nobody", "they may go; the cycle is told all the same"


@mapping("cycles")
class Cycles(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a preemptor that would evict a workload for which pods of its own workload were evicted."""

    keep: Annotated[CycleKeeper, "Who stays."] = CycleKeeper.NOBODY
    window: Annotated[float, _MONTH, "How long an eviction counts for that."] = 86_400.0


@mapping("limits")
class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits: how much may be evicted, and how often it is tried. Unlimited if absent."""

    per_owner: Annotated[Rate | None, "Evictions of pods of one owner (a Deployment, a Job …)."] = None
    per_workload: Annotated[
        WorkloadLimit | None, "Evictions of pods of one owner over a long time, counted past restarts and leaders."
    ] = None
    cycles: Annotated[Cycles, "Workloads that evict each other in turn."] = Cycles()
    per_node: Annotated[Rate | None, "Evictions on one node."] = None
    per_namespace: Annotated[Rate | None, "Evictions of pods of one namespace."] = None
    per_label: Annotated[LabelRate | None, "Evictions of pods with the same value of a label."] = None
    per_cluster: Annotated[Rate | None, "Evictions in all."] = None
    attempts_per_preemptor: Annotated[
        int,
        integer("a number of attempts", 1, MANY),
        "How many plans may evict in vain for one pod; one is forgiven every 15 minutes.",
    ] = 10

    @property
    def rates(self) -> dict[str, Rate | LabelRate]:
        """The rates that are set, by their field."""
        limits = {field: getattr(self, field) for field in self.__struct_fields__}
        return {field: limit for field, limit in limits.items() if isinstance(limit, Rate | LabelRate)}

    def at(self, now: float) -> "Limits":
        """The limits without the rates that do not hold `now`, in seconds since the epoch."""
        off: dict[str, None] = {}
        for field, rate in self.rates.items():
            if rate.schedule is not None and not rate.schedule.holds(now):
                off[field] = None
        return msgspec.structs.replace(self, **off) if off else self
