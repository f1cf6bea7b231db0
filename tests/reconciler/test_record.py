"""What is written on a preemptor: read back as written, and never trusted to be well formed."""

from __future__ import annotations

import pytest

from tests.reconciler.builders import preemptor
from webhook.reconciler.record import (
    DECISION,
    PLAN,
    DecidedVictim,
    DecisionRecord,
    PlanRecord,
    PlanVictim,
    UnreadableError,
    decision_of,
    encode,
    plan_of,
)

RECORD = PlanRecord(
    id="a1", node="n1", victims=(PlanVictim("ns", "v", "u"),), deadline="2026-01-01T00:00:00Z", policy="p"
)


def annotated(key: str, text: str):
    made = preemptor()
    made.metadata.annotations = {key: text}
    return made


def test_plan_round_trip():
    """A new leader reads the very plan that was written."""
    assert plan_of(annotated(PLAN, encode(RECORD))) == RECORD
    assert plan_of(preemptor()) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '{"id":"a"}',
        '{"id":"","node":"n"}',
        '{"id":"a","node":"n","victims":[{"name":1}]}',
        '{"id":"a","node":"n","version":2}',
        '{"id":"a","node":"n","x":"' + "x" * 70_000 + '"}',
        "\ud800",
    ],
    ids=["empty", "cut", "null", "list", "no-node", "no-id", "victim", "later-version", "too-long", "surrogate"],
)
def test_unreadable_plan(text: str):
    """Anything else is told to be unreadable, and nothing else happens."""
    with pytest.raises(UnreadableError):
        plan_of(annotated(PLAN, text))


def test_unknown_fields_are_passed_over():
    """A field that a later release of the same version added does no harm."""
    assert plan_of(annotated(PLAN, '{"id":"a","node":"n","new":{"x":1}}')).node == "n"


def test_decision_round_trip():
    """The last decision tells the next leader the attempt, and people everything."""
    record = DecisionRecord(
        plan="a1",
        at="2026-01-01T00:00:00Z",
        node="n1",
        policy="p",
        attempt=3,
        victims=(DecidedVictim(pod="a/b", priority=5),),
    )
    assert decision_of(annotated(DECISION, encode(record))) == record
    assert '"lastResort":false' in encode(record)
    assert decision_of(annotated(DECISION, "{")) is None
