"""Who asks for a pod: people are told apart by `subjects`, what controllers make by namespace only."""

import pytest

from tests.policy.builders import create, define, deployment, namespace, outcomes, pod, rules, table, update, user
from tests.policy.builders import engine as judging
from webhook.policy.model.values import CAN_BE_PREEMPTED as KEY

CONTROLLER = user("system:serviceaccount:kube-system:replicaset-controller", "system:serviceaccounts")
OPERATOR = user("system:serviceaccount:operators:spark-operator", "system:serviceaccounts")
RUNNER = user("system:serviceaccount:ci:runner", "system:serviceaccounts", "system:serviceaccounts:ci")
MANAGER = user("system:kube-controller-manager")
PETRA = user("petra", "platform")
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}

PLATFORM = "subjects: [{kind: Group, name: platform}]"
CONTROLLERS = "{kind: Group, name: 'system:serviceaccounts:kube-system'}"
BOTH = PLATFORM.replace("]", f", {CONTROLLERS}]")
"""A `match` that says that it means controllers, too, as one must that restricts new pods."""
EXACTLY = "subjects: [{kind: ServiceAccount, namespace: ci, name: runner}]"
SPACE = "namespaces: [ingress]"
LABEL = "namespaceSelector: {matchLabels: {tier: infra}}"
INGRESS = {"namespace": "ingress"}


def band(right):
    """A range reserved for this right."""
    return judging(rules(f"{{name: r, reserve: {{from: 900, to: 1000, use: {right}}}}}"))


def owned(**controller):
    """A pod that says a controller owns it."""
    body = pod("x", priority=950)
    body["metadata"]["ownerReferences"] = [{**OWNER, **controller}]
    return body


