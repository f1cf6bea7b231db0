"""Whatever arrives, the answer is a well-formed AdmissionReview that says what is wrong.

And what is kept, decoded and told of a request is bounded.
"""

import json
import tracemalloc

import pytest

from tests.admission.builders import (
    UID,
    ask,
    filled,
    make_class,
    make_context,
    make_pod,
    make_policy,
    make_review,
    make_rule,
    make_workload,
    patch_of,
    pod_of,
    response,
)
from tests.policy.builders import table
from webhook.admission import mutating
from webhook.admission.review import MOST_VALUES, values
from webhook.admission.webhook import HANDLED, RESOURCES, review
from webhook.policy.model.rules import PriorityClasses
from webhook.policy.model.values import CAN_BE_PREEMPTED, GIVEN, MARK, PLAN

CONTEXT = make_context(make_class("high", 100))
GOOD = make_review(make_pod(priorityClassName="high"))


def having(value, path):
    """The good review with one field set, or left out if the value is `...`."""
    body = json.loads(json.dumps(GOOD))
    part, (*way, last) = body, path.split(".")
    for key in way:
        part = part[key]
    part[last] = value
    if value is ...:
        del part[last]
    return body


def error(message, uid=UID, code=400, reason="BadRequest"):
    status = {"code": code, "reason": reason, "message": message}
    return {"uid": uid, "allowed": False, "status": status}


def no_review(said, uid=UID):
    return error(f"the body is no AdmissionReview: {said}", uid)


BAD = {
    "empty": (b"", error("the body is empty; an AdmissionReview was expected", "")),
    "blank": (b" \n", error("the body is empty; an AdmissionReview was expected", "")),
    "not JSON": (b"hello", no_review("JSON is malformed: invalid character (byte 0)", "")),
    "not an object": (b"[]", no_review("Expected `object`, got `array`", "")),
    "truncated": (json.dumps(GOOD).encode()[:300], no_review("Input data was truncated")),
    "not UTF-8": (b'{"kind": "\xff\xfe"}', None),
    "wrong kind": (having("Pod", "kind"), no_review("Invalid enum value 'Pod' - at `.kind`")),
    "v1beta1": (
        having("admission.k8s.io/v1beta1", "apiVersion"),
        error(
            "apiVersion is 'admission.k8s.io/v1beta1'; only admission.k8s.io/v1 is served"
            " (set admissionReviewVersions: [v1] in the webhook configuration)"
        ),
    ),
    "no request": (having(..., "request"), no_review("Object missing required field `request`", "")),
    "request null": (having(None, "request"), no_review("Expected `object`, got `null` - at `.request`", "")),
    "no uid": (having(..., "request.uid"), no_review("Object missing required field `uid` - at `.request`", "")),
    "empty uid": (having("", "request.uid"), no_review("Expected `str` of length >= 1 - at `.request.uid`", "")),
    "uid a number": (having(7, "request.uid"), no_review("Expected `str`, got `int` - at `.request.uid`", "")),
    "long uid": (
        having("u" * 129, "request.uid"),
        no_review("Expected `str` of length <= 128 - at `.request.uid`", ""),
    ),
    "no resource": (
        having(..., "request.resource"),
        no_review("Object missing required field `resource` - at `.request`"),
    ),
    "object null": (having(None, "request.object"), error("request.object is null in a CREATE")),
    "object a list": (having([], "request.object"), error("request.object: Expected `object`, got `array`")),
    "annotations not strings": (
        having({"a": 1}, "request.object.metadata.annotations"),
        error("request.object: Expected `str`, got `int` - at `.metadata.annotations[...]`"),
    ),
    "priority a string": (
        having("high", "request.object.spec.priority"),
        error("request.object: Expected `int | null`, got `str` - at `.spec.priority`"),
    ),
    "groups a number": (
        having(5, "request.userInfo.groups"),
        no_review("Expected `array`, got `int` - at `.request.userInfo.groups`"),
    ),
}


@pytest.mark.parametrize("phase", ["mutate", "validate"])
@table("body, expected", BAD)
def test_what_is_no_review_is_a_well_formed_400(body, expected, phase):
    """The caller learns what is wrong and gets its uid back wherever it can be read."""
    reviewed = ask(CONTEXT, phase, body)
    answer = response(reviewed)
    assert reviewed.answer.code == 400
    if expected is None:
        assert answer["status"]["message"].startswith("the body is no AdmissionReview: ")
    else:
        assert answer == expected


@pytest.mark.parametrize("phase", ["mutate", "validate"])
@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
@pytest.mark.parametrize("depth", [1_100, 9_000, 100_000])
def test_what_is_nested_too_deeply_is_refused_and_not_an_error(phase, kind, depth):
    """A tenant can nest what the API server does not read; an error would let it pass if failurePolicy is Ignore."""
    shown = make_pod(priorityClassName="high") if kind == "Pod" else make_workload(kind, priorityClassName="high")
    shown["metadata"]["managedFields"] = [{"fieldsV1": "DEEP"}]
    deep = b'{"f:a":' * depth + b"{}" + b"}" * depth
    reviewed = ask(CONTEXT, phase, json.dumps(make_review(shown)).encode().replace(b'"DEEP"', deep))
    answer = response(reviewed)
    assert (reviewed.answer.code, answer["uid"], answer["allowed"]) == (200, UID, False)
    assert answer["auditAnnotations"] == {"denied-by": "builtin/depth"}
    assert "it is nested too deeply" in answer["status"]["message"]


