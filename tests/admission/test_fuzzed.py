"""Recorded reviews, mutated at random: never a crash, never a malformed answer, the uid always back."""

import json
import random
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.admission.builders import make_class, make_context, make_policy, make_rule, manage, patch_of, response
from tests.bench.mutated import changed, damaged
from webhook.admission.webhook import review
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION

pytestmark = pytest.mark.slow

CONTEXT = make_context(
    make_class("low-priority", 80, preemptible="true", protection="30"),
    make_class("high-priority", 1_000_000, never=True),
    make_class("standard", 7, default=True),
    make_class("standard-managed", 7, never=True),
    policies=(
        make_policy("copy", make_rule("both", copy_annotations=(CAN_BE_PREEMPTED, PROTECTION_DURATION))),
        make_policy("default", make_rule("default", default_priority_class="low-priority"), namespaces=("team-*",)),
        manage("high-*", standard="standard-managed"),
    ),
)
SEEDS = st.integers(0, 10**9)


def check(reviewed, uid: str) -> dict[str, Any]:
    answer = response(reviewed)
    assert answer["uid"] == uid
    assert isinstance(answer["allowed"], bool)
    assert set(answer) <= {"uid", "allowed", "status", "patch", "patchType", "warnings", "auditAnnotations"}
    assert reviewed.error is None, repr(reviewed.error)
    if answer["allowed"]:
        assert "status" not in answer
        assert reviewed.answer.code == 200
    else:
        assert answer["status"]["code"] == (403 if reviewed.answer.code == 200 else reviewed.answer.code)
        assert answer["status"]["message"]
        assert "patch" not in answer
    for warning in answer.get("warnings", []):
        assert 0 < len(warning) <= 256
    return answer


@settings(max_examples=400)
@given(seed=SEEDS, phase=st.sampled_from(["mutate", "validate"]))
def test_a_mutated_review_is_answered(seed, phase):
    """Whatever a field holds, the answer is well formed and carries the uid, and a patch applies and is final."""
    body = changed(random.Random(seed))
    reviewed = review(CONTEXT, phase, json.dumps(body).encode())
    answer = check(reviewed, body["request"]["uid"])
    if phase == "mutate" and reviewed.answer.code == 200:
        assert answer["allowed"] is True
    patch = patch_of(answer)
    if patch:
        request = body["request"]
        result = jsonpatch.apply_patch(request["object"], patch)
        again = {**body, "request": {**request, "object": result}}
        assert patch_of(response(review(CONTEXT, phase, json.dumps(again).encode()))) == []


@given(seed=SEEDS)
def test_a_damaged_body_is_answered(seed):
    """Bytes cut off, changed or put in: a well-formed answer all the same."""
    dice = random.Random(seed)
    reviewed = review(CONTEXT, "mutate", damaged(dice, json.dumps(changed(dice)).encode()))
    answer = response(reviewed)
    assert isinstance(answer["uid"], str)
    assert reviewed.error is None, repr(reviewed.error)


@given(body=st.binary(max_size=200) | st.sampled_from([b"[]", b"null", b"{}", b'{"request": 1}', b'"a"', b"1e999"]))
def test_anything_at_all_is_answered(body):
    """A body that is no review is a 400."""
    reviewed = review(CONTEXT, "validate", body)
    assert reviewed.answer.code == 400
    check(reviewed, "")
