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
    make_review,
    manage,
    mutated,
    patch_of,
    policy,
    response,
)
from tests.policy.builders import table
from webhook.policy.model.values import CAN_BE_PREEMPTED, GIVEN, MARK, POD_SCALE_UP_DELAY, PROTECTION_DURATION

PREEMPT = "PreemptLowerPriority"
HIGH = make_class("high", 100)
BATCH = make_class("batch", 10, never=True, preemptible="true", protection="30")
ONLINE, TWIN = make_class("online", 500), make_class("online-managed", 500, never=True)
DEFAULTS = policy("teams", "{name: default, defaultPriorityClass: batch}", match="{namespaces: [team-*]}")
COPIES = policy("copy", f"{{name: both, copyAnnotations: [{CAN_BE_PREEMPTED}, {PROTECTION_DURATION}]}}")


def priority_of(pod: dict[str, Any]) -> tuple[Any, Any, Any]:
    spec = pod["spec"]
    return spec.get("priorityClassName"), spec.get("priority"), spec.get("preemptionPolicy")


PLUGIN_NONE = {"priority": 0, "preemptionPolicy": PREEMPT}
STD = make_class("std", 7, default=True)
TWINS = (manage(online="online-managed"),)
SENT = {"priorityClassName": "online"}
RESOLUTION = {
    "class named": ((HIGH,), (), {"priorityClassName": "high"}, ("high", 100, PREEMPT)),
    "class with Never": ((BATCH,), (), {"priorityClassName": "batch"}, ("batch", 10, "Never")),
    "neither class nor default": ((), (), {}, (None, 0, PREEMPT)),
    "global default": ((STD,), (), {}, ("std", 7, PREEMPT)),
    "several global defaults: the lowest value": (
        (make_class("b", 9, default=True), make_class("a", 3, default=True)),
        (),
        {},
        ("a", 3, PREEMPT),
    ),
    "half filled": ((HIGH,), (), {"priorityClassName": "high", "priority": 100}, ("high", 100, PREEMPT)),
    "priority 0 without a class": ((), (), {"priority": 0}, (None, 0, PREEMPT)),
    "disagreement is left alone": ((HIGH,), (), {"priorityClassName": "high", "priority": 7}, ("high", 7, None)),
    "disagreement with the default": ((STD,), (), {"priority": 0}, (None, 0, None)),
    "raw priority is left alone": ((), (), {"priority": 2000000000}, (None, 2000000000, None)),
    "unknown class is left alone": ((), (), {"priorityClassName": "ghost"}, ("ghost", None, None)),
    "policy default, plugin off": ((BATCH,), (DEFAULTS,), {}, ("batch", 10, "Never")),
    "policy default, plugin on": ((BATCH,), (DEFAULTS,), PLUGIN_NONE, ("batch", 10, "Never")),
    "a named class wins": ((BATCH, HIGH), (DEFAULTS,), {"priorityClassName": "high"}, ("high", 100, PREEMPT)),
    "policy default that does not exist": ((), (DEFAULTS,), {}, (None, 0, PREEMPT)),
    "twin, plugin off": ((ONLINE, TWIN), TWINS, SENT, ("online-managed", 500, "Never")),
    "twin, plugin on: all three fields": (
        (ONLINE, TWIN),
        TWINS,
        {**SENT, "priority": 500, "preemptionPolicy": PREEMPT},
        ("online-managed", 500, "Never"),
    ),
    "twin that does not exist": ((ONLINE,), TWINS, SENT, ("online", 500, PREEMPT)),
    "twin of another value": (
        (ONLINE, make_class("online-managed", 400, never=True)),
        TWINS,
        SENT,
        ("online", 500, PREEMPT),
    ),
    "twin that preempts by itself": (
        (ONLINE, make_class("online-managed", 500)),
        TWINS,
        SENT,
        ("online", 500, PREEMPT),
    ),
}


@table("objects, policies, spec, expected", RESOLUTION)
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


def test_the_patch_is_minimal_and_keys_are_escaped_in_paths():
    """Only what changes is in it; a slash in an annotation's key is ~1, as RFC 6901 asks."""
    context = make_context(BATCH, policies=(COPIES,))
    pod = make_pod(meta={"annotations": {"a": "b"}}, priorityClassName="batch", priority=10, preemptionPolicy="Never")
    paths = [op["path"] for op in patch_of(filled(context, pod))]
    assert paths == [
        "/metadata/annotations/godel.bytedance.com~1can-be-preempted",
        "/metadata/annotations/godel.bytedance.com~1protection-duration-from-preemption",
        "/metadata/annotations/giveway.dev~1given",
    ]


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


GHOST = make_pod(priorityClassName="ghost")


