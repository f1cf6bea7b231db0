"""Both forms of a policy about Bindings, PodGroups, classes and namespaces: one request each, the same verdict."""

import copy

import pytest

from tests.admission.builders import make_pod
from tests.native import apiserver
from tests.native.comparing import Both, agreed, make_class, make_namespace, pod_request
from tests.native.test_same_verdicts import KEPT
from tests.policy.builders import engine, rules, table
from webhook.native import objects
from webhook.policy.model.values import CAN_BE_PREEMPTED

SHIELD = f"{{name: s, protectAnnotations: {{keys: [{CAN_BE_PREEMPTED}], allow: [{{namespaces: [team-a]}}]}}}}"


def condition(*expressions):
    """The conditions of a policy."""
    rows = (f'{{name: c{place}, expression: "{expression}"}}' for place, expression in enumerate(expressions))
    return f"[{', '.join(rows)}]"


@pytest.mark.parametrize(
    "expression",
    [
        "'lift' in object.metadata.labels",
        "!('lift' in object.metadata.labels)",
        "object.metadata.?labels[?'lift'].hasValue()",
        "'other' in object.metadata.annotations",
        "object.metadata.name == 'a'",
        "object.kind == 'Pod'",
        "has(object.spec)",
        "oldObject == null",
        "oldObject.metadata.labels.size() == 0",
        "'owner' in namespaceObject.metadata.labels",
        "request.operation == 'CREATE'",
    ],
)
@pytest.mark.parametrize("labels", [{}, {"lift": "1"}], ids=["bare", "with labels of its own"])
def test_a_binding_is_no_pod(expression, labels):
    """Whoever binds chooses the labels of the Binding: they neither switch a policy on nor off, in either form."""
    spec = rules(SHIELD, conditions=condition(expression))
    both = Both(engine(spec).policies, [make_namespace("team-a", owner="x")])
    meta = {"name": "a", "namespace": "team-a", "labels": labels, "annotations": {CAN_BE_PREEMPTED: "true"}}
    body = {"kind": "Binding", "apiVersion": "v1", "metadata": meta, "target": {"name": "n"}}
    webhook, native = both.validate(pod_request(body, user="system:kube-scheduler"))
    assert native.failed == webhook.failed
    assert native.failed or native.denied == webhook.denied


@pytest.mark.parametrize("words", ["'two\\\\n lines'", "object.spec.nothing", "'x'"])
def test_an_expression_for_the_message(words):
    """On one line; the message stands for one that fails."""
    rule = f'{{name: v, validate: {{expression: "false", message: say so, messageExpression: "{words}"}}}}'
    both = Both(engine(rules(rule)).policies, [make_namespace("team-a")])
    assert len(agreed(both.create(pod_request(make_pod())))) == 1


GROUP_RULES = rules(
    "{name: band, reserve: {from: 900, to: 1000, use: {namespaces: [ops]}}}",
    "{name: allowed, priorityClasses: {allow: [low, high]}}",
    "{name: reads, validate: {expression: 'size(object.spec.containers) > 0', message: m}}",
)
CLUSTER = [
    *(make_class(name, value) for name, value in (("low", 5), ("high", 950), ("x", 7))),
    *map(make_namespace, ("team-a", "ops")),
]


@pytest.mark.parametrize("version", ["v1alpha2", "v1"])
@table(
    "namespace, spec, refused",
    {
        "allowed": ("team-a", {"priorityClassName": "low", "priority": 5}, []),
        "a reserved value": ("team-a", {"priorityClassName": "high", "priority": 950}, ["p/band"]),
        "with the right": ("ops", {"priorityClassName": "high", "priority": 950}, []),
        "a class that is not allowed": ("team-a", {"priorityClassName": "x", "priority": 7}, ["p/allowed"]),
        "neither class nor priority": ("team-a", {}, []),
    },
)
def test_both_judge_a_group_alike(namespace, spec, refused, version):
    """The same refusal in the same words; expressions over pods say nothing of groups."""
    body = {"kind": "PodGroup", "metadata": {"name": "gang", "namespace": namespace}, "spec": spec}
    asked = pod_request(body)
    for part in ("kind", "resource"):
        asked[part]["version"] = version
    found = agreed(Both(engine(GROUP_RULES).policies, CLUSTER).validate(asked))
    assert len(found) == len(refused)
    assert all(f"rule {rule}" in text for text, rule in zip(found, refused, strict=True))


