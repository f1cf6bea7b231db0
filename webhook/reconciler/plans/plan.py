"""A plan for one preemptor or a gang, from the decision to the binding, and who is concerned by it. Acts on nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable

import msgspec

from webhook.kube.bounded import Newest
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_groups import group_of, with_all_of
from webhook.reconciler.evictions.log import PodEviction
from webhook.reconciler.plans.actions import Ending, Tries
from webhook.reconciler.state.annotations import (
    DecidedVictim,
    DecisionRecord,
    PlanDevice,
    PlanRecord,
    PlanVictim,
    notice_of,
)
from webhook.reconciler.state.pending import CountedOn
from webhook.reconciler.state.pod_indexes import Index
from webhook.reconciler.state.state import ServerTime, State

_MOST_LEAVING = 10_000
"""Pods that leave of whom it is known until when they have their time."""
_NUMBERS = itertools.count()


class Member(msgspec.Struct, eq=False):
    """A preemptor with the node that its plan has for it, and what became of its nomination."""

    key: str
    uid: str
    priority: int
    node: str
    devices: list[DeviceId] = []
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


class Plan(msgspec.Struct, eq=False):
    """A plan for one preemptor or for a gang, and what became of it so far; all instants are monotonic seconds."""

    record: PlanRecord
    """What is written on each member but for node and devices: all victims, also those that are not needed."""
    members: dict[str, Member]
    """The preemptors by `namespace/name`, also those that are members no more."""
    started: float
    deadline: float = math.inf
    """When it is given up if nothing happens, infinite for not before something does."""
    timeout: float = math.inf
    """Seconds that it may take, by the policy that it was made by."""
    wake: float = math.inf
    """When it is looked at though nothing happens; infinite while a task acts for it."""
    busy: bool = False
    """Whether a task carries out what the last look found."""
    waiting: bool = False
    """Whether the last look found nobody left to be asked."""
    announced: bool = False
    """Whether it was told that all victims have been asked."""
    ended: Ending | None = None
    id: str = ""
    """By what it is known on pods."""
    key: str = ""
    """The preemptor; of a gang the first one."""
    unplaced: list[Member] = []
    """The members that go on."""
    order: tuple[float, int] = (0.0, 0)
    """By what it stands before or behind other plans: those that were decided before it come first."""

    # What was decided.
    grounds: dict[str, DecidedVictim] = {}
    """Victim's uid to what was decided of it; empty for a plan of an earlier leader."""
    groups: dict[int, str] = {}
    """The names of the groups that victims go with, by the number that the record has for each, as far as known."""
    room: str = ""
    """What victims on other nodes go for; empty if there are none."""
    owners: frozenset[str] = frozenset()
    """Whose pods its victims are (`workload_of`), as far as that is known."""
    left_out: frozenset[str] = frozenset()
    """Nodes that were left out when it was decided."""
    leaves: dict[str, CountedOn] = {}
    """Key of each victim that was there when it was taken up to what decisions count on of it."""
    evictions: dict[str, PodEviction] = {}
    """Victim's uid to what the log is to know of its eviction."""
    logged: int = 0
    """The version of the log of evictions from which on a new leader knows the plan and its victims."""
    granted: float = -math.inf
    """Since when evictions count against it for the rates: those before it was taken over count for who decided it."""
    displaced: set[str] = set()
    """uids of the pods of lower priority in its way whose nominations have been cleared, as far as they could be."""

    # What became of the victims.
    needed: set[str] = set()
    """uids of victims that have yet to be asked to leave; once it has ended those of whom no answer has come."""
    gone: set[str] = set()
    """uids of victims that were asked to leave with success, or that are leaving or gone anyway."""
    asking: dict[str, Pod] = {}
    """uid of a victim that is being asked: it may be on its way out, though no answer says so yet."""
    tries: dict[str, Tries] = {}
    """uid of a pod to what was asked about it in vain."""
    evicting: ServerTime | None = None
    """When the first victim was asked; at the earliest, for a plan of an earlier leader."""
    notices: dict[str, float] = {}
    """uid of a victim that has a notice to when that is over: then it may be asked, and earlier if it is ready."""
    tried: dict[str, bool] = {}
    """uid of a victim to whether the server has said, asked with `dryRun`, that it lets it go; False if it cannot."""

    # What the watches have shown.
    roomy: float = math.inf
    """Since when all members have fitted on their nodes; infinite while they do not."""
    newcomer: str = ""
    """Who came to one of its nodes last, and with which priority."""
    rehearsed: bool = False
    """Whether it is only imagined that its victims were asked."""
    emptied: float = math.inf
    """When the victims of a rehearsed plan count as gone, in monotonic seconds."""
    approved: tuple[object, ...] = ()
    """By what it was last found that all victims that were left may go (`look.judged_by`)."""

    def __post_init__(self) -> None:
        self.id, self.key = self.record.id, next(iter(self.members))
        self.unplaced = [member for member in self.members.values() if member.ended is None]
        self.order = self.started, next(_NUMBERS)
        self.needed = {victim.uid for victim in self.record.victims} - self.gone

    @property
    def devices(self) -> list[DeviceId]:
        """The devices that it holds."""
        return [device for member in self.unplaced for device in member.devices]

    def member_for(self, victim: Pod) -> Member:
        """For whom a victim goes: of the members that go on the one on its node, if there is one."""
        members = self.unplaced or [*self.members.values()]
        return next((member for member in members if member.node == victim.spec.node_name), members[0])

    def written_on(self, member: Member) -> PlanRecord:
        """What is written on a member."""
        held = tuple(PlanDevice(*device) for device in member.devices)
        return msgspec.structs.replace(self.record, node=member.node, devices=held)

    @property
    def step(self) -> int:
        """The step that the page shows, a place in `page.html.STEPS`."""
        if self.waiting:
            return 3
        nominated = all(member.nominated for member in self.unplaced)
        return 2 if self.gone or self.asking or (nominated and not self.record.notice) else 1

    @property
    def unclear(self) -> set[str]:
        """Uids of the victims of whom it is not known whether they go: the answer is on its way, or was lost."""
        answered = {uid for uid, tries in self.tries.items() if not (self.busy or tries.unclear)}
        return self.asking.keys() - answered

    def counted_on(self) -> dict[str, CountedOn | None]:
        """What decisions count on by now, by pod: that victims leave, and that members are nominated, or are not."""
        leaving, gone = self.gone | self.needed, self.rehearsed and math.isinf(self.emptied)
        rows = {key: row._replace(gone=gone) if row.uid in leaving else None for key, row in self.leaves.items()}
        for key, member in self.members.items():
            row = CountedOn(member.uid, node=member.node, off=member.ended is not None)
            rows[key] = None if member.ended is Ending.DEPOSED else row
        return rows

    def note_told(self, uid: str, until: float) -> None:
        """This victim has a notice, which is over then: what the server said before may be different by then."""
        self.notices[uid] = until
        self.tried.pop(uid, None)

    def with_all_of(self, uids: Collection[str]) -> str:
        """What people read after the names of these victims: the groups that they go with, and what they go for."""
        groups = (self.groups.get(victim.group, "") for victim in self.record.victims if victim.uid in uids)
        return (with_all_of(groups) if self.groups else "") + (f" {self.room}" if self.room else "")


