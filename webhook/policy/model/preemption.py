"""PreemptionPolicy: which pods the reconciler preempts for, and whom it may evict. Durations are seconds.

`webhook.preemption.victims.rules` turns these into the decision's rules.
"""

from typing import Annotated

import msgspec

from webhook.policy.model.globs import WILDCARD
from webhook.policy.model.limits import MANY, Limits
from webhook.policy.model.match import keys_of
from webhook.policy.model.schedule import Schedule, ever_together
from webhook.policy.model.values import CLASS_NAME, ClassGlob
from webhook.policy.model.victims import PodsMatch, Schedulers, Victims
from webhook.policy.shapes.findings import Reader
from webhook.policy.shapes.object_shape import FILLED, REQUIRED, Choice, Nodes, Values, mapping, yaml_name
from webhook.policy.shapes.shapes import Duration, MapOf, duration_that, integer, string
from webhook.policy.shapes.yaml_nodes import SourcePosition

_ADDRESS = string("an address such as http://extender.kube-system.svc/scheduler", r"^https?://[^\s/?#]+[^\s?#]*$")
_PATH = string("a path below urlPrefix", r"^[A-Za-z0-9._/-]+$")
_NEVER = "Kubernetes' own classes are never managed"
_TIMEOUT = duration_that(lambda longest: 0 < longest <= 60, "more than 0s and at most 60s, for the preemptor waits")


class GroupDisruption(Choice, what="a way with groups"):
    """What becomes of a group of which one pod is to go."""

    POD = "Pod", "its pods go one by one"
    GROUP = "Group", "all of them go, on all nodes, or none, but for those above the group's minimum"
    NEVER = "Never", "none of them goes"


class BudgetMode(Choice, what="a way with budgets"):
    """What a PodDisruptionBudget means for choosing victims."""

    STRICT = "strict", "a pod whose PodDisruptionBudget is used up is never a victim (Gödel)"
    BEST_EFFORT = "best-effort", "violations are minimised (Kubernetes)"


class EvictionMode(Choice, what="a way to evict"):
    """How victims go."""

    EVICT = "evict", "through the Eviction API, which keeps budgets atomically"
    DELETE = "delete", "by delete with preconditions, past budgets"


class PreemptorNaming(Choice, what="when to name the preemptor"):
    """Whom the Event on a victim names as its preemptor: whoever reads the one may not be allowed to know the other."""

    SAME_NAMESPACE = "same-namespace", "if both are in one namespace; else it says uid, PriorityClass and priority"
    ALWAYS = "always", "whatever namespace it is in"


@mapping("preemptors")
class Preemptors(msgspec.Struct, frozen=True, kw_only=True):
    """For which pods the reconciler preempts: those of the classes named here, which the webhook marks."""

    priority_classes: Annotated[
        tuple[ClassGlob, ...],
        "PriorityClasses by name or glob; those created from now on get preemptionPolicy Never.",
    ] = ()
    twins: Annotated[
        dict[str, str],
        MapOf(CLASS_NAME, CLASS_NAME),
        "An existing class that preempts by itself, to the class of the same value with preemptionPolicy Never to which"
        " its new pods are moved.",
    ] = msgspec.field(default_factory=dict)
    scheduler_names: Annotated[Schedulers, "Only pods of these schedulers."] = ("default-scheduler",)
    delay: Annotated[Duration, "How long a pod stays unschedulable before it is acted for."] = 0.0
    scale_up_delay: Annotated[
        Duration | None,
        "How long cluster-autoscaler waits before it adds a node for a marked pod, written as an annotation on new"
        " pods; 5s if absent and the delay is shorter, not written if 0s.",
    ] = None
    resize: Annotated[
        bool,
        "Whether pods are evicted for a pod on their node that wants to grow in place and has no room there (its"
        " resize is Deferred).",
    ] = False

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """None is of Kubernetes' own classes, and a twin is another class that has none."""
        for name in values.get("priority_classes", ()):
            if name.startswith("system-"):
                reader.error(nodes["priority_classes"], f'"{name}": {_NEVER}; leave it out')
        twins = values.get("twins", {})
        for original, twin in twins.items():
            text = f'"{original}" is its own twin; name the class of the same value with Never'
            if original != twin:
                text = f'"{twin}" is the twin of "{original}" and has a twin itself; leave one of them out'
            if twin in twins:
                reader.error(nodes["twins"], text)
            if "system-" in (original[:7], twin[:7]):
                reader.error(nodes["twins"], f"{_NEVER}; leave them out")


