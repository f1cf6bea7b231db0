"""The annotations that a plan leaves on its preemptor and its victims.

`giveway.dev/plan` is there while a plan is under way. It is written with the nomination, before
the first victim is asked to leave. The plan of a gang is on each member and names all, so each
tells a new leader the whole plan. Who was told and asked is read off the victims.
`giveway.dev/decision` stays: it says what was decided, and at which attempt.

A plan of another version is taken off and decided again: a field that must not be passed over
needs a new version.

Both have a bounded size: the API server takes 256 KiB of annotations in all. A plan with too many
victims to name has their uids, as many as fit, by which a new leader finds the names
(`with_names`). A decision names as many as fit, and counts the others.

`giveway.dev/notice` alone says which victim has a notice of which plan, and by when
(docs/notice.md). It is written with a condition, in one patch. So a new leader keeps what was
promised, and gives nobody the time twice. Victims write `giveway.dev/ready-to-leave`; a new notice
takes that off, so it always answers this one.

The webhook lets only the reconciler write these, but a pod may be older, or in a namespace that
it leaves out. So names, numbers and instants that giveway would not write make a text unreadable,
and a plan goes on only if the log of evictions has its digest (`digest_of`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.policy.model.values import ANSWERS, DECISION, NOTICE, NOTICE_CONDITION, PLAN, READY, RECONCILER_ANNOTATIONS

R = TypeVar("R")
_DNS = r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
Name = Annotated[str, Meta(pattern=rf"\A{_DNS}\Z")]
"""A DNS subdomain, as Kubernetes names nodes, namespaces and pods."""
NameOrNone = Annotated[str, Meta(pattern=rf"\A({_DNS})?\Z")]
Id = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9.-]{1,128}\Z")]
"""The id of a plan, or a uid."""
_OF_PLANS = frozenset((*RECONCILER_ANNOTATIONS, *ANSWERS))
_LONGEST = 160 * 1024
"""Characters that are read, at most."""
_ROOM = 32 * 1024
"""Bytes that are written, at most."""
_ROOM_FOR_UIDS = 128 * 1024
"""The same for a plan with too many victims to name."""
MOST_MEMBERS = 256
"""Members of one plan: each of them names all."""
_DIGEST = 32
"""Characters of a digest."""
_DeviceName = Annotated[str, Meta(pattern=r"\A[a-z0-9]([-a-z0-9./]{0,251}[a-z0-9])?\Z")]
"""A driver, a pool of it, or a device of that."""
_Key = Annotated[str, Meta(pattern=r"\A[-A-Za-z0-9./]{0,600}\Z")]
"""A pod, `namespace/name`."""
_Owner = Annotated[str, Meta(pattern=r"\A([^/\x00-\x1f\x7f]+/[-a-z0-9]+/[^\x00-\x1f\x7f]+)?\Z", max_length=600)]
"""Its owner, `Kind/namespace/name`; the API server takes any text as kind and name."""
_SECOND = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ"
_Instant = Annotated[str, Meta(pattern=rf"\A{_SECOND}\Z")]
"""As `rfc3339` writes it; the day need not be in the calendar."""
_InstantOrNone = Annotated[str, Meta(pattern=rf"\A({_SECOND})?\Z")]
_Attempt = Annotated[int, Meta(ge=0, le=1_000_000)]


class UnreadableError(ValueError):
    """An annotation that this version does not understand."""


class PlanVictim(Struct, frozen=True, omit_defaults=True):
    """A pod that is to leave; the uid tells it from a successor of its name.

    Victims of one `group` go whole or not at all; 0 is none. A name may be left out.
    """

    namespace: NameOrNone = ""
    name: NameOrNone = ""
    uid: Id = ""
    group: int = 0

    @property
    def key(self) -> str:
        """`namespace/name`, the uid if that is not known."""
        return f"{self.namespace}/{self.name}" if self.name else self.uid


class PlanMember(Struct, frozen=True):
    """A pod of a gang, and the node that a plan has for it."""

    name: Name
    uid: Id
    node: Name


class PlanRecord(Struct, frozen=True, kw_only=True):
    """A plan as it is on a preemptor; `begun`, `deadline` and `newest` are RFC 3339 instants.

    `node` and `devices` are what it holds for this pod; no devices if they are too many to write.
    The plan of a gang is on each of its `members`, which are in one namespace, and has the victims
    of all; a pod by itself has no members. `resize`: the pod is bound and wants to grow. `notice`:
    victims are told so many seconds before they are asked, at most if the policy has changed.
    `newest` is when the newest pod of that time was made, by the API server's clock; earlier
    versions did not write it.
    """

    id: Id
    node: Name
    victims: tuple[PlanVictim, ...] = ()
    deadline: _InstantOrNone = ""
    policy: str = ""
    attempt: _Attempt = 1
    version: Literal[1] = 1
    begun: _InstantOrNone = ""
    newest: _InstantOrNone = ""
    devices: tuple[tuple[_DeviceName, _DeviceName, _DeviceName], ...] = ()
    resize: bool = False
    members: tuple[PlanMember, ...] | UnsetType = UNSET
    notice: Annotated[float, Meta(ge=0, le=86400)] = 0.0


class DecidedVictim(Struct, frozen=True, kw_only=True, rename="camel"):
    """A victim and why: `rule` is `policy/rule`, `because` the sentence for people.

    `node` is where it is, if not on the decision's node: victims of a group may be elsewhere.
    `group` names the group that it goes with, if any.
    """

    pod: _Key
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)]
    owner: _Owner = ""
    rule: str = ""
    because: str = ""
    last_resort: bool = False
    node: NameOrNone | UnsetType = UNSET
    group: str | UnsetType = UNSET


class Alternative(Struct, frozen=True, kw_only=True, rename="camel"):
    """A node that would have done, with what the choice compares (docs/semantics.md D6).

    `compared`: heading and value of each key of `preemption.ranking.RANKING` that was looked at.
    """

    node: str
    compared: dict[str, str] = {}


class DecisionRecord(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One decision: when, where, by which policy, and how long it took in milliseconds."""

    plan: str
    at: _Instant
    node: Name
    policy: str
    attempt: _Attempt
    victims: tuple[DecidedVictim, ...] = ()
    already_leaving: int = 0
    selected: Alternative | None = None
    """What the node was compared by; None if nobody has to go."""
    alternatives: tuple[Alternative, ...] = ()
    because: str = ""
    """Why the node was preferred to the next best."""
    left_out: tuple[Name, ...] = ()
    """Nodes that kube-scheduler did not take though there was room; nobody acts on it."""
    candidates: int = 0
    decision_ms: float = 0.0
    notice: float = 0.0
    """Seconds from telling victims to asking them."""
    more_victims: Annotated[int, Meta(ge=0)] = 0
    """Victims that have no room to be named."""
    room: Annotated[str, Meta(max_length=4096)] = ""
    """What victims on other nodes go for; empty if there are none."""


