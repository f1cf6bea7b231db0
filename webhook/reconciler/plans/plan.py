"""A plan for one preemptor or a gang, from the decision to the binding, and who is concerned by it. Acts on nothing."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from webhook.kube.errors import ApiError
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_groups import group_of, with_all_of
from webhook.preemption.victims.rules import VictimReason
from webhook.reconciler.plans.actions import Effect, Ending, PodAnswer, Tries, Verb, may_pass
from webhook.reconciler.state.annotations import DecisionRecord, PlanDevice, PlanRecord, PlanVictim
from webhook.reconciler.state.state import ServerTime, State


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
    displaced: bool = False
    """Whether its nomination was taken for a pod of higher priority."""
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
    displaced: set[str] = field(default_factory=set)
    """uids of the pods of lower priority in its way whose nominations have been cleared, as far as they could be."""

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
    """Pod that leaves a node, by uid, to by when it has had its time, since it was asked or was first seen to leave."""
    newcomer: str = ""
    """Who came to one of its nodes last, and with which priority."""
    rehearsed: bool = False
    """Whether it is only imagined that its victims were asked."""
    emptied: float = math.inf
    """When the victims of a rehearsed plan count as gone, in monotonic seconds."""
    approved: tuple[object, ...] | None = None
    """By what it was last found that all victims that were left may go,"""
    approved_at: float = -math.inf
    """and when."""

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

    @property
    def unclear(self) -> set[str]:
        """Uids of the victims of whom it is not known whether they go: the answer is on its way, or was lost."""
        return {uid for uid in self.asking if self.busy or uid not in self.tries or self.tries[uid].unclear}

    def bound_to_go(self) -> frozenset[str]:
        """Uids of the victims of whose group one has been asked, or may have been: they go with it."""
        begun = {victim.group for victim in self.record.victims if victim.uid in self.gone.union(self.asking)}
        return frozenset(victim.uid for victim in self.record.victims if victim.group in begun - {0})

    def with_all_of(self, uids: Collection[str]) -> str:
        """What people read after the names of these victims: the groups that they go with, and what they go for."""
        groups = (self.groups.get(victim.group, "") for victim in self.record.victims if victim.uid in uids)
        return (with_all_of(groups) if self.groups else "") + (f" {self.room}" if self.room else "")

    def needs(self, uid: str) -> bool:
        """Whether this victim has yet to be asked to leave; once the plan has ended whether no answer has come."""
        if self.ended is not None:
            return uid in self.asking
        return uid not in self.gone and uid not in self.unneeded

    def asks(self) -> list[PlanVictim]:
        """The victims that it counts on and has yet to ask."""
        return [] if self.waiting else [victim for victim in self.record.victims if self.needs(victim.uid)]

    def pause(self, pod: Pod, now: float) -> float:
        """Seconds until something may be asked about a pod again; 0 for at once, as for a member that has changed."""
        tries, meta = self.tries.get(pod.metadata.uid), pod.metadata
        changed = tries is not None and tries.conflicting not in ("", meta.resource_version)
        return 0.0 if tries is None or changed else max(0.0, tries.due - now)

    # What changes.

    def note_told(self, uid: str, until: float) -> None:
        """This victim has a notice, which is over then: what the server said before may be different by then."""
        self.notices[uid] = until
        self.tried.pop(uid, None)

    def note_asked(self, uid: str, ends: float, now: ServerTime) -> None:
        """This victim goes since now, and its grace period ends then."""
        self.asking.pop(uid, None)
        self.gone.add(uid)
        self.evicting = self.evicting or now
        self.leaving[uid] = ends

    def note(self, answer: PodAnswer, now: float) -> None:
        """Take in what came of a request, but that a victim goes: that is more than the plan's own affair."""
        (verb, pod), said = answer.request, answer.said
        uid = pod.metadata.uid
        tries = self.tries.setdefault(uid, Tries())
        tries.refused = said is Effect.REFUSED
        if isinstance(said, ApiError):
            self._note_error(verb, pod, said, now)
        elif said is Effect.REFUSED or (verb is Verb.DISPLACE and said is Effect.UNKNOWN):
            tries.rest(now)
        elif verb is Verb.READ:
            tries.unclear = False
        elif verb is not Verb.PREPARE:
            del self.tries[uid]
        if verb is Verb.DISPLACE and said is not Effect.UNKNOWN:
            self.displaced.add(uid)
        elif verb is Verb.NOMINATE and said is Effect.DONE:
            self.member(key_of(pod)).nominated = True
        elif verb is Verb.TRY and said in {Effect.DONE, Effect.GONE, Effect.UNKNOWN}:
            self.tried[uid] = said is not Effect.UNKNOWN
        elif verb is Verb.TELL and said in {Effect.DONE, Effect.GONE}:
            self.note_told(uid, answer.until)
        elif verb is Verb.PREPARE and answer.fresh is not None:
            self.prepared[uid] = answer.fresh
        if not (isinstance(said, ApiError) and tries.may_have_left):
            self.asking.pop(uid, None)

    def _note_error(self, verb: Verb, pod: Pod, error: ApiError, now: float) -> None:
        tries = self.tries[pod.metadata.uid]
        if verb is Verb.READ:
            tries.unclear = may_pass(error)
            tries.rest(now)
        elif verb is Verb.NOMINATE and error.status in {404, 409}:
            tries.conflicting = pod.metadata.resource_version
            tries.rest(now)  # the watch shows what the pod has become
        elif error.status == 409 and not tries.whatever:
            tries.changed(now)
        else:
            tries.failed(error, now)
            tries.unclear &= verb is Verb.ASK or pod.metadata.uid in self.asking


def group_names(state: State, victims: Iterable[PlanVictim]) -> dict[int, str]:
    """By the number of a group that victims go with its name; none if all its pods are gone."""
    there = ((victim.group, state.pod_of(victim.key, victim.uid)) for victim in victims if victim.group)
    return {number: str(group_of(pod)) for number, pod in there if pod is not None}


def is_leaving(pod: Pod) -> bool:
    """Whether a pod leaves its node, or has ended there."""
    return bool(pod.metadata.deletion_timestamp) or is_terminal(pod)


def remaining(state: State, plan: Plan) -> list[PlanVictim]:
    """The victims that have yet to be asked, and are not leaving for another reason either."""
    there = ((victim, state.pod_of(victim.key, victim.uid)) for victim in plan.record.victims if plan.needs(victim.uid))
    return [victim for victim, pod in there if pod is not None and not is_leaving(pod)]


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
        if not plan.unplaced:
            plan.ended, plan.deadline, plan.wake, plan.waiting = ending, math.inf, math.inf, False

    def forget(self, plan: Plan) -> None:
        """The plan has ended, and it is known of each victim that it asked whether that goes."""
        if self.by_id.pop(plan.id, None) is None:
            return
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
