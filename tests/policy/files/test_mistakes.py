"""Mistakes in policy files: each found at its place, with what would be right."""

import pytest

from tests.policy.builders import indented, loaded
from webhook.policy.files.consistency import KnownClasses
from webhook.policy.files.loading import load_texts
from webhook.policy.shapes.findings import Severity

RULES = "rules:\n- {name: d, defaultPriorityClass: standard}\n"
POLICY = "apiVersion: giveway.dev/v1alpha1\nkind: PriorityPolicy\nmetadata: {name: p}\nspec:\n" + indented(RULES)


def rule(body):
    """A spec of one rule."""
    return f"rules:\n- {{name: r, {body}}}"


def reserve(body):
    """A spec of one reserved range."""
    return rule(f"reserve: {{from: 1, to: 9, {body}}}")


def preemption(body):
    """The rest of a PreemptionPolicy that names a class."""
    return "preemptors: {priorityClasses: [a]}\n" + body


def schedule(parts, duration="1h"):
    """The rest of a PreemptionPolicy that evicts by a schedule."""
    return preemption(f"schedule: {{{parts}, duration: {duration}}}")


def check(findings, severity, place, words):
    """Exactly one finding of that severity at that place of the spec, whose line shows what is meant."""
    found = [one for one in findings if one.severity is severity]
    assert len(found) == 1, "\n".join(map(str, findings))
    (one,) = found
    assert words in one.message
    line, _, caret = one.excerpt.partition("\n")
    assert caret.count("^") >= 1
    shown = line[caret.index("^") : caret.rindex("^") + 1]
    assert shown == place, one.excerpt


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
        pytest.param("preemptors: {delay: 1:30, priorityClasses: [a]}", "1:30", "write 30s, 1h, 1h30m", id="base 60"),
        pytest.param("preemptors: {delay: 1.5h, priorityClasses: [a]}", "1.5h", "is not a duration", id="fraction"),
        pytest.param("preemptors: {delay: -1, priorityClasses: [a]}", "-1", "is not a duration", id="negative"),
        pytest.param("preemptors: {delay: 010, priorityClasses: [a]}", "010", "is not a duration", id="octal"),
        pytest.param("preemptors: {priorityClasses: [system-x]}", "[system-x]", "never managed", id="system class"),
        pytest.param("preemptors: {twins: {a: a}}", "{a: a}", "is its own twin", id="own twin"),
        pytest.param("preemptors: {twins: {a: b, b: c}}", "{a: b, b: c}", "has a twin itself", id="twin of a twin"),
        pytest.param("preemptors: {twins: {a: system-x}}", "{a: system-x}", "never managed", id="system twin"),
        pytest.param(preemption("victims: {mode: optin}"), "optin", 'did you mean "opt-in"?', id="mode"),
        pytest.param(preemption("budgets: loose"), "loose", "there are best-effort, strict", id="budgets"),
        pytest.param(preemption("eviction: kill"), "kill", "there are delete, evict", id="eviction"),
        pytest.param(
            preemption("protection: {default: 2h, maximum: 1h}"), "2h", "longer than the maximum", id="protection"
        ),
        pytest.param(preemption("limits: {perNode: 5}"), "5", "expected rate (a mapping), found a number", id="rate"),
        pytest.param(
            preemption("limits: {perNode: {window: 1m}}"), "{window: 1m}", 'needs "evictions"', id="rate without number"
        ),
        pytest.param(preemption("limits: {attemptsPerPreemptor: 0}"), "0", "is outside 1 to", id="no attempts"),
        pytest.param(preemption("gracePeriodSeconds: 0"), "0", "0 is a force delete", id="force delete"),
        pytest.param("budgets: strict", "b", 'needs "preemptors"', id="no preemptors"),
        pytest.param(
            preemption("extenders: [{urlPrefix: gpu.svc, preemptVerb: p}]"),
            "gpu.svc",
            "is not an address",
            id="no scheme",
        ),
        pytest.param(
            preemption("extenders: [{urlPrefix: 'http://a'}]"),
            "{urlPrefix: 'http://a'}",
            'needs "preemptVerb"',
            id="no verb",
        ),
        pytest.param(
            preemption("extenders: [{urlPrefix: 'http://a', preemptVerb: p, ignorable: yes}]"),
            "yes",
            'expected true or false, found "yes"',
            id="not a boolean",
        ),
        pytest.param(
            preemption("extenders: [{urlPrefix: 'http://a', preemptVerb: p, httpTimeout: 5m}]"),
            "5m",
            "at most 60s",
            id="long timeout",
        ),
        pytest.param(schedule("cron: 0 6 * *"), "0 6 * *", "no cron expression of five fields", id="four fields"),
        pytest.param(schedule("cron: '@daily'"), "'@daily'", "no cron expression of five fields", id="macro"),
        pytest.param(schedule("cron: 0 25 * * *"), "0 25 * * *", "the hour is wrong", id="hour"),
        pytest.param(schedule("cron: 0 6 * * MOO"), "0 6 * * MOO", "the day of week is wrong", id="day of week"),
        pytest.param(schedule("cron: 0 0 30 2 *"), "0 0 30 2 *", "or there is no such day", id="30 February"),
        pytest.param(schedule("cron: 5"), "5", "found the number 5", id="number"),
        pytest.param(
            schedule("cron: 0 6 * * *, timeZone: Europe/Berln"),
            "Europe/Berln",
            'is no time zone such as Europe/Berlin; did you mean "Europe/Berlin"?',
            id="unknown time zone",
        ),
        pytest.param(schedule("cron: 0 6 * * *", "90s"), "90s", "whole minutes, from 1m to 744h", id="half a minute"),
        pytest.param(schedule("cron: 0 6 * * *", "0s"), "0s", "whole minutes, from 1m", id="no duration"),
        pytest.param(schedule("cron: 0 6 * * *", "745h"), "745h", "whole minutes, from 1m to 744h", id="too long"),
    ],
)
def test_errors_of_preemption_policies(spec, place, words):
    """The other kind of policy is read with the same care."""
    found = loaded(spec, kind="PreemptionPolicy")
    check(found.findings, Severity.ERROR, place, words)
    assert found.policies.preemption == ()


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
        pytest.param("exclude: {}\n" + RULES, "{}", "an empty exclude excludes nothing", id="empty exclude"),
        pytest.param(rule("priorityClasses: {allow: []}"), "[]", "refuses every PriorityClass", id="nothing allowed"),
        pytest.param(rule("priorityClasses: {allow: [a], deny: [a]}"), "[a]", "deny wins", id="both lists"),
        pytest.param(rule("validate: {expression: 'true'}"), "'true'", 'without "message"', id="no message"),
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
            reserve("use: {subjects: [{kind: Group, name: g}]}"),
            "{subjects: [{kind: Group, name: g}]}",
            "workloads of these subjects are let in and their pods refused",
            id="right that controllers lack",
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


