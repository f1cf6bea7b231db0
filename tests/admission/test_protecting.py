"""Who may write the protected keys of a pod after all; that others may not is in tests/native/test_attacks.py."""

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
    response,
)
from webhook.admission.context import RECONCILER, Context
from webhook.kube.objects.meta import LabelSelector
from webhook.policy.model.match import RequestMatch, Subject
from webhook.policy.model.rules import ProtectAnnotations, Validate
from webhook.policy.model.values import CAN_BE_PREEMPTED, CREATION, DECISION, GIVEN, MARK, PLAN

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


def bind_review(obj: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The review of a Binding as the API server sends it, of `pods/binding`."""
    body = make_review(make_pod(), **more)
    kind = {"group": "", "version": "v1", "kind": "Binding"}
    body["request"] |= {"object": obj, "oldObject": None, "kind": kind, "subResource": "binding"}
    return body


def judged(body: dict[str, Any], context: Context = CONTEXT) -> dict[str, Any]:
    return response(ask(context, "validate", body))


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


def test_a_status_update_is_judged_by_nothing_else():
    """A kubelet's status is nobody's policy: a rule that every new pod would violate says nothing of it."""
    never = make_policy("cel", make_rule("never", validate=Validate(expression="false")))
    context = make_context(HIGH, BATCH, policies=(manage("batch"), never))
    pod = make_pod(priorityClassName="ghost")
    answer = judged(make_review({**pod, "status": {"phase": "Running"}}, pod, subResource="status"), context)
    assert answer == {"uid": answer["uid"], "allowed": True}


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
