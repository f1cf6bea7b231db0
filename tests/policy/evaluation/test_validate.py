"""CEL rules and conditions, as the engine runs them."""

import pytest

from tests.policy.builders import (
    create,
    define,
    deployment,
    engine,
    namespace,
    outcomes,
    pod,
    priority_class,
    rules,
    table,
    update,
)
from webhook.policy.model.rules import Enforcement


def validate(expression, **more):
    """A rule with this expression."""
    extra = "".join(f", {name}: {value}" for name, value in more.items())
    return f"{{name: v, validate: {{expression: {expression!r}{extra}}}}}"


@table(
    "expression, outcome",
    {
        "true": ("object.spec.priority <= 10", "allow"),
        "false": ("object.spec.priority > 10", "deny"),
        "missing field": ("object.spec.nope > 10", "error"),
        "no bool at run time": ("object.spec.priority", "error"),
        "labels are never absent": ('"canary" in object.metadata.labels', "deny"),
        "annotations are never absent": ('object.metadata.annotations[?"a"].orValue("") == ""', "allow"),
        "oldObject at CREATE": ("oldObject == null", "allow"),
        "request": ('request.operation == "CREATE" && request.userInfo.username == "alice"', "allow"),
        "namespace": ('request.namespace == "team-a" && !request.dryRun', "allow"),
        "request without objects": ("!has(request.object)", "allow"),
        "namespaceObject": ('namespaceObject.metadata.labels.tier == "x"', "allow"),
        "priorityClass": ('priorityClass.value == 5 && priorityClass.metadata.name == "c"', "allow"),
        "policy filled in": ('priorityClass.preemptionPolicy == "PreemptLowerPriority"', "allow"),
        "string functions": ('object.metadata.name.lowerAscii().startsWith("a")', "allow"),
    },
)
def test_expressions(expression, outcome):
    """What an expression sees, and what its value means."""
    request = create(
        pod("c", priority=5),
        priority_class=priority_class("c", 5),
        namespace_object=namespace("team-a", tier="x"),
        raw={"object": {}, "operation": "CREATE"},
    )
    assert outcomes(engine(rules(validate(expression))), request) == {"p/v": outcome}


@pytest.mark.parametrize(
    ("enforcement", "denies", "warns"), [("enforce", True, False), ("warn", False, True), ("audit", False, True)]
)
def test_an_expression_that_errors(enforcement, denies, warns):
    """It denies under enforce and warns otherwise, naming the expression."""
    (verdict,) = engine(rules(validate("object.spec.nope > 1"), enforcement=enforcement)).judge(create(pod()))
    assert (verdict.outcome, verdict.denies, verdict.warns) == ("error", denies, warns)
    assert "'object.spec.nope > 1'" in verdict.message
    assert '"nope"' in verdict.message


@pytest.mark.parametrize(
    ("enforcement", "denies", "warns"), [("enforce", True, False), ("warn", False, True), ("audit", False, False)]
)
def test_a_violation_by_enforcement(enforcement, denies, warns):
    """It denies, warns or is left for the audit log; a rule's own enforcement wins over its policy's."""
    for spec in (
        rules(validate("false"), enforcement=enforcement),
        rules(f"{{name: v, enforcement: {enforcement}, validate: {{expression: 'false'}}}}", enforcement="enforce"),
    ):
        (verdict,) = engine(spec).judge(create(pod()))
        assert (verdict.denies, verdict.warns) == (denies, warns)


@table(
    "more, words",
    {
        "message": ({"message": "no"}, "no (rule p/v)"),
        "made by CEL": ({"messageExpression": "'\"pod \" + object.metadata.name'"}, "pod a (rule p/v)"),
        "CEL that errors": ({"message": "no", "messageExpression": "object.metadata.nope"}, "no (rule p/v)"),
        "none": ({}, "the expression '1 > 2' is false (rule p/v)"),
    },
)
def test_messages(more, words):
    """What the author is told, and the rule it comes from."""
    (verdict,) = engine(rules(validate("1 > 2", **more))).judge(create(pod()))
    assert verdict.message == words