@mapping("protection")
class Protection(msgspec.Struct, frozen=True, kw_only=True):
    """For how long after its start a pod is no victim."""

    default: Annotated[Duration, "How long a pod is protected if no annotation says so."] = 0.0
    maximum: Annotated[Duration | None, "The most that an annotation may ask for; unlimited if absent."] = None
    schedule: Annotated[
        Schedule | None, "When pods are protected at all, by default or by annotation; always if absent."
    ] = None

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """The default is within the maximum."""
        maximum = values.get("maximum")
        if maximum is not None and values.get("default", 0.0) > maximum:
            reader.error(nodes["default"], f"the default is longer than the maximum of {maximum:g} s")


@mapping("groups")
class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that belong together: by a PodGroup, a JobSet, a LeaderWorkerSet, an indexed Job and so on."""

    disruption: Annotated[
        GroupDisruption,
        "What becomes of a group if one of its pods is to go. A PodGroup that says Pod or PodGroup itself"
        " (disruptionMode) is disrupted as it says, unless this is Never.",
    ] = GroupDisruption.POD


@mapping("extender")
class ExtenderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A component beside the scheduler that may drop candidates; its fields are those of KubeSchedulerConfiguration."""

    url_prefix: Annotated[str, _ADDRESS, "Where the extender is."]
    preempt_verb: Annotated[str, _PATH, "Appended to urlPrefix."]
    http_timeout: Annotated[float, _TIMEOUT, "How long an answer may take."] = 5.0
    ignorable: Annotated[bool, "Whether preemption goes on without it if it fails."] = False
    managed_resources: Annotated[
        tuple[Annotated[str, string("the name of a resource")], ...],
        FILLED,
        "It is asked only about pods that request one of these; about all if absent.",
    ] = ()


@mapping("PreemptionPolicy spec")
class PreemptionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which pods the reconciler preempts for, and whom it may evict."""

    name: str = ""
    """Stands in the document's metadata."""
    source: SourcePosition
    preemptors: Annotated[Preemptors, REQUIRED, "For which pods."] = Preemptors()
    schedule: Annotated[
        Schedule | None,
        "When it evicts; always if absent. At other times its pods wait, and nobody is evicted for them.",
    ] = None
    victims: Annotated[Victims, "Whom it may evict."] = Victims()
    groups: Annotated[Groups, "What becomes of pods that belong together."] = Groups()
    budgets: Annotated[BudgetMode, "What PodDisruptionBudgets mean for choosing victims."] = BudgetMode.STRICT
    protection: Annotated[Protection, "Protection windows."] = Protection()
    eviction: Annotated[EvictionMode, "How victims go."] = EvictionMode.EVICT
    grace_period_seconds: Annotated[
        int | None,
        integer("seconds", 1, MANY, "0 is a force delete, which removes a pod while its containers may still run"),
        "Seconds that victims get to end; their own terminationGracePeriodSeconds if absent.",
    ] = None
    plan_timeout: Annotated[Duration, "When a plan that gets nowhere is given up."] = 300.0
    wait_for_terminating: Annotated[
        Duration, "How long already terminating pods that make room are waited for before others are evicted."
    ] = 60.0
    name_preemptor: Annotated[PreemptorNaming, "When the Event on a victim names the preemptor."] = (
        PreemptorNaming.SAME_NAMESPACE
    )
    limits: Annotated[Limits, "How much may be evicted, and how often it is tried."] = Limits()
    extenders: Annotated[tuple[ExtenderConfig, ...], "Asked one after the other which candidates may stand."] = ()

    @property
    def _sides(self) -> list[PodsMatch]:
        return [side for pair in self.victims.pairs or () for side in (pair.preemptors, pair.victims)]

    @property
    def class_globs(self) -> list[str]:
        """The globs of classes that need not exist yet, but for `*` in pairs."""
        names = dict.fromkeys(self.preemptors.priority_classes)
        for side in self._sides:
            names |= {name: None for name in side.priority_classes or () if name != WILDCARD}
        return [name for name in names if WILDCARD in name]

    @property
    def labels_read(self) -> frozenset[str]:
        """The labels of pods by which the policy selects them, or counts their evictions."""
        keys = set[str]().union(*(keys_of(side.labels) for side in self._sides))
        if self.limits.per_label is not None:
            keys.add(self.limits.per_label.label)
        return frozenset(keys)

    @property
    def reads_groups(self) -> bool:
        """Whether it makes a difference which group of pods a victim belongs to."""
        return self.groups.disruption is not GroupDisruption.POD or self.victims.cost.group_restarts

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """What has a schedule of its own holds at some time at which the policy does."""
        own: Schedule | None = values.get("schedule")
        if own is None:
            return
        rates = values.get("limits", Limits()).rates
        parts = [("limits", yaml_name(field), rate.schedule) for field, rate in rates.items()]
        protection = values.get("protection", Protection())
        parts.append(("protection", "protection", protection.schedule))
        for field, name, schedule in parts:
            if schedule is not None and not ever_together(own, schedule, reader.moments):
                text = f"{name} never holds: its schedule and the policy's have no time in common"
                reader.warn(nodes[field], text)
