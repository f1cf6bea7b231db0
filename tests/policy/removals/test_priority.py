"""What a policy set gives up of the one before: rules, rights and verdicts of PriorityPolicies, by id."""

import pytest

from tests.policy.builders import policies, rule, rules
from webhook.policy.removals.removals import removals

EXCEPTED = "\nexceptions: [{match: {namespaces: [x, y]}, rules: [a], reason: r, owner: o, until: 2026-12-30}]"
TWO = rules("{name: a, priorityClasses: {deny: [x]}}", "{name: b, priorityClasses: {deny: [y]}}")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        pytest.param(TWO, "", ["p: the PriorityPolicy with its 2 rules is gone"], id="policy"),
        pytest.param(
            TWO, rule("priorityClasses: {deny: [x]}"), ["p/a: the rule is gone", "p/b: the rule is gone"], id="rules"
        ),
        pytest.param(
            rule("priorityClasses: {deny: [x]}"),
            rule("priorityClasses: {deny: [x]}, enforcement: warn"),
            ["p/r: enforcement enforce becomes warn"],
            id="enforcement of a rule",
        ),
        pytest.param(
            rule("priorityClasses: {deny: [x]}"),
            rule("priorityClasses: {deny: [x]}", enforcement="audit"),
            ["p/r: enforcement enforce becomes audit"],
            id="enforcement of a policy",
        ),
        pytest.param(
            rule("priorityClasses: {deny: [x, y]}"),
            rule("priorityClasses: {deny: [x]}"),
            ["p/r: classes are no longer denied: y"],
            id="denied classes",
        ),
        pytest.param(
            rule("priorityClasses: {allow: [x]}"),
            rule("priorityClasses: {allow: [x, 'y-*']}"),
            ["p/r: more classes are allowed: y-*"],
            id="allowed classes",
        ),
        pytest.param(
            rule("priorityClasses: {allow: [x], deny: [y]}"),
            rule("priorityClasses: {deny: [y]}"),
            ["p/r: every class is allowed now"],
            id="every class",
        ),
        pytest.param(
            rule("reserve: {from: 10, to: 20, use: [{namespaces: [a]}]}"),
            rule("reserve: {from: 11, to: 20, use: [{namespaces: [a]}, {namespaces: [b]}]}"),
            ["p/r: the range 10 to 20 becomes 11 to 20", "p/r: more may use the range"],
            id="reserved range",
        ),
        pytest.param(
            rule("reserve: {from: 10, to: 20, use: [{subjects: [{kind: User, name: u}]}]}"),
            rule("reserve: {from: 10, to: 20, use: [{namespaces: [a], subjects: [{kind: User, name: u}]}]}"),
            ["p/r: more may use the range"],
            id="namespaces beside subjects let in what controllers make there",
        ),
        pytest.param(
            TWO + "\nexclude: {subjects: [{kind: User, name: u}]}",
            TWO + "\nexclude: {namespaces: [a], subjects: [{kind: User, name: u}]}",
            ["p: exclude leaves out more"],
            id="namespaces beside subjects leave out what controllers make there",
        ),
        pytest.param(
            rule("reserve: {from: 10, to: 20, define: [{names: [a]}]}"),
            rule("reserve: {from: 10, to: 20, define: [{names: [a, b]}]}"),
            ["p/r: more may define classes in the range"],
            id="definers",
        ),
        pytest.param(
            rule("protectAnnotations: {keys: [a.io/x, a.io/y]}"),
            rule("protectAnnotations: {keys: [a.io/x], allow: [{namespaces: [b]}]}"),
            ["p/r: annotations are no longer protected: a.io/y", "p/r: more may change the annotations"],
            id="protected annotations",
        ),
        pytest.param(
            rule("copyAnnotations: [a.io/x]"),
            rule("defaultPriorityClass: x"),
            ["p/r: it is a rule of another kind now"],
            id="another kind",
        ),
        pytest.param(
            TWO,
            TWO + "\nmatch: {namespaces: [a]}",
            ["p: match.namespaces takes in less, or something else"],
            id="match",
        ),
        pytest.param(
            TWO + "\nmatch: {namespaces: [a, b]}",
            TWO + "\nmatch: {namespaces: [b]}",
            ["p: match.namespaces takes in less, or something else"],
            id="fewer namespaces",
        ),
        pytest.param(TWO, TWO + "\nexclude: {namespaces: [a]}", ["p: exclude is new"], id="exclude"),
        pytest.param(
            TWO + "\nexclude: {namespaces: [a]}",
            TWO + "\nexclude: {namespaces: [a, b]}",
            ["p: exclude leaves out more"],
            id="more excluded",
        ),
        pytest.param(
            TWO,
            TWO + "\nconditions: [{name: odd, expression: 'object.spec.x'}]",
            ["p: the conditions odd are new: it applies only if they hold"],
            id="condition",
        ),
        pytest.param(
            TWO,
            TWO + EXCEPTED,
            ["p: an exception from a is new, wider or longer: until 2026-12-31T00:00:00Z (o)"],
            id="exception",
        ),
        pytest.param(
            TWO + EXCEPTED,
            TWO + EXCEPTED.replace("12-30", "12-31"),
            ["p: an exception from a is new, wider or longer: until 2027-01-01T00:00:00Z (o)"],
            id="longer exception",
        ),
        pytest.param(
            TWO + EXCEPTED,
            TWO + EXCEPTED.replace("[a]", "[a, b]").replace("y]", "y, z]"),
            ["p: an exception from a, b is new, wider or longer: until 2026-12-31T00:00:00Z (o)"],
            id="wider exception from more rules",
        ),
    ],
)
def test_given_up(old, new, found):
    """A rule that is gone, a wider right, a softer verdict: each is named."""
    assert [str(one) for one in removals(policies(old), policies(new))] == found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("", TWO, id="first policies"),
        pytest.param(TWO, TWO, id="the same"),
        pytest.param(
            rule("priorityClasses: {allow: [x, y]}"), rule("priorityClasses: {allow: [y]}"), id="fewer allowed"
        ),
        pytest.param(rule("priorityClasses: {deny: [x]}"), rule("priorityClasses: {deny: [x, y]}"), id="more denied"),
        pytest.param(
            rule("reserve: {from: 10, to: 20, use: [{namespaces: [a, b]}, {namespaces: [c]}]}"),
            rule("reserve: {from: 5, to: 25, use: [{namespaces: [a], subjects: [{kind: User, name: u}]}]}"),
            id="wider range, narrower rights",
        ),
        pytest.param(TWO + "\nmatch: {namespaces: [a]}", TWO + "\nmatch: {namespaces: [a, b]}", id="wider match"),
        pytest.param(
            TWO + "\nexclude: {namespaces: [a, b]}", TWO + "\nexclude: {namespaces: [a]}", id="narrower exclude"
        ),
        pytest.param(TWO + "\nexclude: {namespaces: [a]}", TWO, id="no exclude any more"),
        pytest.param(
            rule("priorityClasses: {deny: [x]}", enforcement="warn"),
            rule("priorityClasses: {deny: [x]}"),
            id="stricter",
        ),
        pytest.param(rule("defaultPriorityClass: a"), rule("defaultPriorityClass: b"), id="another default"),
        pytest.param(TWO + EXCEPTED, TWO, id="an exception that is gone"),
        pytest.param(
            TWO + EXCEPTED,
            TWO + EXCEPTED.replace("x, y", "x").replace("12-30", "12-29"),
            id="shorter, narrower exception",
        ),
        pytest.param(
            "rules: [{name: b, priorityClasses: {deny: [y]}}]", TWO + EXCEPTED, id="exception from a new rule"
        ),
        pytest.param(
            "enforcement: warn\n" + TWO,
            "enforcement: enforce\n" + TWO + EXCEPTED,
            id="an exception as the rule begins to refuse",
        ),
        pytest.param(
            "enforcement: audit\n" + TWO, "enforcement: audit\n" + TWO + EXCEPTED, id="exception from a trial"
        ),
    ],
)
def test_nothing_given_up(old, new):
    """A set that is at least as strict gives up nothing."""
    assert removals(policies(old), policies(new)) == []


