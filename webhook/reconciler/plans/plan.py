"""A plan for one preemptor, from the decision to the binding, and all the plans under way in this process."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from webhook.kube.objects import ObjectMeta, Pod
from webhook.kube.pods import is_terminal
from webhook.policy.model import PreemptionPolicy
from webhook.preemption.snapshot.pod_view import grace_of
from webhook.preemption.victims.rules import VictimReason
from webhook.reconciler.state.annotations import PlanRecord, PlanVictim, carries

__all__ = ["ActivePlans", "Ending", "Plan", "PlanStep", "ending_of", "grace_under", "time_for", "was_cleared"]

_REMEMBERED = 10_000


class PlanStep(StrEnum):
    """How far a plan has come."""

    NOMINATING = "nominating"
    EVICTING = "evicting"
    WAITING = "waiting"


class Ending(StrEnum):
    """Why a plan is over."""

    BOUND = "bound"
    DELETED = "deleted"
    LOST = "nomination-lost"
    NODE_GONE = "node-gone"
    SPACE_TAKEN = "space-taken"
    TIMED_OUT = "timed-out"
    REFUSED = "budget-refused"
    FAILED = "failed"
    OUTDATED = "outdated"
    DISPLACED = "displaced"
    DEPOSED = "deposed"

    @property
    def ends_preemptor(self) -> bool:
        """Whether there is nothing left to do for the preemptor, or not for this process."""
        return self in {Ending.BOUND, Ending.DELETED, Ending.DEPOSED}

    @property
    def blames_preemptor(self) -> bool:
        """Whether the ending says that evicting did not help this preemptor: then it uses up one of its attempts."""
        return self not in {Ending.DISPLACED, Ending.LOST, Ending.NODE_GONE}

    @property
    def allows_retry_at_once(self) -> bool:
        """Whether another decision, made at once, may do better: the first time it need not wait."""
        return not self.blames_preemptor or self in {Ending.FAILED, Ending.OUTDATED, Ending.SPACE_TAKEN}


@dataclass(slots=True, eq=False)
class Plan:
    """A plan and what became of it so far; `started` and `deadline` are monotonic seconds."""

    record: PlanRecord
    key: str
    uid: str
    priority: int
    started: float
    deadline: float
    step: PlanStep = PlanStep.NOMINATING
    ended: Ending | None = None

    # What was decided.
    decided: dict[str, ObjectMeta] = field(default_factory=dict)
    """Victim's uid to what it looked like when it was chosen."""
    grounds: dict[str, VictimReason] = field(default_factory=dict)
    """Victim's uid to the `policy/rule` by which it may go; empty for a plan of an earlier leader."""
    left_out: frozenset[str] = frozenset()
    """Nodes that were left out for the preemptor when it was decided."""
    tickets: dict[str, int] = field(default_factory=dict)
    """Victim's uid to its ticket in the rates."""

    # What became of the victims.
    gone: set[str] = field(default_factory=set)
    """uids of victims that were asked to leave with success, or that are leaving or gone anyway."""
    unneeded: set[str] = field(default_factory=set)
    """uids of victims that turned out not to be needed: they stay."""
    asking: set[str] = field(default_factory=set)
    """uids of victims that are being asked: they may be on their way out, though no answer says so yet."""

    # What the watches have shown.
    seen: bool = False
    """Whether the watch has shown our nomination."""
    reserved: bool = True
    """Whether the nomination stands; if the scheduler has cleared it, the plan goes on without."""
    touched: bool = False
    """Whether something happened to its node since it began."""
    newcomer: str = ""
    """Who came to its node last, and with which priority."""
    emptied: float = math.inf
    """When the victims of a rehearsed plan count as gone, in monotonic seconds."""

    # What the last look before an eviction found (`plans.rechecking`).
    looked: int = -1
    """`Snapshot.version` when it was decided or last looked at."""
    counted_on: bytes = b""
    """Rows of the pods, leaving anyway, that were counted on then."""
    found_needed: set[str] = field(default_factory=set)
    """uids of victims that were found to be needed then, beside leaving pods that could be nobody's victims, too."""

    @property
    def node(self) -> str:
        """The nominated node."""
        return self.record.node

    @property
    def victims(self) -> tuple[PlanVictim, ...]:
        """All victims, those that turned out not to be needed included."""
        return self.record.victims

    def needs(self, uid: str) -> bool:
        """Whether this victim has yet to be asked to leave."""
        return uid not in self.gone and uid not in self.unneeded