def test_nesting_without_a_uid_is_a_400():
    """There is nobody to refuse."""
    reviewed = ask(CONTEXT, "validate", b'{"a":' * 100_000 + b"1" + b"}" * 100_000)
    assert reviewed.answer.code == 400
    assert response(reviewed)["status"]["message"] == "the body is no AdmissionReview: it is nested too deeply"


@table(
    "meta",
    {
        "three megabytes": {"annotations": {f"k{n}": "x" * 1000 for n in range(3000)}},
        "ten thousand labels": {"labels": {f"label-{n}": "x" for n in range(10_000)}},
    },
)
def test_a_large_pod_is_answered(meta):
    """Size alone is no reason to fail."""
    answer = filled(CONTEXT, make_pod(meta=meta, priorityClassName="high"))
    assert [op["path"] for op in patch_of(answer)] == ["/spec/priority", "/spec/preemptionPolicy"]


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_a_resource_without_rules_passes_with_a_warning(phase):
    """A webhook configuration that sends too much is noticed, and does no harm."""
    body = make_review({"kind": "Secret", "metadata": {"name": "a", "namespace": "team-a"}})
    warning = "giveway has no rules for secrets; leave it out of the webhook configuration"
    assert response(ask(CONTEXT, phase, body)) == {"uid": UID, "allowed": True, "warnings": [warning]}


def test_every_kind_that_is_judged_can_be_asked_about():
    """A new handler is a new row of the reviews that giveway makes itself; a Binding is a sub-resource of its pod."""
    assert set(RESOURCES.values()) == HANDLED - {("", "bindings")}


def test_a_handler_that_raises_is_a_well_formed_500(monkeypatch):
    """A bug here is an answer with the uid, under HTTP 500, so that failurePolicy decides."""
    monkeypatch.setattr(mutating, "resolve", lambda *_, **_named: 1 / 0)
    reviewed = ask(CONTEXT, "mutate", GOOD)
    text = "giveway failed on this review: ZeroDivisionError; its log has the details"
    assert reviewed.answer.code == 500
    assert isinstance(reviewed.error, ZeroDivisionError)
    assert response(reviewed) == error(text, code=500, reason="InternalError")


def test_a_dry_run_is_answered_like_any_other():
    """Reviews have no side effect, so a dry run needs no other way."""
    dry = having(True, "request.dryRun")
    assert ask(CONTEXT, "mutate", dry).body == ask(CONTEXT, "mutate", GOOD).body


LONG = "n" * 250_000
CLASS = make_class("high", 100)
RULE = make_rule("allowed", priority_classes=PriorityClasses(deny=("n*",)))
JUDGING = make_context(CLASS, policies=(make_policy("teams", RULE),))


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
    found = response(review(JUDGING, "validate", body))
    assert ("builtin/size" in found["status"]["message"]) is refused
    assert found["status"]["code"] == 403
    assert found["uid"] == UID
    if refused:
        assert peak(lambda: review(JUDGING, "validate", body)) < 3 * len(body)


def test_values_of_small_reviews_are_counted_as_a_bound():
    """It costs a look at the bytes; what stands in texts counts along."""
    assert values(b'{"a":[1,2],"b":"c,d"}') == 5


@pytest.mark.parametrize(
    "uid", ["[" + "{}," * 500_000 + "{}]", '"' + "u" * 1_000_000 + '"', "[" * 500 + "]" * 500], ids=ascii
)
def test_a_uid_of_another_kind_is_not_decoded(uid):
    """Nothing of a review that does not fit is decoded to find its uid, and none is sent back that is long."""
    body = body_with("[]").replace(f'"{UID}"'.encode(), uid[:2_000_000].encode())
    assert peak(lambda: review(JUDGING, "validate", body)) < 3 * len(body) + 100_000
    found = review(JUDGING, "validate", body)
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
    found = ask(JUDGING, "validate", make_review(sent, keyed(LONG) if changes else None))
    assert not response(found)["allowed"]
    assert len(found.body) < 6000
    assert len(found.answer.refusals[0]) < 1500


@pytest.mark.parametrize("field", ["kind", "apiVersion"])
def test_what_is_no_review_is_not_repeated(field):
    """The answer shows the beginning of what it does not know."""
    sent = {**make_review(make_pod()), field: LONG}
    assert len(review(JUDGING, "validate", json.dumps(sent).encode()).body) < 1000


@pytest.mark.parametrize("old", [None, "0", [[]], {}])
def test_the_old_object_of_what_is_made_is_not_read(old):
    """An API server sends none at CREATE: whatever stands there instead, the class is judged by itself."""
    body = make_review({"kind": "PriorityClass", "metadata": {"name": "new"}, "value": 5})
    body["request"]["oldObject"] = old
    assert response(ask(CONTEXT, "mutate", body))["allowed"]