RIGHTS = [
    (PLATFORM, PETRA, {}, "allow", "a person by group"),
    (PLATFORM, user(), {}, "deny", "another person"),
    (PLATFORM, CONTROLLER, {}, "deny", "a controller's pod by subjects only"),
    (PLATFORM, MANAGER, {}, "deny", "kube-controller-manager's pod"),
    (PLATFORM, OPERATOR, {}, "deny", "an operator's pod"),
    (f"{SPACE}, {PLATFORM}", CONTROLLER, INGRESS, "allow", "a controller's pod by namespace"),
    (f"{SPACE}, {PLATFORM}", CONTROLLER, {}, "deny", "a controller's pod elsewhere"),
    (f"{SPACE}, {PLATFORM}", OPERATOR, INGRESS, "allow", "an operator's pod by namespace"),
    (f"{SPACE}, {PLATFORM}", PETRA, INGRESS, "allow", "a person in the namespace"),
    (f"{SPACE}, {PLATFORM}", user(), INGRESS, "deny", "another person in the namespace"),
    (f"{SPACE}, {PLATFORM}", PETRA, {}, "deny", "a person elsewhere"),
    (f"{LABEL}, {PLATFORM}", CONTROLLER, {"namespace_object": namespace("a", tier="infra")}, "allow", "by label"),
    (f"namespaces: ['*'], {PLATFORM}", CONTROLLER, {}, "deny", "every namespace is no namespace"),
    (f"namespaces: [ingress, '*'], {PLATFORM}", OPERATOR, {}, "deny", "every namespace among others"),
    (f"namespaceSelector: {{}}, {PLATFORM}", CONTROLLER, {}, "deny", "an empty selector neither"),
    (f"namespaceSelector: {{matchExpressions: [{{key: tier, operator: NotIn, values: [x]}}]}}, {PLATFORM}",
     CONTROLLER, {}, "deny", "nor one that leaves some namespaces out"),
    (f"namespaceSelector: {{matchExpressions: [{{key: kubernetes.io/metadata.name, operator: Exists}}]}}, {PLATFORM}",
     CONTROLLER, {}, "deny", "nor one by a label that all have"),
    ("namespaceSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [x]}]}", CONTROLLER, {}, "allow",
     "without subjects any namespace part decides"),
    (f"objectSelector: {{}}, {PLATFORM}", CONTROLLER, {}, "deny", "nor a label of the pod"),
    (EXACTLY, RUNNER, {}, "allow", "a service account by its name"),
    ("subjects: [{kind: User, name: 'system:serviceaccount:ci:runner'}]", RUNNER, {}, "allow", "by its user name"),
    (EXACTLY, OPERATOR, {}, "deny", "another service account"),
    ("subjects: [{kind: ServiceAccount, namespace: ci, name: 'run*'}]", RUNNER, {}, "deny", "by a glob"),
    ("subjects: [{kind: Group, name: 'system:serviceaccounts:ci'}]", RUNNER, {}, "deny", "by its group"),
    ("subjects: [{kind: ServiceAccount, namespace: kube-system, name: helm}]",
     user("system:serviceaccount:kube-system:helm"), {}, "deny", "kube-system by its name"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("right", "who", "where", "outcome"), [row[:4] for row in RIGHTS], ids=[row[4] for row in RIGHTS]
)
@pytest.mark.parametrize("make", [create, deployment], ids=["pod", "template"])
def test_who_has_a_right(make, right, who, where, outcome):
    """People have a right by subjects; what is made for others has it by namespace, pod and template alike."""
    found = outcomes(band(f"{{{right}}}"), make(pod("x"), user=who, priority=950, **where))
    assert found == {"p/r": outcome}


@table(
    "right, reference, who, where, outcome",
    {
        "takes the right of a service account away": (EXACTLY, True, RUNNER, {}, "deny"),
        "an owner that is no controller takes nothing": (EXACTLY, False, RUNNER, {}, "allow"),
        "nor does one that says so in another type": (EXACTLY, "true", RUNNER, {}, "allow"),
        "gives a person nothing": (PLATFORM, True, user(), {}, "deny"),
        "gives nothing in the namespace either": (f"{SPACE}, {PLATFORM}", True, user(), INGRESS, "deny"),
        "a person stays a person": (PLATFORM, True, PETRA, {}, "allow"),
    },
)
def test_an_owner_reference_only_takes_away(right, reference, who, where, outcome):
    """Whoever makes a pod writes its ownerReferences, so they give no right."""
    request = create(owned(controller=reference), user=who, priority=950, **where)
    assert outcomes(band(f"{{{right}}}"), request) == {"p/r": outcome}


def test_owner_references_of_another_form_are_passed_over():
    """What is no list of references is left to the API server."""
    body = pod("x", priority=950)
    for wrong in ("x", {"controller": True}, [None, "x"]):
        body["metadata"]["ownerReferences"] = wrong
        assert outcomes(band(f"{{{EXACTLY}}}"), create(body, user=RUNNER)) == {"p/r": "allow"}


def test_the_text_says_why_a_controller_lacks_a_right():
    """The event of a workload's author names the reason, not only the subjects."""
    (verdict,) = band(f"{{{PLATFORM}}}").judge(create(pod("x"), user=CONTROLLER, priority=950))
    assert (
        "reserves for Group platform (pods that service accounts and controllers make have a right by namespace"
        in verdict.message
    )
    (verdict,) = band(f"{{{PLATFORM}}}").judge(create(pod("x"), priority=950))
    assert "controllers" not in verdict.message  # fmt: skip


DENY = "{name: r, priorityClasses: {deny: ['*']}}"
RESTRICTIONS = [
    ({"match": BOTH}, PETRA, {}, True, "a person who is meant"),
    ({"match": BOTH}, user(), {}, False, "a person who is not"),
    ({"match": BOTH}, CONTROLLER, {}, True, "a controller's pod, whoever wrote the workload"),
    ({"match": BOTH}, OPERATOR, {}, True, "an operator's pod"),
    ({"match": f"{SPACE}, {PLATFORM}"}, CONTROLLER, INGRESS, True, "a controller's pod in the namespace"),
    ({"match": f"{SPACE}, {PLATFORM}"}, CONTROLLER, {}, False, "a controller's pod elsewhere"),
    ({"exclude": PLATFORM}, PETRA, {}, False, "a person who is excluded"),
    ({"exclude": PLATFORM}, CONTROLLER, {}, True, "subjects exclude no controller"),
    ({"exclude": "subjects: [{kind: Group, name: 'system:*'}]"}, CONTROLLER, {}, True, "not by their group either"),
    ({"exclude": f"{SPACE}, {PLATFORM}"}, CONTROLLER, INGRESS, False, "namespaces do"),
    ({"exclude": EXACTLY}, RUNNER, {}, False, "a service account is excluded by its name"),
    ({"exclude": PLATFORM}, user("system:node:n1", "system:nodes"), {}, True, "a node is told apart like people"),
    ({"exclude": "subjects: [{kind: Group, name: 'system:nodes'}]"}, user("system:node:n1", "system:nodes"), {}, False,
     "and excluded like people"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "who", "where", "refused"), [row[:4] for row in RESTRICTIONS], ids=[row[4] for row in RESTRICTIONS]
)
@pytest.mark.parametrize("make", [create, deployment], ids=["pod", "template"])
def test_whom_a_policy_restricts(make, parts, who, where, refused):
    """What restricts holds for what controllers make, what lets off does not."""
    found = outcomes(
        judging(rules(DENY, **{part: f"{{{words}}}" for part, words in parts.items()})),
        make(pod("x"), user=who, **where),
    )
    assert found == ({"p/r": "deny"} if refused else {})


@table(
    "match, who, where, given",
    {
        "a person": (PLATFORM, PETRA, {}, True),
        "another person": (PLATFORM, user(), {}, False),
        "controllers get nothing by subjects": (PLATFORM, CONTROLLER, {}, False),
        "by namespace they do": (f"{SPACE}, {PLATFORM}", CONTROLLER, INGRESS, True),
    },
)
def test_who_gets_a_default(match, who, where, given):
    """A default class and copied annotations are given as rights are."""
    engine = judging(
        rules(
            "{name: d, defaultPriorityClass: standard}", f"{{name: c, copyAnnotations: [{KEY}]}}", match=f"{{{match}}}"
        )
    )
    request = create(user=who, **where)
    assert bool(engine.default_priority_class(request)) is given
    assert bool(engine.annotations_to_copy(request)) is given


def test_the_match_of_a_shield_gives_no_right_to_controllers():
    """A match by subjects is part of the right that its rule gives."""
    shield = f"{{name: s, protectAnnotations: {{keys: [{KEY}], operations: [CREATE, UPDATE], allow: {{}}}}}}"
    engine = judging(rules(shield, match=f"{{{BOTH}}}"))
    marked = pod(annotations={KEY: "true"})
    assert outcomes(engine, create(marked, user=PETRA)) == {"p/s": "allow"}
    assert outcomes(engine, create(marked, user=CONTROLLER)) == {"p/s": "deny"}
    assert outcomes(engine, update(pod(), marked, user=PETRA)) == {"p/s": "allow"}
    assert outcomes(engine, update(pod(), marked, user=RUNNER)) == {"p/s": "deny"}


@table(
    "right, who, outcome",
    {
        "a person": (PLATFORM, PETRA, "allow"),
        "a service account by its name": (EXACTLY, RUNNER, "allow"),
        "by its group": ("subjects: [{kind: Group, name: 'system:serviceaccounts:ci'}]", RUNNER, "allow"),
        "a tenant's service account": (f"namespaces: [team-a], {PLATFORM}", RUNNER, "deny"),
    },
)
def test_who_changes_a_pod_acts_for_themselves(right, who, outcome):
    """An UPDATE of a pod goes through no workload: subjects decide, also of pods that a controller owns."""
    engine = judging(rules(f"{{name: s, protectAnnotations: {{keys: [{KEY}], allow: {{{right}}}}}}}"))
    old, new = owned(), owned()
    new["metadata"]["annotations"] = {KEY: "true"}
    assert outcomes(engine, update(old, new, user=who)) == {"p/s": outcome}


def test_a_label_in_the_same_update_gives_no_right():
    """A right by label needs the label before and after."""
    engine = judging(
        rules(
            f"{{name: s, protectAnnotations: {{keys: [{KEY}], allow: {{objectSelector: {{matchLabels: {{a: b}}}}}}}}}}"
        )
    )
    changed = pod(labels={"a": "b"}, annotations={KEY: "true"})
    assert outcomes(engine, update(pod(), changed)) == {"p/s": "deny"}
    assert outcomes(engine, update(pod(labels={"a": "b"}), changed)) == {"p/s": "allow"}


def test_classes_are_made_by_who_asks():
    """Nobody makes a PriorityClass for someone else: subjects decide, of service accounts too."""
    engine = judging(
        rules(
            f"{{name: r, reserve: {{from: 1, to: 9, define: {{{EXACTLY}}}}}}}",
            match=f"{{{EXACTLY[:-1]}, {CONTROLLERS}]}}",
        )
    )
    assert outcomes(engine, define("x", 5, user=RUNNER)) == {"p/r": "allow"}
    assert outcomes(engine, define("x", 5, user=OPERATOR)) == {}