DESCRIBED = 'object.kind == "Pod" && object.spec.priority == 7 && object.metadata.namespace == "team-a"'
ABOUT_CLASSES = validate("object.value < 100", resources="[priorityclasses]")
SAME = validate("oldObject.spec.x == object.spec.x")
OBJECTS = {
    "a template is the pod that it describes": (validate(DESCRIBED), deployment(pod(), priority=7), "allow"),
    "a rule about classes": (ABOUT_CLASSES, define("x", 500), "deny"),
    "says nothing of pods": (ABOUT_CLASSES, create(pod()), None),
    "a rule is about pods unless told otherwise": (validate("false"), define("x", 500), None),
    "what stays as it was": (SAME, update(pod(x=1), pod(x=1)), "allow"),
    "what changes": (SAME, update(pod(x=1), pod(x=2)), "deny"),
}


@table("rule, request_, outcome", OBJECTS)
def test_what_is_judged(rule, request_, outcome):
    """Of a workload the pod with namespace and priority filled in, of an UPDATE what was and what will be."""
    assert outcomes(engine(rules(rule)), request_) == ({} if outcome is None else {"p/v": outcome})


def test_an_error_on_a_template_only_warns():
    """A template lacks what defaulting gives its pods, which are judged again; a violation refuses it all the same."""
    (error,) = engine(rules(validate("object.spec.serviceAccountName == 'x'"))).judge(deployment(pod()))
    assert (error.outcome, error.denies, error.warns) == ("error", False, True)
    (violation,) = engine(rules(validate("has(object.spec.serviceAccountName)"))).judge(deployment(pod()))
    assert violation.denies


CONDITION = "[{name: c, expression: '%s'}]"


@table(
    "expression, said",
    {"met": ("true", {"p/v": "deny"}), "not met": ("false", {}), "error": ("object.nope", {"p/c": "error"})},
)
def test_conditions(expression, said):
    """A policy applies where its conditions are true; one that errors is an error of the policy, told once."""
    judging = engine(
        rules(validate("false"), "{name: w, validate: {expression: 'false'}}", conditions=CONDITION % expression)
    )
    found = outcomes(judging, create(pod()))
    assert found == (said | {"p/w": "deny"} if "p/v" in said else said)


@pytest.mark.parametrize("expressions", [("object.nope", "false"), ("false", "object.nope")])
def test_a_condition_that_is_false_decides_before_one_that_errors(expressions):
    """Whatever their order, as in match conditions of the API server."""
    rows = ", ".join(f"{{name: c{place}, expression: {text!r}}}" for place, text in enumerate(expressions))
    found = engine(rules(validate("false"), conditions=f"[{rows}]")).judge(create(pod()))
    assert found == []


def test_a_condition_that_errors_follows_the_strictest_rule():
    """It denies only where one of the policy's rules would."""
    spec = rules("{name: v, enforcement: warn, validate: {expression: 'false'}}", conditions=CONDITION % "object.nope")
    (verdict,) = engine(spec).judge(create(pod()))
    assert not verdict.denies
    assert "condition c of policy p" in verdict.message


def test_a_condition_that_errors_never_stops_mutation():
    """Defaults and copies of a policy whose condition errors are left out; mutation denies nobody."""
    judging = engine(
        rules("{name: d, defaultPriorityClass: s}", conditions=CONDITION % "object.nope", enforcement="enforce")
    )
    assert judging.default_priority_class(create(pod())) is None
    assert judging.judge(create(pod())) == []


def test_expressions_do_not_change_the_request():
    """What is filled in for CEL is filled into a copy."""
    obj = pod()
    engine(rules(validate("size(object.metadata.labels) == 0"))).judge(create(obj))
    assert obj == pod()


def test_enforcement_defaults_to_enforce():
    """A policy that says nothing enforces."""
    (verdict,) = engine(rules(validate("false"))).judge(create(pod()))
    assert verdict.enforcement is Enforcement.ENFORCE