class NoticeRecord(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The notice of a victim: it is asked to leave `by` then (RFC 3339), earlier only if ready.

    `preemptor` is `namespace/name`, left out if the policy keeps it from the victim's namespace.
    `uid` is the preemptor's.
    """

    plan: str
    by: _Instant
    uid: str
    priority: int
    preemptor: str = ""


_PLAN = msgspec.json.Decoder(PlanRecord)
_DECISION = msgspec.json.Decoder(DecisionRecord)
_NOTICE = msgspec.json.Decoder(NoticeRecord)


def encode(record: PlanRecord | DecisionRecord | NoticeRecord) -> str:
    """The text: compact JSON of at most 32 KiB, or 128 KiB with uids alone."""
    text, room = msgspec.json.encode(record), _ROOM
    if len(text) > room and isinstance(record, PlanRecord):
        uids = tuple(PlanVictim(uid=row.uid, group=row.group) for row in record.victims)
        record, room = replace(record, victims=uids, devices=()), _ROOM_FOR_UIDS
        text = msgspec.json.encode(record)
    while len(text) > room and not isinstance(record, NoticeRecord) and record.victims:
        kept = len(record.victims) * room // (len(text) + 1)
        fewer: dict[str, Any] = {"victims": record.victims[:kept]}
        if isinstance(record, DecisionRecord):
            fewer["more_victims"] = record.more_victims + len(record.victims) - kept
        record = replace(record, **fewer)
        text = msgspec.json.encode(record)
    return text.decode()


def digest_of(pod: Pod, texts: Mapping[str, str] | None = None) -> str:
    """By what a leader knows its plan and decision on a pod, or with these `texts`."""
    annotations = {**(pod.metadata.annotations or {}), **(texts or {})}
    said = f"{pod.metadata.uid}\n{annotations.get(PLAN, '')}\n{annotations.get(DECISION, '')}"
    return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]


def with_names(record: PlanRecord, pods: Iterable[Pod]) -> PlanRecord:
    """The plan with the names of its victims among the pods."""
    if all(row.name for row in record.victims):
        return record
    known = {pod.metadata.uid: pod.metadata for pod in pods}
    victims = list[PlanVictim]()
    for victim in record.victims:
        named = known.get(victim.uid, victim)
        victims.append(replace(victim, namespace=named.namespace, name=named.name))
    return replace(record, victims=tuple(victims))


def plan_of(pod: Pod) -> PlanRecord | None:
    """The plan written on a pod, None without one. Unknown fields are passed over.

    Raises UnreadableError if the text is no plan, or one of another version.
    """
    return _read(pod, PLAN, _PLAN)


def decision_of(pod: Pod) -> DecisionRecord | None:
    """The last decision on a pod; None if there is none that can be read."""
    with suppress(UnreadableError):
        return _read(pod, DECISION, _DECISION)
    return None


def carries(pod: Pod, plan: str) -> bool:
    """Whether a plan is on a pod: of this id, or just this text."""
    text = (pod.metadata.annotations or {}).get(PLAN)
    return text is not None and (text == plan or f'"id":"{plan}"' in text)


def not_own(pod: Pod) -> dict[str, str]:
    """A pod's annotations without the reconciler's and the answers to them."""
    annotations = pod.metadata.annotations or {}
    return {key: text for key, text in annotations.items() if key not in _OF_PLANS}


def notice_patch(record: NoticeRecord | None, now: float) -> dict[str, Any]:
    """A patch that gives a pod a notice, or takes it off; an older answer goes, too.

    `now` is in seconds since the epoch.
    """
    message = "giveway does not ask the pod to leave after all"
    if record is not None:
        whom = record.preemptor or record.uid
        message = f"asked to leave by {record.by} for pod {whom} of priority {record.priority}"
    condition = {
        "type": NOTICE_CONDITION,
        "status": "True" if record else "False",
        "reason": "Preempting" if record else "Withdrawn",
        "message": message,
        "lastTransitionTime": rfc3339(now),
    }
    annotations = {NOTICE: encode(record) if record else None, **dict.fromkeys(ANSWERS)}
    return {"metadata": {"annotations": annotations}, "status": {"conditions": [condition]}}


def has_notice(pod: Pod) -> bool:
    """Whether a pod carries a notice, readable or not."""
    return NOTICE in (pod.metadata.annotations or {})


def notice_of(pod: Pod) -> NoticeRecord | None:
    """The notice on a pod; None if it has none that giveway would write."""
    with suppress(UnreadableError):
        return _read(pod, NOTICE, _NOTICE)
    return None


def is_ready(pod: Pod, plan: str) -> bool:
    """Whether a pod with a notice of this plan says that it is ready to go."""
    if (pod.metadata.annotations or {}).get(READY) != "true":
        return False
    notice = notice_of(pod)
    return notice is not None and notice.plan == plan


def _read(pod: Pod, key: str, decoder: msgspec.json.Decoder[R]) -> R | None:
    """What an annotation of a pod says; None without it. Raises UnreadableError."""
    text = (pod.metadata.annotations or {}).get(key)
    if text is None:
        return None
    if len(text) > _LONGEST:
        raise UnreadableError(f"annotation {key} of {len(text)} characters, more than {_LONGEST}")
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise UnreadableError(f"annotation {key} does not decode: {error}") from error