@pytest.mark.parametrize(("user", "refused"), [("alice", True), ("lead", False)])
@pytest.mark.parametrize("change", ["gets an owner", "goes"])
def test_a_class_that_may_go_is_judged_as_one_that_is_defined(change, user, refused):
    """An owner that does not exist is as good as a deletion: the garbage collector deletes the class."""
    define = "define: {subjects: [{kind: User, name: lead}]}"
    both = Both(engine(rules(f"{{name: band, reserve: {{from: 900, to: 1000, {define}}}}}")).policies, CLUSTER)
    old = make_class("high", 950)
    new = copy.deepcopy(old)
    new["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}]
    asked = {"operation": "UPDATE"} if change == "gets an owner" else {"operation": "DELETE", "object": None}
    assert bool(agreed(both.validate(pod_request(new, user=user, oldObject=old, **asked)))) is refused


def keeps(kind, user):
    """A rule by which this user may change the annotation on objects of this kind."""
    body = f"keys: [{CAN_BE_PREEMPTED}], operations: [UPDATE], resources: [{kind}]"
    return rules(f"{{name: keep, protectAnnotations: {{{body}, allow: {{subjects: [{{kind: User, name: {user}}}]}}}}}}")


@pytest.mark.parametrize("going", [{}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}], ids=["stays", "goes"])
@table(
    "failing, beside, refused",
    {
        "it gives the right": (keeps("priorityclasses", "alice"), (), True),
        "another one does": (keeps("priorityclasses", "bob"), (keeps("priorityclasses", "alice"),), True),
        "it is about pods": (keeps("pods", "bob"), (keeps("priorityclasses", "alice"),), False),
    },
)
def test_a_condition_that_fails_refuses_what_its_policy_speaks_of(failing, beside, refused, going):
    """And nothing else. This one fails for a PriorityClass, which lies in no namespace."""
    failing += "\nconditions: " + condition("namespaceObject.metadata.name == 'x'")
    old = make_class("low", 10)
    old["metadata"] |= going
    new = copy.deepcopy(old)
    new["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "true"}
    both = Both(engine(failing, *beside).policies, [old], settings=KEPT)
    webhook, native = results = both.validate(pod_request(new, operation="UPDATE", oldObject=old))
    assert (webhook.failed, native.failed) == (refused, refused)
    assert not agreed(results)


BAND = "{name: band, reserve: {from: 900000000, to: 1000000000, use: [{namespaces: [ingress]}]}}"
IN_TEAMS = "{namespaceSelector: {matchLabels: {team: '1'}}}"
OF_A_TEAM = "'team' in namespaceObject.metadata.labels"
OBJECTS = [
    make_class("huge", 950000000),
    make_class("standard", 100),
    make_namespace("team-a", team="1"),
    make_namespace("sandbox", sandbox="1"),
]


@table(
    "spec, refused",
    {
        "exclude": (rules(BAND, exclude="{namespaceSelector: {matchLabels: {sandbox: '1'}}}"), "team-a"),
        "match": (rules(BAND, match=IN_TEAMS), "team-a"),
        "a condition": (rules(BAND, conditions=condition(OF_A_TEAM)), "team-a"),
        "one that guards itself": (
            rules(BAND, conditions=condition(f"namespaceObject != null && {OF_A_TEAM}")),
            "team-a",
        ),
        "one that fails beside one that is false": (
            rules(BAND, conditions=condition("object.spec.missing == 1", f"!({OF_A_TEAM})")),
            "sandbox",
        ),
    },
)
def test_a_range_is_held_where_the_policy_applies_and_nowhere_else(spec, refused):
    """The namespaces that are meant are refused by the rule and not by an expression that fails; others pass.

    The API server gives match conditions no namespace.
    """
    both = Both(engine(spec).policies, OBJECTS)
    assert not both.compiled.inexpressible
    for namespace in ("team-a", "sandbox"):
        for name in ("huge", "standard"):
            body = make_pod(meta={"namespace": namespace}, priorityClassName=name)
            webhook, native = results = both.create(pod_request(body))
            assert native.failed == webhook.failed
            assert bool(agreed(results) or native.failed) == (namespace == refused and name == "huge")


def test_a_default_by_the_labels_of_the_namespace():
    """What fills in reads the namespace where the API server gives it."""
    both = Both(engine(rules("{name: default, defaultPriorityClass: standard}", match=IN_TEAMS)).policies, OBJECTS)
    for namespace, given in (("team-a", "standard"), ("sandbox", None)):
        webhook, native = both.create(pod_request(make_pod(meta={"namespace": namespace})))
        assert native.object == webhook.object
        assert native.object["spec"].get("priorityClassName") == given


def test_what_the_webhook_copied_is_not_held_against_a_pod():
    """Its class says it, and the native table of classes is older than that."""
    copies = f"{{name: c, copyAnnotations: [{CAN_BE_PREEMPTED}]}}"
    shield = f"{{name: s, protectAnnotations: {{keys: [{CAN_BE_PREEMPTED}], operations: [CREATE]}}}}"
    team, old = make_namespace("team-a"), make_class("high", 5)
    new = copy.deepcopy(old)
    new["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "true"}
    both = Both(engine(rules(copies, shield)).policies, [new, team], compiled_for=[old, team])
    _, *beside = both.beside(pod_request(make_pod(priorityClassName="high")))
    assert [(found.object["metadata"]["annotations"][CAN_BE_PREEMPTED], found.denied) for found in beside] == [
        ("true", set()),
        ("true", set()),
    ]


NEW_PODS = objects.constraints(objects.Settings(namespace="giveway-system", reconciler=""), ["pods"], ["CREATE"])


def test_no_match_condition_can_read_the_namespace():
    """Whoever compiles one gets an error, not a policy that refuses every pod."""
    reads = objects.CompiledCondition("c", OF_A_TEAM)
    with pytest.raises(ValueError, match="match condition c reads namespaceObject"):
        objects.mutating_policy("m", [], description="", constraints=NEW_PODS, conditions=[reads], patch="[]")


@pytest.mark.parametrize("expression", ["namespaceObject == null", "request.operation == 'CREATE'"])
def test_the_stand_in_withholds_the_namespace_from_match_conditions(expression):
    """As the API server does: what guards itself against null there is always taken the other way."""
    refusing = objects.Validation("p/r", "namespaceObject.metadata.name == 'a'", "no")
    made = objects.validating_policy("p", "p", "enforce", constraints=NEW_PODS, validations=[refusing])
    made[0]["spec"]["matchConditions"] = [{"name": "c", "expression": expression}]
    found = apiserver.validate(made, pod_request(make_pod()), {"team-a": make_namespace("team-a")})
    assert found.messages("Deny") == ["no"]
