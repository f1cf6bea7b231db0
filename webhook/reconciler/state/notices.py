"""What a victim is told before it is asked to leave, as an annotation on it (docs/notice.md), and its answer.

`giveway.dev/notice` is the one place that says who has a notice of which plan, and by when. It is written on each
victim in one go with a condition, so a new leader keeps what the one before promised, and gives nobody the time twice.
`giveway.dev/ready-to-leave` is for the victim to write. The notice takes an older one off, so it always answers this
one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.kube.instants import epoch, rfc3339
from webhook.kube.objects.pod import Pod
from webhook.policy.model.values import ANSWERS, NOTICE, NOTICE_CONDITION, READY
from webhook.reconciler.state.annotations import UnreadableError, read


class NoticeRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The notice of one victim: it is asked to leave `by` then (RFC 3339) at the latest, and not earlier unless ready.

    `preemptor` is `namespace/name`, left out if the policy does not name it to other namespaces; `uid` is its uid.
    """

    plan: str
    by: str
    uid: str
    priority: int
    preemptor: str = ""

    def __post_init__(self) -> None:
        epoch(self.by)


_NOTICE = msgspec.json.Decoder(NoticeRecord)


def encode(record: NoticeRecord) -> str:
    """The annotation's text."""
    return msgspec.json.encode(record).decode()


def notice_annotations(record: NoticeRecord | None) -> dict[str, str | None]:
    """What is written on a pod to give it a notice, or, without one, to take it off; an older answer goes with both."""
    return {NOTICE: None if record is None else encode(record), **dict.fromkeys(ANSWERS)}


def has_notice(pod: Pod) -> bool:
    """Whether a pod carries a notice, whatever that says."""
    return NOTICE in (pod.metadata.annotations or {})


def notice_of(pod: Pod) -> NoticeRecord | None:
    """The notice on a pod; None if it has none, or one that giveway would not write."""
    try:
        notice: NoticeRecord | None = read(pod, NOTICE, _NOTICE)
    except UnreadableError:
        return None
    return notice


def is_ready(pod: Pod, plan: str) -> bool:
    """Whether a pod that has a notice of this plan says that it need not be waited for."""
    said = (pod.metadata.annotations or {}).get(READY)
    return said == "true" and (notice := notice_of(pod)) is not None and notice.plan == plan


def notice_condition(message: str, now: float) -> dict[str, Any]:
    """The condition of a pod that has a notice; `now` is in seconds since the epoch."""
    return _condition("True", "Preempting", message, now)


def withdrawn_condition(now: float) -> dict[str, Any]:
    """The condition of a pod whose notice is taken off."""
    return _condition("False", "Withdrawn", "giveway does not ask the pod to leave after all", now)


def _condition(status: str, reason: str, message: str, now: float) -> dict[str, Any]:
    return {
        "type": NOTICE_CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(now),
    }
