"""What is written on a preemptor: read back as written, and never trusted to be well formed."""

from __future__ import annotations

from contextlib import nullcontext

import msgspec
import pytest

from tests.reconciler.builders import preemptor
from webhook.policy.model.values import DECISION, PLAN
from webhook.reconciler.state.annotations import (
    DecidedVictim,
    DecisionRecord,
    GangRecord,
    PlanDevice,
    PlanRecord,
    UnreadableError,
    decision_of,
    encode,
    plan_of,
    with_names,
)
from webhook.reconciler.state.plan_victims import PlanVictim

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
        '{"id":"a","node":"n"}',
        '{"id":"a","node":"n","version":1}',
        '{"id":"a","node":"n","version":2,"digests":"8:AAAA"}',
    ],
    ids=["no version", "names", "digests"],
)
def test_plans_of_versions_before(text: str):
    """They are read: what is left to do is seen by the victims."""
    assert plan_of(annotated(PLAN, text)).begun == ""


def test_a_version_before_takes_it_off():
    """Versions up to 2 refuse what says that it is later, so whatever is written says so."""
    assert all(
        '"version":3' in encode(msgspec.structs.replace(RECORD, victims=victims_of(count, "long")))
        for count in (1, 1000)
    )


@pytest.mark.parametrize("count", [1, 8, 500])
def test_devices_in_a_record(count: int):
    """They are read as written; too many to have room are left out, and found again by a decision."""
    devices = tuple(PlanDevice("gpu.example.com", "rack-1/node-1." + "x" * 60, f"gpu-{n}") for n in range(count))
    text = encode(msgspec.structs.replace(RECORD, devices=devices))
    assert len(text) <= 32 * 1024
    assert plan_of(annotated(PLAN, text)).devices == (devices if count < 500 else ())


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
        '{"id":"a","node":"n","version":6}',
        '{"id":"a","node":"n","version":3,"devices":[["d","p","../x"]]}',
        '{"id":"a","node":"n","version":3,"begun":"soon"}',
        '{"id":"a","node":"n","version":2,"digests":"9:AAAA"}',
        '{"id":"a","node":"n","version":2,"digests":"8:A"}',
        msgspec.json.encode({"id": "a", "node": "n", "digests": "8:AAAA", "victims": [VICTIM]}).decode(),
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
        "device",
        "begun",
        "digest-length",
        "digest-cut",
        "digests-and-names",
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


LONG = {"short": ("ns", "v", "Job/ns/x"), "long": ("n" * 63, "v" * 240, "Deployment/" + "n" * 63 + "/" + "d" * 240)}


def victims_of(count: int, names: str) -> tuple[PlanVictim, ...]:
    namespace, name, _ = LONG[names]
    return tuple(
        PlanVictim(namespace, f"{name}-{number}", f"0e1c4f3a-6f0e-4a57-9d5b-4f6a2f0d{number:04}")
        for number in range(count)
    )


@pytest.mark.parametrize("names", LONG)
@pytest.mark.parametrize("count", [1, 60, 110, 250, 400, 1000, 1001, 3000, 9000, 30_000])
def test_what_is_written_is_always_read(count: int, names: str):
    """However many victims and however long their names, both annotations are small enough, and are believed."""
    victims, owner = victims_of(count, names), LONG[names][2]
    plan = PlanRecord(id="a1", node="n" * 253, victims=victims, deadline="2026-01-01T00:00:00Z", policy="p")
    decided = tuple(
        DecidedVictim(pod=one.key, priority=10, owner=owner, rule="p/opt-in", because="its class says so")
        for one in victims
    )
    decision = DecisionRecord(plan="a1", at=plan.deadline, node=plan.node, policy="p", attempt=1, victims=decided)
    texts = encode(plan), encode(decision)
    assert max(map(len, texts)) <= 32 * 1024
    read = decision_of(annotated(DECISION, texts[1]))
    assert len(read.victims) + read.more_victims == count
    assert read.victims == decided[: len(read.victims)]
    found, gone = with_names(plan_of(annotated(PLAN, texts[0])), victims)
    assert (found.id, found.node, found.deadline) == (plan.id, plan.node, plan.deadline)
    assert not gone
    assert set(found.victims) == set(victims) if count <= 3000 else found.victims


