"""What validation says of pods: new ones, and changes; that keys are protected is in tests/native/test_attacks.py."""

import copy
from itertools import product

import pytest

from tests.admission.builders import (
    ask,
    denied_by,
    judged,
    make_class,
    make_context,
    make_pod,
    make_review,
    manage,
    patch_of,
    pod_of,
    policy,
    response,
)
from tests.native.apiserver import priority_plugin
from tests.policy.builders import table
from webhook.admission.context import RECONCILER, Context
from webhook.kube.json_patch import apply_json_patch
from webhook.policy.model.values import CAN_BE_PREEMPTED, CREATION, DECISION, GIVEN, MARK, PLAN

PREEMPT = "PreemptLowerPriority"
HIGH = make_class("high", 100)
BATCH = make_class("batch", 10, never=True)
MARKED = {"labels": {MARK: "managed"}}
ALLOWED = "{name: allowed, priorityClasses: {allow: [batch]}}"
NO_HIGH = policy("teams", ALLOWED)
NEVER = policy("cel", "{name: never, validate: {expression: 'false'}}")
MANAGING = make_context(HIGH, BATCH, policies=(manage("batch"),))


@table(
    "pod",
    {
        "as its class says": pod_of(HIGH),
        "no class": make_pod(priority=0, preemptionPolicy=PREEMPT),
        "managed and marked": pod_of(BATCH, meta=MARKED),
        "a mirror pod, which is never patched": make_pod(
            meta={"annotations": {"kubernetes.io/config.mirror": "x"}}, priorityClassName="high"
        ),
    },
)
def test_a_pod_that_agrees_passes(pod):
    """What is resolved as its class says gets in without a word."""
    answer = judged(MANAGING, pod)
    assert answer == {"uid": answer["uid"], "allowed": True}


def test_a_managed_pod_without_its_mark_is_warned_about():
    """Without the mark nobody preempts for the pod; that is said, not refused."""
    answer = judged(MANAGING, pod_of(BATCH))
    assert answer["allowed"] is True
    assert "nothing preempts for this pod" in answer["warnings"][0]


@table(
    "pod",
    {
        "priority": pod_of(HIGH, priority=7),
        "policy": pod_of(HIGH, preemptionPolicy="Never"),
        "class": pod_of(HIGH, priorityClassName="batch"),
        "removed": make_pod(priorityClassName="high"),
    },
)
def test_what_a_pod_was_created_with_stays(pod):
    """Class, priority and preemption policy of a running pod do not change."""
    assert denied_by(judged(MANAGING, pod, pod_of(HIGH))) == "builtin/priority-immutable"


@table(
    "spec, meta",
    {
        "its class is gone": ({"priorityClassName": "gone"}, {}),
        "it never agreed": ({"priority": 7}, {}),
        "it was never resolved": ({"priority": None, "preemptionPolicy": None}, {}),
        "its mark is a stray one": ({}, MARKED),
        "its class is not allowed any more": ({}, {}),
    },
)
def test_an_update_is_judged_by_what_it_changes(spec, meta):
    """A label or an image of an old pod can change whatever the rules say of such a pod today."""
    context = make_context(HIGH, policies=(NO_HIGH,))
    changed = {**meta, "labels": {**meta.get("labels", {}), "x": "y"}}
    answer = judged(context, pod_of(HIGH, meta=changed, **spec), pod_of(HIGH, meta=meta, **spec), user="system:node:n1")
    assert answer["allowed"] is True


@table(
    "enforcement, allowed, field",
    {
        "enforce": ("enforce", False, "status"),
        "warn": ("warn", True, "warnings"),
        "audit": ("audit", True, "auditAnnotations"),
    },
)
def test_enforcement_decides_what_a_violation_does(enforcement, allowed, field):
    """Refuse, warn the author, or only leave a trace in the audit log."""
    teams = policy("teams", ALLOWED, enforcement=enforcement)
    answer = judged(make_context(HIGH, policies=(teams,)), pod_of(HIGH))
    assert answer["allowed"] is allowed
    assert "teams/allowed" in str(answer[field])
    assert set(answer) - {"uid", "allowed", field} <= ({"auditAnnotations"} if not allowed else set())


