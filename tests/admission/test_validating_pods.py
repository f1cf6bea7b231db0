"""What validation says of pods and of the pod templates of workloads."""

import pytest

from tests.admission.builders import (
    ask,
    filled,
    judged,
    make_class,
    make_context,
    make_pod,
    make_policy,
    make_review,
    make_rule,
    make_workload,
    manage,
    message_of,
    response,
)
from tests.policy.builders import table
from webhook.policy.model.match import RequestMatch
from webhook.policy.model.rules import Enforcement, PriorityClasses, Reserve, Validate
from webhook.policy.model.values import CAN_BE_PREEMPTED, MARK

PREEMPT = "PreemptLowerPriority"
HIGH = make_class("high", 100)
BATCH = make_class("batch", 10, never=True)
RESOLVED = {"priorityClassName": "high", "priority": 100, "preemptionPolicy": PREEMPT}
MANAGED = {"priorityClassName": "batch", "priority": 10, "preemptionPolicy": "Never"}
MARKED = {"labels": {MARK: "managed"}}
WORKLOADS = ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob"]
NO_HIGH = make_policy("teams", make_rule("allowed", priority_classes=PriorityClasses(allow=("batch",))))


@table(
    "spec, meta",
    {
        "as its class says": (RESOLVED, {}),
        "no class": ({"priority": 0, "preemptionPolicy": PREEMPT}, {}),
        "managed and marked": (MANAGED, MARKED),
        "a mirror pod, which is never patched": (
            {"priorityClassName": "high"},
            {"annotations": {"kubernetes.io/config.mirror": "x"}},
        ),
        "being deleted": ({"priorityClassName": "ghost"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    },
)
def test_a_pod_that_agrees_passes(spec, meta):
    """What is resolved as its class says gets in without a word."""
    answer = judged(make_context(HIGH, BATCH, policies=(manage("batch"),)), make_pod(meta=meta, **spec))
    assert answer == {"uid": answer["uid"], "allowed": True}


def test_a_managed_pod_without_its_mark_is_warned_about():
    """Without the mark nobody preempts for the pod; that is said, not refused."""
    answer = judged(make_context(BATCH, policies=(manage("batch"),)), make_pod(**MANAGED))
    assert answer["allowed"] is True
    assert "nothing preempts for this pod" in answer["warnings"][0]


CHANGES = {
    "priority": (RESOLVED, {}, {**RESOLVED, "priority": 7}, {}, "builtin/priority-immutable"),
    "policy": (RESOLVED, {}, {**RESOLVED, "preemptionPolicy": "Never"}, {}, "builtin/priority-immutable"),
    "class": (RESOLVED, {}, {**RESOLVED, "priorityClassName": "batch"}, {}, "builtin/priority-immutable"),
    "removed": (RESOLVED, {}, {"priorityClassName": "high"}, {}, "builtin/priority-immutable"),
    "mark set": (MANAGED, {}, MANAGED, MARKED, "builtin/mark"),
    "mark removed": (MANAGED, MARKED, MANAGED, {}, "builtin/mark"),
    "mark changed": (MANAGED, MARKED, MANAGED, {"labels": {MARK: "x"}}, "builtin/mark"),
    "annotation set": (RESOLVED, {}, RESOLVED, {"annotations": {CAN_BE_PREEMPTED: "false"}}, "builtin/shield"),
    "annotation removed": (RESOLVED, {"annotations": {CAN_BE_PREEMPTED: "true"}}, RESOLVED, {}, "builtin/shield"),
}


@table("spec, meta, new_spec, new_meta, rule", CHANGES)
def test_what_a_pod_was_created_with_stays(spec, meta, new_spec, new_meta, rule):
    """Priority, mark and preemptibility of a running pod do not change."""
    context = make_context(HIGH, BATCH, policies=(manage("batch"),))
    answer = judged(context, make_pod(meta=new_meta, **new_spec), make_pod(meta=meta, **spec))
    assert answer["allowed"] is False
    assert rule in answer["auditAnnotations"]["denied-by"]


@table(
    "spec, meta",
    {
        "its class is gone": ({"priorityClassName": "gone"}, {}),
        "it never agreed": ({**RESOLVED, "priority": 7}, {}),
        "it was never resolved": ({}, {}),
        "its mark is a stray one": (RESOLVED, MARKED),
        "its class is not allowed any more": (RESOLVED, {}),
    },
)
def test_an_update_is_judged_by_what_it_changes(spec, meta):
    """A label or an image of an old pod can change whatever the rules say of such a pod today."""
    context = make_context(HIGH, policies=(NO_HIGH,))
    changed = {**meta, "labels": {**meta.get("labels", {}), "x": "y"}}
    answer = judged(context, make_pod(meta=changed, **spec), make_pod(meta=meta, **spec), user="system:node:n1")
    assert answer["allowed"] is True


@table(
    "spec, refused",
    {
        "as its class says": (RESOLVED, ""),
        "never filled in": ({}, ""),
        "a class that does not exist": ({"priorityClassName": "ghost"}, "builtin/class-exists"),
        "another value": ({"priorityClassName": "high", "priority": 3}, "builtin/priority-agrees"),
        "a value without a class": ({"priority": 2_000_000_000}, "builtin/priority-agrees"),
        "another policy": ({**RESOLVED, "preemptionPolicy": "Never"}, "builtin/preemption-policy-agrees"),
    },
)
def test_pods_of_the_system_are_judged_as_the_priority_plugin_does(spec, refused):
    """Without the plugin giveway refuses what it refuses, and asks no policy."""
    never = make_policy("cel", make_rule("never", validate=Validate(expression="false")))
    context = make_context(HIGH, policies=(never, NO_HIGH))
    pod = make_pod(meta={"labels": MARKED["labels"]}, **spec)
    answer = response(ask(context, "validate-priority", make_review(pod)))
    assert answer.get("auditAnnotations", {}).get("denied-by", "") == refused


RESERVED = make_policy(
    "system",
    make_rule("critical", reserve=Reserve(from_=50, to=1000, use=(RequestMatch(namespaces=("kube-system",)),))),
)


@pytest.mark.parametrize("kind", WORKLOADS)
@table(
    "spec, meta, policies, words",
    {
        "unknown": ({"priorityClassName": "ghost"}, {}, (), "no PriorityClass with name ghost was found"),
        "value": ({**RESOLVED, "priority": 7}, {}, (), "spec.priority is 7, but PriorityClass high has 100"),
        "class not allowed": ({"priorityClassName": "high"}, {}, (NO_HIGH,), "teams/allowed"),
        "reserved range": ({"priorityClassName": "high"}, {}, (RESERVED,), "system/critical"),
        "mark": ({"priorityClassName": "high"}, MARKED, (), "builtin/mark"),
    },
)
def test_the_author_of_a_workload_sees_what_its_pods_would_meet(kind, spec, meta, policies, words):
    """A template whose pods would be refused is refused when it is applied."""
    answer = judged(make_context(HIGH, policies=policies), make_workload(kind, meta=meta, **spec))
    assert words in message_of(answer)


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"])
@table(
    "requirement, refused",
    {
        "without the mark": ({"operator": "DoesNotExist"}, True),
        "with another mark": ({"operator": "NotIn", "values": ["managed"]}, True),
        "not with a mark that nobody sets": ({"operator": "NotIn", "values": ["x"]}, False),
        "not a selector": ({"operator": "In"}, False),
    },
)
def test_a_selector_that_loses_marked_pods(kind, requirement, refused):
    """Such a workload would make pods of a managed class without end."""
    workload = make_workload(kind, priorityClassName="batch")
    workload["spec"]["selector"] = {"matchExpressions": [{"key": MARK, **requirement}]}
    answer = judged(make_context(BATCH, HIGH, policies=(manage("batch"),)), workload)
    assert answer["allowed"] is not refused
    assert not refused or "leave that label out of the selector" in message_of(answer)
    workload["spec"]["template"]["spec"]["priorityClassName"] = "high"
    assert judged(make_context(BATCH, HIGH, policies=(manage("batch"),)), workload)["allowed"]


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_template_is_judged_if_it_changes(kind):
    """Scaling, pausing or annotating a workload works even when its template would be refused today."""
    old, new = (make_workload(kind, priorityClassName="ghost") for _ in range(2))
    new["spec"]["replicas"] = 5
    assert judged(make_context(), new, old)["allowed"] is True
    assert "ghost" in message_of(judged(make_context(), new, make_workload(kind)))


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_template_needs_no_resolved_priority(kind):
    """A template as people write it, with or without a class, passes."""
    for spec in ({}, {"priorityClassName": "high"}):
        answer = judged(make_context(HIGH), make_workload(kind, **spec))
        assert answer == {"uid": answer["uid"], "allowed": True}


def test_a_template_without_class_is_judged_by_the_class_its_pods_get():
    """The policy's default counts for a template as it will for its pods, before the global default."""
    default = make_policy("teams", make_rule("default", default_priority_class="batch"))
    context = make_context(make_class("std", 7, default=True), BATCH, policies=(default, NO_HIGH))
    assert judged(context, make_workload("Deployment"))["allowed"] is True


@pytest.mark.parametrize("template", [None, "absent"])
def test_a_replication_controller_may_have_no_template(template):
    """There is nothing to judge in a workload without a template."""
    workload = make_workload("ReplicationController")
    workload["spec"] = {"template": None} if template is None else {}
    assert judged(make_context(), workload)["allowed"] is True


@pytest.mark.parametrize("kind", WORKLOADS)
def test_workloads_are_not_patched(kind):
    """Mutation is for pods and PriorityClasses; a template stays as its author wrote it."""
    answer = filled(make_context(HIGH), make_workload(kind, priorityClassName="high"))
    assert answer == {"uid": answer["uid"], "allowed": True}


@table(
    "enforcement, allowed, field",
    {
        "enforce": (Enforcement.ENFORCE, False, "status"),
        "warn": (Enforcement.WARN, True, "warnings"),
        "audit": (Enforcement.AUDIT, True, "auditAnnotations"),
    },
)
def test_enforcement_decides_what_a_violation_does(enforcement, allowed, field):
    """Refuse, warn the author, or only leave a trace in the audit log."""
    rule = make_rule("allowed", enforcement, priority_classes=PriorityClasses(allow=("batch",)))
    answer = judged(make_context(HIGH, policies=(make_policy("teams", rule),)), make_pod(**RESOLVED))
    assert answer["allowed"] is allowed
    assert "teams/allowed" in str(answer[field])
    assert set(answer) - {"uid", "allowed", field} <= ({"auditAnnotations"} if not allowed else set())


def mirror_pod(node="n1", *, owner=("Node", "n1"), meta=None, **spec):
    """A mirror pod as node n1's kubelet makes it, of a class that does not exist."""
    reference = {"apiVersion": "v1", "kind": owner[0], "name": owner[1], "uid": "u", "controller": True}
    own = {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [reference], **(meta or {})}
    return make_pod(meta=own, priorityClassName="ghost", priority=7, nodeName=node, **spec)


KUBELET = {"username": "system:node:n1", "groups": ["system:nodes", "system:authenticated"]}


@table(
    "pod, user, denied",
    {
        "by its node's kubelet": (mirror_pod(), KUBELET, ""),
        "by another": (mirror_pod(), {**KUBELET, "username": "system:node:n2"}, "builtin/class-exists"),
        "by a user of that name": (mirror_pod(), {**KUBELET, "groups": []}, "builtin/class-exists"),
        "by somebody else": (mirror_pod(), {"username": "alice"}, "builtin/class-exists"),
        "on another node": (mirror_pod("n2"), KUBELET, "builtin/class-exists"),
        "of another node": (mirror_pod(owner=("Node", "n2")), KUBELET, "builtin/class-exists"),
        "of something else": (mirror_pod(owner=("Job", "n1")), KUBELET, "builtin/class-exists"),
        "no mirror pod": (mirror_pod(meta={"annotations": {}}), KUBELET, "builtin/class-exists"),
        "marked": (mirror_pod(meta=MARKED), KUBELET, "builtin/mark"),
        "no mirror pod, of a node": (
            make_pod(meta={"ownerReferences": [{"kind": "Node", "name": "n1", "controller": True}]}, **RESOLVED),
            {"username": "alice"},
            "builtin/static-pods",
        ),
    },
)
def test_a_kubelet_shows_its_static_pods_whatever_they_are(pod, user, denied):
    """What runs there runs without the API, and counts only if the API has it; nothing of giveway's own is on it."""
    never = make_rule("never", validate=Validate(expression="false"))
    context = make_context(HIGH, policies=(make_policy("strict", never),))
    review = make_review(pod)
    review["request"]["userInfo"] = user
    answer = response(ask(context, "validate", review))
    assert answer["allowed"] is not bool(denied)
    assert denied in answer.get("auditAnnotations", {}).get("denied-by", "")
