"""PodGroups of Kubernetes, coscheduling and Volcano, as far as they decide who is placed and evicted together."""

from typing import Any

import msgspec

from webhook.kube.objects.meta import KubeObject, KubeStruct


class GangPolicy(KubeStruct):
    """How many members a gang needs."""

    min_count: int = 0


class PodGroupPolicy(KubeStruct):
    """How the members of a group are scheduled; a `basic` group has no `gang`."""

    gang: GangPolicy | None = None


class TopologyConstraint(KubeStruct):
    """All members go to nodes that have the same value of the label `key`."""

    key: str = ""


class SchedulingConstraints(KubeStruct):
    """Where the members of a group may be; the API server takes one entry of `topology`."""

    topology: list[TopologyConstraint] | None = None


class PodGroupSpec(KubeStruct):
    """What decides of a group.

    `disruption_mode` is `Pod` or `PodGroup` in Kubernetes 1.36, and `{single: {}}` or `{all: {}}` in 1.37.
    `min_member` is what coscheduling and Volcano call the least number of members.
    """

    priority: int | None = None
    priority_class_name: str = ""
    disruption_mode: Any = None
    scheduling_policy: PodGroupPolicy = msgspec.field(default_factory=PodGroupPolicy)
    scheduling_constraints: SchedulingConstraints | None = None
    min_member: int = 0


class PodGroup(KubeObject):
    """A group of pods that its members name: in `spec.schedulingGroup`, or by the label or annotation of its maker."""

    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)

    @property
    def goes_whole(self) -> bool | None:
        """Whether its members are disrupted together or not at all; None if it says neither."""
        mode = self.spec.disruption_mode
        if mode == "PodGroup" or (isinstance(mode, dict) and "all" in mode):
            return True
        if mode == "Pod" or (isinstance(mode, dict) and "single" in mode):
            return False
        return None

    @property
    def minimum(self) -> int:
        """How many members it needs; 0 if it does not say so."""
        gang = self.spec.scheduling_policy.gang
        return gang.min_count if gang else self.spec.min_member

    @property
    def topology_keys(self) -> tuple[str, ...]:
        """The labels whose values have to be the same on the nodes of all members."""
        constraints = self.spec.scheduling_constraints
        rows = (constraints and constraints.topology) or ()
        return tuple(row.key for row in rows if row.key)
