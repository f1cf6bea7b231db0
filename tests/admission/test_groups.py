"""PodGroups and the templates of them: judged by the rules about the priority of pods, and held against their pods."""

import json

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
    manage,
    message_of,
    patch_of,
    response,
)
from tests.policy.builders import table
from webhook.admission.context import Context, Objects
from webhook.admission.review import PodSpecView, PodView
from webhook.kube.json_patch import apply_json_patch
from webhook.kube.objects.cluster_scoped import Namespace
from webhook.kube.objects.meta import ObjectMeta
from webhook.policy.model.match import RequestMatch, Subject
from webhook.policy.model.rules import PriorityClasses, ProtectAnnotations, Reserve, Validate

PREEMPT = "PreemptLowerPriority"
HIGH, LOW = make_class("high", 950), make_class("low", 10)
BATCH = make_class("batch", 500, never=True)
BAND = make_policy(
    "band", make_rule("top", reserve=Reserve(from_=900, to=1000, use=(RequestMatch(namespaces=("ops",)),)))
)
LISTED = make_policy("listed", make_rule("allowed", priority_classes=PriorityClasses(allow=("low", "batch"))))


def group(version="v1alpha2", **spec):
    body = {"schedulingPolicy": {"gang": {"minCount": 2}}, **spec}
    meta = {"name": "gang", "namespace": "team-a"}
    return {"apiVersion": f"scheduling.k8s.io/{version}", "kind": "PodGroup", "metadata": meta, "spec": body}


def templates(*specs):
    rows = [{"name": f"t{number}", **spec} for number, spec in enumerate(specs)]
    meta = {"name": "wl", "namespace": "team-a"}
    kind = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "Workload"}
    return {**kind, "metadata": meta, "spec": {"podGroupTemplates": rows}}


def judged(body, *policies, namespace="team-a", user="alice"):
    context = make_context(HIGH, LOW, BATCH, Namespace(metadata=ObjectMeta(name=namespace)), policies=policies)
    return response(ask(context, "validate", make_review(body, namespace=namespace, user=user)))


def denied_by(answer):
    return answer.get("auditAnnotations", {}).get("denied-by", "")


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
    assert set(rules.split(",")) <= set(denied_by(judged(make(**spec), BAND, LISTED)).split(","))


@pytest.mark.parametrize("make", [group, lambda **spec: templates(spec)], ids=["group", "template"])
def test_a_group_with_the_right_passes(make):
    """A right by namespace holds for groups, and so does what an allow-list has."""
    assert judged(make(priorityClassName="high", priority=950), BAND, namespace="ops")["allowed"]
    assert judged(make(priorityClassName="low", priority=10), BAND, LISTED)["allowed"]
    assert judged(make(), BAND, LISTED)["allowed"]


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1", "v1", "v9"])
def test_every_version_is_judged(version):
    """Where the priority stands is the same, whatever else the version says."""
    body = group(version, priorityClassName="high", priority=950, disruptionMode={"all": {}})
    assert "band/top" in denied_by(judged(body, BAND))


def test_templates_are_found_wherever_a_version_keeps_them():
    """A version that is not known yet hides no priority."""
    body = templates()
    body["spec"] = {"sets": [{"group": {"template": {"priorityClassName": "high"}}}]}
    assert "band/top" in denied_by(judged(body, BAND))