def group_names(state: State, victims: Iterable[PlanVictim]) -> dict[int, str]:
    """By the number of a group that victims go with its name; none if all its pods are gone."""
    there = ((victim.group, state.pod_of(victim.key, victim.uid)) for victim in victims if victim.group)
    return {number: str(group_of(pod)) for number, pod in there if pod is not None}


def stays(pod: Pod | None) -> bool:
    """Whether a pod is there, and neither leaves its node nor has ended there."""
    return pod is not None and not pod.metadata.deletion_timestamp and not is_terminal(pod)


class PlanIndex:
    """Plans under way; each preemptor has at most one."""

    def __init__(self) -> None:
        self.by_preemptor: dict[str, Plan] = {}
        self.by_id: dict[str, Plan] = {}
        self._known: Index[str, Plan] = Index(
            lambda plan: {row.node for row in plan.unplaced} | {victim.uid for victim in plan.record.victims}
        )
        self.leaving: Newest[str, float] = Newest(_MOST_LEAVING)
        """Pod that leaves, by uid, to when it has had its time since it was asked, or was first seen to leave."""

    def put(self, plan: Plan) -> None:
        """The plan has begun, or something of it has ended: until it is known who of its victims goes it is known."""
        is_over = plan.ended is not None and not plan.asking
        self._known.put(plan.id, None if is_over else plan)
        if is_over:
            self.by_id.pop(plan.id, None)
        else:
            self.by_id[plan.id] = plan
            self.by_preemptor |= {member.key: plan for member in plan.unplaced}

    def of(self, value: str) -> Collection[Plan]:
        """The plans that hold room on this node, or name the victim of this uid; its group may be on several nodes."""
        return self._known.get(value, {}).values()

    def stands(self, pod: Pod) -> bool:
        """Whether the notice on a pod is that of a plan that wants it to go, or the pod leaves anyway."""
        record, uid = notice_of(pod), pod.metadata.uid
        plan = self.by_id.get(record.plan) if record is not None else None
        wanted = plan is not None and (uid in plan.needed or (uid in plan.gone and plan.ended is None))
        return wanted or bool(pod.metadata.deletion_timestamp)

    def untold(self, uid: str) -> None:
        """What plans told this victim holds no more, since another tells it or its notice is taken off."""
        for plan in self.of(uid):
            plan.notices.pop(uid, None)
