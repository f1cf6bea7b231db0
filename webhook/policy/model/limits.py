"""How much a PreemptionPolicy lets the reconciler evict, and how often. Durations are seconds."""

from __future__ import annotations

from typing import Annotated

import msgspec

from webhook.policy.model.schedule import Schedule
from webhook.policy.shapes.object_shape import Field, mapping
from webhook.policy.shapes.shapes import Duration, Whole

__all__ = ["MANY", "Limits", "Rate"]

MANY = 1_000_000
"""The most that a count in a policy may be."""


@mapping("rate")
class Rate(msgspec.Struct, frozen=True):
    """At most so many evictions within a window."""

    evictions: Annotated[int, Field("How many.", Whole("a number of evictions", 1, MANY))]
    window: Annotated[float, Field("Within which time.", Duration())] = 60.0
    schedule: Annotated[Schedule | None, Field("When it holds; always if absent. It counts evictions always.")] = None

    def holds(self, now: float) -> bool:
        """Whether it holds at this time, in seconds since the epoch."""
        return self.schedule is None or self.schedule.holds(now)


@mapping("limits")
class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits: how much may be evicted, and how often it is tried. Unlimited if absent."""

    per_owner: Annotated[Rate | None, Field("Evictions of pods of one owner (a Deployment, a Job …).")] = None
    per_node: Annotated[Rate | None, Field("Evictions on one node.")] = None
    per_cluster: Annotated[Rate | None, Field("Evictions in all.")] = None
    attempts_per_preemptor: Annotated[
        int,
        Field(
            "How many plans may evict in vain for one pod; one is forgiven every 15 minutes.",
            Whole("a number of attempts", 1, MANY),
        ),
    ] = 10

    @property
    def rates(self) -> dict[str, Rate]:
        """The rates that are set, by their field."""
        rates = {"per_owner": self.per_owner, "per_node": self.per_node, "per_cluster": self.per_cluster}
        return {field: rate for field, rate in rates.items() if rate is not None}

    def at(self, now: float) -> Limits:
        """The limits without the rates that do not hold at this time, in seconds since the epoch."""
        off = {field: None for field, rate in self.rates.items() if not rate.holds(now)}
        return msgspec.structs.replace(self, **off) if off else self
