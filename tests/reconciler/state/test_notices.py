"""Notices as annotations: what is written is read again, and what giveway would not write is none."""

import msgspec
import pytest

from tests.reconciler.builders import pod
from webhook.policy.model.values import NOTICE, READY
from webhook.reconciler.state.annotations import (
    NoticeRecord,
    PlanRecord,
    UnreadableError,
    encode,
    is_ready,
    not_own,
    notice_of,
    plan_of,
)

RECORD = NoticeRecord(plan="p1", by="2027-01-15T08:00:00Z", uid="u", priority=100, preemptor="shop/web")
PLAN = PlanRecord(id="p1", node="n1")


def with_annotations(**texts):
    return pod("v", node="n1", annotations={NOTICE: encode(RECORD), **texts})


def test_round_trip():
    """The annotation says by when, for whom and for which plan; a preemptor that is not shown is left out."""
    assert notice_of(with_annotations()) == RECORD
    assert notice_of(pod("v", node="n1")) is None
    hidden = encode(msgspec.structs.replace(RECORD, preemptor=""))
    assert "preemptor" not in msgspec.json.decode(hidden)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "null", '{"plan":"p1","by":"tomorrow","uid":"u","priority":1}', encode(RECORD)[:-1], "x" * 5000],
    ids=["empty", "nothing", "null", "no instant", "cut", "too long"],
)
def test_unreadable_notices(text: str):
    """They are none."""
    found = pod("v", node="n1", annotations={NOTICE: text, READY: "true"})
    assert notice_of(found) is None
    assert not is_ready(found, "p1")


@pytest.mark.parametrize(
    ("said", "plan", "ready"),
    [("true", "p1", True), ("True", "p1", False), ("false", "p1", False), ("", "p1", False), ("true", "p2", False)],
)
def test_ready(said: str, plan: str, ready: bool):
    """Exactly true, on a pod with a notice of this plan."""
    assert is_ready(with_annotations(**{READY: said}), plan) is ready
    assert not is_ready(pod("v", node="n1", annotations={READY: said}), plan)


def test_what_belongs_to_a_notice_is_no_change_of_a_pod():
    """Neither the notice nor the answer to it is what a pod is judged by."""
    assert not_own(with_annotations(**{READY: "true"})) == {}


def test_a_plan_says_how_long_a_notice_is():
    """It is the longest that was promised, and nothing but a time of a day at most is believed."""
    text = encode(PLAN.with_notice(60.0))
    assert plan_of(pod("p", annotations={"giveway.dev/plan": text})) == PLAN.with_notice(60.0)
    assert PLAN.with_notice(60.0).with_notice(10.0).notice == 60.0
    for wrong in ("-1", "1e9", '"60s"'):
        forged = text.replace('"notice":60.0', f'"notice":{wrong}')
        assert forged != text
        with pytest.raises(UnreadableError):
            plan_of(pod("p", annotations={"giveway.dev/plan": forged}))
