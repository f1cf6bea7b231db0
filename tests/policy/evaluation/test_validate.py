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
        "no sub-resource": ('request.subResource == ""', "allow"),
        "a namespace's own label": (
            'namespaceObject.metadata.labels["kubernetes.io/metadata.name"] == "team-a"',
            "allow",
        ),
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


def at(level, expression="false"):
    """A rule with an enforcement of its own."""
    return f"{{name: v, enforcement: {level}, validate: {{expression: {expression!r}}}}}"


def under(level, rule, **parts):
    """A policy with an enforcement."""
    return rules(rule, enforcement=level, **parts)


def conditioned(*expressions):
    """Conditions c, c1 and so on."""
    rows = (f"{{name: c{place or ''}, expression: {text!r}}}" for place, text in enumerate(expressions))
    return {"conditions": f"[{', '.join(rows)}]"}


DENIES, WARNS, SILENT = (True, False), (False, True), (False, False)
FALSE, ODD, NOPE = validate("false"), validate("object.spec.nope > 1"), conditioned("object.nope")
FAILED = "expression 'object.spec.nope > 1': "
CEL_MESSAGE = validate("1 > 2", messageExpression="'\"pod \" + object.metadata.name'")
NEW, TEMPLATE = create(pod()), deployment(pod())
VERDICTS = {
    "an error, under enforce as nothing is said": (rules(ODD), NEW, "v error", DENIES, FAILED),
    "an error under warn": (under("warn", ODD), NEW, "v error", WARNS, FAILED),
    "an error under audit": (under("audit", ODD), NEW, "v error", WARNS, FAILED),
    "an error on a template": (rules(ODD), TEMPLATE, "v error", WARNS, FAILED),
    "a violation on a template": (rules(FALSE), TEMPLATE, "v deny", DENIES, "is false"),
    "a violation, as nothing is said": (rules(FALSE), NEW, "v deny", DENIES, "is false"),
    "a violation under warn": (under("warn", FALSE), NEW, "v deny", WARNS, "is false"),
    "a violation under audit": (under("audit", FALSE), NEW, "v deny", SILENT, "is false"),
    "a rule's own enforce": (under("warn", at("enforce")), NEW, "v deny", DENIES, "is false"),
    "a rule's own warn": (under("enforce", at("warn")), NEW, "v deny", WARNS, "is false"),
    "a message": (rules(validate("1 > 2", message="no")), NEW, "v deny", DENIES, "no (rule p/v)"),
    "a message made by CEL": (rules(CEL_MESSAGE), NEW, "v deny", DENIES, "pod a (rule p/v)"),
    "a message by CEL that errors": (
        rules(validate("1 > 2", message="no", messageExpression="object.metadata.nope")),
        NEW,
        "v deny",
        DENIES,
        "no (rule p/v)",
    ),
    "no message": (rules(validate("1 > 2")), NEW, "v deny", DENIES, "the expression '1 > 2' is false (rule p/v)"),
    "a condition that is met": (rules(FALSE, **conditioned("true")), NEW, "v deny", DENIES, "is false"),
    "a condition that errors, told once": (
        rules(FALSE, at("warn").replace("v", "w", 1), **NOPE),
        NEW,
        "c error",
        DENIES,
        "condition c of policy p",
    ),
    "one that errors follows the strictest rule": (
        rules(at("warn"), **NOPE),
        NEW,
        "c error",
        WARNS,
        "condition c of policy p",
    ),
}


@table("spec, request_, said, effect, words", VERDICTS)
def test_one_verdict(spec, request_, said, effect, words):
    """What a rule or a condition says, whether that denies or warns, and in which words.

    A template lacks what defaulting gives its pods, which are judged again.
    """
    (verdict,) = engine(spec).judge(request_)
    assert (f"{verdict.id} {verdict.outcome}", (verdict.denies, verdict.warns)) == (f"p/{said}", effect)
    assert words in verdict.message


@pytest.mark.parametrize("expressions", [("false",), ("object.nope", "false"), ("false", "object.nope")])
def test_a_condition_that_is_false_decides_before_one_that_errors(expressions):
    """Whatever their order, as in match conditions of the API server."""
    assert engine(rules(FALSE, **conditioned(*expressions))).judge(NEW) == []


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


def test_a_condition_that_errors_never_stops_mutation():
    """Defaults and copies of a policy whose condition errors are left out; mutation denies nobody."""
    judging = engine(rules("{name: d, defaultPriorityClass: s}", **NOPE, enforcement="enforce"))
    assert judging.default_priority_class(create(pod())) is None
    assert judging.judge(create(pod())) == []


def test_expressions_do_not_change_the_request():
    """What is filled in for CEL is filled into a copy."""
    obj = pod()
    engine(rules(validate("size(object.metadata.labels) == 0"))).judge(create(obj))
    assert obj == pod()
