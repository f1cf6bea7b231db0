"""What the page shows, as plain values. Instants are seconds since the epoch, texts are raw: rendering escapes them."""

from __future__ import annotations

import msgspec


class Band(msgspec.Struct, frozen=True):
    """A range of priorities that is reserved, both ends included; `name` says by whom."""

    name: str
    first: int
    last: int


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One PriorityClass, or the pods of one priority without a class, and its pods.

    Of the pods on nodes some are `preemptible` now, some `protected` until their windows end (the first at
    `first_end`, the last at `last_end`), and the others are no victims by any policy. `pending` are on no node.
    `policy` is the PreemptionPolicy that acts for its pods, and `preempts` whether kube-scheduler does.
    """

    name: str
    value: int
    running: int = 0
    preemptible: int = 0
    protected: int = 0
    pending: int = 0
    first_end: float | None = None
    last_end: float | None = None
    policy: str = ""
    preempts: bool = False

    @property
    def kept(self) -> int:
        """Pods on nodes that no policy makes victims."""
        return self.running - self.preemptible - self.protected


class Ladder(msgspec.Struct, frozen=True):
    """Priorities from the highest down; `hidden` rungs are left out."""

    rungs: tuple[Rung, ...] = ()
    bands: tuple[Band, ...] = ()
    hidden: int = 0


class WaitingPod(msgspec.Struct, frozen=True, kw_only=True):
    """A preemptor that waits, why, and when it is tried again at the latest."""

    pod: str
    priority: int
    state: str
    reason: str = ""
    attempts: int = 0
    next_try: float | None = None


class VictimShown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A victim: how far it is, for a plan under way, or why it was one, for a decision.

    Victims of one `group` go whole or not at all; empty for none. `node` is where it is, if that is not the node of the
    decision. The replacement of a `last_resort` could run nowhere else.
    """

    pod: str
    state: str = ""
    group: str = ""
    node: str = ""
    priority: int = 0
    owner: str = ""
    rule: str = ""
    because: str = ""
    last_resort: bool = False


class DeviceShown(msgspec.Struct, frozen=True):
    """A device, as `driver/pool/name`, that a plan holds; `held_by` are the claims that still have it."""

    device: str
    held_by: tuple[str, ...] = ()


class MemberShown(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a gang that is on a node, or is to go there: `bound`, `nominated` or `to be nominated`."""

    pod: str
    node: str
    state: str


class GangShown(msgspec.Struct, frozen=True, kw_only=True):
    """A gang that room is made for: how many members it needs, has on nodes and has nominated, and what is missing."""

    name: str
    minimum: int
    bound: int = 0
    nominated: int = 0
    missing: int = 0
    members: tuple[MemberShown, ...] = ()
    more_members: int = 0


class PlanShown(msgspec.Struct, frozen=True, kw_only=True):
    """A plan under way. `step` is a place in `html.STEPS`; `until` is None if it does not time out.

    That of a gang has the victims of all members: `preemptor` and `node` are those of the first one.
    """

    preemptor: str
    priority: int
    node: str
    policy: str
    step: int
    begun: float | None = None
    until: float | None = None
    reserved: bool = True
    victims: tuple[VictimShown, ...] = ()
    more_victims: int = 0
    devices: tuple[DeviceShown, ...] = ()
    more_devices: int = 0
    gang: GangShown | None = None


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A node and what the choice `compared` it by: values by their headings, in the order of the columns."""

    node: str
    compared: dict[str, str] = {}


class DecisionShown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision as its log line has it, what became of it (empty while that is open), and how nodes are compared.

    The `selected` node won over the `alternatives`; there is none if nobody has to go.
    """

    plan: str
    at: str
    preemptor: str
    node: str
    policy: str
    attempt: int = 1
    ending: str = ""
    because: str = ""
    candidates: int = 0
    already_leaving: int = 0
    decision_ms: float = 0.0
    selected: Compared | None = None
    alternatives: tuple[Compared, ...] = ()
    how_compared: str = ""
    victims: tuple[VictimShown, ...] = ()
    more_victims: int = 0


class OwnerEvictions(msgspec.Struct, frozen=True):
    """Evictions of one owner's pods: how many in each quarter of the last hour, and when the last one was."""

    owner: str
    quarters: tuple[int, ...]
    last: float


class Evictions(msgspec.Struct, frozen=True, kw_only=True):
    """The evictions of the last hour, the owners with the most first."""

    total: int = 0
    owners: tuple[OwnerEvictions, ...] = ()
    more_owners: int = 0


class PolicyShown(msgspec.Struct, frozen=True):
    """A policy in force, in one line."""

    kind: str
    name: str
    summary: str


class PoliciesShown(msgspec.Struct, frozen=True, kw_only=True):
    """The policies in force, since when, and why the files are not in use (empty if they are)."""

    rows: tuple[PolicyShown, ...] = ()
    more: int = 0
    loaded: float | None = None
    problem: str = ""


class Certificate(msgspec.Struct, frozen=True):
    """A certificate that this process serves, and when it expires."""

    subject: str
    expires: float


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """Who this process is, and what it does: `role` in a word, `notice` for people, `command` to reach the leader."""

    identity: str
    role: str
    notice: str = ""
    command: str = ""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page shows. Lists hold the first rows; the totals say how many there are."""

    leadership: Leadership
    ladder: Ladder = Ladder()
    nodes: int = 0
    pods: int = 0
    waiting: tuple[WaitingPod, ...] = ()
    waiting_total: int = 0
    plans: tuple[PlanShown, ...] = ()
    plans_total: int = 0
    decisions: tuple[DecisionShown, ...] = ()
    evictions: Evictions = Evictions()
    policies: PoliciesShown = PoliciesShown()
    certificates: tuple[Certificate, ...] = ()
