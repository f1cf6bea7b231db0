"""What a pod says about where it wants to run, and what a node says to that."""

import msgspec

from webhook.kube.objects.meta import KubeStruct, LabelSelector, Requirement


class NodeSelectorTerm(KubeStruct):
    """Requirements that hold together; terms of one selector are alternatives."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(KubeStruct):
    """Alternatives of node selector terms."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(KubeStruct):
    """A preference for some nodes, and how much it weighs."""

    weight: int = 0
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(KubeStruct):
    """Node affinity; preferences do not decide whether a pod fits, but where of several nodes it goes."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] | None = None


class PodAffinityTerm(KubeStruct):
    """One term of pod affinity or anti-affinity."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(KubeStruct):
    """A preferred term of pod affinity or anti-affinity, and how much it weighs."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(KubeStruct):
    """The terms of pod affinity or anti-affinity."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = None


class Affinity(KubeStruct):
    """Where a pod wants to run, relative to nodes and to other pods."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(KubeStruct):
    """A taint that a pod, or a request for devices, puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Taint(KubeStruct):
    """What keeps pods off a node, or claims off a device."""

    key: str = ""
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(KubeStruct):
    """How evenly matching pods must lie over a topology."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None
