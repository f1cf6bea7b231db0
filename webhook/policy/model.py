"""The typed model of the policy files, as loaded: what a platform team wrote, checked and with defaults filled in.

`webhook.policy.files.loading` makes these from YAML. `webhook.policy.evaluation.engine` turns PriorityPolicies into
closures; `webhook.preemption.victims.rules` turns PreemptionPolicies into the decision's rules. Durations are seconds.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from webhook.kube.objects import LabelSelector

__all__ = [
    "CAN_BE_PREEMPTED",
    "DECISION",
    "GIVEN",
    "MANAGED",
    "MARK",
    "OWN_ANNOTATIONS",
    "PLAN",
    "PROTECTION_DURATION",
    "BudgetMode",
    "Definers",
    "Enforcement",
    "EvictionMode",
    "ExtenderConfig",
    "Limits",
    "MatchCondition",
    "MatchConditions",
    "PodsMatch",
    "Policies",
    "PolicyException",
    "PreemptionPair",
    "PreemptionPolicy",
    "Preemptors",
    "PriorityClasses",
    "PriorityPolicy",
    "PriorityRule",
    "ProtectAnnotations",
    "Protection",
    "Rate",
    "RequestMatch",
    "Reserve",
    "SourcePosition",
    "Subject",
    "Validate",
    "VictimMode",
    "Victims",
]

CAN_BE_PREEMPTED = "godel.bytedance.com/can-be-preempted"
PROTECTION_DURATION = "godel.bytedance.com/protection-duration-from-preemption"
MARK = "giveway.dev/preemption"
"""The label by which the webhook hands a pod's preemption to the reconciler."""
MANAGED = "managed"
"""The value of the mark."""
PLAN = "giveway.dev/plan"
"""The annotation with a plan under way, on its preemptor. Only the reconciler writes it."""
DECISION = "giveway.dev/decision"
"""The annotation with the last decision made for a pod. Only the reconciler writes it."""
GIVEN = "giveway.dev/given"
"""The annotation with what the webhook gave a new pod. Only the webhook writes it."""
OWN_ANNOTATIONS = (PLAN, DECISION, GIVEN)
"""giveway's own annotations on pods: nobody else writes them, whatever the policies say."""


class Enforcement(StrEnum):
    """What a violated rule does: refuse, warn the author, or only leave an audit annotation."""

    ENFORCE = "enforce"
    WARN = "warn"
    AUDIT = "audit"


class SourcePosition(msgspec.Struct, frozen=True):
    """Where something stands in a policy file; lines and columns count from 1."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """`file:line:column`, as compilers write it; the file alone if it is meant as a whole."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Subject(msgspec.Struct, frozen=True):
    """Who acts: a User, a Group or a ServiceAccount (with its namespace); `name` may be a glob."""

    kind: str
    name: str
    namespace: str = ""


class RequestMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests a policy or a right is about; everything named must hold, an absent part always does."""

    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    subjects: tuple[Subject, ...] | None = None
    operations: tuple[str, ...] | None = None


class MatchCondition(msgspec.Struct, frozen=True):
    """A named CEL expression that must hold for the policy to apply."""

    name: str
    expression: str
    source: SourcePosition


MatchConditions = tuple[MatchCondition, ...]


class PriorityClasses(msgspec.Struct, frozen=True, kw_only=True):
    """Which PriorityClasses may be used, by name or glob; deny wins, an absent allow allows all."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class Definers(msgspec.Struct, frozen=True, kw_only=True):
    """Who may define a PriorityClass in a reserved range; everything named must hold."""

    names: tuple[str, ...] | None = None
    subjects: tuple[Subject, ...] | None = None


class Reserve(msgspec.Struct, frozen=True, kw_only=True):
    """A reserved range of priority values, both ends included, and who may define and use it (docs/semantics.md B).

    Each right is a list of alternatives: one that holds suffices, and without any nobody has the right.
    """

    from_: int
    to: int
    define: tuple[Definers, ...] = ()
    use: tuple[RequestMatch, ...] = ()


class ProtectAnnotations(msgspec.Struct, frozen=True, kw_only=True):
    """Annotations that only `allow` (alternatives) may set, change or remove on a pod, in these operations."""

    keys: tuple[str, ...]
    allow: tuple[RequestMatch, ...] = ()
    operations: tuple[str, ...] = ("UPDATE",)


class Validate(msgspec.Struct, frozen=True, kw_only=True):
    """A CEL expression that must be true, and the text for the person whose request is refused.

    `pods` stands for pods and for the pod templates of workloads, `priorityclasses` for PriorityClasses.
    """

    expression: str
    message: str = ""
    message_expression: str = ""
    resources: tuple[str, ...] = ("pods",)


class PriorityRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of a PriorityPolicy: exactly one of its six bodies is set."""

    name: str
    source: SourcePosition
    enforcement: Enforcement
    default_priority_class: str | None = None
    priority_classes: PriorityClasses | None = None
    reserve: Reserve | None = None
    copy_annotations: tuple[str, ...] | None = None
    protect_annotations: ProtectAnnotations | None = None
    validate: Validate | None = None

    @property
    def refuses(self) -> bool:
        """Whether the rule can refuse anything; the others fill in, and there is nothing to except from."""
        return self.default_priority_class is None and self.copy_annotations is None


class PolicyException(msgspec.Struct, frozen=True, kw_only=True):
    """Whom these rules of the policy let in all the same, until when (seconds since the epoch), and why."""

    match: RequestMatch
    rules: tuple[str, ...]
    reason: str
    owner: str
    until: float
    source: SourcePosition


class PriorityPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Who may run and define what."""

    name: str
    source: SourcePosition
    enforcement: Enforcement = Enforcement.ENFORCE
    match: RequestMatch = RequestMatch()
    exclude: RequestMatch | None = None
    conditions: MatchConditions = ()
    rules: tuple[PriorityRule, ...] = ()
    exceptions: tuple[PolicyException, ...] = ()


class VictimMode(StrEnum):
    """Whether a pod must say that it may be evicted (Gödel) or that it may not (plain Kubernetes)."""

    OPT_IN = "opt-in"
    OPT_OUT = "opt-out"


class BudgetMode(StrEnum):
    """Strict: a used-up budget excludes the pod (Gödel). Best effort: violations are minimised (Kubernetes)."""

    STRICT = "strict"
    BEST_EFFORT = "best-effort"


class EvictionMode(StrEnum):
    """How victims go: through the Eviction API, or by delete with preconditions."""

    EVICT = "evict"
    DELETE = "delete"


class PodsMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Which pods one side of a pair is about; everything named must hold, an absent part always does."""

    priority_classes: tuple[str, ...] | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    labels: LabelSelector | None = None


class PreemptionPair(msgspec.Struct, frozen=True, kw_only=True):
    """These preemptors may evict these victims."""

    preemptors: PodsMatch = PodsMatch()
    victims: PodsMatch = PodsMatch()


class Preemptors(msgspec.Struct, frozen=True, kw_only=True):
    """For which pods the reconciler preempts: those of these PriorityClasses (names or globs).

    `twins` maps an existing class of `PreemptLowerPriority` to the class of the same value with `Never` to which
    the webhook moves its pods. `delay` is how long, in seconds, a pod stays unschedulable before it is acted for.
    """

    priority_classes: tuple[str, ...] = ()
    twins: dict[str, str] = {}
    scheduler_names: tuple[str, ...] = ("default-scheduler",)
    delay: float = 0.0


class Victims(msgspec.Struct, frozen=True, kw_only=True):
    """Whom the reconciler may evict. Annotation keys are read in their order; the first one present counts."""

    mode: VictimMode = VictimMode.OPT_IN
    preemptible_annotations: tuple[str, ...] = (CAN_BE_PREEMPTED,)
    protection_annotations: tuple[str, ...] = (PROTECTION_DURATION,)
    scheduler_names: tuple[str, ...] = ("default-scheduler",)
    pairs: tuple[PreemptionPair, ...] | None = None


class Protection(msgspec.Struct, frozen=True, kw_only=True):
    """Protection windows in seconds: if no annotation says so, and the longest one an annotation may ask for."""

    default: float = 0.0
    maximum: float | None = None


class Rate(msgspec.Struct, frozen=True):
    """At most `evictions` within `window` seconds."""

    evictions: int
    window: float = 60.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits: how much may be evicted, and how often it is tried for one preemptor. None is unlimited."""

    per_owner: Rate | None = None
    per_node: Rate | None = None
    per_cluster: Rate | None = None
    attempts_per_preemptor: int = 10


class ExtenderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler extender's preempt verb, asked which candidates may stand; `http_timeout` is in seconds."""

    url_prefix: str
    preempt_verb: str
    http_timeout: float = 5.0
    ignorable: bool = False
    managed_resources: tuple[str, ...] = ()


class PreemptionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which pods the reconciler preempts for, and whom it may evict; durations in seconds."""

    name: str
    source: SourcePosition
    preemptors: Preemptors = Preemptors()
    victims: Victims = Victims()
    budgets: BudgetMode = BudgetMode.STRICT
    protection: Protection = Protection()
    eviction: EvictionMode = EvictionMode.EVICT
    grace_period: int | None = None
    plan_timeout: float = 300.0
    wait_for_terminating: float = 60.0
    limits: Limits = Limits()
    extenders: tuple[ExtenderConfig, ...] = ()


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """Every policy of a directory, in the order of file names and of documents in them."""

    priority: tuple[PriorityPolicy, ...] = ()
    preemption: tuple[PreemptionPolicy, ...] = ()