DAY = "schedule: {cron: 0 6 * * *, timeZone: Europe/Berlin, duration: 14h}"
NIGHT = "schedule: {cron: 0 23 * * *, duration: 4h}"


@pytest.mark.parametrize(
    ("spec", "place", "words"),
    [
        pytest.param(
            schedule("cron: 0 * * * *", "1h"), "1h", "it begins again before it ends, every time: it", id="always"
        ),
        pytest.param(
            schedule("cron: '0 6,8 * * *'", "3h"), "3h", "it begins again after 2h, before it ends", id="overlap"
        ),
        pytest.param(
            preemption(f"{DAY}\nlimits: {{perNode: {{evictions: 1, {NIGHT}}}}}"),
            f"{{perNode: {{evictions: 1, {NIGHT}}}}}",
            "perNode never holds",
            id="rate that never holds",
        ),
        pytest.param(
            preemption(f"{DAY}\nprotection: {{default: 5m, {NIGHT}}}"),
            f"{{default: 5m, {NIGHT}}}",
            "protection never holds",
            id="protection that never holds",
        ),
    ],
)
def test_warnings_of_schedules(spec, place, words):
    """Windows that run together, and what holds at no time at which its policy does."""
    found = loaded(spec, kind="PreemptionPolicy")
    check(found.findings, Severity.WARNING, place, words)
    assert len(found.policies.preemption) == 1