def test_an_update_is_judged_and_a_group_that_goes_is_not():
    """What a group names cannot change; if it could, it would be judged."""
    now = group(priorityClassName="high", priority=950)
    context = make_context(HIGH, LOW, policies=(BAND,))
    assert not response(ask(context, "validate", make_review(now, group())))["allowed"]
    now["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert response(ask(context, "validate", make_review(now, group())))["allowed"]


@pytest.mark.parametrize("make", [group, lambda **spec: templates(spec)], ids=["group", "templates"])
def test_what_is_being_deleted_is_let_through_though_its_class_is_gone(make):
    """Its finalizers could never be taken off otherwise."""
    now = make(priorityClassName="ghost")
    old = json.loads(json.dumps(now))
    refused = response(ask(make_context(), "validate", make_review(now, old)))
    assert denied_by(refused) == "builtin/class-exists"
    now["metadata"]["deletionTimestamp"] = old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    now["metadata"]["finalizers"] = []
    assert response(ask(make_context(), "validate", make_review(now, old)))["allowed"]


def test_what_reads_a_pod_says_nothing_of_a_group():
    """Expressions over pods and protected annotations are about pods; a group has neither containers nor victims."""
    expression = make_policy("cel", make_rule("few", validate=Validate(expression="object.spec.containers.size() < 1")))
    shield = ProtectAnnotations(keys=("a/b",), operations=("CREATE",))
    body = group(priorityClassName="low", priority=10)
    body["metadata"]["annotations"] = {"a/b": "x"}
    assert judged(body, expression, make_policy("s", make_rule("s", protect_annotations=shield)))["allowed"]


def test_the_author_of_a_workload_is_told_what_its_groups_will_meet():
    """A controller makes the groups, as it makes pods."""
    policy = make_policy(
        "p", make_rule("r", reserve=Reserve(from_=1, to=20, use=(RequestMatch(subjects=(Subject("User", "alice"),)),)))
    )
    (warning,) = judged(templates({"priorityClassName": "low"}), policy)["warnings"]
    assert "a controller makes the PodGroups, and rule p/r will refuse them" in warning


def mutated(spec, *objects, policies=()):
    context = make_context(*objects, policies=policies)
    answer = filled(context, group(**spec))
    return apply_json_patch(group(**spec), patch_of(answer))["spec"] if "patch" in answer else {**group(**spec)["spec"]}


DEFAULT = make_policy("p", make_rule("d", default_priority_class="low"))


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
    now = mutated(spec, *objects, policies=policies)
    assert now == {**group(**spec)["spec"], **added}
    assert (
        mutated({key: value for key, value in now.items() if key != "schedulingPolicy"}, *objects, policies=policies)
        == now
    )


def held_against(spec, theirs, *policies):
    """What a new pod of these numbers meets whose group has those."""
    found = {"team-a/gang": PodView(spec=PodSpecView(**theirs))} if theirs is not None else {}
    context = make_context(HIGH, LOW, BATCH, policies=policies)
    objects = Objects([HIGH, LOW, BATCH], [Namespace(metadata=ObjectMeta(name="team-a"))], found)
    body = make_pod(schedulingGroup={"podGroupName": "gang"}, **spec)
    return ask(Context(context.engine, objects), "validate", make_review(body))


AS_LOW = {"priorityClassName": "low", "priority": 10, "preemptionPolicy": PREEMPT}
AS_BATCH = {"priorityClassName": "batch", "priority": 500, "preemptionPolicy": "Never"}


@table(
    "spec, theirs, rule",
    {
        "the same": (AS_LOW, {"priority_class_name": "low", "priority": 10}, ""),
        "higher": (AS_LOW, {"priority_class_name": "high", "priority": 950}, "builtin/group-priority"),
        "lower": (AS_LOW, {"priority": 0}, "builtin/group-priority"),
        "a group whose priority does not count": (AS_LOW, {"priority_class_name": "high"}, ""),
        "managed": (AS_BATCH, {"priority_class_name": "batch", "priority": 500}, ""),
    },
)
def test_a_pod_has_the_priority_of_its_group(spec, theirs, rule):
    """kube-scheduler preempts by the group's priority, so a pod that differs from it is refused."""
    answer = response(held_against(spec, theirs))
    assert denied_by(answer) == rule
    if rule:
        assert "PodGroup gang has" in message_of(answer)


def test_a_pod_of_a_managed_group_does_not_let_kube_scheduler_preempt():
    """A pod of the same value that is not Never would."""
    same = make_class("same", 500)
    context = make_context(same, BATCH, policies=(manage("batch"),))
    theirs = PodView(spec=PodSpecView(priority_class_name="batch", priority=500))
    objects = Objects([same, BATCH], [Namespace(metadata=ObjectMeta(name="team-a"))], {"team-a/gang": theirs})
    spec = {"priorityClassName": "same", "priority": 500, "preemptionPolicy": PREEMPT}
    body = make_pod(schedulingGroup={"podGroupName": "gang"}, **spec)
    answer = response(ask(Context(context.engine, objects), "validate", make_review(body)))
    assert denied_by(answer) == "builtin/group-managed"
    assert "give the pod PriorityClass batch" in message_of(answer)
    made_again = Objects(
        [same, make_class("batch", 7, never=True)], objects.namespaces.values(), {"team-a/gang": theirs}
    )
    assert response(ask(Context(context.engine, made_again), "validate", make_review(body)))["allowed"], (
        "its class does not speak"
    )


def test_a_group_is_asked_for_live_and_need_not_be_there():
    """A pod may be made before its group; a name longer than Kubernetes allows is not looked up.

    Nor is a pod refused for what a watch told of the group before it was made again.
    """
    for theirs, allowed in ((None, True), ({"priority": 0}, False)):
        reviewed = held_against(AS_LOW, theirs)
        assert (reviewed.answer.allowed, reviewed.answer.unsure) == (allowed, {("podgroups", "team-a/gang")})
    body = make_pod(schedulingGroup={"podGroupName": "g" * 300}, **AS_LOW)
    assert not ask(make_context(LOW), "validate", make_review(body)).answer.unsure


def test_the_template_of_a_deployment_is_held_against_the_group():
    """Its author reads it before a controller does."""
    found = {"team-a/gang": PodView(spec=PodSpecView(priority_class_name="high", priority=950))}
    objects = Objects([HIGH, LOW], [Namespace(metadata=ObjectMeta(name="team-a"))], found)
    body = make_workload("Deployment", priorityClassName="low", schedulingGroup={"podGroupName": "gang"})
    answer = response(ask(Context(make_context().engine, objects), "validate", make_review(body)))
    assert denied_by(answer) == "builtin/group-priority"


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