CAN_BE = "godel.bytedance.com/can-be-preempted"
GUARD = rule("protectAnnotations: {keys: [a.io/x], allow: [{namespaces: [a]}]}")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        pytest.param(
            "",
            rule(f"protectAnnotations: {{keys: [{CAN_BE}], allow: [{{namespaces: [a]}}]}}"),
            [f"p/r: more may change the annotations: {CAN_BE}"],
            id="what the built-in rule guarded",
        ),
        pytest.param(
            GUARD,
            GUARD.replace("[a.io/x]", f"[a.io/x, {CAN_BE}]"),
            [f"p/r: more may change the annotations: {CAN_BE}"],
            id="one more key",
        ),
        pytest.param(
            GUARD,
            GUARD + "\n- {name: s, protectAnnotations: {keys: [a.io/x], allow: [{namespaces: [b]}]}}",
            ["p/s: more may change the annotations: a.io/x"],
            id="a second right",
        ),
        pytest.param(
            GUARD + "\nmatch: {namespaces: [a, b]}",
            GUARD,
            ["p/r: more may change the annotations: a.io/x"],
            id="match of a right",
        ),
        pytest.param(
            GUARD + "\nexclude: {namespaces: [a]}",
            GUARD,
            ["p/r: more may change the annotations: a.io/x"],
            id="exclude of a right",
        ),
        pytest.param("", GUARD, [], id="what everybody could change"),
        pytest.param("", rule(f"protectAnnotations: {{keys: [{CAN_BE}]}}"), [], id="no right"),
        pytest.param(
            "",
            rule(f"protectAnnotations: {{keys: [{CAN_BE}], allow: [{{namespaces: [a]}}]}}", enforcement="warn"),
            [],
            id="a rule on trial gives nothing",
        ),
        pytest.param(
            GUARD,
            GUARD + "\nmatch: {namespaces: [a]}",
            ["p: match.namespaces takes in less, or something else"],
            id="smaller match",
        ),
    ],
)
def test_rights_that_are_added(old, new, found):
    """Rules that protect annotations give rights, which add up; so a rule more can open what was guarded."""
    assert [str(one) for one in removals(policies(old), policies(new))] == found
