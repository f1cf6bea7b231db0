"""PodGroups and the templates of them: judged by the rules about the priority of pods, and held against their pods."""

import json

import pytest

from tests.admission.builders import (
    ask,
    denied_by,
    judged,
    make_class,
    make_context,
    make_pod,
    make_review,
    make_workload,
    manage,
    mutated,
    patch_of,
    pod_of,
    policy,
    response,
)
from tests.policy.builders import table
from webhook.admission.context import Context, Objects
from webhook.kube.json_patch import apply_json_patch
from webhook.kube.objects.cluster_scoped import Namespace
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.objects.scheduling import PodGroup, PodGroupSpec

HIGH, LOW = make_class("high", 950), make_class("low", 10)
BATCH = make_class("batch", 500, never=True)
BAND = policy("band", "{name: top, reserve: {from: 900, to: 1000, use: {namespaces: [ops]}}}")
LISTED = policy("listed", "{name: allowed, priorityClasses: {allow: [low, batch]}}")


def group(version="v1alpha2", **spec):
    body = {"schedulingPolicy": {"gang": {"minCount": 2}}, **spec}
    meta = {"name": "gang", "namespace": "team-a"}
    return {"apiVersion": f"scheduling.k8s.io/{version}", "kind": "PodGroup", "metadata": meta, "spec": body}


def templates(*specs):
    rows = [{"name": f"t{number}", **spec} for number, spec in enumerate(specs)]
    meta = {"name": "wl", "namespace": "team-a"}
    kind = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "Workload"}
    return {**kind, "metadata": meta, "spec": {"podGroupTemplates": rows}}


def verdict(body, *policies, namespace="team-a", old=None):
    """What validation answers where these policies are in force."""
    space = Namespace(metadata=ObjectMeta(name=namespace))
    return judged(make_context(HIGH, LOW, BATCH, space, policies=policies), body, old, namespace=namespace)


REFUSED = {
    "use and class": ({"priorityClassName": "high", "priority": 950}, "band/top,listed/allowed"),
    "not its class's value": ({"priority": 950, "priorityClassName": "low"}, "builtin/priority-agrees"),
    "a value without a class": ({"priority": 950}, "builtin/priority-agrees"),
    "a class that does not exist": ({"priorityClassName": "ghost"}, "builtin/class-exists"),
    "not resolved yet": ({"priorityClassName": "high"}, "band/top,listed/allowed"),
    "another policy than the class": (
        {"priorityClassName": "low", "priority": 10, "preemptionPolicy": "Never"},
        "builtin/preemption-policy-agrees",
    ),
}


@table("spec, rules", REFUSED)
@pytest.mark.parametrize("make", [group, lambda **spec: templates({}, spec)], ids=["group", "template"])
def test_a_group_may_use_what_a_pod_may(make, spec, rules):
    """Who may not run a pod of a class or value may not make a group of it, nor describe one."""
    assert set(rules.split(",")) <= set(denied_by(verdict(make(**spec), BAND, LISTED)).split(","))


@pytest.mark.parametrize("make", [group, lambda **spec: templates(spec)], ids=["group", "template"])
def test_a_group_with_the_right_passes(make):
    """A right by namespace holds for groups, and so does what an allow-list has."""
    assert verdict(make(priorityClassName="high", priority=950), BAND, namespace="ops")["allowed"]
    assert verdict(make(priorityClassName="low", priority=10), BAND, LISTED)["allowed"]
    assert verdict(make(), BAND, LISTED)["allowed"]


def test_templates_are_found_wherever_a_version_keeps_them():
    """A version that is not known yet hides no priority."""
    body = templates()
    body["spec"] = {"sets": [{"group": {"template": {"priorityClassName": "high"}}}]}
    assert "band/top" in denied_by(verdict(body, BAND))


