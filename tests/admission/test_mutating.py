"""What mutation makes of a pod: RFC 6902 patches, judged by the jsonpatch package."""

from typing import Any

import jsonpatch
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
    manage,
    mutated,
    patch_of,
    response,
)
from tests.policy.builders import table
from webhook.policy.model.rules import Validate
from webhook.policy.model.values import CAN_BE_PREEMPTED, GIVEN, MARK, POD_SCALE_UP_DELAY, PROTECTION_DURATION

PREEMPT = "PreemptLowerPriority"
HIGH = make_class("high", 100)
BATCH = make_class("batch", 10, never=True, preemptible="true", protection="30")
ONLINE, TWIN = make_class("online", 500), make_class("online-managed", 500, never=True)
DEFAULTS = make_policy("teams", make_rule("default", default_priority_class="batch"), namespaces=("team-*",))
COPIES = make_policy("copy", make_rule("both", copy_annotations=(CAN_BE_PREEMPTED, PROTECTION_DURATION)))


def priority_of(pod: dict[str, Any]) -> tuple[Any, Any, Any]:
    spec = pod["spec"]
    return spec.get("priorityClassName"), spec.get("priority"), spec.get("preemptionPolicy")


PLUGIN_NONE = {"priority": 0, "preemptionPolicy": PREEMPT}
RESOLUTION = [
    pytest.param((HIGH,), (), {"priorityClassName": "high"}, ("high", 100, PREEMPT), id="class named"),
    pytest.param((BATCH,), (), {"priorityClassName": "batch"}, ("batch", 10, "Never"), id="class with Never"),
    pytest.param((), (), {}, (None, 0, PREEMPT), id="neither class nor default"),
    pytest.param((make_class("std", 7, default=True),), (), {}, ("std", 7, PREEMPT), id="global default"),
    pytest.param(
        (make_class("b", 9, default=True), make_class("a", 3, default=True)), (), {}, ("a", 3, PREEMPT),
        id="several global defaults: the lowest value",
    ),
    pytest.param((HIGH,), (), {"priorityClassName": "high", "priority": 100}, ("high", 100, PREEMPT), id="half filled"),
    pytest.param((), (), {"priority": 0}, (None, 0, PREEMPT), id="priority 0 without a class"),
    pytest.param(
        (HIGH,), (), {"priorityClassName": "high", "priority": 7}, ("high", 7, None), id="disagreement is left alone"
    ),
    pytest.param(
        (make_class("std", 7, default=True),), (), {"priority": 0}, (None, 0, None), id="disagreement with the default"
    ),
    pytest.param((), (), {"priority": 2000000000}, (None, 2000000000, None), id="raw priority is left alone"),
    pytest.param((), (), {"priorityClassName": "ghost"}, ("ghost", None, None), id="unknown class is left alone"),
    pytest.param((BATCH,), (DEFAULTS,), {}, ("batch", 10, "Never"), id="policy default, plugin off"),
    pytest.param((BATCH,), (DEFAULTS,), PLUGIN_NONE, ("batch", 10, "Never"), id="policy default, plugin on"),
    pytest.param(
        (BATCH, HIGH), (DEFAULTS,), {"priorityClassName": "high"}, ("high", 100, PREEMPT), id="a named class wins"
    ),
    pytest.param((), (DEFAULTS,), {}, (None, 0, PREEMPT), id="policy default that does not exist"),
    pytest.param(
        (ONLINE, TWIN), (manage(online="online-managed"),), {"priorityClassName": "online"},
        ("online-managed", 500, "Never"), id="twin, plugin off",
    ),
    pytest.param(
        (ONLINE, TWIN), (manage(online="online-managed"),),
        {"priorityClassName": "online", "priority": 500, "preemptionPolicy": PREEMPT},
        ("online-managed", 500, "Never"), id="twin, plugin on: all three fields",
    ),
    pytest.param(
        (ONLINE,), (manage(online="online-managed"),), {"priorityClassName": "online"}, ("online", 500, PREEMPT),
        id="twin that does not exist",
    ),
    pytest.param(
        (ONLINE, make_class("online-managed", 400, never=True)), (manage(online="online-managed"),),
        {"priorityClassName": "online"}, ("online", 500, PREEMPT), id="twin of another value",
    ),
    pytest.param(
        (ONLINE, make_class("online-managed", 500)), (manage(online="online-managed"),),
        {"priorityClassName": "online"}, ("online", 500, PREEMPT), id="twin that preempts by itself",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("objects", "policies", "spec", "expected"), RESOLUTION)
def test_a_new_pod_gets_the_priority_of_its_class(objects, policies, spec, expected):
    """A pod gets exactly what its class says, in one pass; values somebody gave are never overwritten or removed."""
    result = mutated(make_context(*objects, policies=policies), make_pod(**spec))
    assert priority_of(result) == expected


PLUGIN_STD = {"priorityClassName": "std", "priority": 7, "preemptionPolicy": PREEMPT}
OWNS_CLASS = [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:priorityClassName": {}}}}]
OWNS_OTHER = [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:containers": {}}}}]


@table(
    "managed_fields, expected",
    {
        "the plugin named it": (OWNS_OTHER, ("batch", 10, "Never")),
        "the user named it": (OWNS_CLASS, ("std", 7, PREEMPT)),
        "nobody can tell": (None, ("std", 7, PREEMPT)),
    },
)
def test_a_policys_default_replaces_the_global_one_unless_the_user_chose_it(managed_fields, expected):
    """The global default that the Priority plugin filled in gives way to the policy's; the user's own choice stays."""
    context = make_context(make_class("std", 7, default=True), BATCH, policies=(DEFAULTS,))
    meta = {"managedFields": managed_fields} if managed_fields else {}
    assert priority_of(mutated(context, make_pod(meta=meta, **PLUGIN_STD))) == expected


@table(
    "meta, expected",
    {
        "no annotations at all": ({}, {CAN_BE_PREEMPTED: "true", PROTECTION_DURATION: "30"}),
        "null": ({"annotations": None}, {CAN_BE_PREEMPTED: "true", PROTECTION_DURATION: "30"}),
        "empty": ({"annotations": {}}, {CAN_BE_PREEMPTED: "true", PROTECTION_DURATION: "30"}),
        "the pod's own stays": (
            {"annotations": {CAN_BE_PREEMPTED: "false", "a": "b"}},
            {CAN_BE_PREEMPTED: "false", "a": "b", PROTECTION_DURATION: "30"},
        ),
        "the pod's empty ones stay": (
            {"annotations": {CAN_BE_PREEMPTED: "", PROTECTION_DURATION: ""}},
            {CAN_BE_PREEMPTED: "", PROTECTION_DURATION: ""},
        ),
    },
)
def test_annotations_are_copied_where_the_pod_has_none(meta, expected):
    """A pod takes over its class's annotations, never at the cost of its own."""
    context = make_context(BATCH, policies=(COPIES,))
    annotations = mutated(context, make_pod(meta=meta, priorityClassName="batch"))["metadata"]["annotations"]
    assert {key: value for key, value in annotations.items() if key != GIVEN} == expected


def test_annotations_are_not_copied_without_a_policy():
    """Without a copy rule nothing is copied."""
    result = mutated(make_context(BATCH), make_pod(priorityClassName="batch"))
    assert "annotations" not in result["metadata"]


@table(
    "objects, policies, spec, mark",
    {
        "managed": ((BATCH,), (manage("batch"),), {"priorityClassName": "batch"}, "managed"),
        "managed by glob": ((BATCH,), (manage("b*"),), {"priorityClassName": "batch"}, "managed"),
        "not managed": ((BATCH,), (), {"priorityClassName": "batch"}, None),
        "managed, but not Never": ((HIGH,), (manage("high"),), {"priorityClassName": "high"}, None),
        "by policy default": ((BATCH,), (manage("batch"), DEFAULTS), {}, "managed"),
        "twin": ((ONLINE, TWIN), (manage(online="online-managed"),), {"priorityClassName": "online"}, "managed"),
        "the twin itself": (
            (TWIN,),
            (manage(online="online-managed"),),
            {"priorityClassName": "online-managed"},
            "managed",
        ),
        "disagreement": ((BATCH,), (manage("batch"),), {"priorityClassName": "batch", "priority": 3}, None),
    },
)
def test_pods_of_managed_classes_are_marked(objects, policies, spec, mark):
    """The mark goes to pods whose class is managed and Never, and to no other."""
    result = mutated(make_context(*objects, policies=policies), make_pod(**spec))
    assert result["metadata"].get("labels", {}).get(MARK) == mark


@table(
    "objects, policies, spec, words",
    {
        "not Never": ((HIGH,), (manage("high"),), {"priorityClassName": "high"}, "kube-scheduler preempts"),
        "twin missing": ((ONLINE,), (manage(online="gone"),), {"priorityClassName": "online"}, "twin gone"),
        "default missing": ((), (DEFAULTS,), {}, "gives PriorityClass batch, which does not exist"),
    },
)
def test_what_mutation_could_not_do_is_a_warning(objects, policies, spec, words):
    """Mutation never refuses; it says what it left undone."""
    answer = filled(make_context(*objects, policies=policies), make_pod(**spec))
    assert answer["allowed"] is True
    assert any(words in warning for warning in answer["warnings"])


def test_a_pod_made_by_generate_name_is_patched_like_any_other():
    """A pod without a name yet, from a controller, resolves as well."""
    pod = make_pod(priorityClassName="high")
    pod["metadata"] = {"generateName": "web-7c5-", "namespace": "team-a"}
    assert priority_of(mutated(make_context(HIGH), pod)) == ("high", 100, PREEMPT)


def test_missing_parents_are_made():
    """A pod without metadata or spec gets them before anything is put into them."""
    context = make_context(
        make_class("std", 7, never=True, default=True, preemptible="true"), policies=(COPIES, manage("std"))
    )
    body = make_review(make_pod())
    body["request"]["object"] = {"kind": "Pod", "apiVersion": "v1"}
    result = jsonpatch.apply_patch(body["request"]["object"], patch_of(response(ask(context, "mutate", body))))
    assert result["spec"] == {"priorityClassName": "std", "priority": 7, "preemptionPolicy": "Never"}
    assert set(result["metadata"]["annotations"]) == {CAN_BE_PREEMPTED, GIVEN, POD_SCALE_UP_DELAY}
    assert result["metadata"]["labels"] == {MARK: "managed"}


def test_keys_are_escaped_in_paths():
    """A slash in an annotation's key is ~1 in the patch, as RFC 6901 asks."""
    context = make_context(BATCH, policies=(COPIES,))
    pod = make_pod(meta={"annotations": {"a": "b"}}, priorityClassName="batch", priority=10, preemptionPolicy="Never")
    paths = [op["path"] for op in patch_of(filled(context, pod))]
    assert paths == [
        "/metadata/annotations/godel.bytedance.com~1can-be-preempted",
        "/metadata/annotations/godel.bytedance.com~1protection-duration-from-preemption",
        "/metadata/annotations/giveway.dev~1given",
    ]


def test_the_patch_is_minimal():
    """Only fields that change are in the patch."""
    pod = make_pod(priorityClassName="high", priority=100)
    answer = filled(make_context(HIGH), pod)
    assert patch_of(answer) == [{"op": "add", "path": "/spec/preemptionPolicy", "value": PREEMPT}]


def test_mirror_pods_are_never_patched():
    """A mirror pod is the picture of a static pod; nothing about it may change."""
    pod = make_pod(meta={"annotations": {"kubernetes.io/config.mirror": "abc"}}, priorityClassName="batch")
    answer = filled(make_context(BATCH, policies=(COPIES, manage("batch"))), pod)
    assert answer == {"uid": answer["uid"], "allowed": True}


@table(
    "old, new, expected",
    {
        "dropped: put back": ({"priority": 5, "preemptionPolicy": "Never"}, {}, (None, 5, "Never")),
        "changed: left for validation": ({"priority": 5}, {"priority": 6}, (None, 6, None)),
        "never resolved: left alone": ({}, {}, (None, None, None)),
    },
)
def test_an_update_preserves_priority(old, new, expected):
    """An UPDATE that leaves out priority or policy keeps them; nothing is resolved again."""
    context = make_context(BATCH, policies=(DEFAULTS, COPIES, manage("batch")))
    assert priority_of(mutated(context, make_pod(**new), make_pod(**old))) == expected


@pytest.mark.parametrize("subresource", ["status", "binding", "eviction", "ephemeralcontainers", "resize"])
@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_subresources_are_not_touched(phase, subresource):
    """Sub-resources pass as they are, as long as no protected key is in play."""
    body = make_review(make_pod(priorityClassName="ghost"), subResource=subresource)
    answer = response(ask(make_context(), phase, body))
    assert answer == {"uid": answer["uid"], "allowed": True}


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_deletion_always_passes(phase, operation):
    """Nothing holds up a deletion."""
    body = make_review(None, make_pod(priorityClassName="ghost"), operation=operation)
    answer = response(ask(make_context(), phase, body))
    assert answer == {"uid": answer["uid"], "allowed": True}


def test_the_applied_rules_are_in_the_audit_annotations():
    """Who reads the audit log sees which rules filled something in, and nothing of a call that finds it there."""
    context = make_context(BATCH, policies=(DEFAULTS, COPIES))
    answer = filled(context, make_pod())
    assert answer["auditAnnotations"] == {"applied": "teams/default,copy/both"}
    again = make_review(jsonpatch.apply_patch(make_pod(), patch_of(answer)))
    assert "auditAnnotations" not in response(ask(context, "mutate", again))


@table(
    "managed, given, expected",
    {
        "defaulted by the API server": (True, {"preemptionPolicy": PREEMPT}, "Never"),
        "absent": (True, {}, "Never"),
        "already Never": (True, {"preemptionPolicy": "Never"}, "Never"),
        "not managed": (False, {"preemptionPolicy": PREEMPT}, PREEMPT),
    },
)
def test_a_new_managed_class_becomes_never(managed, given, expected):
    """kube-scheduler leaves preemption to the reconciler only where the class says Never."""
    context = make_context(policies=(manage("online"),) if managed else ())
    body = {"kind": "PriorityClass", "metadata": {"name": "online"}, "value": 5, **given}
    assert mutated(context, body).get("preemptionPolicy") == expected


@table(
    "patterns, prefix, expected",
    {
        "the glob begins like the prefix": (("giveway-*",), "giveway-", "Never"),
        "the glob goes further than the prefix": (("giveway-*",), "give", "Never"),
        "every name": (("*",), "x-", "Never"),
        "no name with this prefix": (("giveway-*",), "online-", None),
        "the rest is random, so no single name is meant": (("giveway-web",), "giveway-", None),
        "system classes are never managed": (("*",), "system-", None),
        "neither name nor prefix": (("*",), "", None),
    },
)
def test_a_class_with_a_generated_name_becomes_never(patterns, prefix, expected):
    """The API server makes the name after mutation, so a class is managed when its name may turn out to be."""
    body = {"kind": "PriorityClass", "metadata": {"generateName": prefix}, "value": 5}
    assert mutated(make_context(policies=(manage(*patterns),)), body).get("preemptionPolicy") == expected


@table(
    "meta, given, words",
    {
        "set": ({"name": "online-a"}, {"preemptionPolicy": PREEMPT}, ["online-a was made Never"]),
        "what to write": ({"name": "online-a"}, {}, ['Write "preemptionPolicy: Never" in the manifest']),
        "generated name": ({"generateName": "online-"}, {}, ["PriorityClass online-* was made Never"]),
        "why": ({"name": "online-a"}, {}, ["PreemptionPolicy preempt manages it"]),
        "Never already": ({"name": "online-a"}, {"preemptionPolicy": "Never"}, []),
        "not managed": ({"name": "other"}, {"preemptionPolicy": PREEMPT}, []),
    },
)
def test_who_makes_a_managed_class_is_told(meta, given, words):
    """A class that was made Never comes with a warning: what, why, and what to write."""
    body = {"kind": "PriorityClass", "metadata": meta, "value": 5, **given}
    warnings = filled(make_context(policies=(manage("online-*"),)), body).get("warnings", [])
    assert len(warnings) == len(words)
    assert all(text in warnings[0] and len(warnings[0]) < 256 for text in words)


@pytest.mark.parametrize("given", [{}, {"preemptionPolicy": PREEMPT}], ids=["absent", "spelled out"])
def test_the_manifest_of_a_class_that_was_made_never_can_be_applied_again(given):
    """An UPDATE of a managed class that is Never leaves it so, and validation finds nothing changed."""
    context = make_context(policies=(manage("online"),))
    stored = {"kind": "PriorityClass", "metadata": {"name": "online"}, "value": 5, "preemptionPolicy": "Never"}
    applied = {"kind": "PriorityClass", "metadata": {"name": "online"}, "value": 5, **given}
    after = mutated(context, applied, stored)
    assert after == stored
    warnings = filled(context, applied, stored)["warnings"]
    assert "stays Never" in warnings[0]
    assert judged(context, after, stored)["allowed"] is True


def test_a_class_that_nobody_manages_is_left_to_the_api_server():
    """A class outside every policy is not changed, though it is Never."""
    stored = {"kind": "PriorityClass", "metadata": {"name": "other"}, "value": 5, "preemptionPolicy": "Never"}
    applied = {**stored, "preemptionPolicy": PREEMPT}
    assert mutated(make_context(policies=(manage("online"),)), applied, stored) == applied


def test_an_existing_class_is_not_made_never():
    """A class's preemptionPolicy is immutable: an UPDATE that changed it would only fail."""
    context = make_context(policies=(manage("online"),))
    body = {"kind": "PriorityClass", "metadata": {"name": "online"}, "value": 5, "preemptionPolicy": PREEMPT}
    assert mutated(context, body, body) == body


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_a_policy_with_an_expression_changes_nothing_else(phase):
    """Where expressions may read any field, objects are decoded in full, and every other answer stays the same."""
    policies = (DEFAULTS, COPIES, manage("batch", online="online-managed"))
    always = make_policy("cel", make_rule("true", validate=Validate(expression="object.spec.containers.size() > 0")))
    plain = make_context(HIGH, BATCH, ONLINE, TWIN, policies=policies)
    whole = make_context(HIGH, BATCH, ONLINE, TWIN, policies=(*policies, always))
    assert (plain.reads_everything, whole.reads_everything) == (False, True)
    for row in RESOLUTION:
        body = make_review(make_pod(**row.values[2]))
        assert ask(plain, phase, body).body == ask(whole, phase, body).body


@table(
    "policies, spec, warning",
    {
        "default": ((DEFAULTS,), {}, "a pod that names no PriorityClass gets batch here, by rule teams/default"),
        "twin": (
            (manage(online="online-managed"),),
            {"priorityClassName": "online"},
            (
                "the pod gets PriorityClass online-managed, the twin of online: giveway preempts for it, and"
                " kube-scheduler does not (PreemptionPolicy preempt)"
            ),
        ),
        "own class": ((DEFAULTS, manage(online="online-managed")), {"priorityClassName": "high"}, None),
    },
)
def test_the_author_is_told_of_a_class_that_mutation_gave(policies, spec, warning):
    """What the author did not write is said once, where `kubectl` shows it; what was written is not commented."""
    context = make_context(HIGH, BATCH, ONLINE, TWIN, policies=policies)
    pod = make_pod(**spec)
    assert filled(context, pod).get("warnings") == ([warning] if warning else None)
    assert len(warning or "") <= 256
