"""Mistakes in a PriorityPolicy: each found at its place, with what would be right."""

import pytest

from tests.policy.builders import loaded, rule
from tests.policy.files.mistakes import check
from webhook.policy.shapes.findings import Severity

RULES = "rules:\n- {name: d, defaultPriorityClass: standard}\n"


def reserve(body):
    """A spec of one reserved range."""
    return rule(f"reserve: {{from: 1, to: 9, {body}}}")


@pytest.mark.parametrize(
    ("spec", "place", "words"),
    [
        pytest.param("enforcment: warn\n" + RULES, "enforcment", 'did you mean "enforcement"?', id="unknown field"),
        pytest.param("Match: {}\n" + RULES, "Match", 'did you mean "match"?', id="capital letter"),
        pytest.param("enforcement: Enforce\n" + RULES, "Enforce", 'did you mean "enforce"?', id="unknown value"),
        pytest.param("enforcement: [warn]\n" + RULES, "[warn]", "expected an enforcement, found a list", id="list"),
        pytest.param("match: team-a\n" + RULES, "team-a", "expected match (a mapping), found text", id="text"),
        pytest.param("match: {namespaces: team-a}\n" + RULES, "team-a", "write [team-a]", id="text for a list"),
        pytest.param("match: {namespaces: []}\n" + RULES, "[]", "the list is empty", id="empty list"),
        pytest.param("match: {namespaces: [5]}\n" + RULES, "5", 'found the number 5; write "5"', id="number for text"),
        pytest.param("match: {namespaces: [true]}\n" + RULES, "true", "found the bool true", id="bool for text"),
        pytest.param("match: {namespaces: ['']}\n" + RULES, "''", "found an empty text", id="empty text"),
        pytest.param(
            "match: {namespaces: [Team]}\n" + RULES, "Team", '"Team" is not the name of a namespace', id="case"
        ),
        pytest.param("match: {namespaces: ['a?']}\n" + RULES, "'a?'", "in which * stands for any", id="other wildcard"),
        pytest.param("match: {operations: [DELETE]}\n" + RULES, "DELETE", "there are CREATE, UPDATE", id="operation"),
        pytest.param("match:\n" + RULES, "match", '"match" has no value', id="no value"),
        pytest.param("match: ~\n" + RULES, "~", "found nothing", id="null"),
        pytest.param(
            "match: {}\nmatch: {}\n" + RULES, "match", "there twice; the first one is on line 5", id="duplicate key"
        ),
        pytest.param("<<: {}\n" + RULES, "<<", "merge keys (<<) are not read", id="merge key"),
        pytest.param("? [a]\n: b\n" + RULES, "[a]", "expected a field name, found a list", id="key that is no text"),
        pytest.param(
            "on: {}\n" + RULES, "on", "YAML 1.1 readers take on for true", id="key that is a bool in YAML 1.1"
        ),
        pytest.param("enforcement: warn", "e", 'needs "rules"', id="required field"),
        pytest.param("rules: []", "[]", "the list is empty", id="no rules"),
        pytest.param(rule("defaultPriorityClass: A"), "A", "is not the name of a PriorityClass", id="class name"),
        pytest.param(
            "rules:\n- {name: r}", "{name: r}", "it needs one of defaultPriorityClass", id="rule without body"
        ),
        pytest.param(
            rule("defaultPriorityClass: a, copyAnnotations: [volcano.sh/preemptable]"),
            "copyAnnotations",
            "make two of it",
            id="two bodies",
        ),
        pytest.param(
            "rules:\n- {name: r, defaultPriorityClass: a}\n- {name: r, priorityClasses: {}}",
            "{",
            "the other one is on line 6",
            id="name twice",
        ),
        pytest.param(
            "conditions: [{name: d, expression: 'true'}]\n" + RULES,
            "{",
            'name "d" is there twice',
            id="condition named like a rule",
        ),
        pytest.param(rule("reserve: {from: 010, to: 9}"), "010", "010 is 10 here and the octal number 8", id="octal"),
        pytest.param(
            rule("reserve: {from: 0, to: 1_000}"), "1_000", "the number 1000 to YAML 1.1", id="grouped digits"
        ),
        pytest.param(rule("reserve: {from: 0, to: 1:30}"), "1:30", "the base-60 number 90", id="base 60"),
        pytest.param(rule("reserve: {from: 0, to: 0b11}"), "0b11", "the binary number 3", id="binary"),
        pytest.param(rule("reserve: {from: 0, to: '9'}"), "'9'", "write 9 without quotes", id="quoted number"),
        pytest.param(rule("reserve: {from: 0, to: 1.5}"), "1.5", 'expected a priority, found "1.5"', id="fraction"),
        pytest.param(rule("reserve: {from: 0, to: 1e9}"), "1e9", 'expected a priority, found "1e9"', id="exponent"),
        pytest.param(rule("reserve: {from: 0, to: 2147483648}"), "2147483648", "is outside", id="beyond int32"),
        pytest.param(
            rule(f"reserve: {{from: 0, to: {'9' * 6000}}}"), "9" * 62 + "…", "expected a priority", id="endless"
        ),
        pytest.param(rule("reserve: {from: 9, to: 1}"), "9", "swap from and to", id="range backwards"),
        pytest.param(
            reserve("use: {subjects: [{kind: ServiceAccount, name: x}]}"),
            "ServiceAccount",
            'needs "namespace"',
            id="account",
        ),
        pytest.param(
            reserve("define: {subjects: [{kind: User, name: x, namespace: y}]}"),
            "y",
            'a User has no "namespace"',
            id="user",
        ),
        pytest.param(
            reserve("use: {operations: [CREATE]}"), "operations", 'unknown field "operations" in right', id="right"
        ),
        pytest.param(
            "match: {objectSelector: {matchExpressions: [{key: a, operator: In}]}}\n" + RULES,
            "In",
            "needs at least one value",
            id="selector without values",
        ),
        pytest.param(
            "match: {namespaceSelector: {matchExpressions: [{key: a, operator: NotIn, values: []}]},"
            " subjects: [{kind: Group, name: 'system:serviceaccounts'}]}\n" + RULES,
            "[]",
            "needs at least one value",
            id="namespaces without values",
        ),
        pytest.param(
            reserve("use: {namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}"),
            "In",
            "needs at least one value",
            id="right without values",
        ),
        pytest.param(
            "exceptions: [{match: {namespaceSelector: {matchExpressions: [{key: a, operator: NotIn}]}}, rules: [r],"
            " reason: r, owner: o, until: 9999-12-31}]\n" + rule("priorityClasses: {deny: [a]}"),
            "NotIn",
            "needs at least one value",
            id="exception without values",
        ),
        pytest.param(
            rule(
                "protectAnnotations: {keys: [volcano.sh/preemptable], allow:"
                " [{namespaceSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}]}"
            ),
            "[b]",
            "takes no values",
            id="guardian with values",
        ),
        pytest.param(
            "match: {objectSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}\n" + RULES,
            "[b]",
            "takes no values",
            id="selector with values",
        ),
        pytest.param(
            "match: {objectSelector: {matchLabels: {a: yes please}}}\n" + RULES,
            "yes please",
            "not a label's value",
            id="label",
        ),
        pytest.param(
            "match: {objectSelector: {matchLabels: {a: b, a: c}}}\n" + RULES,
            "a",
            '"a" is there twice',
            id="label twice",
        ),
        pytest.param(rule("copyAnnotations: ['a b']"), "'a b'", "is not an annotation key", id="annotation key"),
        pytest.param(
            rule("copyAnnotations: [giveway.dev/plan]"), "giveway.dev/plan", "is giveway's own", id="own annotation"
        ),
        pytest.param(rule("validate: {expression: [a], message: m}"), "[a]", "expected a CEL expression", id="no CEL"),
    ],
)
def test_errors(spec, place, words):
    """An error keeps the policy from being used, and points at its place."""
    found = loaded(spec)
    check(found.findings, Severity.ERROR, place, words)
    assert found.policies.priority == ()


