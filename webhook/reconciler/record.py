"""What a plan leaves on its preemptor, as annotations.

`giveway.dev/plan` is there while a plan is under way and is written together with the nomination, before the first
victim is asked to leave. Which step the plan has reached is not written: it can be read off the victims themselves.
`giveway.dev/decision` stays and tells people, and a new leader, what was decided and at which attempt.
"""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.kube.objects import Pod

__all__ = [
    "DECISION",
    "PLAN",
    "Alternative",
    "DecidedVictim",
    "DecisionRecord",
    "PlanRecord",
    "PlanVictim",
    "UnreadableError",
    "carries",
    "decision_of",
    "encode",
    "plan_of",
]

PLAN = "giveway.dev/plan"
DECISION = "giveway.dev/decision"
_VERSION = 1
_LONGEST = 64 * 1024


class UnreadableError(ValueError):
    """An annotation that is not a plan this version understands."""


class PlanVictim(msgspec.Struct, frozen=True):
    """A pod that is to leave; the uid makes sure that it is not its successor of the same name."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class PlanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A plan as it is written on the preemptor; `deadline` is an RFC 3339 instant."""

    id: str
    node: str
    victims: tuple[PlanVictim, ...] = ()
    deadline: str = ""
    policy: str = ""
    attempt: int = 1
    version: int = _VERSION


class DecidedVictim(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A victim and why it was one: `rule` is `policy/rule`, `because` the sentence for people."""

    pod: str
    priority: int
    owner: str = ""
    rule: str = ""
    because: str = ""
    last_resort: bool = False


class Alternative(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Another node that would have done, with what the choice compares (SEMANTICS D6)."""

    node: str
    victims: int
    budget_violations: int
    highest_priority: int
    priority_sum: int


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One decision: when, where, who, by which policy, what else there was, how long it took in milliseconds."""

    plan: str
    at: str
    node: str
    policy: str
    attempt: int
    victims: tuple[DecidedVictim, ...] = ()
    already_leaving: int = 0
    alternatives: tuple[Alternative, ...] = ()
    left_out: tuple[str, ...] = ()
    """Nodes that kube-scheduler did not take though there was room; for people, nobody acts on it."""
    candidates: int = 0
    decision_ms: float = 0.0


_PLAN = msgspec.json.Decoder(PlanRecord)
_DECISION = msgspec.json.Decoder(DecisionRecord)


def encode(record: PlanRecord | DecisionRecord) -> str:
    """The annotation's text: compact JSON."""
    return msgspec.json.encode(record).decode()


def plan_of(pod: Pod) -> PlanRecord | None:
    """The plan written on a pod, None where there is none; fields a later version added are passed over.

    Raises UnreadableError where the text is not a plan, or one of a later version.
    """
    text = (pod.metadata.annotations or {}).get(PLAN)
    if text is None:
        return None
    record = _decode(_PLAN, text)
    if not isinstance(record, PlanRecord) or record.version > _VERSION or not record.id or not record.node:
        raise UnreadableError(f"annotation {PLAN} is not a plan of version {_VERSION} or older")
    return record


def decision_of(pod: Pod) -> DecisionRecord | None:
    """The last decision written on a pod; None where there is none or it cannot be read."""
    text = (pod.metadata.annotations or {}).get(DECISION)
    if text is None:
        return None
    try:
        record = _decode(_DECISION, text)
    except UnreadableError:
        return None
    return record if isinstance(record, DecisionRecord) else None


def carries(pod: Pod, plan: str) -> bool:
    """Whether the plan of that id is written on a pod; cheap, and never wrong for ids that this program makes."""
    return plan in (pod.metadata.annotations or {}).get(PLAN, "")


def _decode(decoder: msgspec.json.Decoder[Any], text: str) -> Any:
    if len(text) > _LONGEST:
        raise UnreadableError(f"annotation of {len(text)} characters, more than {_LONGEST}")
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UnreadableError(f"annotation does not decode: {error}") from error
