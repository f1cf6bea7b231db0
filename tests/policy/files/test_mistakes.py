"""Mistakes in policies of both kinds: each found at its place, with what would be right."""

from tests.policy.builders import document, loaded, rule, table
from webhook.policy.files.loading import load_texts
from webhook.policy.shapes.findings import Severity


def row(operator, values=""):
    """One requirement on a label."""
    return f"{{matchExpressions: [{{key: a, operator: {operator}{values and ', values: '}{values}}}]}}"


def reserve(body):
    """A spec of one reserved range."""
    return rule(f"reserve: {{from: 1, to: 9, {body}}}")


def preemption(body):
    """The rest of a PreemptionPolicy that names a class."""
    return "preemptors: {priorityClasses: [a]}\n" + body


def schedule(parts, duration="1h"):
    """The rest of a PreemptionPolicy that evicts by a schedule."""
    return preemption(f"schedule: {{{parts}, duration: {duration}}}")


def told(kind, spec, severity, place, words):
    """What is loaded of a spec, which has exactly one finding of that severity, whose line shows what is meant.

    One that says nothing of rules gets a rule.
    """
    rules = kind == "PriorityPolicy" and "rules" not in spec
    found = loaded(f"{spec}\nrules:\n- {{name: d, defaultPriorityClass: standard}}" if rules else spec, kind)
    (one,) = [one for one in found.findings if one.severity is severity]
    assert words in one.message
    line, _, caret = one.excerpt.partition("\n")
    assert line[caret.index("^") :].startswith(place), one.excerpt
    return (*found.policies.priority, *found.policies.preemption)


def rows(priority, preemption):
    """The mistakes of both kinds, each with its kind."""
    return {
        f"{kind}: {name}": (kind, *row)
        for kind, table in (("PriorityPolicy", priority), ("PreemptionPolicy", preemption))
        for name, row in table.items()
    }


ERRORS = {
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
    "quoted number": (rule("reserve: {from: 0, to: '9'}"), "'9'", "write 9 without quotes"),
    "fraction": (rule("reserve: {from: 0, to: 1.5}"), "1.5", 'in plain digits, found "1.5"'),
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
}
PREEMPTION_ERRORS = {
    "fraction": ("preemptors: {delay: 1.5h, priorityClasses: [a]}", "1.5h", "is not a duration"),
    "octal": ("preemptors: {delay: 010, priorityClasses: [a]}", "010", "is not a duration"),
    "system class": ("preemptors: {priorityClasses: [system-x]}", "[system-x]", "never managed"),
    "own twin": ("preemptors: {twins: {a: a}}", "{a: a}", "is its own twin"),
    "twin of a twin": ("preemptors: {twins: {a: b, b: c}}", "{a: b, b: c}", "has a twin itself"),
    "system twin": ("preemptors: {twins: {a: system-x}}", "{a: system-x}", "never managed"),
    "mode": (preemption("victims: {mode: optin}"), "optin", 'did you mean "opt-in"?'),
    "notice of more than a day": (preemption("victims: {notice: 25h}"), "25h", "is longer than 24h"),
    "budgets": (preemption("budgets: loose"), "loose", "there are best-effort, strict"),
    "protection": (preemption("protection: {default: 2h, maximum: 1h}"), "2h", "longer than the maximum"),
    "rate without number": (preemption("limits: {perNode: {window: 1m}}"), "{window: 1m}", 'needs "evictions"'),
    "no attempts": (preemption("limits: {attemptsPerPreemptor: 0}"), "0", "is outside 1 to"),
    "force delete": (preemption("gracePeriodSeconds: 0"), "0", "0 is a force delete"),
    "no preemptors": ("budgets: strict", "b", 'needs "preemptors"'),
    "no scheme": (preemption("extenders: [{urlPrefix: gpu.svc, preemptVerb: p}]"), "gpu.svc", "is not an address"),
    "not a boolean": (
        preemption("extenders: [{urlPrefix: 'http://a', preemptVerb: p, ignorable: yes}]"),
        "yes",
        'expected true or false, found "yes"',
    ),
    "long timeout": (
        preemption("extenders: [{urlPrefix: 'http://a', preemptVerb: p, httpTimeout: 5m}]"),
        "5m",
        "at most 60s",
    ),
    "four fields": (schedule("cron: 0 6 * *"), "0 6 * *", "no cron expression of five fields"),
    "macro": (schedule("cron: '@daily'"), "'@daily'", "no cron expression of five fields"),
    "day of week": (schedule("cron: 0 6 * * MOO"), "0 6 * * MOO", "the day of week is wrong"),
    "30 February": (schedule("cron: 0 0 30 2 *"), "0 0 30 2 *", "or there is no such day"),
    "unknown time zone": (
        schedule("cron: 0 6 * * *, timeZone: Europe/Berln"),
        "Europe/Berln",
        'is no time zone such as Europe/Berlin; did you mean "Europe/Berlin"?',
    ),
    "half a minute": (schedule("cron: 0 6 * * *", "90s"), "90s", "whole minutes, from 1m to 744h"),
    "no duration": (schedule("cron: 0 6 * * *", "0s"), "0s", "whole minutes, from 1m"),
    "too long": (schedule("cron: 0 6 * * *", "745h"), "745h", "whole minutes, from 1m to 744h"),
}


@table("kind, spec, place, words", rows(ERRORS, PREEMPTION_ERRORS))
def test_errors(kind, spec, place, words):
    """An error keeps the policy from being used, and points at its place."""
    assert told(kind, spec, Severity.ERROR, place, words) == ()


DAY = "schedule: {cron: 0 6 * * *, timeZone: Europe/Berlin, duration: 14h}"
NIGHT = "schedule: {cron: 0 23 * * *, duration: 4h}"
WARNINGS = {
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
}
PREEMPTION_WARNINGS = {
    "rate that never holds": (
        preemption(f"{DAY}\nlimits: {{perNode: {{evictions: 1, {NIGHT}}}}}"),
        f"{{perNode: {{evictions: 1, {NIGHT}}}}}",
        "perNode never holds",
    ),
    "protection that never holds": (
        preemption(f"{DAY}\nprotection: {{default: 5m, {NIGHT}}}"),
        f"{{default: 5m, {NIGHT}}}",
        "protection never holds",
    ),
}


@table("kind, spec, place, words", rows(WARNINGS, PREEMPTION_WARNINGS))
def test_warnings(kind, spec, place, words):
    """A warning points out what is probably not meant, and leaves the policy in use."""
    assert len(told(kind, spec, Severity.WARNING, place, words)) == 1


def test_schedules_that_are_right():
    """A policy and its limits may have schedules."""
    spec = f"{DAY}\nlimits: {{perNode: {{evictions: 1, {DAY}}}, perCluster: {{evictions: 9}}}}"
    found = loaded(preemption(spec), kind="PreemptionPolicy")
    assert found.findings == []
    assert str(found.policies.preemption[0].schedule) == "0 6 * * * Europe/Berlin for 14h"


def test_schedules_are_compared_within_bounds():
    """One file does not cost minutes: after so many moments of its schedules nothing more is told of them."""
    spec = preemption(f"{DAY}\nlimits: {{perNode: {{evictions: 1, {NIGHT}}}}}")
    policies = [document(spec.replace("[a]", f"[a{at}]"), "PreemptionPolicy", f"p{at}") for at in range(20)]
    told = [one.message for one in load_texts([("p.yaml", "---\n".join(policies))]).findings]
    assert all("never holds" in text for text in told)
    assert 10 <= len(told) < 20