def test_victims_of_a_long_plan_are_found_by_their_digests():
    """Who is not on the node any more is counted, and who was not meant is not found."""
    victims = victims_of(2000, "short")
    read = plan_of(annotated(PLAN, encode(msgspec.structs.replace(RECORD, victims=victims))))
    others = tuple(PlanVictim("ns", f"other-{number}", f"other-{number}") for number in range(2000))
    found, gone = with_names(read, victims[500:] + others)
    assert set(found.victims) == set(victims[500:])
    assert len(gone) == 500


def in_groups(count: int, members: int) -> tuple[PlanVictim, ...]:
    """So many victims, of whom the first ten are in no group and the others in groups of so many members."""
    return tuple(
        msgspec.structs.replace(victim, group=0 if at < 10 else 1 + (at - 10) // members)
        for at, victim in enumerate(victims_of(count, "short"))
    )


@pytest.mark.parametrize("members", [2, 7, 5000])
@pytest.mark.parametrize("count", [1000, 2560, 3000])
def test_groups_of_a_long_plan_are_read_back(count: int, members: int):
    """Whoever goes together still does, wherever the pods are; of those who are gone the group is known."""
    victims = in_groups(count, members)
    read = plan_of(annotated(PLAN, encode(msgspec.structs.replace(RECORD, victims=tuple(reversed(victims))))))
    assert not read.victims
    alone = tuple(msgspec.structs.replace(victim, group=0) for victim in victims)
    found, gone = with_names(read, alone[: count - 2 : 2], lambda: alone[: count - 2])
    assert set(found.victims) == set(victims[: count - 2])
    assert list(gone.values()) == [victim.group for victim in victims[count - 2 :]]


@pytest.mark.parametrize(
    ("named", "there"),
    [
        pytest.param(in_groups(2000, 2), 2000, id="all are on the node"),
        pytest.param(victims_of(2000, "short"), 0, id="nobody is in a group"),
        pytest.param(in_groups(9000, 2), 0, id="digests so short that others have them, too"),
    ],
)
def test_nobody_is_looked_for_elsewhere_in_vain(named: tuple[PlanVictim, ...], there: int):
    """To look at all pods of a cluster takes long, and by a short digest it would find another."""
    read = plan_of(annotated(PLAN, encode(msgspec.structs.replace(RECORD, victims=named))))
    found, _ = with_names(read, named[:there], lambda: pytest.fail("all pods are looked at"))
    assert set(found.victims) == set(named[:there])


FIELDS = {
    1: {"id", "node", "victims", "deadline", "policy", "attempt", "version"},
    2: {"digests"},
    3: {"begun", "devices", "resize", "groups"},
    4: {"gang"},
    5: {"notice"},
}
"""The fields of a plan by the lowest version that is written with them: what it must not be read without."""
PARTS = {
    PlanVictim: {"namespace", "name", "uid", "group"},
    PlanDevice: {"driver", "pool", "device"},
    GangRecord: {"id", "members"},
}


def test_every_field_of_a_plan_belongs_to_a_version():
    """A field that is new is put in the row of its version here: whether older versions may pass over it is decided."""
    assert set(PlanRecord.__struct_fields__) == set().union(*FIELDS.values())
    for part, fields in PARTS.items():
        assert set(part.__struct_fields__) == fields, part
    for version, readable in ((max(FIELDS), True), (max(FIELDS) + 1, False)):
        text = annotated(PLAN, f'{{"id":"a","node":"n","version":{version}}}')
        with nullcontext() if readable else pytest.raises(UnreadableError):
            plan_of(text)


def test_the_version_of_a_plan_is_that_of_its_fields():
    """A plan is of the oldest version that may read it."""
    gang = GangRecord("g", ("p",))
    assert (RECORD.version, RECORD.for_gang(gang).version, RECORD.with_notice(1.0).version) == (3, 4, 5)
    assert RECORD.with_notice(1.0).for_gang(gang).version == RECORD.for_gang(gang).with_notice(1.0).version == 5


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
