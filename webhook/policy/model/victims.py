"""Whom a PreemptionPolicy lets the reconciler evict, what pods say of it, and what it costs. Durations are seconds."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from webhook.kube.pods import POD_DELETION_COST
from webhook.policy.model.match import Selector
from webhook.policy.model.values import (
    CAN_BE_PREEMPTED,
    MINIMUM_PREEMPTABLE_PRIORITY,
    PROTECTION_DURATION,
    TOLERATION_SECONDS,
    ClassGlob,
    Namespaces,
    RecognisedAnnotation,
    RecognisedAnnotations,
)
from webhook.policy.shapes.findings import Reader
from webhook.policy.shapes.object_shape import FILLED, Choice, Nodes, Values, mapping
from webhook.policy.shapes.shapes import Duration, duration_up_to, string

Schedulers = Annotated[tuple[Annotated[str, string("the name of a scheduler")], ...], FILLED]
ANY = "*"
"""Stands for any value of an annotation, and for any scheduler."""
_LONGEST_NOTICE = 86400.0
"""Seconds: for a day at most, a node is kept for a pod while others use it."""
_VALUE = string("a value of the annotation, or * for any", longest=253)
_Values = Annotated[tuple[Annotated[str, _VALUE], ...], FILLED]


class VictimMode(Choice, what="a mode"):
    """Whether a pod must say that it may be evicted or that it may not."""

    OPT_IN = "opt-in", "only pods that say so, by annotation of the pod or of its class (Gödel)"
    OPT_OUT = "opt-out", "every pod of lower priority that does not say false (plain Kubernetes)"


@mapping("pods match")
class PodsMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Which pods: everything named must hold, what is absent always does."""

    priority_classes: Annotated[tuple[ClassGlob, ...] | None, FILLED, "Their PriorityClass is one of these."] = None
    namespaces: Annotated[Namespaces | None, "Their namespace is one of these; * stands for any characters."] = None
    namespace_selector: Annotated[Selector | None, "The labels of their namespace are selected."] = None
    labels: Annotated[Selector | None, "Their labels are selected."] = None


@mapping("pair")
class PreemptionPair(msgspec.Struct, frozen=True, kw_only=True):
    """These preemptors may evict these victims."""

    preemptors: Annotated[PodsMatch, "Who may evict; all if absent."] = PodsMatch()
    victims: Annotated[PodsMatch, "Who may be evicted; all if absent."] = PodsMatch()


@mapping("preemptibility annotations")
class PreemptibilityAnnotations(msgspec.Struct, frozen=True, kw_only=True):
    """The annotation keys, in the order in which they are read; the first one present counts."""

    preemptible: Annotated[
        RecognisedAnnotations,
        "Exactly true: the pod may be a victim. Absent or empty: its PriorityClass says. Anything else: protected.",
    ] = (CAN_BE_PREEMPTED,)
    protection: Annotated[RecognisedAnnotations, "Whole seconds after its start during which a pod is no victim."] = (
        PROTECTION_DURATION,
    )


@mapping("signal")
class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """An annotation that pods carry for another tool, and what it means here. Only that of the pod itself is read."""

    annotation: Annotated[RecognisedAnnotation, "Its key."]
    protects: Annotated[_Values, "Values with which the pod is never a victim; * stands for any."] = ()
    permits: Annotated[
        _Values,
        "Values with which the pod may be a victim under opt-in, if it has none of the preemptible annotations; *"
        " stands for any.",
    ] = ()
    duration: Annotated[
        bool, "A value that is a duration, such as 30m, protects the pod for so long after its start, up to maximum."
    ] = False

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """It means something."""
        meanings = {"protects", "permits", "duration"}
        wrong = meanings & (nodes.keys() - values.keys())
        if not wrong and not any(values.get(field) for field in meanings):
            node = next(iter(nodes.values()))
            reader.error(node, "the signal says nothing: give it protects, permits or duration")

    def says(self, values: tuple[str, ...], annotations: Mapping[str, str]) -> str | None:
        """What the annotation says, if it is one of these values; else None."""
        value = annotations.get(self.annotation)
        return value if value is not None and (value in values or ANY in values) else None


@mapping("lost work")
class LostWork(msgspec.Struct, frozen=True, kw_only=True):
    """How much work a pod loses: the time since its start, or since its last checkpoint."""

    checkpoints: Annotated[
        tuple[RecognisedAnnotation, ...],
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
        Duration | None, "Workloads that were evicted least often within this time go first."
    ] = None
    grace_period: Annotated[bool, "The shortest grace period."] = False

    @property
    def annotations_read(self) -> frozenset[str]:
        """Every annotation of pods that says what they cost."""
        keys = frozenset(self.lost_work.checkpoints if self.lost_work else ())
        return keys | {POD_DELETION_COST} if self.deletion_cost else keys


@mapping("victims")
class Victims(msgspec.Struct, frozen=True, kw_only=True):
    """Whom the reconciler may evict, always of lower priority than the preemptor. System-critical pods never."""

    mode: Annotated[VictimMode, "Whether pods must say that they may be evicted, or that they may not."] = (
        VictimMode.OPT_IN
    )
    annotations: Annotated[PreemptibilityAnnotations, "Which annotations say it."] = PreemptibilityAnnotations()
    signals: Annotated[
        tuple[Signal, ...], "Annotations of other tools that count as well; one that protects wins."
    ] = ()
    preemption_toleration: Annotated[
        bool,
        "Whether the annotations of PreemptionToleration on the victim's PriorityClass hold: preemptors below its"
        " minimum preemptable priority do not evict its pods for the toleration seconds after their start.",
    ] = False
    cost: Annotated[EvictionCost, "By what victims of equal priority are compared, beyond Kubernetes' own keys."] = (
        EvictionCost()
    )
    notice: Annotated[
        float,
        duration_up_to(_LONGEST_NOTICE),
        "How long before it is asked to leave a victim is told so; one that says it is ready is asked at once. Nobody"
        " is told if 0.",
    ] = 0.0
    across_nodes: Annotated[
        bool,
        "Whether pods on several nodes may go for one pod if no node by itself helps: those that keep it off by"
        " anti-affinity, topology spread, or a claim that only one pod may use.",
    ] = False
    scheduler_names: Annotated[
        Schedulers | None,
        "Only of these schedulers; * is any. Absent: default-scheduler, under opt-out any.",
    ] = None
    pairs: Annotated[
        tuple[PreemptionPair, ...] | None,
        FILLED,
        "Who may evict whom; without it every preemptor every victim.",
    ] = None

    @property
    def schedulers(self) -> tuple[str, ...]:
        """Whose pods may be victims. A pod's maker writes its scheduler, also beside a node's name."""
        default = ANY if self.mode is VictimMode.OPT_OUT else "default-scheduler"
        return self.scheduler_names or (default,)

    @property
    def annotations_read(self) -> frozenset[str]:
        """Every annotation of pods and PriorityClasses that says something of a victim."""
        keys = {*self.annotations.preemptible, *self.annotations.protection}
        keys.update(signal.annotation for signal in self.signals)
        if self.preemption_toleration:
            keys |= {MINIMUM_PREEMPTABLE_PRIORITY, TOLERATION_SECONDS}
        return self.cost.annotations_read | keys