@pytest.mark.parametrize("phase", ["mutate", "validate"])
@table(
    "body",
    {
        **{name: make_review(GHOST, subResource=name) for name in ("status", "binding", "eviction", "exec")},
        **{name: make_review(None, GHOST, operation=name) for name in ("DELETE", "CONNECT")},
    },
)
def test_what_is_no_new_pod_passes(phase, body):
    """Sub-resources in which no protected key is in play are not touched, and nothing holds up a deletion."""
    answer = response(ask(make_context(), phase, body))
    assert answer == {"uid": answer["uid"], "allowed": True}


def test_the_applied_rules_are_in_the_audit_annotations():
    """Who reads the audit log sees which rules filled something in, and nothing of a call that finds it there."""
    context = make_context(BATCH, policies=(DEFAULTS, COPIES))
    answer = filled(context, make_pod())
    assert answer["auditAnnotations"] == {"applied": "teams/default,copy/both"}
    again = make_review(jsonpatch.apply_patch(make_pod(), patch_of(answer)))
    assert "auditAnnotations" not in response(ask(context, "mutate", again))


def class_body(policy=None, **meta):
    """A PriorityClass as a manifest has it."""
    body = {"kind": "PriorityClass", "metadata": meta, "value": 5}
    return body | ({"preemptionPolicy": policy} if policy else {})


@table(
    "patterns, body, expected",
    {
        "defaulted by the API server": (("online",), class_body(PREEMPT, name="online"), "Never"),
        "absent": (("online",), class_body(name="online"), "Never"),
        "already Never": (("online",), class_body("Never", name="online"), None),
        "not managed": (("other",), class_body(PREEMPT, name="online"), None),
        "the glob begins like the prefix": (("giveway-*",), class_body(generateName="giveway-"), "Never"),
        "the glob goes further than the prefix": (("giveway-*",), class_body(generateName="give"), "Never"),
        "every name": (("*",), class_body(generateName="x-"), "Never"),
        "no name with this prefix": (("giveway-*",), class_body(generateName="online-"), None),
        "the rest is random, so no single name is meant": (("giveway-web",), class_body(generateName="giveway-"), None),
        "system classes are never managed": (("*",), class_body(generateName="system-"), None),
        "neither name nor prefix": (("*",), class_body(generateName=""), None),
    },
)
def test_a_new_managed_class_becomes_never(patterns, body, expected):
    """So kube-scheduler leaves preemption to the reconciler; its author reads what was done, why, and what to write.

    The API server makes a name of a prefix after mutation, so such a class is managed if its name may turn out to be.
    """
    context = make_context(policies=(manage(*patterns),))
    assert mutated(context, body) == (body | {"preemptionPolicy": expected} if expected else body)
    warnings = filled(context, body).get("warnings", [])
    shown = body["metadata"].get("name") or f"{body['metadata'].get('generateName')}*"
    told = (
        f"PriorityClass {shown} was made Never: PreemptionPolicy preempt manages it, so giveway preempts for its pods"
        ' and kube-scheduler does not. Write "preemptionPolicy: Never" in the manifest'
    )
    assert warnings == ([told] if expected else [])


@table(
    "applied, old, kept",
    {
        "absent": (class_body(name="online"), class_body("Never", name="online"), True),
        "spelled out": (class_body(PREEMPT, name="online"), class_body("Never", name="online"), True),
        "nobody manages it": (class_body(PREEMPT, name="other"), class_body("Never", name="other"), False),
        "it never was Never": (class_body(PREEMPT, name="online"), class_body(PREEMPT, name="online"), False),
    },
)
def test_the_manifest_of_a_class_that_was_made_never_can_be_applied_again(applied, old, kept):
    """An UPDATE of a managed class that is Never leaves it so, and validation finds nothing changed; others are left.

    A class's preemptionPolicy is immutable: an UPDATE that changed it would only fail.
    """
    context = make_context(policies=(manage("online"),))
    after = mutated(context, applied, old)
    assert after == (old if kept else applied)
    assert ("stays Never" in str(filled(context, applied, old))) is kept
    assert not kept or judged(context, after, old)["allowed"] is True


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_a_policy_with_an_expression_changes_nothing_else(phase):
    """Where expressions may read any field, objects are decoded in full, and every other answer stays the same."""
    policies = (DEFAULTS, COPIES, manage("batch", online="online-managed"))
    always = policy("cel", "{name: 'true', validate: {expression: object.spec.containers.size() > 0}}")
    plain = make_context(HIGH, BATCH, ONLINE, TWIN, policies=policies)
    whole = make_context(HIGH, BATCH, ONLINE, TWIN, policies=(*policies, always))
    assert (plain.reads_everything, whole.reads_everything) == (False, True)
    for _, _, spec, _ in RESOLUTION.values():
        body = make_review(make_pod(**spec))
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
