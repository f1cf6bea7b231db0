"""Mistakes in a PriorityPolicy: each found at its place, with what would be right."""

from tests.policy.builders import loaded, rule, table
from tests.policy.files.mistakes import check
from webhook.policy.shapes.findings import Severity


def complete(spec):
    """A spec with a rule, if it says nothing of rules."""
    return spec if "rules" in spec else f"{spec}\n{RULES}"


def row(operator, values=""):
    """One requirement on a label."""
    return f"{{matchExpressions: [{{key: a, operator: {operator}{values and ', values: '}{values}}}]}}"


RULES = "rules:\n- {name: d, defaultPriorityClass: standard}\n"


def reserve(body):
    """A spec of one reserved range."""
    return rule(f"reserve: {{from: 1, to: 9, {body}}}")


@table(
    "spec, place, words",
    {
        "unknown field": ("enforcment: warn", "enforcment", 'did you mean "enforcement"?'),
        "capital letter": ("Match: {}", "Match", 'did you mean "match"?'),
        "unknown value": ("enforcement: Enforce", "Enforce", 'did you mean "enforce"?'),
        "list": ("enforcement: [warn]", "[warn]", "expected an enforcement, found a list"),
        "text": ("match: team-a", "team-a", "expected match (a mapping), found text"),
        "text for a list": ("match: {namespaces: team-a}", "team-a", "write [team-a]"),
        "empty list": ("match: {namespaces: []}", "[]", "the list is empty"),
        "number for text": ("match: {namespaces: [5]}", "5", 'found the number 5; write "5"'),
        "bool for text": ("match: {namespaces: [true]}", "true", "found the bool true"),
        "empty text": ("match: {namespaces: ['']}", "''", "found an empty text"),
        "case": ("match: {namespaces: [Team]}", "Team", '"Team" is not the name of a namespace'),
        "other wildcard": ("match: {namespaces: ['a?']}", "'a?'", "in which * stands for any"),
        "operation": ("match: {operations: [DELETE]}", "DELETE", "there are CREATE, UPDATE"),
        "no value": ("match:", "match", '"match" has no value'),
        "null": ("match: ~", "~", "found nothing"),
        "duplicate key": ("match: {}\nmatch: {}", "match", "there twice; the first one is on line 5"),
        "merge key": ("<<: {}", "<<", "merge keys (<<) are not read"),
        "key that is no text": ("? [a]\n: b", "[a]", "expected a field name, found a list"),
        "key that is a bool in YAML 1.1": ("on: {}", "on", "YAML 1.1 readers take on for true"),
        "required field": ("enforcement: warn  # no rules", "e", 'needs "rules"'),
        "no rules": ("rules: []", "[]", "the list is empty"),
        "class name": (rule("defaultPriorityClass: A"), "A", "is not the name of a PriorityClass"),
        "rule without body": ("rules:\n- {name: r}", "{name: r}", "it needs one of defaultPriorityClass"),
        "two bodies": (
            rule("defaultPriorityClass: a, copyAnnotations: [volcano.sh/preemptable]"),
            "copyAnnotations",
            "make two of it",
        ),
        "name twice": (
            "rules:\n- {name: r, defaultPriorityClass: a}\n- {name: r, priorityClasses: {}}",
            "{",
            "the other one is on line 6",
        ),
        "condition named like a rule": ("conditions: [{name: d, expression: 'true'}]", "{", 'name "d" is there twice'),
        "octal": (rule("reserve: {from: 010, to: 9}"), "010", 'in plain digits, found "010"'),
        "grouped digits": (rule("reserve: {from: 0, to: 1_000}"), "1_000", 'in plain digits, found "1_000"'),
        "base 60": (rule("reserve: {from: 0, to: 1:30}"), "1:30", 'expected a priority in plain digits, found "1:30"'),
        "binary": (rule("reserve: {from: 0, to: 0b11}"), "0b11", 'in plain digits, found "0b11"'),
        "quoted number": (rule("reserve: {from: 0, to: '9'}"), "'9'", "write 9 without quotes"),
        "fraction": (rule("reserve: {from: 0, to: 1.5}"), "1.5", 'in plain digits, found "1.5"'),
        "exponent": (rule("reserve: {from: 0, to: 1e9}"), "1e9", 'in plain digits, found "1e9"'),
        "beyond int32": (rule("reserve: {from: 0, to: 2147483648}"), "2147483648", "is outside"),
        "endless": (rule(f"reserve: {{from: 0, to: {'9' * 6000}}}"), "9" * 50, "expected a priority"),
        "range backwards": (rule("reserve: {from: 9, to: 1}"), "9", "swap from and to"),
        "account": (
            reserve("use: {subjects: [{kind: ServiceAccount, name: x}]}"),
            "ServiceAccount",
            'needs "namespace"',
        ),
        "user": (
            reserve("define: {subjects: [{kind: User, name: x, namespace: y}]}"),
            "y",
            'a User has no "namespace"',
        ),
        "right": (reserve("use: {operations: [CREATE]}"), "operations", 'unknown field "operations" in right'),
        "selector without values": (f"match: {{objectSelector: {row('In')}}}", "In", "needs at least one value"),
        "namespaces without values": (
            f"match: {{namespaceSelector: {row('NotIn', '[]')}}}",
            "[]",
            "needs at least one value",
        ),
        "selector with values": (f"match: {{objectSelector: {row('Exists', '[b]')}}}", "[b]", "takes no values"),
        "label": ("match: {objectSelector: {matchLabels: {a: yes please}}}", "yes please", "not a label's value"),
        "label twice": ("match: {objectSelector: {matchLabels: {a: b, a: c}}}", "a", '"a" is there twice'),
        "annotation key": (rule("copyAnnotations: ['a b']"), "'a b'", "is not an annotation key"),
        "own annotation": (rule("copyAnnotations: [giveway.dev/plan]"), "giveway.dev/plan", "is giveway's own"),
        "no CEL": (rule("validate: {expression: [a], message: m}"), "[a]", "expected a CEL expression"),
    },
)
def test_errors(spec, place, words):
    """An error keeps the policy from being used, and points at its place."""
    found = loaded(complete(spec))
    check(found.findings, Severity.ERROR, place, words)
    assert found.policies.priority == ()


