"""What is written on preemptors and victims: read back as written, and never trusted to be well formed."""

from typing import Any

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import pod, preemptor
from webhook.kube.objects.pod import Pod
from webhook.policy.model.values import DECISION, NOTICE, PLAN, READY
from webhook.reconciler.state.annotations import (
    DecidedVictim,
    DecisionRecord,
    NoticeRecord,
    PlanMember,
    PlanRecord,
    PlanVictim,
    UnreadableError,
    decision_of,
    encode,
    is_ready,
    not_own,
    notice_of,
    plan_of,
    with_names,
)

RECORD = PlanRecord(
    id="a1", node="n1", victims=(PlanVictim("ns", "v", "u"),), deadline="2026-01-01T00:00:00Z", policy="p"
)

SAID: dict[str, Any] = {"plan": "a1", "at": "2026-01-01T00:00:00Z", "node": "n1", "policy": "p", "attempt": 3}
DECIDED = DecisionRecord(**SAID, victims=(DecidedVictim(pod="a/b", priority=5),))
TOLD = NoticeRecord(plan="p1", by="2027-01-15T08:00:00Z", uid="u", priority=100, preemptor="shop/web")
READ = {PLAN: plan_of, DECISION: decision_of, NOTICE: notice_of}


def annotated(key: str, text: str, **more: str) -> Pod:
    made = preemptor()
    made.metadata.annotations = {key: text, **more}
    return made


@pytest.mark.parametrize(("key", "record"), [(PLAN, RECORD), (DECISION, DECIDED), (NOTICE, TOLD)], ids=READ)
def test_round_trip(key: str, record: PlanRecord | DecisionRecord | NoticeRecord):
    """A new leader, and people, read the very text that was written."""
    assert READ[key](annotated(key, encode(record))) == record
    assert READ[key](preemptor()) is None


def test_what_is_left_out():
    """A preemptor that is not shown is not in a notice; that nobody goes as the last resort is said."""
    assert "preemptor" not in encode(msgspec.structs.replace(TOLD, preemptor=""))
    assert '"lastResort":false' in encode(DECIDED)


@pytest.mark.parametrize("count", [1, 8, 500])
def test_devices_in_a_record(count: int):
    """They are read as written; too many to have room are left out, and found again by a decision."""
    devices = tuple(("gpu.example.com", "rack-1/node-1." + "x" * 60, f"gpu-{n}") for n in range(count))
    text = encode(msgspec.structs.replace(RECORD, devices=devices))
    assert len(text) <= 32 * 1024
    assert plan_of(annotated(PLAN, text)).devices == (devices if count < 500 else ())


