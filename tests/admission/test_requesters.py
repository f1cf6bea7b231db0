"""Who asks, through whole reviews: authors of workloads beside the controllers that make their pods."""

import pytest

from tests.admission.builders import (
    ask,
    filled,
    make_class,
    make_context,
    make_pod,
    make_policy,
    make_review,
    make_rule,
    make_workload,
    message_of,
    patch_of,
    response,
)
from tests.policy.builders import table
from webhook.policy.model.match import RequestMatch, Subject
from webhook.policy.model.rules import Reserve, Validate

CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
RUNNER = "system:serviceaccount:ci:runner"
URGENT, STANDARD = make_class("urgent", 950), make_class("standard", 10)
DEV = (Subject("Group", "dev"),)
RESOLVED = {"priorityClassName": "urgent", "priority": 950, "preemptionPolicy": "PreemptLowerPriority"}
OWNERS = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "1", "controller": True}]


def band(*rights):
    """A policy that reserves the range of the class urgent."""
    return make_policy("bands", make_rule("urgent", reserve=Reserve(from_=900, to=1000, use=rights)))


def judged(context, obj, user):
    """What validation says of it; alice and everyone else are in the group dev."""
    return response(ask(context, "validate", make_review(obj, user=user)))


EXPRESSION = make_policy("cel", make_rule("true", validate=Validate(expression="object.spec.containers.size() > 0")))


@pytest.mark.parametrize("more", [(), (EXPRESSION,)], ids=["read in part", "read in full"])
@table(
    "user, meta, allowed",
    {
        "a service account that makes a pod itself": (RUNNER, {}, True),
        "and one for a workload": (RUNNER, {"ownerReferences": OWNERS}, False),
        "a controller": (CONTROLLER, {"ownerReferences": OWNERS}, False),
    },
)
def test_who_made_the_pod_is_read_from_the_review(more, user, meta, allowed):
    """User and ownerReferences of a review tell who made the pod, however much of it is decoded."""
    right = RequestMatch(subjects=(Subject("ServiceAccount", "runner", "ci"),))
    context = make_context(URGENT, policies=(band(right), *more))
    assert judged(context, make_pod(meta=meta, **RESOLVED), user)["allowed"] is allowed


@pytest.mark.parametrize("kind", ["Deployment", "Job", "CronJob"])
def test_an_author_is_told_that_the_pods_will_be_refused(kind):
    """A right by subjects lets the workload in; its author learns at once that a controller's pods lack it."""
    context = make_context(URGENT, policies=(band(RequestMatch(subjects=DEV)),))
    answer = judged(context, make_workload(kind, priorityClassName="urgent"), "alice")
    assert answer["allowed"] is True
    (warning,) = answer["warnings"]
    assert warning.startswith("a controller makes the pods, and rule bands/urgent will refuse them: priority 950")
    pod = make_pod(meta={"ownerReferences": OWNERS}, **RESOLVED)
    assert "bands/urgent" in message_of(judged(context, pod, CONTROLLER))


def test_an_author_with_a_right_by_namespace_is_told_nothing():
    """Author and controller agree about a right by namespace."""
    context = make_context(URGENT, policies=(band(RequestMatch(namespaces=("team-a",), subjects=DEV)),))
    answer = judged(context, make_workload("Deployment", priorityClassName="urgent"), "alice")
    assert answer == {"uid": answer["uid"], "allowed": True}
    assert judged(context, make_pod(meta={"ownerReferences": OWNERS}, **RESOLVED), CONTROLLER)["allowed"] is True


def test_what_a_controller_writes_for_a_workload_is_judged_like_its_pods():
    """The ReplicaSet of a Deployment comes from a controller too, and needs no right by subjects."""
    context = make_context(URGENT, policies=(band(RequestMatch(namespaces=("team-a",), subjects=DEV)),))
    replica_set = make_workload("ReplicaSet", priorityClassName="urgent")
    user = "system:serviceaccount:kube-system:deployment-controller"
    assert judged(context, replica_set, user)["allowed"] is True


@table(
    "match, refused",
    {
        "by namespace": ({"namespaces": ("team-a",), "subjects": (Subject("Group", "other"),)}, True),
        "by subjects": ({"subjects": DEV}, False),
    },
)
def test_a_template_is_judged_by_the_default_that_its_pods_get(match, refused):
    """The default of a template is what a controller's pods will get, not what the author's own pods would."""
    default = make_policy("teams", make_rule("default", default_priority_class="urgent"), **match)
    context = make_context(URGENT, STANDARD, policies=(default, band()))
    answer = judged(context, make_workload("Deployment"), "alice")
    assert answer["allowed"] is not refused
    pod = make_pod(meta={"ownerReferences": OWNERS})
    patch = patch_of(filled(context, pod, user=CONTROLLER))
    assert ({"op": "add", "path": "/spec/priorityClassName", "value": "urgent"} in patch) is refused
