"""A plan for one preemptor, from the decision to the binding, and who is concerned by it. Acts on nothing.

What changes of a plan are methods of `Plan`: nobody else writes its fields (a test holds it).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.preemption.decision import fits_on
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.preemption.snapshot.pod_groups import group_of, with_all_of
from webhook.preemption.victims.rules import VictimReason
from webhook.reconciler.evaluate.candidate_room import rows_with
from webhook.reconciler.plans.endings import Ending
from webhook.reconciler.state.annotations import DecisionRecord, PlanDevice, PlanRecord
from webhook.reconciler.state.creations import ServerTime
from webhook.reconciler.state.plan_victims import PlanVictim
from webhook.reconciler.state.state import State

_MOMENT = 1.0
"""Seconds for which the verdict on several victims holds for each of them, if nothing happens."""


@dataclass(slots=True, eq=False)
class PlanLook:
    """What the last look before an eviction found (`next_action`, `unneeded`): it need not be worked out again."""

    version: int = -1
    """`Snapshot.version` when the plan was decided or last looked at."""
    judged_by: tuple[object, ...] = ()
    """What its victims were last judged by."""
    judged_at: float = -math.inf
    """When that was."""
    judged: set[str] = field(default_factory=set)
    """uids of the victims that may go by that."""
    chosen: frozenset[str] = frozenset()
    """uids of the victims that the look chose to be asked now."""
    counted_on: bytes = b""
    """The pods that the look took for gone because they are leaving: a digest of their rows, empty for none."""
    needed: set[str] = field(default_factory=set)
    """uids of the victims that the look found to be needed although the pods in `counted_on` leave."""

    def holds(self, judged_by: tuple[object, ...], now: float) -> bool:
        """Whether the verdict still holds, by what it would be judged by now.

        After a moment it does not: schedules end, and pods that leave come to their end, without any event.
        """
        return self.judged_by == judged_by and now <= self.judged_at + _MOMENT

    def note_verdict(self, judged_by: tuple[object, ...], now: float, uids: set[str]) -> None:
        """These victims may go, by what they were judged by now."""
        self.judged_by, self.judged_at, self.judged = judged_by, now, uids

    def note_version(self, version: int) -> None:
        """The plan was decided, or looked at, in this version of the snapshot."""
        self.version = version

    def choose(self, uids: frozenset[str]) -> None:
        """These victims are to be asked now."""
        self.chosen = uids

    def count_on(self, leaving: bytes) -> None:
        """These pods are taken for gone: other victims may be needed than before."""
        self.counted_on, self.needed = leaving, set()

    def need(self, uids: Collection[str]) -> None:
        """These victims are needed."""
        self.needed |= set(uids)


@dataclass(slots=True, eq=False)
class Plan:
    """A plan and what became of it so far; all instants are monotonic seconds."""

    record: PlanRecord
    """What is written on the preemptor: the nominated node and all victims, those that are not needed included."""
    key: str
    uid: str
    priority: int
    started: float
    deadline: float
    """When it is given up if nothing happens, infinite for not before something does."""
    timeout: float = math.inf
    """Seconds that it may take, by the policy that it was made by."""
    wake: float = math.inf
    """When it is looked at though nothing happens."""
    busy: bool = False
    """Whether a task carries out what the last look found."""
    decision: DecisionRecord | None = None
    """What is written on the preemptor with the plan; None for a plan of an earlier leader, which has written it."""
    nominated: bool = False
    """Whether nomination and plan are written on the preemptor."""
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
    """Nodes that were left out for the preemptor when it was decided."""
    tickets: dict[str, int] = field(default_factory=dict)
    """Victim's uid to its ticket in the rates."""
    granted: float = -math.inf
    """Since when evictions count against it for the rates: those before it was taken over count for who decided it."""
    displaced: bool = False
    """Whether the nominations of lower priority that were in its way have been cleared, as far as they could be."""

    # What became of the victims.
    gone: set[str] = field(default_factory=set)
    """uids of victims that were asked to leave with success, or that are leaving or gone anyway."""
    unneeded: set[str] = field(default_factory=set)
    """uids of victims that turned out not to be needed: they stay."""
    asking: set[str] = field(default_factory=set)
    """uids of victims that are being asked: they may be on their way out, though no answer says so yet."""
    ends: dict[str, float] = field(default_factory=dict)
    """uid of a victim that was asked to when its grace period ends."""
    evicting: ServerTime | None = None
    """When the first victim was asked; at the earliest, for a plan of an earlier leader."""
    notices: dict[str, float] = field(default_factory=dict)
    """uid of a victim that has a notice to when that is over: then it may be asked, and earlier if it is ready."""
    tried: dict[str, bool] = field(default_factory=dict)
    """uid of a victim to whether the server has said, asked with `dryRun`, that it lets it go; False if it cannot."""

    # What the watches have shown.
    seen: bool = False
    """Whether the watch has shown our nomination."""
    reserved: bool = True
    """Whether the nomination stands; if the scheduler has cleared it, the plan goes on without."""
    roomy: float = math.inf
    """Since when the preemptor has fitted on the node; infinite while it does not."""
    leaving: dict[str, float] = field(default_factory=dict)
    """Pod that leaves the node, by uid, to by when it has had its time, from when this plan first saw it leave."""
    freed: float = math.inf
    """When a pod last left the node, or the node changed; infinite if that did not happen since the plan began."""
    touched: bool = False
    """Whether something happened to its node since it began."""
    newcomer: str = ""
    """Who came to its node last, and with which priority."""
    rehearsed: bool = False
    """Whether it is only imagined that its victims were asked."""
    emptied: float = math.inf
    """When the victims of a rehearsed plan count as gone, in monotonic seconds."""
    look: PlanLook = field(default_factory=PlanLook)

    @property
    def devices(self) -> list[DeviceId]:
        """The devices that it holds."""
        return [DeviceId(device.driver, device.pool, device.device) for device in self.record.devices]

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

    def bound_to_go(self, asking: Collection[str]) -> frozenset[str]:
        """Uids of the victims of whose group one has been asked, or is among those `asking`: they go with it."""
        begun = {victim.group for victim in self.record.victims if victim.uid in self.gone.union(asking)}
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

    def notice_left(self, uid: str, now: float) -> float:
        """Seconds until this victim may be asked, if it does not say that it is ready."""
        return max(0.0, self.notices[uid] - now) if uid in self.notices else self.record.notice

    # What changes.

    def begin_action(self) -> None:
        """A task carries out what the last look found."""
        self.busy, self.wake = True, math.inf

    def end_action(self) -> None:
        """The task is done."""
        self.busy = False

    def pause(self, until: float) -> None:
        """Nothing is to be done before then unless something happens."""
        self.wake = until

    def note_decision(self, decision: DecisionRecord | None) -> None:
        """What is written with the nomination."""
        self.decision = decision

    def note_written(self) -> None:
        """Nomination and plan are on the preemptor."""
        self.nominated = True

    def note_left(self, left: Collection[PlanVictim]) -> None:
        """These victims are left to be asked."""
        self.waiting = self.nominated and not left

    def announce(self) -> bool:
        """Whether it is yet to be told that all victims have been asked; it is now."""
        first, self.announced = self.waiting and not self.announced, self.announced or self.waiting
        return first

    def rehearse(self, emptied: float) -> None:
        """Imagine that the victims have been asked, and are gone at `emptied`; it lasts as long as it may."""
        self.nominated = self.waiting = self.announced = self.rehearsed = True
        self.deadline, self.emptied = math.inf, emptied

    def count_as_empty(self) -> None:
        """The victims of a rehearsed plan count as gone."""
        self.emptied = math.inf

    def note_expected(self, owners: frozenset[str], tickets: dict[str, int]) -> None:
        """Later decisions count its victims: whose they are, and their tickets in the rates."""
        self.owners |= owners
        self.tickets = tickets

    def recall(self, owners: frozenset[str], room: str) -> None:
        """What an earlier leader's decision tells: whose pods its victims are, and what those elsewhere go for."""
        self.owners |= owners
        self.room = room

    def hold(self, devices: Iterable[DeviceId]) -> None:
        """These devices are kept for the preemptor, and no others."""
        self.record = msgspec.structs.replace(self.record, devices=tuple(PlanDevice(*device) for device in devices))

    def note_displaced(self) -> None:
        """The nominations of lower priority have been cleared, as far as they could be."""
        self.displaced = True

    def spare(self, uids: Collection[str]) -> None:
        """These victims stay."""
        self.unneeded |= set(uids)

    def note_tried(self, uid: str, *, goes: bool) -> None:
        """The server was asked without effect whether this victim goes; False if it cannot tell."""
        self.tried[uid] = goes

    def promise(self, seconds: float) -> None:
        """Victims are told so many seconds before they are asked, which has to be written before they are."""
        self.record, self.nominated = self.record.with_notice(seconds), False

    def note_told(self, uid: str, until: float) -> None:
        """This victim has a notice, which is over then: what the server said before may be different by then."""
        self.notices[uid] = until
        self.tried.pop(uid, None)

    def begin_asking(self, uid: str, now: ServerTime) -> None:
        """This victim is being asked."""
        self.asking.add(uid)
        self.evicting = self.evicting or now

    def end_asking(self, uid: str) -> None:
        """This victim has been asked, or stays."""
        self.asking.discard(uid)

    def note_asked(self, uid: str, ends: float, ticket: int, now: ServerTime) -> None:
        """This victim goes since now, and its grace period ends then; the ticket counts it in the rates."""
        self.gone.add(uid)
        self.evicting = self.evicting or now
        self.ends[uid] = ends
        self.tickets[uid] = ticket

    def give_ticket(self, uid: str) -> int | None:
        """The ticket of this victim in the rates, for the plan that asked the victim."""
        return self.tickets.pop(uid, None)

    def note_nomination(self, *, seen: bool = False, reserved: bool | None = None) -> None:
        """The watch has shown our nomination, or whether it stands."""
        self.seen = self.seen or seen
        self.reserved = self.reserved if reserved is None else reserved

    def touch(self, *, freed: float | None = None, newcomer: Pod | None = None) -> None:
        """Something happened to its node: room may have come up then, or a pod came."""
        self.touched = True
        self.freed = self.freed if freed is None else freed
        if newcomer is not None and key_of(newcomer) != self.key:
            self.newcomer = f"{key_of(newcomer)} of priority {newcomer.spec.priority or 0}"

    def note_leaving(self, uid: str, until: float) -> float:
        """This pod leaves the node, and has its time until then; what was noted first counts, and is returned."""
        return self.leaving.setdefault(uid, until)

    def note_room(self, since: float) -> None:
        """The preemptor has fitted on the node since then; infinite if it does not."""
        self.roomy = min(self.roomy, since) if math.isfinite(since) else math.inf

    def postpone(self, deadline: float) -> None:
        """It is given up then if nothing happens."""
        self.deadline = deadline

    def end(self, ending: Ending) -> None:
        """It is over."""
        self.ended = ending