# Pods of nodes


def mirror_pod(owner=("Node", "n1"), meta=None):
    """A mirror pod as node n1's kubelet makes it, of a class that does not exist."""
    reference = {"apiVersion": "v1", "kind": owner[0], "name": owner[1], "uid": "u", "controller": True}
    own = {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [reference], **(meta or {})}
    return make_pod(meta=own, priorityClassName="ghost", priority=7, nodeName="n1")


KUBELET = {"username": "system:node:n1", "groups": ["system:nodes", "system:authenticated"]}


@table(
    "pod, denied",
    {
        "by its node's kubelet": (mirror_pod(), ""),
        "of another node": (mirror_pod(owner=("Node", "n2")), "builtin/class-exists"),
        "of something else": (mirror_pod(owner=("Job", "n1")), "builtin/class-exists"),
        "no mirror pod": (mirror_pod(meta={"annotations": {}}), "builtin/class-exists"),
    },
)
def test_a_kubelet_shows_its_static_pods_whatever_they_are(pod, denied):
    """What runs there runs without the API, and counts only if the API has it.

    Who may make which of them is in tests/native/test_attacks.py.
    """
    answer = judged(make_context(HIGH, policies=(NEVER,)), pod, userInfo=KUBELET)
    assert answer["allowed"] is not bool(denied)
    assert denied in denied_by(answer)


# Pods of the system without the Priority plugin

DEFAULTS = {
    "no default": (),
    "a default": (make_class("std", 10, default=True),),
    "a default of 0 that is Never": (make_class("low", 0, never=True, default=True), make_class("std", 10)),
}
NAMES = (None, "high", "never", "std", "low", "ghost")
PRIORITIES = (None, 0, 10, 100)
PREEMPTION = (None, "PreemptLowerPriority", "Never")
IN_FORCE = (policy("all", "{name: default, defaultPriorityClass: never}"), manage(high="never"), NEVER)
"""Policies that hold for everybody, and say nothing about pods of the system."""


def stored(classes, pod):
    """The spec that giveway's mutation makes and its validation lets in; None if it is refused."""
    context = make_context(*classes, policies=IN_FORCE)
    obj = apply_json_patch(pod, patch_of(response(ask(context, "mutate-priority", make_review(pod)))))
    return obj["spec"] if response(ask(context, "validate-priority", make_review(obj)))["allowed"] else None


@pytest.mark.parametrize("default", DEFAULTS)
def test_pods_of_the_system_end_as_under_the_plugin(default):
    """Every class, value and preemption policy that a pod can carry: the same spec is stored, or the pod is refused."""
    classes = (HIGH, make_class("never", 7, never=True), *DEFAULTS[default])
    different = []
    for row in product(NAMES, PRIORITIES, PREEMPTION):
        fields = dict(zip(("priorityClassName", "priority", "preemptionPolicy"), row, strict=True))
        pod = make_pod(**{field: value for field, value in fields.items() if value is not None})
        pod["metadata"]["namespace"] = "kube-system"
        asked = {"object": copy.deepcopy(pod)}
        refused = priority_plugin(asked, {one.metadata.name: one for one in classes})
        wanted, found = None if refused else asked["object"]["spec"], stored(classes, pod)
        if found != wanted:
            different.append((row, found, wanted))
    assert not different


def test_a_pod_of_the_system_that_nobody_filled_in_gets_in():
    """It is no fault of the pod; nor does anybody there look at a mark."""
    answer = response(ask(make_context(policies=(NEVER,)), "validate-priority", make_review(make_pod(meta=MARKED))))
    assert answer == {"uid": answer["uid"], "allowed": True}


# Who may write the protected keys of a pod after all


def annotated(key, value):
    """A managed pod that carries this annotation, or none."""
    return pod_of(BATCH, meta={**MARKED, "annotations": {key: value} if value else {"a": "b"}})


