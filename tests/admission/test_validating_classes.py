"""What validation says of PriorityClasses."""

from __future__ import annotations

import pytest

from tests.admission.builders import (
    ask,
    make_class,
    make_context,
    make_policy,
    make_review,
    make_rule,
    manage,
    message_of,
    response,
)
from webhook.policy.model import Definers, Reserve, Subject


def make_body(name="mine", value=5, **more):
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value, **more}


def judged(context, obj, old=None, **more):
    return response(ask(context, "validate", make_review(obj, old, **more)))


REFUSED = [
    pytest.param(make_body(value=2**31), "builtin/int32", "does not fit an int32", id="above int32"),
    pytest.param(make_body(value=-(2**31) - 1), "builtin/int32", "does not fit an int32", id="below int32"),
    pytest.param(
        make_body(value=1000000001), "builtin/highest-value",
        "maximum allowed value of a user defined priority is 1000000000", id="above a billion",
    ),
    pytest.param(
        make_body("system-mine"), "builtin/system-prefix",
        "priority class names with 'system-' prefix are reserved for system use only", id="system prefix",
    ),
    pytest.param(
        make_body("system-node-critical", 5), "builtin/system-prefix", "reserved for system use only",
        id="a system class of another value",
    ),
    pytest.param(
        make_body(globalDefault=True), "builtin/one-default",
        "PriorityClass dflt is already marked as default. Only one default can exist", id="a second default",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("body", "rule", "words"), REFUSED)
def test_a_class_kubernetes_would_refuse_is_refused_in_its_words(body, rule, words):
    """The limits of PriorityClasses hold here as they do in the API server."""
    answer = judged(make_context(make_class("dflt", 3, default=True)), body)
    assert words in message_of(answer)
    assert answer["auditAnnotations"] == {"denied-by": rule}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(make_body(value=-2147483648), id="the lowest int32"),
        pytest.param(make_body(value=1000000000), id="a billion exactly"),
        pytest.param(make_body("system-node-critical", 2000001000), id="Kubernetes' own class"),
        pytest.param(make_body("system-cluster-critical", 2000000000), id="Kubernetes' other class"),
        pytest.param(make_body("dflt", globalDefault=True), id="the default itself"),
    ],
)
def test_a_class_kubernetes_would_take_passes(body):
    """What the API server takes passes without a word."""
    answer = judged(make_context(make_class("dflt", 3, default=True)), body)
    assert answer == {"uid": answer["uid"], "allowed": True}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"value": 6}, "value may not be changed in an update (now 5, requested 6)", id="value"),
        pytest.param({"preemptionPolicy": "Never"}, "preemptionPolicy may not be changed", id="policy"),
    ],
)
def test_value_and_policy_of_a_class_are_immutable(change, words):
    """A class keeps its value and policy; whoever wants others makes a new class."""
    assert words in message_of(judged(make_context(), make_body(**change), make_body()))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"preemptionPolicy": "PreemptLowerPriority"}, id="the default policy, spelled out"),
        pytest.param({"description": "x"}, id="description"),
        pytest.param({"metadata": {"name": "mine", "annotations": {"a": "b"}}}, id="annotations"),
    ],
)
def test_the_rest_of_a_class_may_change(change):
    """Descriptions and annotations of a class are mutable."""
    assert judged(make_context(), {**make_body(), **change}, make_body())["allowed"] is True


def test_a_class_being_deleted_is_not_held_up():
    """A finalizer comes off whatever the class looks like."""
    body = make_body(value=2**31)
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert judged(make_context(), body, make_body())["allowed"] is True


def test_a_managed_class_that_is_not_never_is_warned_about():
    """Where mutation was skipped or could not know the name, the author learns what the class lacks."""
    body = make_body()
    body["metadata"]["generateName"] = "mi"
    answer = judged(make_context(policies=(manage("mine"),)), body)
    assert answer["allowed"] is True
    assert "managed but not Never" in answer["warnings"][0]
    assert "make it again" in answer["warnings"][0]


@pytest.mark.parametrize(("user", "allowed"), [("alice", False), ("root", True)])
def test_a_reserved_range_is_defined_by_those_it_is_for(user, allowed):
    """Classes in a band of a platform team are made by that team."""
    band = Reserve(from_=900, to=1000, define=(Definers(subjects=(Subject("User", "root"),)),))
    context = make_context(policies=(make_policy("bands", make_rule("platform", reserve=band)),))
    answer = judged(context, make_body(value=950), user=user)
    assert answer["allowed"] is allowed
    if not allowed:
        assert "bands/platform" in message_of(answer)