def to_displace(state: State, plan: Plan) -> list[Pod]:
    """The pods whose nomination to the plan's node is to be cleared: those that do not fit beside its preemptor.

    They are judged as if all pods that are leaving were gone, the more important ones first: each that fits keeps its
    place against those after it. This is narrower than kube-scheduler on purpose (`DefaultPreemption`'s
    `prepareCandidate` clears every lower nomination on the node): a pod that fits beside the preemptor keeps its place,
    and pods of another scheduler are that scheduler's.
    """
    preemptor = state.pods.get(plan.key)
    if preemptor is None or plan.record.resize:
        return []
    scheduler = preemptor.spec.scheduler_name
    lower = [
        pod
        for pod in state.lower_nominated(plan.record.node, plan.priority, plan.key)
        if pod.spec.scheduler_name == scheduler
    ]
    lower.sort(key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", key_of(pod)))
    snapshot, undecided, displaced = state.snapshot, {key_of(pod) for pod in lower}, []
    leaving = snapshot.pods.leaving()
    for pod in lower:
        without = rows_with(leaving, snapshot.pod_rows(undecided))
        if fits_on(snapshot, pod, plan.record.node, without=without):
            undecided.discard(key_of(pod))
        else:
            displaced.append(pod)
    return displaced


def group_names(state: State, victims: Iterable[PlanVictim]) -> dict[int, str]:
    """By the number of a group that victims go with its name; none if all its pods are gone."""
    there = ((victim.group, state.pod_of(victim.key, victim.uid)) for victim in victims if victim.group)
    return {number: str(group_of(pod)) for number, pod in there if pod is not None}


def is_there(state: State, plan: Plan, victim: PlanVictim) -> bool:
    """Whether the victim has yet to be asked, and is not leaving for another reason either."""
    if not plan.needs(victim.uid) or (pod := state.pod_of(victim.key, victim.uid)) is None:
        return False
    return not pod.metadata.deletion_timestamp and not is_terminal(pod)


def remaining(state: State, plan: Plan) -> list[PlanVictim]:
    """The victims that have yet to be asked."""
    return [victim for victim in plan.record.victims if is_there(state, plan, victim)]
