"""Whatever is in a request, what is kept, decoded and told of it is bounded."""

import json
import tracemalloc

import pytest

from tests.admission.builders import (
    UID,
    ask,
    make_class,
    make_context,
    make_pod,
    make_policy,
    make_review,
    make_rule,
    pod_of,
    response,
)
from tests.policy.builders import table
from webhook.admission import mutating
from webhook.admission.review import MOST_VALUES, values
from webhook.admission.webhook import review
from webhook.policy.model.rules import PriorityClasses
from webhook.policy.model.values import CAN_BE_PREEMPTED, GIVEN, MARK, PLAN

LONG = "n" * 250_000
CLASS = make_class("high", 100)
RULE = make_rule("allowed", priority_classes=PriorityClasses(deny=("n*",)))
CONTEXT = make_context(CLASS, policies=(make_policy("teams", RULE),))


def body_with(parts: str) -> bytes:
    """A review of a pod that holds these parts, as JSON."""
    text = json.dumps(make_review(make_pod(priorityClassName="high", tolerations="PARTS")), separators=(",", ":"))
    return text.replace('"PARTS"', parts).encode()


def peak(call) -> int:
    """The bytes that a call has allocated at most."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_name_is_kept():
    """Two hundred classes with names of 250 KB leave nothing behind."""
    bodies = [make_review(make_pod(priorityClassName=f"{number}-{LONG}")) for number in range(200)]
    given = {GIVEN: '{"class": "high"}'}
    bodies += [make_review(make_pod(meta={"annotations": given}, priorityClassName=f"{n}-{LONG}")) for n in range(200)]
    bodies += [
        make_review({"kind": "PriorityClass", "metadata": {"name": f"{number}-{LONG}"}, "value": 5})
        for number in range(200)
    ]
    context = make_context(CLASS)
    sent = [json.dumps(one).encode() for one in bodies]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for body in sent:
        for phase in ("mutate", "validate"):
            review(context, phase, body)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 1_000_000
    assert len(mutating._encoded) <= 1024


@table(
    "parts, refused",
    {
        "as many as may be": ("[" + ",".join(["{}"] * (MOST_VALUES // 2 - 500)) + "]", False),
        "too many": ("[" + ",".join(["{}"] * (MOST_VALUES // 2 + 1)) + "]", True),
        "too many texts": ("[" + ",".join(['",,"'] * 1_000_000) + "]", True),
        "in a text": ('"' + ",[{" * MOST_VALUES + '"', False),
        "in a text with quotes": ('"' + '\\"[{,' * MOST_VALUES + '"', False),
    },
)
def test_values_are_counted_before_they_are_decoded(parts, refused):
    """A review with more values than any honest one is a refusal, not an error, and takes little memory."""
    body = body_with(parts)
    found = response(review(CONTEXT, "validate", body))
    assert ("builtin/size" in found["status"]["message"]) is refused
    assert found["status"]["code"] == 403
    assert found["uid"] == UID
    if refused:
        assert peak(lambda: review(CONTEXT, "validate", body)) < 3 * len(body)


def test_values_of_small_reviews_are_counted_as_a_bound():
    """It costs a look at the bytes; what stands in texts counts along."""
    assert values(b'{"a":[1,2],"b":"c,d"}') == 5


@pytest.mark.parametrize(
    "uid", ["[" + "{}," * 500_000 + "{}]", '"' + "u" * 1_000_000 + '"', "[" * 500 + "]" * 500], ids=ascii
)
def test_a_uid_of_another_kind_is_not_decoded(uid):
    """Nothing of a review that does not fit is decoded to find its uid, and none is sent back that is long."""
    body = body_with("[]").replace(f'"{UID}"'.encode(), uid[:2_000_000].encode())
    assert peak(lambda: review(CONTEXT, "validate", body)) < 3 * len(body) + 100_000
    found = review(CONTEXT, "validate", body)
    assert len(found.body) < 6000
    assert response(found)["uid"] == ""


def keyed(value):
    """A pod whose preemptibility this says."""
    return pod_of(CLASS, meta={"annotations": {CAN_BE_PREEMPTED: value}})


@table(
    "sent",
    {
        "class": make_pod(priorityClassName=LONG),
        "policy": pod_of(CLASS, preemptionPolicy=LONG),
        "mark": pod_of(CLASS, meta={"labels": {MARK: LONG}}),
        "generateName": make_pod(meta={"generateName": LONG, "name": ""}, priorityClassName=LONG),
        "annotation": make_pod(meta={"annotations": {PLAN: LONG}}, priorityClassName=LONG),
        "class name": {"kind": "PriorityClass", "metadata": {"name": LONG}, "value": 2**31, "globalDefault": True},
        "an annotation that is changed": keyed(LONG + "x"),
    },
)
def test_answers_are_short_and_name_the_rule(sent):
    """Names and values are cut where a message shows them, so what follows them is still read."""
    changes = CAN_BE_PREEMPTED in sent["metadata"].get("annotations", {})
    found = ask(CONTEXT, "validate", make_review(sent, keyed(LONG) if changes else None))
    assert not response(found)["allowed"]
    assert len(found.body) < 6000
    assert len(found.answer.refusals[0]) < 1500


@pytest.mark.parametrize("field", ["kind", "apiVersion"])
def test_what_is_no_review_is_not_repeated(field):
    """The answer shows the beginning of what it does not know."""
    sent = {**make_review(make_pod()), field: LONG}
    assert len(review(CONTEXT, "validate", json.dumps(sent).encode()).body) < 1000
