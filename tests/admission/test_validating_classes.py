"""What validation says of PriorityClasses."""

import pytest

from tests.admission.builders import (
    judged,
    make_class,
    make_context,
    manage,
    message_of,
    policy,
)
from tests.policy.builders import table


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
BAND = "{name: platform, reserve: {from: 900, to: 1000, define: {subjects: [{kind: User, name: root}]}}}"


def of_band(*, going=False, **metadata):
    """A class of the band that root defines."""
    name = {"name": "mine", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if going else {})}
    return make_body(value=950, metadata={**name, **metadata})


def guarded(**match):
    """The band, beside an expression over classes and a condition that fail on every request that they see."""
    fails = "{name: fails, validate: {expression: object.description == 1, resources: [priorityclasses]}}"
    failing = "[{name: failing, expression: object.description == 1}]"
    return make_context(policies=(policy("bands", BAND, fails, conditions=failing, **match),))


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
    others = guarded(match="{subjects: [{kind: User, name: bob}, {kind: Group, name: 'system:serviceaccounts'}]}")
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
    context = make_context(policies=(policy("bands", BAND, conditions="[{name: never, expression: 'false'}]"),))
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
    keys = f"keys: [{KEY}], operations: [CREATE, UPDATE]"
    rights = "allow: [{subjects: [{kind: User, name: root}]}, {namespaces: ['*']}], resources: [priorityclasses]"
    of_classes, of_pods = (
        f"{{name: {name}, protectAnnotations: {{{body}}}}}"
        for name, body in (("guard", f"{keys}, {rights}"), ("pods", keys))
    )
    context = make_context(policies=(policy("p", of_classes, of_pods),))
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if going and before is not None else {}
    old = None if before is None else make_body(metadata={"name": "mine", "annotations": before, **gone})
    new = make_body(metadata={"name": "mine", "annotations": after, **gone})
    answer = judged(context, new, old, user=user)
    assert answer["allowed"] is allowed
    if not allowed:
        assert "rule p/guard leaves that to User root" in message_of(answer)
        assert message_of(answer).endswith("; leave it out" if before is None else "; leave it as it is")
