"""What a plan leaves on its preemptor and its victims, as annotations: written, and read, in one way.

`giveway.dev/plan` is there while a plan is under way and is written together with the nomination, before the first
victim is asked to leave. The plan of a gang is on each of its members, and each names all: so any of them tells a new
leader the whole plan. How far the plan has come is not written: who has been told and asked can be read off the
victims themselves. `giveway.dev/decision` stays and tells people, and a new leader, what was decided and at which
attempt.

A plan of another version is taken off and decided again: a field that must not be passed over needs a new version.

Both have a bounded size, however many victims there are: the API server takes 256 KiB of annotations in all. A plan
with too many to name them has the uid of each, by which a new leader finds it again (`with_names`); those for which
even that is too long are not written. A decision names as many as fit, and says how many more there are.

`giveway.dev/notice` is the one place that says which victim has a notice of which plan, and by when
(docs/notice.md). It is written in one go with a condition, so a new leader keeps what the one before promised, and
gives nobody the time twice. `giveway.dev/ready-to-leave` is for the victim to write. The notice takes an older one off,
so it always answers this one.

The webhook lets only the reconciler write these. A pod may be older than the webhook, or lie in a namespace that it
leaves out. So names, numbers and instants that giveway would not write make a text unreadable, and a plan goes on only
if the log of evictions has its digest (`digest_of`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.policy.model.values import ANSWERS, DECISION, NOTICE, NOTICE_CONDITION, PLAN, READY, RECONCILER_ANNOTATIONS

R = TypeVar("R")
_DNS = r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
Name = Annotated[str, msgspec.Meta(pattern=rf"\A{_DNS}\Z")]
"""A DNS subdomain, as Kubernetes names nodes, namespaces and pods."""
NameOrNone = Annotated[str, msgspec.Meta(pattern=rf"\A({_DNS})?\Z")]
Id = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9.-]{1,128}\Z")]
"""The id of a plan, or a uid."""
_OF_PLANS = frozenset((*RECONCILER_ANNOTATIONS, *ANSWERS))
_LONGEST = 160 * 1024
"""Characters that are read."""
_ROOM = 32 * 1024
"""Bytes that are written, at most."""
_ROOM_FOR_UIDS = 128 * 1024
"""The same of a plan with too many victims to name them."""
MOST_MEMBERS = 256
"""Members of one plan: each of them names all."""
_DIGEST = 32
"""Characters of a digest."""
_DeviceName = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9]([-a-z0-9./]{0,251}[a-z0-9])?\Z")]
"""A driver, a pool of it, or a device of that."""
_Key = Annotated[str, msgspec.Meta(pattern=r"\A[-A-Za-z0-9./]{0,600}\Z")]
"""A pod, `namespace/name`."""
_Owner = Annotated[str, msgspec.Meta(pattern=r"\A([^/\x00-\x1f\x7f]+/[-a-z0-9]+/[^\x00-\x1f\x7f]+)?\Z", max_length=600)]
"""Its owner, `Kind/namespace/name`: the API server takes any text as the kind and the name of one."""
_SECOND = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ"
_Instant = Annotated[str, msgspec.Meta(pattern=rf"\A{_SECOND}\Z")]
"""RFC 3339, as `rfc3339` writes it; a day need not be in the calendar."""
_InstantOrNone = Annotated[str, msgspec.Meta(pattern=rf"\A({_SECOND})?\Z")]
_Attempt = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class UnreadableError(ValueError):
    """An annotation that this version does not understand."""


class PlanVictim(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod that is to leave; the uid makes sure that it is not its successor of the same name.

    Victims of one `group` go whole or not at all; 0 is none. A victim without a name is known by its uid alone.
    """

    namespace: NameOrNone = ""
    name: NameOrNone = ""
    uid: Id = ""
    group: int = 0

    @property
    def key(self) -> str:
        """`namespace/name`; the uid if the name is not known."""
        return f"{self.namespace}/{self.name}" if self.name else self.uid


class PlanDevice(msgspec.Struct, frozen=True, array_like=True):
    """A device that a plan holds for its preemptor."""

    driver: _DeviceName
    pool: _DeviceName
    device: _DeviceName


class PlanMember(msgspec.Struct, frozen=True):
    """A pod of a gang, and the node that a plan has for it."""

    name: Name
    uid: Id
    node: Name


class PlanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A plan as it is written on a preemptor; `begun`, `deadline` and `newest` are RFC 3339 instants.

    `node` and `devices` are what the plan holds for this pod; no devices if they are too many to be written. The plan
    of a gang is written on each of its `members`, which are in one namespace, and has the victims of all; that of a pod
    by itself names no members. `resize` says that the pod is bound and wants to grow. `notice` is for how many seconds
    its victims are told before they are asked: the most if the policy has changed. `newest` is when the newest pod that
    was known then was made, by the API server's clock; earlier versions of giveway did not write that.
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
    devices: tuple[PlanDevice, ...] = ()
    resize: bool = False
    members: tuple[PlanMember, ...] | msgspec.UnsetType = msgspec.UNSET
    notice: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 0.0