@pytest.mark.parametrize(
    ("spec", "place", "words"),
    [
        pytest.param(
            "match: {namespaces: [no]}\n" + RULES, "no", 'take no for false; write "no"', id="bool in YAML 1.1"
        ),
        pytest.param("match: {namespaces: [on]}\n" + RULES, "on", 'take on for true; write "on"', id="on"),
        pytest.param(
            "match: {objectSelector: {matchLabels: {yes: b}}}\n" + RULES,
            "yes",
            "take yes for true",
            id="key of a label",
        ),
        pytest.param("match: {namespaces: [1-1-1, 2026-01-01]}\n" + RULES, "2026-01-01", "for a date", id="date"),
        pytest.param(rule("validate: {expression: 'true'}"), "'true'", 'without "message"', id="no message"),
        pytest.param(
            rule("validate: {expression: 'duration(object.metadata.name).getMilliseconds() > 5', message: m}"),
            "getMilliseconds",
            "CEL: getMilliseconds of a duration gives what is beyond the second here",
            id="another value in the API server",
        ),
        pytest.param(
            rule("validate: {expression: 'object.spec.priorty > 5', message: m}"),
            "priorty",
            '; did you mean "priority"?',
            id="field that no pod has",
        ),
        pytest.param(
            rule("validate: {expression: 'true', messageExpression: 'string(object.spec.priorty)'}"),
            "priorty",
            'PodSpec has no field "priorty"',
            id="in a message",
        ),
        pytest.param(
            "conditions: [{name: c, expression: has(object.spec.x)}]\n" + RULES,
            "x",
            'PodSpec has no field "x"',
            id="in a condition",
        ),
        pytest.param(
            "rules:\n- name: r\n  validate:\n    message: m\n    expression: |\n      true &&\n"
            "      object.metadata.lables.size() == 0",
            "lables",
            '; did you mean "labels"?',
            id="on a line of its own",
        ),
        pytest.param(
            reserve("define: {subjects: [{kind: User, name: 'system:serviceaccount:a:b'}]}"),
            "'system:serviceaccount:a:b'",
            "kind: ServiceAccount",
            id="account as a user",
        ),
        pytest.param(
            rule("copyAnnotations: [godel.bytedance.com/can-be-preemted]"),
            "godel.bytedance.com/can-be-preemted",
            'did you mean "godel.bytedance.com/can-be-preempted"?',
            id="unknown annotation",
        ),
    ],
)
def test_warnings(spec, place, words):
    """A warning points out what is probably not meant, and leaves the policy in use."""
    found = loaded(spec)
    check(found.findings, Severity.WARNING, place, words)
    assert len(found.policies.priority) == 1
