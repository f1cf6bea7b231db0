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
    update,
)
from webhook.policy.model.rules import Enforcement


def validate(expression, **more):
    """A rule with this expression."""
    extra = "".join(f", {name}: {value}" for name, value in more.items())
    return f"{{name: v, validate: {{expression: {expression!r}{extra}}}}}"


@pytest.mark.parametrize(
    ("expression", "outcome"),
    [
        pytest.param("object.spec.priority <= 10", "allow", id="true"),
        pytest.param("object.spec.priority > 10", "deny", id="false"),
        pytest.param("object.spec.nope > 10", "error", id="missing field"),
        pytest.param("object.spec.priority", "error", id="no bool at run time"),
        pytest.param('"canary" in object.metadata.labels', "deny", id="labels are never absent"),
        pytest.param('object.metadata.annotations[?"a"].orValue("") == ""', "allow", id="annotations are never absent"),
        pytest.param("oldObject == null", "allow", id="oldObject at CREATE"),
        pytest.param('request.operation == "CREATE" && request.userInfo.username == "alice"', "allow", id="request"),
        pytest.param('request.namespace == "team-a" && !request.dryRun', "allow", id="namespace"),
        pytest.param("!has(request.object)", "allow", id="request without objects"),
        pytest.param('namespaceObject.metadata.labels.tier == "x"', "allow", id="namespaceObject"),
        pytest.param('priorityClass.value == 5 && priorityClass.metadata.name == "c"', "allow", id="priorityClass"),
        pytest.param('priorityClass.preemptionPolicy == "PreemptLowerPriority"', "allow", id="policy filled in"),
        pytest.param('object.metadata.name.lowerAscii().startsWith("a")', "allow", id="string functions"),
    ],
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


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param({"message": "no"}, "no (rule p/v)", id="message"),
        pytest.param({"messageExpression": "'\"pod \" + object.metadata.name'"}, "pod a (rule p/v)", id="made by CEL"),
        pytest.param(
            {"message": "no", "messageExpression": "object.metadata.nope"}, "no (rule p/v)", id="CEL that errors"
        ),
        pytest.param({}, "the expression '1 > 2' is false (rule p/v)", id="none"),
    ],
)
def test_messages(more, words):
    """What the author is told, and the rule it comes from."""
    (verdict,) = engine(rules(validate("1 > 2", **more))).judge(create(pod()))
    assert verdict.message == words


def test_a_template_is_seen_as_the_pod_it_describes():
    """`object` is the pod that the template would make, with namespace and priority filled in."""
    judging = engine(
        rules(validate('object.kind == "Pod" && object.spec.priority == 7 && object.metadata.namespace == "team-a"'))
    )
    assert outcomes(judging, deployment(pod(), priority=7)) == {"p/v": "allow"}


def test_an_error_on_a_template_only_warns():
    """A template lacks what defaulting gives its pods, which are judged again; a violation refuses it all the same."""
    (error,) = engine(rules(validate("object.spec.serviceAccountName == 'x'"))).judge(deployment(pod()))
    assert (error.outcome, error.denies, error.warns) == ("error", False, True)
    (violation,) = engine(rules(validate("has(object.spec.serviceAccountName)"))).judge(deployment(pod()))
    assert violation.denies


def test_rules_about_priority_classes():
    """A rule says which resources it is about; pods unless told otherwise."""
    judging = engine(rules(validate("object.value < 100", resources="[priorityclasses]")))
    assert outcomes(judging, define("x", 500)) == {"p/v": "deny"}
    assert outcomes(judging, create(pod())) == {}
    assert outcomes(engine(rules(validate("false"))), define("x", 500)) == {}


CONDITION = "[{name: c, expression: '%s'}]"


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        pytest.param("true", {"p/v": "deny"}, id="met"),
        pytest.param("false", {}, id="not met"),
        pytest.param("object.nope", {"p/c": "error"}, id="error"),
    ],
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


def test_old_object_at_update():
    """At UPDATE an expression compares with what was."""
    judging = engine(rules(validate("oldObject.spec.x == object.spec.x")))
    assert outcomes(judging, update(pod(x=1), pod(x=1))) == {"p/v": "allow"}
    assert outcomes(judging, update(pod(x=1), pod(x=2))) == {"p/v": "deny"}


def test_expressions_do_not_change_the_request():
    """What is filled in for CEL is filled into a copy."""
    obj = pod()
    engine(rules(validate("size(object.metadata.labels) == 0"))).judge(create(obj))
    assert obj == pod()


def test_enforcement_defaults_to_enforce():
    """A policy that says nothing enforces."""
    (verdict,) = engine(rules(validate("false"))).judge(create(pod()))
    assert verdict.enforcement is Enforcement.ENFORCE
