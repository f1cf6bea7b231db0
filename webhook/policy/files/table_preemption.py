"""The table of PreemptionPolicy: which pods the reconciler preempts for, and whom it may evict."""

from __future__ import annotations

from webhook.policy.files.object_shape import Field, ObjectShape, Values
from webhook.policy.files.reader import Reader
from webhook.policy.files.shapes import Choice, Duration, Flag, ListOf, MapOf, Text, Whole
from webhook.policy.files.table_match import CLASS_GLOB, CLASS_NAME, NAMESPACES, RECOGNISED_ANNOTATION, SELECTOR
from webhook.policy.files.yamltree import YamlNode
from webhook.policy.model import (
    BudgetMode,
    EvictionMode,
    ExtenderConfig,
    Limits,
    PodsMatch,
    PreemptionPair,
    PreemptionPolicy,
    Preemptors,
    Protection,
    Rate,
    SourcePosition,
    VictimMode,
    Victims,
)

__all__ = ["PREEMPTION_SPEC"]


_SCHEDULERS = ListOf(Text("the name of a scheduler"), least=1)
_MANY = 1_000_000
_LONGEST_TIMEOUT = 60
"""Seconds."""


def _preemptors_check(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    for name in values.get("priority_classes", ()):
        if name.startswith("system-"):
            reader.error(nodes["priority_classes"], f'"{name}": Kubernetes\' own classes are never managed')
    for original, twin in values.get("twins", {}).items():
        if original == twin:
            reader.error(nodes["twins"], f'"{original}" is its own twin; name the class of the same value with Never')
        elif twin in values["twins"]:
            reader.error(nodes["twins"], f'"{twin}" is the twin of "{original}" and has a twin itself')
        if "system-" in (original[:7], twin[:7]):
            reader.error(nodes["twins"], "Kubernetes' own classes are never managed")


_PREEMPTORS = ObjectShape(
    "preemptors",
    "For which pods the reconciler preempts: those of the classes named here, which the webhook marks.",
    (
        Field(
            "priorityClasses",
            "priority_classes",
            ListOf(CLASS_GLOB),
            "PriorityClasses by name or glob; those created from now on get preemptionPolicy Never.",
        ),
        Field(
            "twins",
            "twins",
            MapOf(CLASS_NAME, CLASS_NAME),
            "An existing class that preempts by itself, to the class of the same value with preemptionPolicy Never to"
            " which its new pods are moved.",
        ),
        Field(
            "schedulerNames",
            "scheduler_names",
            _SCHEDULERS,
            "Only pods of these schedulers.",
        ),
        Field("delay", "delay", Duration(), "How long a pod stays unschedulable before it is acted for."),
    ),
    model=Preemptors,
    check=_preemptors_check,
)

_PODS = ObjectShape(
    "pods match",
    "Which pods: everything named must hold, what is absent always does.",
    (
        Field(
            "priorityClasses", "priority_classes", ListOf(CLASS_GLOB, least=1), "Their PriorityClass is one of these."
        ),
        Field("namespaces", "namespaces", NAMESPACES, "Their namespace is one of these; * stands for any characters."),
        Field("namespaceSelector", "namespace_selector", SELECTOR, "The labels of their namespace are selected."),
        Field("labels", "labels", SELECTOR, "Their labels are selected."),
    ),
    model=PodsMatch,
)

_PAIR = ObjectShape(
    "pair",
    "These preemptors may evict these victims.",
    (
        Field("preemptors", "preemptors", _PODS, "Who may evict; all if absent."),
        Field("victims", "victims", _PODS, "Who may be evicted; all if absent."),
    ),
    model=PreemptionPair,
)

_ANNOTATIONS = ObjectShape(
    "preemptibility annotations",
    "The annotation keys, in the order in which they are read; the first one present counts.",
    (
        Field(
            "preemptible",
            "preemptible_annotations",
            ListOf(RECOGNISED_ANNOTATION, least=1),
            "Exactly true: the pod may be a victim. Absent or empty: its PriorityClass says. Anything else: protected.",
        ),
        Field(
            "protection",
            "protection_annotations",
            ListOf(RECOGNISED_ANNOTATION, least=1),
            "Whole seconds after its start during which a pod is no victim.",
        ),
    ),
    model=Victims,
    build=lambda values, _source: values,
)


def _victims(values: Values, source: SourcePosition) -> Victims:
    del source
    annotations = values.pop("annotations", {})
    return Victims(**values, **annotations)


_VICTIMS = ObjectShape(
    "victims",
    "Whom the reconciler may evict, always of lower priority than the preemptor. System-critical pods never.",
    (
        Field(
            "mode",
            "mode",
            Choice(
                "a mode",
                {
                    "opt-in": "only pods that say so, by annotation of the pod or of its class (Gödel)",
                    "opt-out": "every pod of lower priority that does not say false (plain Kubernetes)",
                },
                VictimMode,
            ),
            "Whether pods must say that they may be evicted, or that they may not.",
        ),
        Field("annotations", "annotations", _ANNOTATIONS, "Which annotations say it."),
        Field(
            "schedulerNames",
            "scheduler_names",
            _SCHEDULERS,
            "Only pods of these schedulers.",
        ),
        Field("pairs", "pairs", ListOf(_PAIR, least=1), "Who may evict whom; without it every preemptor every victim."),
    ),
    model=Victims,
    build=_victims,
)


def _protection_check(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    maximum = values.get("maximum")
    if maximum is not None and values.get("default", 0.0) > maximum:
        reader.error(nodes["default"], f"the default is longer than the maximum of {maximum:g} s")


_PROTECTION = ObjectShape(
    "protection",
    "For how long after its start a pod is no victim.",
    (
        Field("default", "default", Duration(), "How long a pod is protected if no annotation says so."),
        Field("maximum", "maximum", Duration(), "The most that an annotation may ask for; unlimited if absent."),
    ),
    model=Protection,
    check=_protection_check,
)

_RATE = ObjectShape(
    "rate",
    "At most so many evictions within a window.",
    (
        Field("evictions", "evictions", Whole("a number of evictions", 1, _MANY), "How many.", required=True),
        Field("window", "window", Duration(), "Within which time."),
    ),
    model=Rate,
)

_LIMITS = ObjectShape(
    "limits",
    "Limits: how much may be evicted, and how often it is tried. Unlimited if absent.",
    (
        Field("perOwner", "per_owner", _RATE, "Evictions of pods of one owner (a Deployment, a Job …)."),
        Field("perNode", "per_node", _RATE, "Evictions on one node."),
        Field("perCluster", "per_cluster", _RATE, "Evictions in all."),
        Field(
            "attemptsPerPreemptor",
            "attempts_per_preemptor",
            Whole("a number of attempts", 1, _MANY),
            "How many plans may evict in vain for one pod; one is forgiven every 15 minutes.",
        ),
    ),
    model=Limits,
)


def _extender_check(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    if not 0 < values.get("http_timeout", 1.0) <= _LONGEST_TIMEOUT:
        reader.error(nodes["http_timeout"], f"more than 0s and at most {_LONGEST_TIMEOUT}s, for the preemptor waits")


_EXTENDER = ObjectShape(
    "extender",
    "A component beside the scheduler that may drop candidates; its fields are those of KubeSchedulerConfiguration.",
    (
        Field(
            "urlPrefix",
            "url_prefix",
            Text(
                "an address such as http://extender.kube-system.svc/scheduler",
                pattern=r"^https?://[^\s/?#]+[^\s?#]*$",
            ),
            "Where the extender is.",
            required=True,
        ),
        Field(
            "preemptVerb",
            "preempt_verb",
            Text("a path below urlPrefix", pattern=r"^[A-Za-z0-9._/-]+$"),
            "Appended to urlPrefix.",
            required=True,
        ),
        Field("httpTimeout", "http_timeout", Duration(), "How long an answer may take."),
        Field("ignorable", "ignorable", Flag(), "Whether preemption goes on without it if it fails."),
        Field(
            "managedResources",
            "managed_resources",
            ListOf(Text("the name of a resource"), least=1),
            "It is asked only about pods that request one of these; about all if absent.",
        ),
    ),
    model=ExtenderConfig,
    check=_extender_check,
)


def _policy(values: Values, source: SourcePosition) -> PreemptionPolicy:
    return PreemptionPolicy(name="", source=source, **values)


def _policy_check(values: Values, nodes: dict[str, YamlNode], reader: Reader) -> None:
    preemptors = values.get("preemptors")
    if preemptors is not None and not preemptors.priority_classes and not preemptors.twins:
        reader.warn(
            nodes["preemptors"], "no class is named, so the policy manages no pod; name priorityClasses or twins"
        )


PREEMPTION_SPEC = ObjectShape(
    "PreemptionPolicy spec",
    "Which pods the reconciler preempts for, and whom it may evict.",
    (
        Field("preemptors", "preemptors", _PREEMPTORS, "For which pods.", required=True),
        Field("victims", "victims", _VICTIMS, "Whom it may evict."),
        Field(
            "budgets",
            "budgets",
            Choice(
                "a way with budgets",
                {
                    "strict": "a pod whose PodDisruptionBudget is used up is never a victim (Gödel)",
                    "best-effort": "violations are minimised (Kubernetes)",
                },
                BudgetMode,
            ),
            "What PodDisruptionBudgets mean for choosing victims.",
        ),
        Field("protection", "protection", _PROTECTION, "Protection windows."),
        Field(
            "eviction",
            "eviction",
            Choice(
                "a way to evict",
                {
                    "evict": "through the Eviction API, which keeps budgets atomically",
                    "delete": "by delete with preconditions, past budgets",
                },
                EvictionMode,
            ),
            "How victims go.",
        ),
        Field(
            "gracePeriodSeconds",
            "grace_period",
            Whole("seconds", 1, _MANY, "0 is a force delete, which removes a pod while its containers may still run"),
            "Seconds that victims get to end; their own terminationGracePeriodSeconds if absent.",
        ),
        Field("planTimeout", "plan_timeout", Duration(), "When a plan that gets nowhere is given up."),
        Field(
            "waitForTerminating",
            "wait_for_terminating",
            Duration(),
            "How long already terminating pods that make room are waited for before others are evicted.",
        ),
        Field("limits", "limits", _LIMITS, "How much may be evicted, and how often it is tried."),
        Field("extenders", "extenders", ListOf(_EXTENDER), "Asked one after the other which candidates may stand."),
    ),
    model=PreemptionPolicy,
    build=_policy,
    check=_policy_check,
)
