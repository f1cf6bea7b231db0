"""A plan for one preemptor or a gang, from the decision to the binding, and who is concerned by it. Acts on nothing.

A request about a pod that came to nothing is made again after a pause (docs/reconciler.md).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from webhook.kube.errors import NO_ANSWER, ApiError
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_groups import group_of, with_all_of
from webhook.preemption.victims.rules import VictimReason
from webhook.reconciler.plans.actions import Ending
from webhook.reconciler.state.annotations import DecisionRecord, PlanDevice, PlanRecord, PlanVictim
from webhook.reconciler.state.creations import ServerTime
from webhook.reconciler.state.state import State

TRIES = 4
"""So often at most in a row, if trying again may help."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
_AWAY_PAUSE = 1.0
"""Seconds, at least, between two tries while the API server is away or throttles, or the victim is on its way out."""
_ON_ITS_WAY = ("in progress", "eviction triggered evacuation")
"""What those say who answer an eviction with 429 because they have begun to move the pod: KubeVirt's words are
"Evacuation in progress" and "Eviction triggered evacuation of VMI" (the latter is what the descheduler looks for)."""


def may_pass(error: ApiError) -> bool:
    """Whether trying again may help: no answer, throttled, or a server in trouble."""
    return error.status in {NO_ANSWER, 429} or error.status >= 500


def is_on_its_way(error: ApiError) -> bool:
    """Whether the server says that somebody has begun to move the pod."""
    return error.status == 429 and any(words in error.message.lower() for words in _ON_ITS_WAY)


@dataclass(slots=True)
class Tries:
    """The requests about a pod that came to nothing so far, and when the next one is `due`, in monotonic seconds."""

    failures: int = 0
    """Those in a row that may pass."""
    conflicts: int = 0
    """Those for a pod that had changed since it was seen."""
    begun: bool = False
    """Whether the server has said that the pod is on its way out."""
    unclear: bool = False
    """Whether one may have been carried out although the answer was lost."""
    pause: float = 0.0
    due: float = -math.inf

    @property
    def may_have_left(self) -> bool:
        """Whether the pod may be on its way out by what was asked so far."""
        return self.begun or self.unclear

    @property
    def whatever(self) -> bool:
        """Whether it is asked as it is, however it has changed: nobody keeps a pod by changing it all the time."""
        return self.conflicts >= TRIES

    def changed(self, now: float) -> None:
        """The pod is not as it was seen: it is judged again, by what the watch shows by then."""
        self.conflicts, self.failures = self.conflicts + 1, 0
        self._wait(FIRST_PAUSE, None, now)

    def failed(self, error: ApiError, now: float) -> bool:
        """It came to this error: whether it is asked again. If not, only the pod itself says what became of it."""
        self.unclear |= error.status == NO_ANSWER or error.status >= 500
        self.begun |= is_on_its_way(error)
        if is_on_its_way(error) or error.throttled:
            self.rest(now, error)
            return True
        self.failures += 1
        self._wait(FIRST_PAUSE * 3 ** (self.failures - 1), error, now)
        return may_pass(error) and error.reason != "Timeout" and self.failures < TRIES

    def rest(self, now: float, error: ApiError | None = None) -> None:
        """The pod takes its time, or the server has none: it is asked after longer and longer pauses."""
        self.failures = 0
        self._wait(max(_AWAY_PAUSE, 2 * self.pause), error, now)

    def _wait(self, pause: float, error: ApiError | None, now: float) -> None:
        self.pause = min(LONGEST_PAUSE, pause)
        asked = error.retry_after or 0.0 if error is not None else 0.0
        self.due = now + min(LONGEST_PAUSE, max(self.pause, asked))


class Approval(NamedTuple):
    """That all victims that are left may go: what they were judged by, and when, in monotonic seconds."""

    judged_by: tuple[object, ...]
    at: float


@dataclass(slots=True, eq=False)
class Member:
    """A preemptor with the node that its plan has for it, and what became of its nomination."""

    key: str
    uid: str
    priority: int
    node: str
    devices: list[DeviceId] = field(default_factory=list)
    """Those that are held for it."""
    decision: DecisionRecord | None = None
    """What is written on it with the plan; None for a plan of an earlier leader, which has written it."""
    nominated: bool = False
    """Whether nomination and plan are written on it."""
    seen: bool = False
    """Whether the watch has shown our nomination."""
    reserved: bool = True
    """Whether the nomination stands; if the scheduler has cleared it, the plan goes on without."""
    ended: Ending | None = None
    """Why it is a member no more."""


