"""Reviews that take long: answered by a process of their own, which may end at any time."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from pathlib import Path

import pytest

from tests.admission.builders import make_class, make_context, make_pod, make_policy, make_review, make_rule
from tests.admission.builders import response as response_of
from tests.policy.builders import engine, rules
from webhook.admission.context import Context, Objects
from webhook.admission.webhook import review
from webhook.policy.model.rules import PriorityClasses, Validate
from webhook.serving.fair_queue import Peers
from webhook.serving.review_process import _COMMAND, ReviewProcess, ReviewProcessError

HIGH = make_class("high", 100)
FLOW = Peers().flow("127.0.0.1")
SMALL = "from webhook.serving import reviewer; reviewer.MEMORY = 8 << 20; reviewer.main()"
"""A process that may take 8 MiB for a review."""
BODY = json.dumps(make_review(make_pod(priorityClassName="high"))).encode()


@pytest.fixture
async def process():
    made = ReviewProcess()
    yield made
    await made.close()


def denying(*names):
    """A context in which these classes may not be used."""
    rule = make_rule("allowed", priority_classes=PriorityClasses(deny=names))
    return make_context(HIGH, policies=(make_policy("teams", rule),))


@pytest.mark.parametrize("phase", ["mutate", "validate"])
async def test_the_same_answer(process, phase):
    """It answers as the server itself would: by the same policies, classes and namespaces."""
    context = denying("high")
    there, here = await process.review(FLOW, context, phase, BODY), review(context, phase, BODY)
    assert json.loads(there.body) == json.loads(here.body)
    assert (there.uid, there.answer, there.facts) == (here.uid, here.answer, here.facts)


async def test_other_policies(process):
    """It goes by the policies of each review, and by what is known of the cluster then."""
    assert "teams/allowed" in (await process.review(FLOW, denying("high"), "validate", BODY)).answer.rules
    assert "teams/allowed" not in (await process.review(FLOW, denying("low"), "validate", BODY)).answer.rules
    unknown = make_context(policies=denying("low").engine.policies.priority)
    assert (await process.review(FLOW, unknown, "validate", BODY)).answer.unsure == {("priorityclasses", "high")}


async def test_no_review(process):
    """What is no review gets the answer of a 400."""
    found = await process.review(FLOW, denying("high"), "validate", b"{}")
    assert (found.code, found.facts) == (400, None)
    assert response_of(found)["allowed"] is False


async def end_meanwhile(process, number: signal.Signals):
    """A review that takes long, whose process gets this signal."""
    context, body = long_review()
    await process.review(FLOW, context, "validate", BODY)
    task = asyncio.create_task(process.review(FLOW, context, "validate", body))
    await asyncio.sleep(0.05)
    process._process.send_signal(number)
    return await task


def long_review():
    """A context and a review that takes long in it."""
    one = "{name: r%d, validate: {expression: 'object.spec.containers.map(c, c.name).size() > 0'}}"
    context = Context(engine(rules(*(one % number for number in range(60)))), Objects([HIGH]))
    pod = make_pod(priority=0, preemptionPolicy="PreemptLowerPriority", containers=[{"name": "c"}] * 600)
    return context, json.dumps(make_review(pod)).encode()


async def test_it_is_started_again(process):
    """A process that somebody killed is an error for the review it had, and none for the next."""
    with pytest.raises(ReviewProcessError, match="ended"):
        await end_meanwhile(process, signal.SIGKILL)
    assert (await process.review(FLOW, denying("high"), "validate", BODY)).code == 200


async def test_it_is_started_again_before_anybody_notices(process):
    """A process that was killed between two reviews is no error for any."""
    context = denying("high")
    await process.review(FLOW, context, "validate", BODY)
    process._process.kill()
    await process._process.wait()
    assert (await process.review(FLOW, context, "validate", BODY)).code == 200


async def test_a_deadline_ends_it(process):
    """A review that is given up does not hold up the next one, and its answer is not taken for the next one's."""
    await process.review(FLOW, denying("high"), "validate", BODY)
    first = process._process
    task = asyncio.create_task(process.review(FLOW, denying("high"), "validate", BODY))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await process.review(FLOW, denying("low"), "validate", BODY)).answer.rules == ["builtin/priority-resolved"]
    assert process._process is not first


async def test_a_deadline_leaves_it_to_start(process):
    """Where starting takes longer than a review may, the next review finds it started."""
    task = asyncio.create_task(process.review(FLOW, denying("high"), "validate", BODY))
    await asyncio.sleep(0.01)
    assert process._starting is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    starting = process._starting
    assert (await process.review(FLOW, denying("high"), "validate", BODY)).code == 200
    assert starting.result() is process._process