def test_schedules_that_are_right():
    """Day and night in one policy, with what holds at both or at one of them, give no warning."""
    spec = f"{DAY}\nlimits: {{perNode: {{evictions: 1, {DAY}}}, perCluster: {{evictions: 9}}}}"
    found = loaded(preemption(spec), kind="PreemptionPolicy")
    assert found.findings == []
    assert str(found.policies.preemption[0].schedule) == "0 6 * * * Europe/Berlin for 14h"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: b\n", 'needs "kind"', id="no kind"),
        pytest.param("kind: PriorityPolcy\n", 'did you mean "PriorityPolicy"?', id="misspelt kind"),
        pytest.param("kind: PolicyTest\n", "lie in a sub-folder such as tests/", id="a test"),
        pytest.param("kind: [x]\n", '"" is no kind of policy', id="kind that is no text"),
        pytest.param("- a\n", "expected a policy (a mapping", id="a list"),
        pytest.param("text\n", "found text", id="a text"),
        pytest.param(POLICY.replace("v1alpha1", "v1"), 'did you mean "giveway.dev/v1alpha1"?', id="apiVersion"),
        pytest.param(POLICY.replace("{name: p}", "{nmae: p}"), 'did you mean "name"?', id="metadata"),
        pytest.param(POLICY.replace("spec:", "sepc:"), 'did you mean "spec"?', id="spec"),
        pytest.param(POLICY + "status: {}\n", 'unknown field "status"', id="status"),
        pytest.param(POLICY.replace("p}", "builtin}"), "the name of the built-in rules", id="reserved name"),
        pytest.param("a: b\n\tc: d\n", "a tab where YAML wants spaces", id="tab"),
        pytest.param("a: [\n", "YAML: expected", id="unclosed"),
        pytest.param("a: *b\n", "alias *b refers to no anchor &b", id="alias"),
        pytest.param("a: &b [*b]\n", "alias *b refers to no anchor &b", id="alias to itself"),
        pytest.param("a: !!python/object x\n", "tags such as", id="tag"),
        pytest.param("%YAML 1.1\n---\na: b\n", "directives are not read", id="directive"),
        pytest.param("a: \x00\n", "control character #x0000", id="control character"),
    ],
)
def test_documents(text, words):
    """What is no policy is told apart from what is a wrong one."""
    assert any(words in one.message for one in load_texts([("p.yaml", text)]).errors)


def test_everything_at_once():
    """All mistakes of all documents and files are told, also after a document that is wrong."""
    bad = POLICY.replace("standard", "STANDARD")
    found = load_texts([("a.yaml", bad + "---\n" + bad + "---\n" + POLICY), ("b.yaml", bad)])
    assert [str(one.source) for one in found.errors] == ["a.yaml:6:37", "a.yaml:13:37", "b.yaml:6:37"]
    assert [policy.source.line for policy in found.policies.priority] == [15]


def test_documents_before_a_syntax_error_are_read():
    """A file is read as far as it goes."""
    found = load_texts([("a.yaml", POLICY + "---\na: [\n")])
    assert len(found.policies.priority) == 1
    assert [one.source.line for one in found.errors] == [9]


HEAD = "apiVersion: giveway.dev/v1alpha1\nkind: PriorityPolicy\nmetadata: {name: p}\nspec:\n"


@pytest.mark.parametrize(
    ("spec", "line", "words"),
    [
        pytest.param(
            "  rules:\n  - {name: a}\n   - {name: b}\n", 7, "does not begin in the column", id="entry of a list"
        ),
        pytest.param("  rules:\n  - name: a\n   x: {}\n", 7, "does not begin in the column", id="field of a mapping"),
        pytest.param("  enforcement: warn\n   rules: []\n", 6, 'a ":" cannot stand here', id="indented too far"),
        pytest.param("  a: b: c\n", 5, 'a text that holds ": " needs quotes', id="two colons"),
        pytest.param("  rules: [a, b\n", 6, '"," or "]" is missing before the end of the file', id="open list"),
        pytest.param("  match: {a\n  rules: []\n", 6, '"," or "}" is missing before this', id="open mapping"),
        pytest.param('  rules: "abc\n', 6, "a quote is not closed", id="open quote"),
        pytest.param("  rules: @x\n", 5, 'a text that begins with "@" needs quotes', id="at sign"),
        pytest.param("\trules: x\n", 5, "a tab where YAML wants spaces", id="tab"),
        pytest.param("  rules\n  match: {}\n", 6, 'a ":" ', id="no colon"),
    ],
)
def test_yaml_that_cannot_be_read(spec, line, words):
    """What the parser says is told in words for people, without its block ends and tokens."""
    (found,) = load_texts([("p.yaml", HEAD + spec)]).errors
    assert (found.source.line, found.message.startswith("YAML: ")) == (line, True)
    assert words in found.message
    assert not {"<block", "token", "flow"} & set(found.message.split())