@dataclass(slots=True, eq=False)
class Plan:
    """A plan for one preemptor or for a gang, and what became of it so far; all instants are monotonic seconds."""

    record: PlanRecord
    """What is written on each member but for node and devices: all victims, also those that are not needed."""
    members: list[Member]
    """The preemptors, also those that are members no more."""
    started: float
    deadline: float
    """When it is given up if nothing happens, infinite for not before something does."""
    timeout: float = math.inf
    """Seconds that it may take, by the policy that it was made by."""
    wake: float = math.inf
    """When it is looked at though nothing happens."""
    busy: bool = False
    """Whether a task carries out what the last look found."""
    waiting: bool = False
    """Whether the last look found nobody left to be asked."""
    announced: bool = False
    """Whether it was told that all victims have been asked."""
    ended: Ending | None = None

    # What was decided.
    grounds: dict[str, VictimReason] = field(default_factory=dict)
    """Victim's uid to the `policy/rule` by which it may go; empty for a plan of an earlier leader."""
    groups: dict[int, str] = field(default_factory=dict)
    """The names of the groups that victims go with, by the number that the record has for each, as far as known."""
    room: str = ""
    """What victims on other nodes go for; empty if there are none."""
    owners: frozenset[str] = frozenset()
    """Whose pods its victims are (`workload_of`), as far as that is known."""
    left_out: frozenset[str] = frozenset()
    """Nodes that were left out when it was decided."""
    logged: int = 0
    """The version of the log of evictions from which on a new leader knows the plan and its victims."""
    granted: float = -math.inf
    """Since when evictions count against it for the rates: those before it was taken over count for who decided it."""
    displaced: bool = False
    """Whether the nominations of lower priority that were in its way have been cleared, as far as they could be."""

    # What became of the victims.
    gone: set[str] = field(default_factory=set)
    """uids of victims that were asked to leave with success, or that are leaving or gone anyway."""
    unneeded: set[str] = field(default_factory=set)
    """uids of victims that turned out not to be needed: they stay."""
    asking: dict[str, Pod] = field(default_factory=dict)
    """uid of a victim that is being asked: it may be on its way out, though no answer says so yet."""
    tries: dict[str, Tries] = field(default_factory=dict)
    """uid of a victim to what was asked about it in vain."""
    prepared: dict[str, Pod] = field(default_factory=dict)
    """uid of a victim that can be asked now to the pod as it was read or marked for that."""
    ends: dict[str, float] = field(default_factory=dict)
    """uid of a victim that was asked to when its grace period ends."""
    evicting: ServerTime | None = None
    """When the first victim was asked; at the earliest, for a plan of an earlier leader."""
    notices: dict[str, float] = field(default_factory=dict)
    """uid of a victim that has a notice to when that is over: then it may be asked, and earlier if it is ready."""
    tried: dict[str, bool] = field(default_factory=dict)
    """uid of a victim to whether the server has said, asked with `dryRun`, that it lets it go; False if it cannot."""

    # What the watches have shown.
    roomy: float = math.inf
    """Since when all members have fitted on their nodes; infinite while they do not."""
    leaving: dict[str, float] = field(default_factory=dict)
    """Pod that leaves a node, by uid, to by when it has had its time, from when this plan first saw it leave."""
    freed: float = math.inf
    """When a pod last left a node, or a node changed; infinite if that did not happen since the plan began."""
    newcomer: str = ""
    """Who came to one of its nodes last, and with which priority."""
    rehearsed: bool = False
    """Whether it is only imagined that its victims were asked."""
    emptied: float = math.inf
    """When the victims of a rehearsed plan count as gone, in monotonic seconds."""
    approved: Approval | None = None
    """By what and when it was last found that all victims that were left may go."""

    @property
    def id(self) -> str:
        """By what it is known on pods."""
        return self.record.id

    @property
    def key(self) -> str:
        """The preemptor; of a gang the first one."""
        return self.members[0].key

    @property
    def is_gang(self) -> bool:
        """Whether its members were placed together."""
        return bool(self.record.members)

    @property
    def unplaced(self) -> list[Member]:
        """The members that go on."""
        return [member for member in self.members if member.ended is None]

    @property
    def nominated(self) -> bool:
        """Whether nomination and plan are written on all members."""
        return all(member.nominated for member in self.members if member.ended is None)

    @property
    def devices(self) -> list[DeviceId]:
        """The devices that it holds."""
        return [device for member in self.unplaced for device in member.devices]

    def member(self, key: str) -> Member:
        """The member `namespace/name`."""
        return next(member for member in self.members if member.key == key)

    def member_for(self, victim: Pod) -> Member:
        """For whom a victim goes: of the members that go on the one on its node, if there is one."""
        members = self.unplaced or self.members
        return next((member for member in members if member.node == victim.spec.node_name), members[0])

    def written_on(self, member: Member) -> PlanRecord:
        """What is written on a member."""
        held = tuple(PlanDevice(*device) for device in member.devices)
        return msgspec.structs.replace(self.record, node=member.node, devices=held)

    @property
    def order(self) -> tuple[float, str, str]:
        """By what it stands before or behind other plans: the same input gives the same order, whatever the ids are."""
        return self.started, self.key, self.id

    @property
    def due(self) -> float:
        """When it is to be looked at though nothing happens; while a task acts for it, when its time is over."""
        return self.deadline if self.busy else min(self.deadline, self.wake)

    @property
    def step(self) -> int:
        """The step that the page shows, a place in `page.html.STEPS`."""
        if self.waiting:
            return 3
        return 2 if self.gone or self.asking or (self.nominated and not self.record.notice) else 1

    def bound_to_go(self) -> frozenset[str]:
        """Uids of the victims of whose group one has been asked, or may have been: they go with it."""
        begun = {victim.group for victim in self.record.victims if victim.uid in self.gone.union(self.asking)}
        return frozenset(victim.uid for victim in self.record.victims if victim.group in begun - {0})

    def with_all_of(self, uids: Collection[str]) -> str:
        """What people read after the names of these victims: the groups that they go with, and what they go for."""
        groups = (self.groups.get(victim.group, "") for victim in self.record.victims if victim.uid in uids)
        return (with_all_of(groups) if self.groups else "") + (f" {self.room}" if self.room else "")

    def needs(self, uid: str) -> bool:
        """Whether this victim has yet to be asked to leave."""
        return uid not in self.gone and uid not in self.unneeded

    def asks(self) -> list[PlanVictim]:
        """The victims that it counts on and has yet to ask; once it has ended those of whom no answer has come."""
        if self.ended is not None:
            return [victim for victim in self.record.victims if victim.uid in self.asking]
        if self.waiting:
            return []
        kept = self.gone | self.unneeded if self.gone or self.unneeded else ()
        return [victim for victim in self.record.victims if victim.uid not in kept]

    def pause(self, uid: str, now: float) -> float:
        """Seconds until something may be asked about this victim again; 0 for at once."""
        return max(0.0, self.tries[uid].due - now) if uid in self.tries else 0.0

    # What changes.

    def note_told(self, uid: str, until: float) -> None:
        """This victim has a notice, which is over then: what the server said before may be different by then."""
        self.notices[uid] = until
        self.tried.pop(uid, None)

    def note_asked(self, uid: str, ends: float, now: ServerTime) -> None:
        """This victim goes since now, and its grace period ends then."""
        self.gone.add(uid)
        self.evicting = self.evicting or now
        self.ends[uid] = ends


