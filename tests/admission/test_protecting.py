"""The protected keys on every way into a pod's metadata: the pod itself, its status, and a Binding."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admission.builders import (
    ask,
    make_class,
    make_context,
    make_pod,
    make_policy,
    make_review,
    make_rule,
    manage,
    message_of,
    response,
)
from tests.policy.builders import table
from webhook.admission.context import RECONCILER, Context
from webhook.kube.objects.meta import LabelSelector
from webhook.policy.model.match import RequestMatch, Subject
from webhook.policy.model.rules import ProtectAnnotations, Validate
from webhook.policy.model.values import CAN_BE_PREEMPTED, CREATION, DECISION, GIVEN, MARK, PLAN, PROTECTION_DURATION

HIGH = make_class("high", 100)
BATCH = make_class("batch", 10, never=True)
SPEC = {"priorityClassName": "batch", "priority": 10, "preemptionPolicy": "Never"}
CONTEXT = make_context(HIGH, BATCH, policies=(manage("batch"),))
OWN = [PLAN, DECISION, GIVEN, CREATION]
SCHEDULER = "system:kube-scheduler"


def annotated(key: str, value: str | None) -> dict[str, Any]:
    """A managed pod that carries this annotation, or none."""
    return make_pod(meta={"labels": {MARK: "managed"}, "annotations": {key: value} if value else {"a": "b"}}, **SPEC)


def binding(**meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a", "namespace": "team-a", "creationTimestamp": None, **meta},
        "target": {"kind": "Node", "name": "node-1"},
    }


def bind_review(obj: dict[str, Any], *, legacy: bool = False, **more: Any) -> dict[str, Any]:
    """The review of a Binding as the API server sends it, of `pods/binding` or the older `bindings`."""
    body = make_review(make_pod(), **more)
    request = body["request"]
    request["object"], request["oldObject"] = obj, None
    request["kind"] = {"group": "", "version": "v1", "kind": "Binding"}
    if legacy:
        request["resource"]["resource"] = "bindings"
        request.pop("name")
    else:
        request["subResource"] = "binding"
    return body


def judged(body: dict[str, Any], context: Context = CONTEXT) -> dict[str, Any]:
    return response(ask(context, "validate", body))


@pytest.mark.parametrize("subresource", ["", "status"], ids=["pod", "status"])
@pytest.mark.parametrize(("before", "after"), [(None, "x"), ("x", "y"), ("x", None)], ids=["set", "changed", "removed"])
@pytest.mark.parametrize("key", [*OWN, CAN_BE_PREEMPTED, PROTECTION_DURATION])
def test_a_protected_annotation_is_refused_whichever_way(key, before, after, subresource):
    """The same key gets the same answer through the pod and through its status."""
    more = {"subResource": subresource} if subresource else {}
    answer = judged(make_review(annotated(key, after), annotated(key, before), **more))
    assert key in message_of(answer)
    rule = "builtin/own-annotations" if key in OWN else "builtin/shield"
    assert answer["auditAnnotations"]["denied-by"] == rule


@pytest.mark.parametrize("value", ["managed", "mine", ""])
def test_the_mark_is_refused_in_status(value):
    """`kubectl patch --subresource=status` cannot hand a pod to the reconciler."""
    old = make_pod(**SPEC)
    new = make_pod(meta={"labels": {MARK: value}}, **SPEC)
    answer = judged(make_review(new, old, subResource="status"))
    assert answer["allowed"] is False
    assert answer["auditAnnotations"]["denied-by"] == "builtin/mark"


@pytest.mark.parametrize("subresource", ["", "status"], ids=["pod", "status"])
@pytest.mark.parametrize("key", OWN)
def test_the_reconciler_writes_its_own(key, subresource):
    """Its service account sets and clears what is giveway's; nobody else does, whatever groups they are in."""
    more = {"subResource": subresource} if subresource else {}
    for before, after in ((None, "x"), ("x", None)):
        body = make_review(annotated(key, after), annotated(key, before), user=RECONCILER, **more)
        assert judged(body)["allowed"] is True
        other = Context(CONTEXT.engine, CONTEXT.lookup, reconciler="system:serviceaccount:a:b")
        assert judged(body, other)["allowed"] is False


def test_the_reconciler_is_no_exception_from_the_shield():
    """It has no business with the annotations that say who may be evicted."""
    body = make_review(
        annotated(CAN_BE_PREEMPTED, "true"), annotated(CAN_BE_PREEMPTED, None), user=RECONCILER, subResource="status"
    )
    assert judged(body)["allowed"] is False


