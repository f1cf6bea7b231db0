"""Reviews that take long: answered by a process of their own, which may end at any time."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.admission.builders import make_class, make_context, make_pod, make_policy, make_review, make_rule
from tests.admission.builders import response as response_of
from tests.policy.builders import engine, rules
from webhook.admission.context import Objects
from webhook.admission.webhook import review
from webhook.policy.model import PriorityClasses, Validate
from webhook.serving.review_process import ReviewProcess, ReviewProcessError

HIGH = make_class("high", 100)
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
    there, here = await process.review(context, phase, BODY), review(context, phase, BODY)
    assert json.loads(there.body) == json.loads(here.body)
    assert (there.uid, there.answer, there.review.user) == (here.uid, here.answer, here.review.user)


async def test_other_policies(process):
    """It goes by the policies of each review, and by what is known of the cluster then."""
    assert "teams/allowed" in (await process.review(denying("high"), "validate", BODY)).answer.rules
    assert "teams/allowed" not in (await process.review(denying("low"), "validate", BODY)).answer.rules
    unknown = make_context(policies=denying("low").engine.policies.priority)
    assert (await process.review(unknown, "validate", BODY)).answer.unsure == {("priorityclasses", "high")}


async def test_no_review(process):
    """What is no review gets the answer of a 400."""
    found = await process.review(denying("high"), "validate", b"{}")
    assert (found.code, found.review) == (400, None)
    assert response_of(found)["allowed"] is False


async def test_it_is_started_again(process):
    """A process that was killed is an error for the review it had, and none for the next."""
    await process.review(denying("high"), "validate", BODY)
    process._process.kill()
    await process._process.wait()
    with pytest.raises(ReviewProcessError, match="ended"):
        await process.review(denying("high"), "validate", BODY)
    assert (await process.review(denying("high"), "validate", BODY)).code == 200


async def test_a_deadline_ends_it(process):
    """A review that is given up does not hold up the next one, and its answer is not taken for the next one's."""
    await process.review(denying("high"), "validate", BODY)
    first = process._process
    task = asyncio.create_task(process.review(denying("high"), "validate", BODY))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await process.review(denying("low"), "validate", BODY)).answer.rules == ["builtin/priority-resolved"]
    assert process._process is not first


async def test_a_deadline_leaves_it_to_start(process):
    """Where starting takes longer than a review may, the next review finds it started."""
    task = asyncio.create_task(process.review(denying("high"), "validate", BODY))
    await asyncio.sleep(0.01)
    assert process._starting is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    starting = process._starting
    assert (await process.review(denying("high"), "validate", BODY)).code == 200
    assert starting.result() is process._process


async def test_it_ends_with_the_server():
    """Nothing is left behind, whether it was asked to end or its parent has gone."""
    asked, left = ReviewProcess(), ReviewProcess()
    for one in (asked, left):
        await one.review(denying("high"), "validate", BODY)
    child = left._process
    child.stdin.close()
    assert await asyncio.wait_for(child.wait(), 10) == 0
    child = asked._process
    await asked.close()
    assert child.returncode is not None


async def test_an_object_of_many_parts(process):
    """The objects of a review are decoded once at most: lists and maps in memory take 25 times their bytes."""
    rule = make_rule("named", validate=Validate(expression="request.name != 'x'"))
    context = make_context(HIGH, policies=(make_policy("teams", rule),))
    await process.review(context, "validate", BODY)
    before = _most_memory(process)
    parts = "[" + ",".join(["[]"] * 1_400_000) + "]"
    sent = make_review(make_pod(priorityClassName="high", tolerations="PARTS"))
    body = json.dumps(sent).replace('"PARTS"', parts).encode()
    assert (await process.review(context, "validate", body)).code == 200
    assert _most_memory(process) - before < 32 * len(body)


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