PLAIN = '"id":"a","node":"n"'
UNREADABLE = {
    "empty": "",
    "cut": "{",
    "null": "null",
    "list": "[]",
    "no-node": '{"id":"a"}',
    "no-id": '{"id":"","node":"n"}',
    "victim": f'{{{PLAIN},"victims":[{{"name":1}}]}}',
    "another-version": f'{{{PLAIN},"version":2}}',
    "device": f'{{{PLAIN},"devices":[["d","p","../x"]]}}',
    "begun": f'{{{PLAIN},"begun":"soon"}}',
    "too-deep": f'{{{PLAIN},"x":{"[" * 70_000}{"]" * 70_000}}}',
    "too-long": f'{{{PLAIN},"x":"{"x" * 170_000}"}}',
    "surrogate": "\ud800",
    "node": '{"id":"a","node":"N 1"}',
    "id": '{"id":"a b","node":"n"}',
    "deadline": f'{{{PLAIN},"deadline":"soon"}}',
    "uid": f'{{{PLAIN},"victims":[{{"namespace":"ns","name":"v","uid":""}}]}}',
    "namespace": f'{{{PLAIN},"victims":[{{"namespace":"../x","name":"v","uid":"u"}}]}}',
    **{f"attempt {number}": f'{{{PLAIN},"attempt":{number}}}' for number in (-1_000_000, 10**12)},
    **{f"a notice of {seconds}": f'{{{PLAIN},"notice":{seconds}}}' for seconds in ("-1", "1e9", '"60s"')},
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_plan(text: str):
    """Anything else is told to be unreadable, and nothing else happens; a field of a later release does no harm."""
    with pytest.raises(UnreadableError):
        plan_of(annotated(PLAN, text))
    assert plan_of(annotated(PLAN, f'{{{PLAIN},"notice":60.0,"new":{{"x":1}}}}')).notice == 60.0


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
    """However many victims and however long their names, both annotations are small enough, and are believed.

    At about two thousand a plan names no more, even by their uids.
    """
    victims, owner = victims_of(count, names), LONG[names][2]
    plan = PlanRecord(id="a1", node="n" * 253, victims=victims, deadline="2026-01-01T00:00:00Z", policy="p")
    decided = tuple(
        DecidedVictim(pod=one.key, priority=10, owner=owner, rule="p/opt-in", because="its class says so")
        for one in victims
    )
    decision = DecisionRecord(plan="a1", at=plan.deadline, node=plan.node, policy="p", attempt=1, victims=decided)
    texts = encode(plan), encode(decision)
    assert len(texts[0]) <= 128 * 1024
    assert len(texts[1]) <= 32 * 1024
    read = decision_of(annotated(DECISION, texts[1]))
    assert len(read.victims) + read.more_victims == count
    assert read.victims == decided[: len(read.victims)]
    found = with_names(plan_of(annotated(PLAN, texts[0])), map(running, victims))
    assert (found.id, found.node, found.deadline) == (plan.id, plan.node, plan.deadline)
    assert found.victims == victims[: len(found.victims)]
    assert len(found.victims) == count or len(found.victims) > 1900


def test_a_plan_whose_members_take_all_the_room():
    """It is written, and read, with as many victims as have room: none beside so many members of the longest names."""
    members = tuple(
        PlanMember("m" * 253, f"0e1c4f3a-6f0e-4a57-9d5b-4f6a2f0d{number:04}", "n" * 253) for number in range(256)
    )
    plan = PlanRecord(id="a1", node="n" * 253, victims=victims_of(3, "short"), members=members)
    made = annotated(PLAN, encode(plan))
    made.metadata.uid = members[0].uid
    assert plan_of(made) == msgspec.structs.replace(plan, victims=())


def running(victim: PlanVictim) -> Pod:
    made = pod(victim.name, node="n1")
    meta = msgspec.structs.replace(made.metadata, namespace=victim.namespace, uid=victim.uid)
    return msgspec.structs.replace(made, metadata=meta)


@pytest.mark.parametrize("members", [2, 5000])
def test_victims_of_a_long_plan_are_found_by_their_uids(members: int):
    """Whoever is not there any more has no name, but still a group; and who was not meant is not found."""
    victims = tuple(
        msgspec.structs.replace(victim, group=0 if at < 10 else 1 + (at - 10) // members)
        for at, victim in enumerate(victims_of(1500, "short"))
    )
    text = encode(msgspec.structs.replace(RECORD, victims=victims))
    assert '"name"' not in text
    others = (PlanVictim("ns", f"other-{number}", f"other-{number}") for number in range(500))
    found = with_names(plan_of(annotated(PLAN, text)), map(running, (*victims[500:], *others)))
    assert found.victims[500:] == victims[500:]
    assert {victim.name for victim in found.victims[:500]} == {""}
    assert [victim.group for victim in found.victims] == [victim.group for victim in victims]


GONE = {"pod": "a/b", "priority": 1}


@table(
    "changes, believed",
    ("as it is written", {}, True),
    ("an owner of any kind and name", {"victims": [{**GONE, "owner": "My_Kind/a/My name"}]}, True),
    ("what a later release adds", {"victims": [{**GONE, "x": 1}], "new": {}}, True),
    ("attempt-negative", {"attempt": -1000000}, False),
    ("attempt-huge", {"attempt": 10**9}, False),
    ("node", {"node": "no/node"}, False),
    ("instant", {"at": "yesterday"}, False),
    ("pod", {"victims": [{**GONE, "pod": "a/b\x1b"}]}, False),
    ("priority", {"victims": [{**GONE, "priority": 2**40}]}, False),
    ("owner", {"victims": [{**GONE, "owner": "a job"}]}, False),
    ("owner-for-a-terminal", {"victims": [{**GONE, "owner": "K/a/\x1b"}]}, False),
)
def test_a_decision_that_giveway_would_not_write_is_ignored(changes, believed: bool):
    """A forged decision tells the next leader nothing; whoever writes an owner reference keeps none from it."""
    read = decision_of(annotated(DECISION, msgspec.json.encode({**SAID, **changes}).decode()))
    assert (read is not None) is believed
    if believed:
        told = [(victim.pod, victim.owner) for victim in read.victims]
        assert told == [(row["pod"], row.get("owner", "")) for row in changes.get("victims", ())]


@pytest.mark.parametrize(
    "text",
    ["", "{}", "null", '{"plan":"p1","by":"tomorrow","uid":"u","priority":1}', encode(TOLD)[:-1], "[" * 5000],
    ids=["empty", "nothing", "null", "no instant", "cut", "too deep"],
)
def test_unreadable_notices(text: str):
    """They are none, and so is an unreadable decision."""
    found = annotated(NOTICE, text, **{READY: "true", DECISION: text})
    assert (notice_of(found), decision_of(found), is_ready(found, "p1")) == (None, None, False)


@pytest.mark.parametrize(
    ("said", "plan", "ready"),
    [("true", "p1", True), ("True", "p1", False), ("false", "p1", False), ("", "p1", False), ("true", "p2", False)],
)
def test_ready(said: str, plan: str, ready: bool):
    """Exactly true, on a pod with a notice of this plan."""
    assert is_ready(annotated(NOTICE, encode(TOLD), **{READY: said}), plan) is ready
    assert not is_ready(annotated(READY, said), plan)


def test_what_belongs_to_a_notice_is_no_change_of_a_pod():
    """Neither the notice nor the answer to it is what a pod is judged by."""
    assert not_own(annotated(NOTICE, encode(TOLD), **{READY: "true"})) == {}