@pytest.mark.parametrize("legacy", [False, True], ids=["pods/binding", "bindings"])
@pytest.mark.parametrize("part", ["annotations", "labels"])
@pytest.mark.parametrize("key", [*OWN, CAN_BE_PREEMPTED, PROTECTION_DURATION, MARK])
def test_a_binding_carries_no_protected_key(key, part, legacy):
    """The API server copies a Binding's annotations and labels to the pod."""
    answer = judged(bind_review(binding(**{part: {key: "true"}}), legacy=legacy, user=SCHEDULER))
    counts = part == ("labels" if key == MARK else "annotations")
    assert answer["allowed"] is not counts
    assert not counts or key in message_of(answer)


@pytest.mark.parametrize(
    "meta",
    [{}, {"annotations": None, "labels": None}, {"labels": {"topology.kubernetes.io/zone": "z"}}],
    ids=["bare", "null", "zone"],
)
def test_an_ordinary_binding_passes(meta):
    """kube-scheduler binds, with zone labels or without."""
    answer = judged(bind_review(binding(**meta), user=SCHEDULER))
    assert answer == {"uid": answer["uid"], "allowed": True}


def test_a_status_update_is_judged_by_nothing_else():
    """A kubelet's status is nobody's policy: a rule that every new pod would violate says nothing of it."""
    never = make_policy("cel", make_rule("never", validate=Validate(expression="false")))
    context = make_context(HIGH, BATCH, policies=(manage("batch"), never))
    pod = make_pod(priorityClassName="ghost")
    answer = judged(make_review({**pod, "status": {"phase": "Running"}}, pod, subResource="status"), context)
    assert answer == {"uid": answer["uid"], "allowed": True}


@pytest.mark.parametrize("sub_resource", ["", "status"])
@table(
    "change, allowed",
    {
        "a shielded annotation": ({"annotations": {CAN_BE_PREEMPTED: "true"}}, False),
        "a plan": ({"annotations": {PLAN: "{}"}}, False),
        "the mark": ({"labels": {}}, False),
        "a finalizer": ({"finalizers": []}, True),
        "another label": ({"labels": {MARK: "managed", "a": "b"}}, True),
    },
)
def test_a_pod_that_is_being_deleted_keeps_its_protected_keys(sub_resource, change, allowed):
    """Nothing holds up what is on its way out, and until it is gone its keys decide about other pods."""
    gone = {"labels": {MARK: "managed"}, "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}
    never = make_policy("cel", make_rule("never", validate=Validate(expression="false")))
    context = make_context(HIGH, BATCH, policies=(manage("batch"), never))
    old, new = make_pod(meta=gone, **SPEC), make_pod(meta={**gone, **change}, **SPEC)
    assert judged(make_review(new, old, subResource=sub_resource), context)["allowed"] is allowed


def allowing(key: str, **right: Any) -> Context:
    body = ProtectAnnotations(keys=(key,), allow=(RequestMatch(**right),))
    return make_context(
        HIGH, BATCH, policies=(manage("batch"), make_policy("p", make_rule("s", protect_annotations=body)))
    )


@pytest.mark.parametrize("way", ["", "status", "binding"])
def test_a_policy_gives_the_right_there_too(way):
    """Whom `protectAnnotations` allows may write the shielded annotations whichever way."""
    context = allowing(CAN_BE_PREEMPTED, subjects=(Subject(kind="User", name="lena"),))
    for user, allowed in (("lena", True), ("alice", False)):
        if way != "binding":
            new, old = annotated(CAN_BE_PREEMPTED, "true"), annotated(CAN_BE_PREEMPTED, None)
            body = make_review(new, old, user=user, subResource=way)
        else:
            body = bind_review(binding(annotations={CAN_BE_PREEMPTED: "true"}), user=user)
        assert judged(body, context)["allowed"] is allowed


def test_no_policy_gives_away_what_is_giveways_own():
    """A rule that names a plan's key opens nothing."""
    context = allowing(PLAN, subjects=(Subject(kind="User", name="alice"),))
    assert judged(make_review(annotated(PLAN, "x"), annotated(PLAN, None)), context)["allowed"] is False


def test_the_labels_of_a_binding_give_no_right():
    """Whoever binds chooses the Binding's labels: a right by objectSelector does not follow from them."""
    context = allowing(CAN_BE_PREEMPTED, object_selector=LabelSelector(match_labels={"mine": "yes"}))
    body = bind_review(binding(labels={"mine": "yes"}, annotations={CAN_BE_PREEMPTED: "true"}))
    assert judged(body, context)["allowed"] is False


def test_a_policy_for_labelled_pods_holds_for_every_binding():
    """A Binding does not say which labels its pod has, so nobody escapes a policy for some of the pods by binding."""
    rule = make_rule("guard", protect_annotations=ProtectAnnotations(keys=("a.io/x",)))
    policy = make_policy("gold", rule, object_selector=LabelSelector(match_labels={"tier": "gold"}))
    context = make_context(policies=(policy,))
    assert judged(bind_review(binding(annotations={"a.io/x": "1"})), context)["allowed"] is False
    assert judged(bind_review(binding(annotations={"a.io/y": "1"})), context)["allowed"] is True
