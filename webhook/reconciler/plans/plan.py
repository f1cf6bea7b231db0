"""A plan for one preemptor or a gang, from decision to binding, and whom it concerns. Acts on nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable
from typing import TypeGuard

import msgspec

from webhook.kube.bounded import Newest
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_deferred, is_terminal
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_groups import group_of, with_all_of
from webhook.reconciler.evictions.log import PodEviction
from webhook.reconciler.plans.actions import Ending, Tries
from webhook.reconciler.state.annotations import (
    DecidedVictim,
    DecisionRecord,
    PlanRecord,
    PlanVictim,
    carries,
    notice_of,
)
from webhook.reconciler.state.pending import CountedOn
from webhook.reconciler.state.pod_indexes import Index
from webhook.reconciler.state.state import ServerTime, State

_MOST_LEAVING = 10_000
"""Pods that leave whose ends are known."""
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
    """What is written on it with the plan; None if an earlier leader wrote it."""
    nominated: bool = False
    """Whether nomination and plan are written on it."""
    seen: bool = False
    """Whether the watch has shown our nomination."""
    reserved: bool = True
    """Whether the nomination stands; the plan goes on if the scheduler clears it."""
    displaced: bool = False
    """Whether its nomination was taken for a pod of higher priority."""
    ended: Ending | None = None
    """Why it is a member no more."""


class Plan(msgspec.Struct, eq=False):
    """A plan for one preemptor or a gang, and what became of it; instants are monotonic seconds."""

    record: PlanRecord
    """What is written on members, but for node and devices. All victims, also those that stay."""
    members: dict[str, Member]
    """The preemptors by `namespace/name`, also those that are members no more."""
    started: float
    deadline: float = math.inf
    """When it is given up if nothing happens; infinite if something has to happen first."""
    timeout: float = math.inf
    """Seconds that it may take, by the policy that it was made by."""
    wake: float = math.inf
    """When it is looked at though nothing happens; infinite while a task acts for it."""
    busy: bool = False
    """Whether a task does what the last look said."""
    waiting: bool = False
    """Whether the last look saw nobody left to be asked."""
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
    """By what plans are ordered: the first decided comes first."""

    # What was decided.
    grounds: dict[str, DecidedVictim] = {}
    """Victim's uid to what was decided of it; empty for a plan of an earlier leader."""
    groups: dict[int, str] = {}
    """Number of a group of victims to its name, as far as known."""
    room: str = ""
    """What victims on other nodes go for; empty if there are none."""
    owners: frozenset[str] = frozenset()
    """Owners of its victims (`workload_of`), as far as known."""
    left_out: frozenset[str] = frozenset()
    """Nodes that were left out."""
    leaves: dict[str, CountedOn] = {}
    """Key of a victim that was there at the start to what decisions count on."""
    evictions: dict[str, PodEviction] = {}
    """Victim's uid to what the log is to know of its eviction."""
    logged: int = 0
    """The version of the log of evictions that has the plan and its victims."""
    granted: float = -math.inf
    """Since when evictions count against it for the rates: not those before it was taken over."""
    displaced: set[str] = set()
    """uids of lower preemptors whose nominations have been cleared for it, or cannot be."""

    # What became of the victims.
    needed: set[str] = set()
    """uids of victims yet to be asked; once it has ended, those without an answer."""
    gone: set[str] = set()
    """uids of victims that were asked with success, or are leaving or gone anyway."""
    asking: dict[str, Pod] = {}
    """uid of a victim that is being asked, and may be on its way out."""
    tries: dict[str, Tries] = {}
    """uid of a pod to what was asked about it in vain."""
    evicting: ServerTime | None = None
    """When the first victim was asked, at the earliest."""
    notices: dict[str, float] = {}
    """uid of a victim to the end of its notice; it may be asked earlier if it is ready."""
    tried: dict[str, bool] = {}
    """uid of a victim that would go, by a `dryRun`; False if the server cannot say."""

    # What the watches have shown.
    roomy: float = math.inf
    """Since when all members fit on their nodes; infinite while they do not."""
    had_room: float = -math.inf
    """When they fitted there last."""
    newcomer: str = ""
    """Who came to one of its nodes last, and with which priority."""
    rehearsed: bool = False
    """Whether it is only imagined that victims were asked."""
    emptied: float = math.inf
    """When the victims of a rehearsed plan count as gone."""
    approved: tuple[object, ...] = ()
    """By what it was last found that all left may go (`PlanContext.judged_by`)."""

    def __post_init__(self) -> None:
        self.id, self.key = self.record.id, next(iter(self.members))
        self.unplaced = [row for row in self.members.values() if row.ended is None]
        self.order = self.started, next(_NUMBERS)
        self.needed = {row.uid for row in self.record.victims} - self.gone

    @property
    def devices(self) -> list[DeviceId]:
        """The devices that it holds."""
        return [device for member in self.unplaced for device in member.devices]

    @property
    def nodes(self) -> set[str]:
        """The nodes on which it holds room."""
        return {row.node for row in self.unplaced}

    def member_for(self, victim: Pod) -> Member:
        """For whom a victim goes: the member on its node, or the first one."""
        members = self.unplaced or [*self.members.values()]
        return next((row for row in members if row.node == victim.spec.node_name), members[0])

    def written_on(self, member: Member) -> PlanRecord:
        """What is written on a member."""
        return msgspec.structs.replace(self.record, node=member.node, devices=tuple(member.devices))

    @property
    def step(self) -> int:
        """The step that the page shows, a place in `page.html.STEPS`."""
        if self.waiting:
            return 3
        nominated = all(row.nominated for row in self.unplaced)
        return 2 if self.gone or self.asking or (nominated and not self.record.notice) else 1

    @property
    def unclear(self) -> set[str]:
        """Uids of the victims whose answers are yet to come, or were lost."""
        busy, tries = self.busy, self.tries
        return {uid for uid in self.asking if busy or uid not in tries or tries[uid].unclear}

    def counted_on(self) -> dict[str, CountedOn | None]:
        """What decisions count on, by pod: victims leave, members are nominated or not."""
        leaving, gone = self.gone | self.needed, self.rehearsed and math.isinf(self.emptied)
        rows = {key: row._replace(gone=gone) if row.uid in leaving else None for key, row in self.leaves.items()}
        for key, member in self.members.items():
            nominated = CountedOn(member.uid, node=member.node, off=member.ended is not None)
            rows[key] = None if member.ended is Ending.DEPOSED else nominated
        return rows

    def note_told(self, uid: str, until: float) -> None:
        """This victim has a notice until then; what a `dryRun` said is past."""
        self.notices[uid] = until
        self.tried.pop(uid, None)

    def with_all_of(self, uids: Collection[str]) -> str:
        """What people read after these victims: their groups, and what they go for."""
        victims = (row for row in self.record.victims if row.uid in uids)
        groups = with_all_of(self.groups.get(row.group, "") for row in victims)
        return f"{groups} {self.room}".rstrip()


