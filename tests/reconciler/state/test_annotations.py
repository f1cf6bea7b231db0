"""What is written on a preemptor: read back as written, and never trusted to be well formed."""

from __future__ import annotations

import msgspec
import pytest

from tests.reconciler.builders import preemptor
from webhook.reconciler.state.annotations import (
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


VICTIM = {"namespace": "ns", "name": "v", "uid": "u"}
MANY = [{"namespace": "n", "name": "v", "uid": str(number)} for number in range(1001)]


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
        '{"id":"a","node":"n","attempt":-1000000}',
        '{"id":"a","node":"n","attempt":1000000000000}',
        '{"id":"a","node":"N 1"}',
        '{"id":"a b","node":"n"}',
        '{"id":"a","node":"n","deadline":"soon"}',
        '{"id":"a","node":"n","victims":[{"namespace":"ns","name":"v","uid":""}]}',
        '{"id":"a","node":"n","victims":[{"namespace":"../x","name":"v","uid":"u"}]}',
        msgspec.json.encode({"id": "a", "node": "n", "victims": [VICTIM, VICTIM]}).decode(),
        msgspec.json.encode({"id": "a", "node": "n", "victims": MANY}).decode(),
    ],
    ids=[
        "empty",
        "cut",
        "null",
        "list",
        "no-node",
        "no-id",
        "victim",
        "later-version",
        "too-long",
        "surrogate",
        "attempt-negative",
        "attempt-huge",
        "node",
        "id",
        "deadline",
        "uid",
        "namespace",
        "victim-twice",
        "many",
    ],
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


SAID = {"plan": "a1", "at": "2026-01-01T00:00:00Z", "node": "n1", "policy": "p", "attempt": 3}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"attempt": -1000000}, id="attempt-negative"),
        pytest.param({"attempt": 10**9}, id="attempt-huge"),
        pytest.param({"node": "no/node"}, id="node"),
        pytest.param({"at": "yesterday"}, id="instant"),
        pytest.param({"victims": [{"pod": "b", "priority": 1}]}, id="pod-without-namespace"),
        pytest.param({"victims": [{"pod": "a/b", "priority": 2**40}]}, id="priority"),
        pytest.param({"victims": [{"pod": "a/b", "priority": 1, "owner": "Job/c/d"}]}, id="owner-elsewhere"),
        pytest.param({"victims": [{"pod": "a/b", "priority": 1, "owner": "web"}]}, id="owner-unreadable"),
        pytest.param({"victims": [{"pod": "a/b", "priority": 1}] * 2}, id="victim-twice"),
    ],
)
def test_a_decision_that_giveway_would_not_write_is_ignored(changes):
    """A forged decision tells the next leader nothing."""
    assert decision_of(annotated(DECISION, msgspec.json.encode(SAID).decode())) is not None
    assert decision_of(annotated(DECISION, msgspec.json.encode({**SAID, **changes}).decode())) is None


def test_a_decision_of_another_version_is_read():
    """What a later release adds is passed over."""
    text = msgspec.json.encode({**SAID, "victims": [{"pod": "a/b", "priority": 1, "x": 1}], "new": {}}).decode()
    assert decision_of(annotated(DECISION, text)).victims[0].pod == "a/b"
