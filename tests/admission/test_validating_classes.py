"""What validation says of PriorityClasses."""

import msgspec
import pytest

from tests.admission.builders import (
    HERE,
    judged,
    make_class,
    make_context,
    make_policy,
    make_rule,
    manage,
    message_of,
)
from tests.policy.builders import table
from webhook.policy.model.match import RequestMatch, Subject
from webhook.policy.model.priority import MatchCondition
from webhook.policy.model.rules import Definers, ProtectAnnotations, Reserve, Validate


def make_body(name="mine", value=5, **more):
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value, **more}


@table(
    "body",
    {
        "the lowest int32": make_body(value=-2147483648),
        "a billion exactly": make_body(value=1000000000),
        "Kubernetes' own class": make_body("system-node-critical", 2000001000),
        "Kubernetes' other class": make_body("system-cluster-critical", 2000000000),
        "the default itself": make_body("dflt", globalDefault=True),
    },
)
def test_a_class_kubernetes_would_take_passes(body):
    """What the API server takes passes without a word."""
    answer = judged(make_context(make_class("dflt", 3, default=True)), body)
    assert answer == {"uid": answer["uid"], "allowed": True}


@table(
    "change",
    {
        "the default policy, spelled out": {"preemptionPolicy": "PreemptLowerPriority"},
        "description": {"description": "x"},
        "annotations": {"metadata": {"name": "mine", "annotations": {"a": "b"}}},
    },
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


COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
GONE = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u1"}
OWNED = {"ownerReferences": [GONE]}
BAND = make_rule(
    "platform", reserve=Reserve(from_=900, to=1000, define=(Definers(subjects=(Subject("User", "root"),)),))
)


def of_band(*, going=False, **metadata):
    """A class of the band that root defines."""
    name = {"name": "mine", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if going else {})}
    return make_body(value=950, metadata={**name, **metadata})


def guarded(**match):
    """The band, beside an expression over classes and a condition that fail on every request that they see."""
    fails = Validate(expression="object.nothing == 1", resources=("priorityclasses",))
    policy = make_policy("bands", BAND, make_rule("fails", validate=fails), **match)
    failing = MatchCondition(name="fails", source=HERE, expression="object.nothing == 1")
    return make_context(policies=(msgspec.structs.replace(policy, conditions=(failing,)),))


@table(
    "old, new, allowed",
    {
        "deletion": (of_band(), None, {"root"}),
        "deletion of one with an owner": (of_band(**OWNED), None, {"root", COLLECTOR}),
        "deletion outside the band": (make_body(value=5), None, {"root", "alice", COLLECTOR}),
        "change of one that goes": (of_band(going=True), of_band(going=True, annotations={"a": "b"}), {"root"}),
        "a finalizer of one that goes": (
            of_band(going=True, finalizers=["a/b"]),
            of_band(going=True),
            {"root", "alice", COLLECTOR},
        ),
    },
)
def test_a_class_goes_by_those_who_may_define_it(old, new, allowed):
    """No expression sees it. The garbage collector deletes for an owner: the reference to it was judged when added."""
    context = guarded()
    may = {
        user
        for user in ("root", "alice", COLLECTOR)
        if judged(context, new, old, user=user, operation="UPDATE" if new else "DELETE")["allowed"]
    }
    assert may == allowed


def test_the_refusal_of_a_deletion_names_who_may():
    """The author of a deletion reads whose the range is; another value is no advice for a class that exists."""
    answer = judged(guarded(), None, of_band(), operation="DELETE")
    assert message_of(answer) == (
        'value 950 of PriorityClass "mine" lies in the range 900 to 1000, which rule bands/platform reserves: classes'
        " there may be defined by User root; leave the class as it is, or ask one of these to delete it"
    )
    others = guarded(subjects=(Subject("User", "bob"),))
    assert judged(others, None, of_band(), operation="DELETE")["allowed"] is True


@table(
    "before, after, allowed",
    {
        "a new owner": ([], [GONE], False),
        "the uid under another name": ([GONE], [{**GONE, "name": "other"}], False),
        "the same owner": ([GONE], [{**GONE, "blockOwnerDeletion": False}], True),
        "none any more": ([GONE], [], True),
    },
)
def test_an_owner_of_a_class_is_added_by_those_who_may_define_it(before, after, allowed):
    """Garbage collection deletes a class whose owner does not exist, so an owner is judged like a deletion."""
    never = MatchCondition(name="never", source=HERE, expression="false")
    context = make_context(policies=(msgspec.structs.replace(make_policy("bands", BAND), conditions=(never,)),))
    old, new = of_band(ownerReferences=before), of_band(ownerReferences=after)
    assert judged(context, new, old)["allowed"] is allowed
    assert judged(context, new, old, user="root")["allowed"] is True


KEY = "example.com/may-go"


@table(
    "before, after, user, allowed",
    {
        "set": ({}, {KEY: "true"}, "alice", False),
        "changed": ({KEY: "false"}, {KEY: "true"}, "alice", False),
        "removed": ({KEY: "false"}, {}, "alice", False),
        "by who may": ({KEY: "false"}, {KEY: "true"}, "root", True),
        "another one": ({KEY: "true"}, {KEY: "true", "a": "b"}, "alice", True),
        "on a new class": (None, {KEY: "true"}, "alice", False),
        "on a new class, by who may": (None, {KEY: "true"}, "root", True),
    },
)
@pytest.mark.parametrize("going", [False, True])
def test_annotations_of_classes_are_protected(before, after, user, allowed, going):
    """Outside every range, too, a class opens its running pods only by those who may; a namespace has no such right."""
    rights = RequestMatch(subjects=(Subject("User", "root"),)), RequestMatch(namespaces=("*",))
    protected = {"keys": (KEY,), "allow": rights, "operations": ("CREATE", "UPDATE")}
    about = ("priorityclasses",)
    rule = make_rule("guard", protect_annotations=ProtectAnnotations(**protected, resources=about))
    of_pods = make_rule("pods", protect_annotations=ProtectAnnotations(**{**protected, "allow": ()}))
    context = make_context(policies=(make_policy("p", rule, of_pods),))
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if going and before is not None else {}
    old = None if before is None else make_body(metadata={"name": "mine", "annotations": before, **gone})
    new = make_body(metadata={"name": "mine", "annotations": after, **gone})
    answer = judged(context, new, old, user=user)
    assert answer["allowed"] is allowed
    if not allowed:
        assert "rule p/guard leaves that to User root" in message_of(answer)
        assert message_of(answer).endswith("; leave it out" if before is None else "; leave it as it is")