class ActivePlans:
    """Plans by preemptor, which has at most one, and by node; ids of ended ones, until the watch has caught up."""

    def __init__(self) -> None:
        self._by_key: dict[str, Plan] = {}
        self._by_node: dict[str, set[str]] = {}
        self._ended: OrderedDict[str, Ending] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Plan]:
        return iter(list(self._by_key.values()))

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def get(self, key: str) -> Plan | None:
        """The plan under way for a preemptor."""
        return self._by_key.get(key)

    def on_node(self, node: str) -> list[Plan]:
        """The plans that hold room on a node."""
        return [self._by_key[key] for key in self._by_node.get(node, ())]

    def add(self, plan: Plan) -> None:
        """Begin a plan. Raises ValueError if the preemptor has one."""
        if plan.key in self._by_key:
            raise ValueError(f"{plan.key} has a plan already: {self._by_key[plan.key].record.id}")
        self._by_key[plan.key] = plan
        self._by_node.setdefault(plan.node, set()).add(plan.key)

    def end(self, plan: Plan, ending: Ending) -> bool:
        """End a plan; False if it has ended before. One ended because the lease is lost may be taken up again."""
        if self._by_key.get(plan.key) is not plan:
            return False
        del self._by_key[plan.key]
        keys = self._by_node[plan.node]
        keys.discard(plan.key)
        if not keys:
            del self._by_node[plan.node]
        plan.ended = ending
        if ending is not Ending.DEPOSED:
            self._ended[plan.record.id] = ending
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
        return True

    def has_ended(self, plan_id: str) -> bool:
        """Whether this process has ended the plan of that id."""
        return plan_id in self._ended

    def overdue(self, now: float) -> list[Plan]:
        """The plans whose deadline has passed."""
        return [plan for plan in self._by_key.values() if plan.deadline <= now]

    def next_deadline(self) -> float | None:
        """When the next plan times out."""
        return min((plan.deadline for plan in self._by_key.values()), default=None)


def ending_of(plan: Plan, pod: Pod | None, now: float) -> Ending | None:
    """Whether a plan is over by what its preemptor looks like now and by its deadline; None if it goes on."""
    if pod is None or pod.metadata.uid != plan.uid or pod.metadata.deletion_timestamp:
        return Ending.DELETED
    if pod.spec.node_name:
        return Ending.BOUND
    if plan.seen and pod.status.nominated_node_name != plan.node and not was_cleared(plan, pod):
        return Ending.LOST
    if is_terminal(pod):
        return Ending.DELETED
    if plan.deadline <= now:
        return Ending.TIMED_OUT
    return None


def was_cleared(plan: Plan, pod: Pod) -> bool:
    """Whether the nomination is gone and the plan is still on the pod: the scheduler has cleared it.

    Who takes a plan away takes both; who nominates the pod elsewhere leaves no empty field.
    """
    return not pod.status.nominated_node_name and not pod.spec.node_name and carries(pod, plan.record.id)


def time_for(victims: Iterable[Pod], policy: PreemptionPolicy) -> float:
    """Seconds a plan may take: the policy's, from when the last of its victims has had its time to end.

    If it were given up earlier, they would have ended for nothing, and others after them.
    """
    return policy.plan_timeout + max((grace_under(policy, victim) for victim in victims), default=0)


def grace_under(policy: PreemptionPolicy, victim: Pod) -> int:
    """How many seconds a victim gets to end."""
    return policy.grace_period if policy.grace_period is not None else grace_of(victim)