async def test_it_ends_with_the_server():
    """Nothing is left behind, whether it was asked to end or its parent has gone."""
    asked, left = ReviewProcess(), ReviewProcess()
    for one in (asked, left):
        await one.review(FLOW, denying("high"), "validate", BODY)
    child = left._process
    child.stdin.close()
    assert await asyncio.wait_for(child.wait(), 10) == 0
    child = asked._process
    await asked.close()
    assert child.returncode is not None


VALIDATED = make_rule("named", validate=Validate(expression="request.name != 'x'"))


def body_with(parts: str) -> bytes:
    """A review of a pod that holds these parts, as JSON."""
    sent = make_review(make_pod(priorityClassName="high", tolerations="PARTS"))
    return json.dumps(sent).replace('"PARTS"', parts).encode()


@pytest.mark.parametrize(
    ("parts", "refused"),
    [
        pytest.param("[" + ",".join(["[]"] * 149_000) + "]", False, id="lists"),
        pytest.param("[" + ",".join(['{"":0}'] * 149_000) + "]", False, id="maps"),
        pytest.param("[" + ",".join(["{}"] * 2_700_000) + "]", True, id="8 MiB of maps"),
    ],
)
async def test_what_it_takes_of_the_memory(process, parts, refused):
    """The most values that are decoded, and a body of 8 MiB, cost less than 64 MiB, one after the other."""
    context = make_context(HIGH, policies=(make_policy("teams", VALIDATED),))
    await process.review(FLOW, context, "validate", BODY)
    before = _most_memory(process)
    body = body_with(parts)
    for _ in range(4):
        found = await process.review(FLOW, context, "validate", body)
        assert ("builtin/size" in found.answer.rules) is refused
    assert _most_memory(process) - before < 64 * 1024 * 1024


async def test_expressions_leave_nothing_behind(process):
    """What sixty expressions allocate on long lists is not added up: it is freed along the way."""
    context, body = long_review()
    await process.review(FLOW, context, "validate", BODY)
    before = _most_memory(process)
    assert (await process.review(FLOW, context, "validate", body)).answer.allowed
    assert _most_memory(process) - before < 64 * 1024 * 1024


async def test_a_review_that_takes_more_memory_than_there_is(process, monkeypatch):
    """It is refused, since an error would let it pass with Ignore; the next one is answered by the same process."""
    context = make_context(HIGH, policies=(make_policy("teams", VALIDATED),))
    monkeypatch.setattr("webhook.serving.review_process._COMMAND", (*_COMMAND[:1], "-c", SMALL))
    found = await process.review(FLOW, context, "validate", body_with("[" + ",".join(['{"":0}'] * 149_000) + "]"))
    assert found.answer.rules == ["builtin/size"]
    assert (await process.review(FLOW, context, "validate", BODY)).answer.rules == ["builtin/priority-resolved"]


async def test_a_process_that_a_review_ended(process):
    """A process that ends by itself could not bear its review, which is refused; the next one starts another."""
    found = await end_meanwhile(process, signal.SIGABRT)
    assert found.answer.rules == ["builtin/size"]
    assert found.uid
    assert (await process.review(FLOW, denying("high"), "validate", BODY)).code == 200


async def test_several_at_once(process):
    """They are answered one after the other, and each gets its own answer."""
    bodies = [json.dumps(make_review(make_pod(f"p{number}", priorityClassName="high"))).encode() for number in range(8)]
    found = await asyncio.gather(*(process.review(FLOW, denying("high"), "validate", body) for body in bodies))
    assert [one.facts.name for one in found] == [f"p{number}" for number in range(8)]


def _most_memory(process):
    """The most bytes that the process has had resident."""
    status = Path(f"/proc/{process._process.pid}/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])


@pytest.mark.parametrize(
    ("values", "beside"),
    [
        pytest.param(["a" * 200] * 1000, False, id="200 KiB in long texts"),
        pytest.param([{}] * 40_000, True, id="120 KiB in empty maps"),
        pytest.param(["a" * 300] * 1000, True, id="300 KiB"),
    ],
)
async def test_who_waits_for_whom(start, values, beside):
    """Reviews that take long to decode go to the process: those of many bytes, and those of many small values."""
    policies = engine(rules("{name: v, validate: {expression: \"object.metadata.name != 'x'\", message: m}}"))
    async with start(objects=Objects([HIGH]), engine=policies) as running:
        review = make_review(make_pod(priorityClassName="high", tolerations=values))
        body = json.dumps(review, separators=(",", ":")).encode()
        assert (await running.post("/validate", body))[0] == 200
        assert (running.server.handler._process._process is not None) is beside