def group_names(state: State, victims: Iterable[PlanVictim]) -> dict[int, str]:
    """The numbers of groups to their names, for victims that are there."""
    names = dict[int, str]()
    for row in victims:
        if row.group and (pod := state.pod_of(row.key, row.uid)):
            names[row.group] = str(group_of(pod))
    return names


def stays(pod: Pod | None) -> TypeGuard[Pod]:
    """Whether a pod is there, and neither leaves nor has ended."""
    return pod is not None and not pod.metadata.deletion_timestamp and not is_terminal(pod)


def over(plan: Plan, member: Member, pod: Pod | None) -> Ending | None:
    """Whether it is over for a member, by its pod; what that shows is noted."""
    if pod is None or pod.metadata.uid != member.uid or pod.metadata.deletion_timestamp:
        return Ending.DELETED
    if member.displaced:
        return Ending.DISPLACED
    if plan.record.resize:
        return Ending.RESIZED if not is_deferred(pod) or is_terminal(pod) else None
    if pod.spec.node_name:
        return Ending.BOUND
    nominated, written = pod.status.nominated_node_name, carries(pod, plan.id)
    if written and nominated == member.node:
        member.seen = member.nominated = True
    # A scheduler that clears it leaves the plan; others take both, or nominate elsewhere.
    member.reserved = bool(nominated) or not (member.seen and written)
    if member.seen and member.reserved and nominated != member.node:
        return Ending.LOST
    return Ending.DELETED if is_terminal(pod) else None


class PlanIndex:
    """Plans under way; each preemptor has at most one."""

    def __init__(self) -> None:
        self.by_preemptor: dict[str, Plan] = {}
        self.by_id: dict[str, Plan] = {}
        self._known: Index[str, Plan] = Index(lambda plan: plan.nodes | {row.uid for row in plan.record.victims})
        self.leaving: Newest[str, float] = Newest(_MOST_LEAVING)
        """uid of a pod that leaves to when its time ends, since it was asked or seen to."""

    def put(self, plan: Plan) -> None:
        """The plan is new, or partly ended; it is known until it is clear who goes."""
        is_over = bool(plan.ended and not plan.asking)
        self._known.put(plan.id, None if is_over else plan)
        if is_over:
            self.by_id.pop(plan.id, None)
        else:
            self.by_id[plan.id] = plan
            self.by_preemptor |= {row.key: plan for row in plan.unplaced}

    def of(self, value: str) -> Collection[Plan]:
        """The plans that hold room on this node, or have a victim of this uid."""
        return self._known.get(value, {}).values()

    def stands(self, pod: Pod) -> bool:
        """Whether a plan stands behind a pod's notice, or the pod leaves anyway."""
        record, uid = notice_of(pod), pod.metadata.uid
        plan = self.by_id.get(record.plan) if record else None
        wanted = plan and (uid in plan.needed or (uid in plan.gone and not plan.ended))
        return bool(wanted or pod.metadata.deletion_timestamp)

    def untold(self, uid: str) -> None:
        """What plans told this victim holds no more."""
        for plan in self.of(uid):
            plan.notices.pop(uid, None)