class DecidedVictim(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A victim and why it was one: `rule` is `policy/rule`, `because` the sentence for people.

    `node` is the one that it is on, if that is not the decision's: of a group some victims may be elsewhere.
    `group` names the group that it goes with, if it does not go by itself.
    """

    pod: _Key
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
    owner: _Owner = ""
    rule: str = ""
    because: str = ""
    last_resort: bool = False
    node: NameOrNone | msgspec.UnsetType = msgspec.UNSET
    group: str | msgspec.UnsetType = msgspec.UNSET


class Alternative(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node that would have done, with what the choice compares (docs/semantics.md D6), for people.

    `compared` has an entry for each key of `preemption.ranking.RANKING` that was looked at: its heading and its value.
    """

    node: str
    compared: dict[str, str] = {}


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One decision: when, where, who, by which policy, what else there was, how long it took in milliseconds."""

    plan: str
    at: _Instant
    node: Name
    policy: str
    attempt: _Attempt
    victims: tuple[DecidedVictim, ...] = ()
    already_leaving: int = 0
    selected: Alternative | None = None
    """What the node of the plan was compared by; None if nobody has to go."""
    alternatives: tuple[Alternative, ...] = ()
    because: str = ""
    """Why the node was preferred to the best of the others, for people."""
    left_out: tuple[Name, ...] = ()
    """Nodes that kube-scheduler did not take though there was room; for people, nobody acts on it."""
    candidates: int = 0
    decision_ms: float = 0.0
    notice: float = 0.0
    """For how many seconds victims are told before they are asked; for people."""
    more_victims: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Victims that are not named, since the annotation would be too long."""
    room: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    """What victims on other nodes go for; empty if there are none."""


class NoticeRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The notice of one victim: it is asked to leave `by` then (RFC 3339) at the latest, and not earlier unless ready.

    `preemptor` is `namespace/name`, left out if the policy does not name it to other namespaces; `uid` is its uid.
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
    """The annotation's text: compact JSON of at most 32 KiB, or 128 KiB with uids alone, which is always readable."""
    text, room = msgspec.json.encode(record), _ROOM
    if len(text) > room and isinstance(record, PlanRecord):
        uids = tuple(PlanVictim(uid=victim.uid, group=victim.group) for victim in record.victims)
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


def digest_of(pod: Pod, annotations: Mapping[str, str] | None = None) -> str:
    """By what a leader knows that it has written the plan and the decision of these annotations, or the pod's own."""
    annotations = annotations or pod.metadata.annotations or {}
    said = f"{pod.metadata.uid}\n{annotations.get(PLAN, '')}\n{annotations.get(DECISION, '')}"
    return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]


def with_names(record: PlanRecord, pods: Iterable[Pod]) -> PlanRecord:
    """The plan with its victims' names, if it has only their uids. Victims that are not among the pods have none."""
    if all(victim.name for victim in record.victims):
        return record
    group_of = {victim.uid: victim.group for victim in record.victims}
    named = {
        pod.metadata.uid: PlanVictim(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid, group)
        for pod in pods
        if (group := group_of.get(pod.metadata.uid)) is not None
    }
    victims = tuple(named.get(victim.uid, victim) for victim in record.victims)
    return replace(record, victims=victims)


def plan_of(pod: Pod) -> PlanRecord | None:
    """The plan written on a pod, None if there is none; fields that are not known are passed over.

    Raises UnreadableError if the text is not a plan, or one of another version.
    """
    return _read(pod, PLAN, _PLAN)


def decision_of(pod: Pod) -> DecisionRecord | None:
    """The last decision written on a pod; None if there is none, or it cannot be read."""
    with suppress(UnreadableError):
        return _read(pod, DECISION, _DECISION)
    return None


def carries(pod: Pod, plan: str) -> bool:
    """Whether a plan is written on a pod: that of this id as this program writes it, or just this text."""
    text = (pod.metadata.annotations or {}).get(PLAN)
    return text is not None and (text == plan or f'"id":"{plan}"' in text)


def not_own(pod: Pod) -> dict[str, str]:
    """A pod's annotations without those that the reconciler writes itself, and the answers to them."""
    return {key: text for key, text in (pod.metadata.annotations or {}).items() if key not in _OF_PLANS}


def notice_annotations(record: NoticeRecord | None) -> dict[str, str | None]:
    """What is written on a pod to give it a notice, or, without one, to take it off; an older answer goes with both."""
    return {NOTICE: None if record is None else encode(record), **dict.fromkeys(ANSWERS)}


def has_notice(pod: Pod) -> bool:
    """Whether a pod carries a notice, whatever that says."""
    return NOTICE in (pod.metadata.annotations or {})


def notice_of(pod: Pod) -> NoticeRecord | None:
    """The notice on a pod; None if it has none, or one that giveway would not write."""
    with suppress(UnreadableError):
        return _read(pod, NOTICE, _NOTICE)
    return None


def is_ready(pod: Pod, plan: str) -> bool:
    """Whether a pod that has a notice of this plan says that it need not be waited for."""
    said = (pod.metadata.annotations or {}).get(READY)
    return said == "true" and (notice := notice_of(pod)) is not None and notice.plan == plan


def notice_condition(now: float, message: str = "") -> dict[str, Any]:
    """The condition of a pod that has a notice, which says that; without a `message` of one whose notice is taken off.

    `now` is in seconds since the epoch.
    """
    return {
        "type": NOTICE_CONDITION,
        "status": "True" if message else "False",
        "reason": "Preempting" if message else "Withdrawn",
        "message": message or "giveway does not ask the pod to leave after all",
        "lastTransitionTime": rfc3339(now),
    }


def _read(pod: Pod, key: str, decoder: msgspec.json.Decoder[R]) -> R | None:
    """What an annotation of a pod says; None without it. Raises UnreadableError."""
    text = (pod.metadata.annotations or {}).get(key)
    if text is None:
        return None
    if len(text) > _LONGEST:
        raise UnreadableError(f"annotation {key} of {len(text)} characters, more than {_LONGEST}")
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UnreadableError(f"annotation {key} does not decode: {error}") from error