NEW = "define: {names: [new]}"
CLASSES = """
preemptors: {priorityClasses: [online, "batch-*"], twins: {high: high-never}}
victims: {pairs: [{victims: {priorityClasses: [lwo]}}]}
"""


def test_classes_that_nobody_has():
    """Names of PriorityClasses are compared with those that there are; globs may mean classes that come later."""
    text = HEAD.replace("PriorityPolicy", "PreemptionPolicy") + indented(CLASSES)
    text += (
        "---\n"
        + HEAD
        + indented("rules:\n- {name: d, defaultPriorityClass: standrd}\n" + reserve("define: {names: [x]}")[7:])
    )
    known = KnownClasses({"online", "low", "standard"}, ("high*",))
    found = load_texts([("p.yaml", text)], known).findings
    assert [one.message.partition(" is not")[0] for one in found] == ['PriorityClass "lwo"', 'PriorityClass "standrd"']
    assert 'did you mean "low"?; for one that something else makes, add --known-class lwo' in found[0].message
    assert load_texts([("p.yaml", text)]).findings == []


def test_empty_documents_are_no_mistake():
    """Comments and separators beside policies make no finding; a file without any policy does."""
    assert load_texts([("a.yaml", "# nothing\n---\n---\n" + POLICY)]).findings == []
    found = load_texts([("a.yaml", ""), ("b.yaml", "# nothing\n---\n")]).findings
    assert [str(one).splitlines()[0] for one in found] == [
        "a.yaml:1:1: warning: the file holds no policy",
        "b.yaml:1:1: warning: the file holds no policy",
    ]


@pytest.mark.parametrize(
    ("written", "place"),
    [
        pytest.param("foo == 1", (8, 19), id="plain"),
        pytest.param("'1 + 1 == foo'", (8, 29), id="in quotes"),
        pytest.param('"foo == \\"a\\""', (8, 20), id="in quotes, before what is escaped"),
        pytest.param('"\\"a\\" == foo"', (8, 19), id="after what is escaped: where it begins"),
        pytest.param("|\n      1 ==\n        foo", (10, 11), id="in a block"),
        pytest.param(">\n      1 ==\n      foo", (8, 19), id="folded: where it begins"),
    ],
)
def test_place_of_a_cel_mistake(written, place):
    """A mistake in CEL has the line and column of the file, as far as YAML leaves them to be known."""
    found = loaded(f"rules:\n- name: r\n  validate:\n    expression: {written}\n    message: m").errors
    (one,) = [one for one in found if 'no variable or function "foo"' in one.message]
    assert (one.source.line, one.source.column) == place


def test_excerpts_of_wide_and_odd_lines():
    """Carets stand below what is meant, also after wide characters and in long lines; controls are not shown."""
    wide = load_texts([("a.yaml", POLICY.replace("{name: p}", '{labels: {a: "日本\u202e語"}, nmae: p}'))]).errors
    found = next(one for one in wide if "nmae" in one.message)
    line, caret = found.excerpt.splitlines()
    assert "\u202e" not in line
    assert caret.index("^") == line.index("nmae") + 3
    long = load_texts([("a.yaml", POLICY.replace("{name: p}", "{labels: {a: " + "b" * 500 + "}, nmae: p}"))]).errors
    line, caret = next(one for one in long if "nmae" in one.message).excerpt.splitlines()
    assert len(line) < 120
    assert line[caret.index("^") :].startswith("nmae")