@table(
    "spec, place, words",
    {
        "bool in YAML 1.1": ("match: {namespaces: [no]}", "no", 'take no for false; write "no"'),
        "on": ("match: {namespaces: [on]}", "on", 'take on for true; write "on"'),
        "key of a label": ("match: {objectSelector: {matchLabels: {yes: b}}}", "yes", "take yes for true"),
        "no message": (rule("validate: {expression: 'true'}"), "'true'", 'without "message"'),
        "misspelt annotation": (
            rule("copyAnnotations: [godel.bytedance.com/can-be-preemted]"),
            "godel.bytedance.com/can-be-preemted",
            'did you mean "godel.bytedance.com/can-be-preempted"?',
        ),
        "field that no pod has": (
            rule("validate: {expression: 'object.spec.priorty > 5', message: m}"),
            "priorty",
            '; did you mean "priority"?',
        ),
        "in a message": (
            rule("validate: {expression: 'true', messageExpression: 'string(object.spec.priorty)'}"),
            "priorty",
            'PodSpec has no field "priorty"',
        ),
        "in a condition": ("conditions: [{name: c, expression: has(object.spec.x)}]", "x", 'PodSpec has no field "x"'),
        "on a line of its own": (
            (
                "rules:\n- name: r\n  validate:\n    message: m\n    expression: |\n      true &&\n"
                "      object.metadata.lables.size() == 0"
            ),
            "lables",
            '; did you mean "labels"?',
        ),
    },
)
def test_warnings(spec, place, words):
    """A warning points out what is probably not meant, and leaves the policy in use."""
    found = loaded(complete(spec))
    check(found.findings, Severity.WARNING, place, words)
    assert len(found.policies.priority) == 1