def bound(context, user="alice", **meta):
    """What validation answers to a Binding as the API server sends it, of `pods/binding`."""
    body = make_review(make_pod(), user=user)
    kind = {"group": "", "version": "v1", "kind": "Binding"}
    obj = {"kind": "Binding", "metadata": {"name": "a", "namespace": "team-a", **meta}, "target": {"name": "n"}}
    body["request"] |= {"object": obj, "oldObject": None, "kind": kind, "subResource": "binding"}
    return response(ask(context, "validate", body))


def allowing(key, right):
    """A policy that leaves this annotation to somebody."""
    rule = f"{{name: s, protectAnnotations: {{keys: [{key}], allow: {{{right}}}}}}}"
    return make_context(HIGH, BATCH, policies=(manage("batch"), policy("p", rule)))


@pytest.mark.parametrize("subresource", ["", "status"], ids=["pod", "status"])
@pytest.mark.parametrize("key", [PLAN, DECISION, GIVEN, CREATION])
def test_the_reconciler_writes_its_own(key, subresource):
    """Its service account sets and clears what is giveway's, and no other user does, whatever name it goes by."""
    other = Context(MANAGING.engine, MANAGING.lookup, reconciler="system:serviceaccount:a:b")
    for before, after in ((None, "x"), ("x", None)):
        change = annotated(key, after), annotated(key, before)
        for context, allowed in ((MANAGING, True), (other, False)):
            assert judged(context, *change, user=RECONCILER, subResource=subresource)["allowed"] is allowed


def test_the_reconciler_is_no_exception_from_the_shield():
    """It has no business with the annotations that say who may be evicted."""
    change = annotated(CAN_BE_PREEMPTED, "true"), annotated(CAN_BE_PREEMPTED, None)
    assert judged(MANAGING, *change, user=RECONCILER, subResource="status")["allowed"] is False


def test_a_status_update_is_judged_by_nothing_else():
    """A kubelet's status is nobody's policy: a rule that every new pod would violate says nothing of it."""
    pod = make_pod(priorityClassName="ghost")
    running = {**pod, "status": {"phase": "Running"}}
    answer = judged(make_context(HIGH, policies=(NEVER,)), running, pod, subResource="status")
    assert answer == {"uid": answer["uid"], "allowed": True}


@pytest.mark.parametrize("way", ["", "status", "binding"])
def test_a_policy_gives_the_right_there_too(way):
    """Whom `protectAnnotations` allows may write the shielded annotations whichever way."""
    context = allowing(CAN_BE_PREEMPTED, "subjects: [{kind: User, name: lena}]")
    change = annotated(CAN_BE_PREEMPTED, "true"), annotated(CAN_BE_PREEMPTED, None)
    for user, allowed in (("lena", True), ("alice", False)):
        if way == "binding":
            answer = bound(context, user, annotations={CAN_BE_PREEMPTED: "true"})
        else:
            answer = judged(context, *change, user=user, subResource=way)
        assert answer["allowed"] is allowed


def test_the_labels_of_a_binding_give_no_right():
    """Whoever binds chooses the Binding's labels: a right by objectSelector does not follow from them."""
    context = allowing(CAN_BE_PREEMPTED, "objectSelector: {matchLabels: {mine: 'yes'}}")
    assert bound(context, labels={"mine": "yes"}, annotations={CAN_BE_PREEMPTED: "true"})["allowed"] is False


def test_a_policy_for_labelled_pods_holds_for_every_binding():
    """A Binding does not say which labels its pod has, so nobody escapes a policy for some of the pods by binding."""
    rule = "{name: guard, protectAnnotations: {keys: [a.io/x]}}"
    context = make_context(policies=(policy("gold", rule, match="{objectSelector: {matchLabels: {tier: gold}}}"),))
    for key, allowed in (("a.io/x", False), ("a.io/y", True)):
        assert bound(context, annotations={key: "1"})["allowed"] is allowed
