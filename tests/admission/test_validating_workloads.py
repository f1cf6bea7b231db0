"""What validation says of workloads and their pod templates, beside what the controllers' pods will meet."""

import pytest

from tests.admission.builders import (
    denied_by,
    filled,
    judged,
    make_class,
    make_context,
    make_pod,
    make_workload,
    manage,
    message_of,
    patch_of,
    pod_of,
    policy,
)
from tests.policy.builders import table
from webhook.policy.model.values import MARK

HIGH, BATCH, URGENT = make_class("high", 100), make_class("batch", 10, never=True), make_class("urgent", 950)
NO_HIGH = policy("teams", "{name: allowed, priorityClasses: {allow: [batch]}}")
KINDS = ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob"]
CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
RUNNER = "system:serviceaccount:ci:runner"
DEV = "subjects: [{kind: Group, name: dev}]"
"""Alice and everyone else."""
OWNED = {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "controller": True}]}


def band(right="[]", start=900):
    """A policy that reserves a range."""
    return policy("bands", f"{{name: urgent, reserve: {{from: {start}, to: 1000, use: {right}}}}}")


@pytest.mark.parametrize("kind", KINDS)
@table(
    "spec, meta, policies, words",
    {
        "unknown": ({"priorityClassName": "ghost"}, {}, (), "no PriorityClass with name ghost was found"),
        "value": ({"priorityClassName": "high", "priority": 7}, {}, (), "but PriorityClass high has 100"),
        "class not allowed": ({"priorityClassName": "high"}, {}, (NO_HIGH,), "teams/allowed"),
        "reserved range": ({"priorityClassName": "high"}, {}, (band(start=50),), "bands/urgent"),
        "mark": ({"priorityClassName": "high"}, {"labels": {MARK: "managed"}}, (), "builtin/mark"),
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
    """Such a workload would make pods of a managed class without end; of another class it may be."""
    context = make_context(BATCH, HIGH, policies=(manage("batch"),))
    for name in ("batch", "high"):
        workload = make_workload(kind, priorityClassName=name)
        workload["spec"]["selector"] = {"matchExpressions": [{"key": MARK, **requirement}]}
        denied = "builtin/mark" if refused and name == "batch" else ""
        assert denied_by(judged(context, workload)) == denied


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_is_judged_if_it_changes(kind):
    """Scaling, pausing or annotating a workload works even when its template would be refused today."""
    old, new = (make_workload(kind, priorityClassName="ghost") for _ in range(2))
    new["spec"]["replicas"] = 5
    assert judged(make_context(), new, old)["allowed"] is True
    assert "ghost" in message_of(judged(make_context(), new, make_workload(kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_needs_no_resolved_priority(kind):
    """A template as people write it, with or without a class, passes, and nothing of it is patched."""
    for spec in ({}, {"priorityClassName": "high"}):
        for answered in (judged, filled):
            answer = answered(make_context(HIGH), make_workload(kind, **spec))
            assert answer == {"uid": answer["uid"], "allowed": True}


@pytest.mark.parametrize("spec", [{"template": None}, {}, "nonsense"], ids=["null", "absent", "no spec"])
def test_there_is_nothing_to_judge_without_a_template(spec):
    """A ReplicationController may have none; what is no object is the API server's to refuse."""
    workload = make_workload("ReplicationController")
    workload["spec"] = spec
    answer = judged(make_context(), workload)
    assert answer == {"uid": answer["uid"], "allowed": True}


EXPRESSION = policy("cel", "{name: 'true', validate: {expression: object.spec.containers.size() > 0}}")


@pytest.mark.parametrize("more", [(), (EXPRESSION,)], ids=["read in part", "read in full"])
@table(
    "user, meta, allowed",
    {
        "a service account that makes a pod itself": (RUNNER, {}, True),
        "and one for a workload": (RUNNER, OWNED, False),
        "a controller": (CONTROLLER, OWNED, False),
    },
)
def test_who_made_the_pod_is_read_from_the_review(more, user, meta, allowed):
    """User and ownerReferences of a review tell who made the pod, however much of it is decoded."""
    right = band("{subjects: [{kind: ServiceAccount, namespace: ci, name: runner}]}")
    context = make_context(URGENT, policies=(right, *more))
    assert judged(context, pod_of(URGENT, meta=meta), user=user)["allowed"] is allowed


@pytest.mark.parametrize("kind", ["Deployment", "Job", "CronJob"])
def test_an_author_is_told_that_the_pods_will_be_refused(kind):
    """A right by subjects lets the workload in; its author learns at once that a controller's pods lack it."""
    context = make_context(URGENT, policies=(band(f"{{{DEV}}}"),))
    answer = judged(context, make_workload(kind, priorityClassName="urgent"))
    assert answer["allowed"] is True
    (warning,) = answer["warnings"]
    assert warning.startswith("a controller makes the pods, and rule bands/urgent will refuse them: priority 950")
    assert "bands/urgent" in message_of(judged(context, pod_of(URGENT, meta=OWNED), user=CONTROLLER))


def test_a_right_by_namespace_is_the_same_for_author_and_controllers():
    """Nobody is told anything; what a controller writes for a workload is judged like its pods."""
    context = make_context(URGENT, policies=(band(f"{{namespaces: [team-a], {DEV}}}"),))
    deployments = "system:serviceaccount:kube-system:deployment-controller"
    for obj, user in (
        (make_workload("Deployment", priorityClassName="urgent"), "alice"),
        (make_workload("ReplicaSet", priorityClassName="urgent"), deployments),
        (pod_of(URGENT, meta=OWNED), CONTROLLER),
    ):
        answer = judged(context, obj, user=user)
        assert answer == {"uid": answer["uid"], "allowed": True}


@table(
    "match, refused",
    {
        "by namespace": ("{namespaces: [team-a], subjects: [{kind: Group, name: other}]}", True),
        "by subjects": (f"{{{DEV}}}", False),
        "of new pods": ("{operations: [CREATE]}", True),
    },
)
def test_a_template_is_judged_by_the_default_that_its_pods_get(match, refused):
    """The default of a template, new or changed, is what a controller's pods will get, not the author's own."""
    default = policy("teams", "{name: default, defaultPriorityClass: urgent}", match=match)
    context = make_context(URGENT, policies=(default, band()))
    for old in (None, make_workload("Deployment", meta={"labels": {"a": "b"}})):
        assert judged(context, make_workload("Deployment"), old)["allowed"] is not refused
    patch = patch_of(filled(context, make_pod(meta=OWNED), user=CONTROLLER))
    assert ({"op": "add", "path": "/spec/priorityClassName", "value": "urgent"} in patch) is refused