def group_names(state: State, victims: Iterable[PlanVictim]) -> dict[int, str]:
    """By the number of a group that victims go with its name; none if all its pods are gone."""
    there = ((victim.group, state.pod_of(victim.key, victim.uid)) for victim in victims if victim.group)
    return {number: str(group_of(pod)) for number, pod in there if pod is not None}


def is_there(state: State, plan: Plan, victim: PlanVictim) -> bool:
    """Whether the victim has yet to be asked, and is not leaving for another reason either."""
    if not plan.needs(victim.uid) or (pod := state.pod_of(victim.key, victim.uid)) is None:
        return False
    return not is_leaving(pod)


def is_leaving(pod: Pod) -> bool:
    """Whether a pod leaves its node, or has ended there."""
    return bool(pod.metadata.deletion_timestamp) or is_terminal(pod)


def remaining(state: State, plan: Plan) -> list[PlanVictim]:
    """The victims that have yet to be asked."""
    return [victim for victim in plan.record.victims if is_there(state, plan, victim)]


class PlanIndex:
    """Plans under way; each preemptor has at most one."""

    def __init__(self) -> None:
        self.by_preemptor: dict[str, Plan] = {}
        self.by_id: dict[str, Plan] = {}
        self._of: dict[tuple[str, str], dict[str, Plan]] = {}
        """The plans of a node and of a victim, by id."""

    def add(self, plan: Plan) -> None:
        """The plan has begun. Raises ValueError if one of its preemptors has one."""
        if known := [member.key for member in plan.members if member.key in self.by_preemptor]:
            raise ValueError(f"{known[0]} has a plan already: {self.by_preemptor[known[0]].id}")
        self.by_id[plan.id] = plan
        self.by_preemptor |= {member.key: plan for member in plan.members}
        for subject in _subjects(plan):
            self._of.setdefault(subject, {})[plan.id] = plan

    def leave(self, plan: Plan, members: Iterable[Member], ending: Ending) -> None:
        """It is over for these members of a plan; the plan has ended if there are no others."""
        for member in members:
            member.ended = ending
            del self.by_preemptor[member.key]
        if plan.unplaced:
            return
        plan.ended = ending
        del self.by_id[plan.id]
        for subject in _subjects(plan):
            del self._of[subject][plan.id]
            if not self._of[subject]:
                del self._of[subject]

    def on_node(self, node: str) -> list[tuple[Plan, Member]]:
        """The plans that hold room on a node, each with the members for which it does."""
        plans = self._of.get(("node", node), {}).values()
        return [(plan, member) for plan in plans for member in plan.unplaced if member.node == node]

    def naming(self, uid: str) -> list[Plan]:
        """The plans that name this victim, whichever node they hold room on: pods of a group may be on several."""
        return list(self._of.get(("victim", uid), {}).values())


def _subjects(plan: Plan) -> set[tuple[str, str]]:
    """Whatever a plan is known by beside its preemptors and its id."""
    nodes = {("node", member.node) for member in plan.members}
    return nodes | {("victim", victim.uid) for victim in plan.record.victims}
