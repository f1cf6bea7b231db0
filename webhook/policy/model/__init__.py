"""The typed model of the policy files, as loaded: what a platform team wrote, checked and with defaults filled in.

`webhook.policy.files.loading` makes these from YAML. A field stands in one place: the struct says its type and default,
and its `Field` what may stand in it and what it is for; the loader and the JSON schema follow
(`webhook.policy.shapes.object_shape`). Durations are seconds.
"""

from __future__ import annotations

import msgspec

from webhook.policy.model.cost import EvictionCost, LostWork
from webhook.policy.model.extender import ExtenderConfig
from webhook.policy.model.limits import CycleKeeper, Cycles, LabelRate, Limits, Rate, WorkloadLimit
from webhook.policy.model.match import (
    RequestMatch,
    Subject,
)
from webhook.policy.model.preemption import (
    BudgetMode,
    EvictionMode,
    GroupDisruption,
    Groups,
    PreemptionPolicy,
    PreemptorNaming,
    Preemptors,
    Protection,
)
from webhook.policy.model.priority import MatchCondition, MatchConditions, PolicyException, PriorityPolicy
from webhook.policy.model.rules import (
    Definers,
    Enforcement,
    PriorityClasses,
    PriorityRule,
    ProtectAnnotations,
    Reserve,
    Validate,
)
from webhook.policy.model.schedule import Schedule
from webhook.policy.model.values import (
    ANSWERS,
    CAN_BE_PREEMPTED,
    CREATION,
    DECISION,
    GIVEN,
    MANAGED,
    MARK,
    MINIMUM_PREEMPTABLE_PRIORITY,
    NOTICE,
    NOTICE_CONDITION,
    OWN_ANNOTATIONS,
    PLAN,
    POD_ANNOTATIONS,
    POD_CONDITIONS,
    POD_DELETION_COST,
    POD_SCALE_UP_DELAY,
    PROTECTION_DURATION,
    READY,
    RECONCILER_ANNOTATIONS,
    TOLERATION_SECONDS,
    WEBHOOK_ANNOTATIONS,
)
from webhook.policy.model.victims import (
    PodsMatch,
    PreemptibilityAnnotations,
    PreemptionPair,
    Signal,
    VictimMode,
    Victims,
)
from webhook.policy.shapes.yaml_nodes import SourcePosition

__all__ = [
    "ANSWERS",
    "CAN_BE_PREEMPTED",
    "CREATION",
    "DECISION",
    "GIVEN",
    "MANAGED",
    "MARK",
    "MINIMUM_PREEMPTABLE_PRIORITY",
    "NOTICE",
    "NOTICE_CONDITION",
    "OWN_ANNOTATIONS",
    "PLAN",
    "POD_ANNOTATIONS",
    "POD_CONDITIONS",
    "POD_DELETION_COST",
    "POD_SCALE_UP_DELAY",
    "PROTECTION_DURATION",
    "READY",
    "RECONCILER_ANNOTATIONS",
    "TOLERATION_SECONDS",
    "WEBHOOK_ANNOTATIONS",
    "BudgetMode",
    "CycleKeeper",
    "Cycles",
    "Definers",
    "Enforcement",
    "EvictionCost",
    "EvictionMode",
    "ExtenderConfig",
    "GroupDisruption",
    "Groups",
    "LabelRate",
    "Limits",
    "LostWork",
    "MatchCondition",
    "MatchConditions",
    "PodsMatch",
    "Policies",
    "PolicyException",
    "PreemptibilityAnnotations",
    "PreemptionPair",
    "PreemptionPolicy",
    "PreemptorNaming",
    "Preemptors",
    "PriorityClasses",
    "PriorityPolicy",
    "PriorityRule",
    "ProtectAnnotations",
    "Protection",
    "Rate",
    "RequestMatch",
    "Reserve",
    "Schedule",
    "Signal",
    "SourcePosition",
    "Subject",
    "Validate",
    "VictimMode",
    "Victims",
    "WorkloadLimit",
]


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """Every policy of a directory, in the order of file names and of documents in them."""

    priority: tuple[PriorityPolicy, ...] = ()
    preemption: tuple[PreemptionPolicy, ...] = ()
