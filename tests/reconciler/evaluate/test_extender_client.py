"""Extenders against a real server on loopback: the wire format, and asking without waiting (docs/semantics.md D5)."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import Mock

import aiohttp
import msgspec
import pytest
from aiohttp import web

from tests.cases import table
from tests.reconciler.acting import managing, playing
from tests.reconciler.builders import Setting, node, pod, policy, preemptor
from webhook.policy.model.preemption import ExtenderConfig
from webhook.preemption.extenders import ExtenderError
from webhook.preemption.victims.candidates import Candidate, Victim
from webhook.reconciler.evaluate.extender_client import ExtenderCache, ExtenderClient, Question, ask
from webhook.reconciler.evaluate.outcomes import Evicts

pytestmark = pytest.mark.skipped_waits

CANDIDATES = [
    Candidate("n1", [Victim("default", name, f"uid-{name}", 1, 0.0, "n1") for name in ("a", "b")], 1),
    Candidate("n2", [Victim("default", "c", "uid-c", 1, 0.0, "n2")], 0),
]
PREEMPTOR = preemptor("preemptor")
AWAY = ExtenderConfig(url_prefix="http://127.0.0.1:9", preempt_verb="preempt")


@asynccontextmanager
async def serving(answer, *, status: int = 200, delay: float = 0.0):
    """An extender that answers with a body, or with what a function makes of the question; what it was sent."""
    seen: list[dict] = []

    async def preempt(request: web.Request) -> web.Response:
        seen.append(await request.json())
        await asyncio.sleep(delay)
        body = answer(seen[-1]) if callable(answer) else answer
        if isinstance(body, bytes):
            return web.Response(body=body, status=status)
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_post("/scheduler/preempt", preempt)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield ExtenderConfig(url_prefix=f"http://127.0.0.1:{port}/scheduler/", preempt_verb="preempt"), seen
    finally:
        await runner.cleanup()


async def asked(extender: ExtenderConfig) -> list[Candidate]:
    async with aiohttp.ClientSession() as session:
        return await ask(session, Question(extender, PREEMPTOR, CANDIDATES))


async def test_wire_format():
    """Arguments go out under Go's field names with uids, and the answer's nodes and victims come back."""
    answer = {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "uid-b"}], "NumPDBViolations": 0}}}
    async with serving(answer) as (extender, seen):
        (left,) = await asked(extender)
    assert (left.node, [victim.name for victim in left.victims], left.pdb_violations) == ("n1", ["b"], 0)
    (sent,) = seen
    assert (sent["Pod"]["metadata"]["name"], sent["NodeNameToVictims"]) == ("preemptor", None)
    assert sent["NodeNameToMetaVictims"] == {
        "n1": {"Pods": [{"UID": "uid-a"}, {"UID": "uid-b"}], "NumPDBViolations": 1},
        "n2": {"Pods": [{"UID": "uid-c"}], "NumPDBViolations": 0},
    }


@table(
    "answer, remaining",
    ("fields in any case", {"nodeNameToMetaVictims": {"n2": {"pods": [{"uid": "uid-c"}]}}}, CANDIDATES[1]),
    ("null: no victims", {"NodeNameToMetaVictims": {"n1": None}}, Candidate("n1", [], 0)),
)
async def test_answers_that_are_read(answer: dict[str, Any], remaining: Candidate):
    """Field names are read as Go does, and victims that are null are none, which the decision treats as an error."""
    async with serving(answer) as (extender, _):
        assert await asked(extender) == [remaining]


STRANGE = {"Pods": [{"UID": "x"}]}


@table(
    "status, body, said",
    ("an error status", 500, {}, "500"),
    ("no JSON", 200, b"<html>", "not a fitting ExtenderPreemptionResult"),
    ("no object", 200, [1], "not a fitting ExtenderPreemptionResult"),
    ("a node of its own", 200, {"NodeNameToMetaVictims": {"n9": {}}}, "'n9' is not one of the candidates"),
    ("a victim of its own", 200, {"NodeNameToMetaVictims": {"n1": STRANGE}}, "has the uid 'x'"),
    ("wrong types", 200, {"NodeNameToMetaVictims": {"n1": 7}}, "not a fitting"),
)
async def test_answers_that_make_no_sense(status, body, said):
    """Each is an ExtenderError that names the extender and says what is wrong."""
    async with serving(body, status=status) as (extender, _):
        with pytest.raises(ExtenderError, match=said) as caught:
            await asked(extender)
    assert "/scheduler/preempt" in str(caught.value)


async def test_timeout_and_silence():
    """An extender that does not answer in time, or is not there, is an error soon."""
    async with serving({}, delay=1.0) as (extender, _):
        hasty = ExtenderConfig(url_prefix=extender.url_prefix, preempt_verb="preempt", http_timeout=0.1)
        with pytest.raises(ExtenderError, match=r"no answer within 0\.1 s"):
            await asked(hasty)
    with pytest.raises(ExtenderError, match=r"127\.0\.0\.1:9"):
        await asked(AWAY)


async def test_an_error_without_a_text_is_told_by_its_kind(monkeypatch):
    """Nobody reads an empty reason."""
    monkeypatch.setattr(aiohttp.ClientSession, "post", Mock(side_effect=aiohttp.ClientError))
    with pytest.raises(ExtenderError, match="ClientError"):
        await asked(AWAY)


class Talk:
    """Decisions for one preemptor under a policy with an extender, each question asked and answered."""

    def __init__(self, extender: ExtenderConfig) -> None:
        self.setting = Setting(node("n1"), node("n2"), under=policy(extenders=(extender,)))
        self.setting.add(pod("a", "8", node="n1"), pod("b", "8", node="n2", priority=90))
        self.preemptor = preemptor("p")
        self.news: asyncio.Queue[Any] = asyncio.Queue()
        self.extender_client = ExtenderClient(self.news)
        self.said: dict[str, Any] = {}

    async def concluded(self, *meanwhile):
        """The outcome that is no question, after as many questions as it takes; pods come during the first one."""
        for number in range(5):
            extenders = [ExtenderCache(extender, self.said) for extender in self.setting.policy.extenders]
            outcome = self.setting.evaluate(self.preemptor, extenders=extenders)
            if not isinstance(outcome, Question):
                return outcome
            asking = asyncio.create_task(self.extender_client.ask(outcome, self.said))
            self.setting.add(*() if number else meanwhile)
            await asyncio.wait_for(asking, 5)
        raise AssertionError("it never stops asking")


@asynccontextmanager
async def talking(extender: ExtenderConfig):
    """Such decisions; at the end nobody asks any more."""
    talk = Talk(extender)
    yield talk
    await talk.extender_client.close()


def only(*nodes: str):
    """An extender's answer that keeps these nodes with all their victims."""

    def answer(question: dict) -> dict:
        offered = question["NodeNameToMetaVictims"]
        return {"NodeNameToMetaVictims": {name: victims for name, victims in offered.items() if name in nodes}}

    return answer


