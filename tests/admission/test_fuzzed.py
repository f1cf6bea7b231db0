"""Recorded reviews, mutated at random: never a crash, never a malformed answer, the uid always back."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.builders import make_class, make_context, make_policy, make_rule, manage, patch_of, response
from webhook.admission.webhook import review
from webhook.policy.model.values import CAN_BE_PREEMPTED, MARK, PROTECTION_DURATION

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).parents[2] / "webhook" / "clusters" / "demo" / "recorded_reviews.jsonl"
REVIEWS = [json.loads(line)["review"] for line in RECORDED.read_text().splitlines()]
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
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**33), 2**33)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "true", "CREATE", "UPDATE", "high-priority", "standard", "Never", MARK, "team-a"])
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [
    ("request", "object", "spec", "priority"),
    ("request", "object", "spec", "priorityClassName"),
    ("request", "object", "spec", "preemptionPolicy"),
    ("request", "object", "metadata", "labels"),
    ("request", "object", "metadata", "labels", MARK),
    ("request", "object", "metadata", "annotations"),
    ("request", "object", "metadata", "deletionTimestamp"),
    ("request", "object", "value"),
    ("request", "object", "globalDefault"),
    ("request", "operation"),
    ("request", "subResource"),
    ("request", "oldObject"),
    ("request", "userInfo", "groups"),
]


def places(node: Any, path: tuple = ()):
    """Every place in a document."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


@st.composite
def mutated(draw):
    """A recorded review with up to four places replaced, added or removed; the uid stays."""
    body = deepcopy(draw(st.sampled_from(REVIEWS)))
    for _ in range(draw(st.integers(1, 4))):
        known = [place for place in places(body) if place and place != ("request",)]
        path = draw(st.sampled_from(FIELDS) | st.sampled_from(known))
        if path == ("request", "uid"):
            continue
        part = body
        for key in path[:-1]:
            if isinstance(part, dict) and key not in part:
                part[key] = {}
            if not isinstance(part, dict | list) or (isinstance(part, list) and not isinstance(key, int)):
                break
            part = part[key]
        else:
            if isinstance(part, dict):
                if draw(st.booleans()) or path[-1] not in part:
                    part[path[-1]] = draw(VALUES)
                else:
                    del part[path[-1]]
    return body


def check(reviewed, uid: str) -> dict[str, Any]:
    answer = response(reviewed)
    assert answer["uid"] == uid
    assert isinstance(answer["allowed"], bool)
    assert set(answer) <= {"uid", "allowed", "status", "patch", "patchType", "warnings", "auditAnnotations"}
    assert reviewed.error is None, repr(reviewed.error)
    if answer["allowed"]:
        assert "status" not in answer
        assert reviewed.code == 200
    else:
        assert answer["status"]["code"] == (403 if reviewed.code == 200 else reviewed.code)
        assert answer["status"]["message"]
        assert "patch" not in answer
    for warning in answer.get("warnings", []):
        assert 0 < len(warning) <= 256
    return answer


@given(body=mutated(), phase=st.sampled_from(["mutate", "validate"]))
def test_a_mutated_review_is_answered(body, phase):
    """Whatever a field holds, the answer is well formed and carries the uid, and a patch applies and is final."""
    reviewed = review(CONTEXT, phase, json.dumps(body).encode())
    answer = check(reviewed, body["request"]["uid"])
    if phase == "mutate" and reviewed.code == 200:
        assert answer["allowed"] is True
    patch = patch_of(answer)
    if patch:
        request = body["request"]
        result = jsonpatch.apply_patch(request["object"], patch)
        again = {**body, "request": {**request, "object": result}}
        assert patch_of(response(review(CONTEXT, phase, json.dumps(again).encode()))) == []


@given(body=st.sampled_from(REVIEWS), data=st.data())
def test_a_damaged_body_is_answered(body, data):
    """Bytes cut off, changed or put in: a well-formed answer all the same."""
    raw = bytearray(json.dumps(body).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    reviewed = review(CONTEXT, "mutate", bytes(raw))
    answer = response(reviewed)
    assert isinstance(answer["uid"], str)
    assert reviewed.error is None, repr(reviewed.error)


@given(body=st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_anything_at_all_is_answered(body):
    """A body that is no review is a 400."""
    reviewed = review(CONTEXT, "validate", body)
    assert reviewed.code == 400
    check(reviewed, "")