@pytest.mark.parametrize("make", [group, lambda **spec: templates(spec)], ids=["group", "templates"])
def test_an_update_is_judged_and_what_goes_is_not(make):
    """What a group names cannot change. Of what is being deleted the finalizers could never be taken off otherwise."""
    now, old = make(priorityClassName="ghost"), make()
    assert denied_by(verdict(now, old=old)) == "builtin/class-exists"
    for state in (now, old):
        state["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []}
    assert verdict(now, old=old)["allowed"]


@table(
    "body",
    {
        "a pod": make_pod(priorityClassName="ghost"),
        "a workload": make_workload("Deployment", priorityClassName="ghost"),
        "a group": group(priorityClassName="ghost"),
        "templates of groups": templates({"priorityClassName": "ghost"}),
    },
)
def test_what_is_new_is_not_being_deleted(body):
    """The API server takes that off, so a manifest that says it is judged as any other, and gets the same."""
    going = {**body, "metadata": {**body["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert denied_by(verdict(going)) == denied_by(verdict(body)) == "builtin/class-exists"
    going["spec"] = {}
    context = make_context(LOW, policies=(policy("p", "{name: d, defaultPriorityClass: low}"),))
    if body["kind"] in ("Pod", "PodGroup"):
        assert mutated(context, going)["spec"]["priorityClassName"] == "low"


def test_what_reads_a_pod_says_nothing_of_a_group():
    """Expressions over pods and protected annotations are about pods; a group has neither containers nor victims."""
    expression = policy("cel", "{name: few, validate: {expression: object.spec.containers.size() < 1}}")
    shield = policy("s", "{name: s, protectAnnotations: {keys: [a/b], operations: [CREATE]}}")
    body = group(priorityClassName="low", priority=10)
    body["metadata"]["annotations"] = {"a/b": "x"}
    assert verdict(body, expression, shield)["allowed"]


def test_the_author_of_a_workload_is_told_what_its_groups_will_meet():
    """A controller makes the groups, as it makes pods."""
    band = policy("p", "{name: r, reserve: {from: 1, to: 20, use: {subjects: [{kind: User, name: alice}]}}}")
    (warning,) = verdict(templates({"priorityClassName": "low"}), band)["warnings"]
    assert "a controller makes the PodGroups, and rule p/r will refuse them" in warning


DEFAULT = policy("p", "{name: d, defaultPriorityClass: low}")


@table(
    "spec, objects, policies, added",
    {
        "nothing": ({}, (), (), {"priority": 0}),
        "its class": ({"priorityClassName": "high"}, (HIGH,), (), {"priority": 950}),
        "the default of a policy": ({}, (LOW,), (DEFAULT,), {"priorityClassName": "low", "priority": 10}),
        "the default": ({}, (make_class("std", 7, default=True),), (), {"priorityClassName": "std", "priority": 7}),
        "a managed class": (
            {"priorityClassName": "batch"},
            (BATCH,),
            (manage("batch"),),
            {"priority": 500, "preemptionPolicy": "Never"},
        ),
        "a class with a twin": (
            {"priorityClassName": "old"},
            (make_class("old", 500), BATCH),
            (manage("batch", old="batch"),),
            {"priorityClassName": "batch", "priority": 500, "preemptionPolicy": "Never"},
        ),
        "no such class": ({"priorityClassName": "ghost"}, (), (), {}),
        "what disagrees": ({"priority": 7, "priorityClassName": "low"}, (LOW,), (), {}),
    },
)
def test_what_a_group_is_given(spec, objects, policies, added):
    """What a pod in its place would get; what does not agree is left for validation."""
    sent = group(**spec)
    now = mutated(make_context(*objects, policies=policies), sent)
    assert now["spec"] == {**sent["spec"], **added}


AS_LOW, AS_BATCH = pod_of(LOW), pod_of(BATCH)
SAME = make_class("same", 500)


def held_against(pod, theirs, *policies, classes=(HIGH, LOW, BATCH, SAME)):
    """The review of a new pod, or workload, in a group of these numbers, if there is one."""
    body = json.loads(json.dumps(pod))
    spec = body["spec"] if body["kind"] == "Pod" else body["spec"]["template"]["spec"]
    spec["schedulingGroup"] = {"podGroupName": "gang"}
    found = {"team-a/gang": PodGroup(spec=PodGroupSpec(**theirs))} if theirs is not None else {}
    objects = Objects(classes, [Namespace(metadata=ObjectMeta(name="team-a"))], found)
    return ask(Context(make_context(policies=policies).engine, objects), "validate", make_review(body))


OF_LOW, OF_HIGH, OF_BATCH = (
    {"priority_class_name": item.metadata.name, "priority": item.value} for item in (LOW, HIGH, BATCH)
)
MANAGING = manage("batch")
AGAIN = (SAME, make_class("batch", 7, never=True))
DEPLOYMENT = make_workload("Deployment", priorityClassName="low")


@table(
    "held, rule",
    {
        "the same": (held_against(AS_LOW, OF_LOW), ""),
        "higher": (held_against(AS_LOW, OF_HIGH), "builtin/group-priority"),
        "lower": (held_against(AS_LOW, {"priority": 0}), "builtin/group-priority"),
        "a group whose priority does not count": (held_against(AS_LOW, {"priority_class_name": "high"}), ""),
        "managed": (held_against(AS_BATCH, OF_BATCH), ""),
        "managed, with a pod that is not Never": (
            held_against(pod_of(SAME), OF_BATCH, MANAGING),
            "builtin/group-managed",
        ),
        "its class was made again, so it does not speak": (
            held_against(pod_of(SAME), OF_BATCH, MANAGING, classes=AGAIN),
            "",
        ),
        "a template of pods": (held_against(DEPLOYMENT, OF_HIGH), "builtin/group-priority"),
    },
)
def test_a_pod_has_the_priority_of_its_group(held, rule):
    """kube-scheduler preempts by the group's priority, so a pod that differs from it is refused."""
    assert denied_by(response(held)) == rule


def test_a_group_is_asked_for_live_and_need_not_be_there():
    """A pod may be made before its group; a name longer than Kubernetes allows is not looked up.

    Nor is a pod refused for what a watch told of the group before it was made again.
    """
    for theirs, allowed in ((None, True), ({"priority": 0}, False)):
        reviewed = held_against(AS_LOW, theirs)
        assert (reviewed.answer.allowed, reviewed.answer.unsure) == (allowed, {("podgroups", "team-a/gang")})
    body = pod_of(LOW, schedulingGroup={"podGroupName": "g" * 300})
    assert not ask(make_context(LOW), "validate", make_review(body)).answer.unsure


def patched(context, body):
    """The object that the review's object becomes."""
    return apply_json_patch(body["request"]["object"], patch_of(response(ask(context, "mutate", body))))


@table(
    "named, kept",
    {
        "the class it was moved from": ("old", "twin"),
        "the twin": ("twin", "twin"),
        "another class is left for the API server": ("high", "high"),
    },
)
def test_a_group_whose_class_has_a_twin_is_applied_again(named, kept):
    """An update that names the class from which the group was moved keeps the twin, also if the policy has none now."""
    classes = (HIGH, make_class("old", 7), make_class("twin", 7, never=True))
    moving, without = make_context(*classes, policies=(manage(old="twin"),)), make_context(*classes)
    stored = patched(moving, make_review(group(priorityClassName="old")))
    for context, before in ((moving, group(priorityClassName="twin", priority=7)), (moving, stored), (without, stored)):
        now = patched(context, make_review(group(priorityClassName=named, priority=7), before))
        assert (now["spec"]["priorityClassName"], now["spec"]["priority"]) == (kept, 7)
        if named == "old":
            assert now["metadata"].get("annotations") == before["metadata"].get("annotations")