A, B = {"name": "a", "node": "n1"}, {"name": "b", "node": "n2", "priority": 90}


@table(
    "kept, meanwhile, node, questions",
    ("the better node is dropped", ("n2",), [], "n2", 1),
    ("all are dropped", (), [], None, 1),
    ("a node changes meanwhile", ("n1", "n2"), [A | {"priority": 95, "uid": "uid-new"}], "n2", 1),
    ("all change meanwhile", ("n1", "n2"), [A | {"uid": "uid-2"}, B | {"uid": "uid-3"}], "n1", 2),
)
async def test_the_extender_has_its_say(kept, meanwhile, node, questions):
    """What it drops is not taken, nor what has changed since; it is asked again if nothing is left as it was."""
    async with serving(only(*kept), delay=0.05) as (extender, seen), talking(extender) as talk:
        outcome = await talk.concluded(*(pod(cpu="8", **fields) for fields in meanwhile))
    assert (outcome.node if isinstance(outcome, Evicts) else None, len(seen)) == (node, questions)


@table(
    "fields, goes",
    ("by the policy", {}, False),
    ("it may be ignored", {"ignorable": True}, True),
    ("the pod requests nothing that it manages", {"managed_resources": ("example.com/gpu",)}, True),
    ("the pod requests something that it manages", {"managed_resources": ("example.com/gpu", "cpu")}, False),
)
async def test_an_extender_that_is_away_stops_the_preemption(fields: dict[str, Any], goes: bool):
    """Unless the policy says that it may be ignored, or it manages other resources and is not asked."""
    async with talking(msgspec.structs.replace(AWAY, **fields)) as talk:
        if goes:
            assert (await talk.concluded()).node == "n1"
            return
        with pytest.raises(ExtenderError, match=r"127\.0\.0\.1:9"):
            await talk.concluded()


async def test_reconciler_asks_before_it_acts():
    """Where the extender fails nobody goes, and it is asked again; then the preemptor goes where the extender says."""
    fails = iter([b"<html>"])
    async with (
        serving(lambda question: next(fails, None) or only("node-2")(question)) as (extender, seen),
        playing(2) as play,
        play.reconciling(managing(extenders=(extender,))),
    ):
        await play.victim("a", "node-1", "6")
        await play.victim("b", "node-2", "6")
        await play.preemptor("p")
        assert await play.bound("p", 20.0) == "node-2"
        assert not (await play.get("a")).metadata.deletion_timestamp
    assert len(seen) == 2


async def test_no_question_goes_on_after_the_end():
    """The answer to a first question of a pod leaves its second one, which is stopped with all that is done."""
    news: asyncio.Queue[Any] = asyncio.Queue()
    async with serving(only("node-1")) as (quick, _), serving(only("node-1"), delay=30.0) as (slow, asked):
        client = ExtenderClient(news)
        offer = [Candidate("node-1", [Victim("default", "a", "uid-a", 0, 0.0, "node-1")], 0)]
        questions = [Question(extender, preemptor("p"), offer) for extender in (quick, slow)]
        _, second = [asyncio.create_task(client.ask(question, {})) for question in questions]
        await news.get()
        await asyncio.sleep(0.05)  # the first one is over
        assert asked
        second.cancel()
        await client.close()
        assert news.empty(), "a question that was stopped tells nothing"
