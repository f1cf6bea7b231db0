"""Who may do what by a policy set, in words, and what it lacks of the one before it.

Exceptions are in tests/policy/test_exceptions.py, the texts of removals in tests/admission/test_configmaps.py.
"""

from tests.policy.builders import document, policies, rule, rules, table
from webhook.policy.reports import NEVER, SAME, removals, rights_of

GROUP = "subjects: [{kind: Group, name: platform}]"
LABEL = "namespaceSelector: {matchLabels: {tier: infra}}"


def rows(*bodies, **parts):
    spec = rules(*(f"{{name: r{at}, {body}}}" for at, body in enumerate(bodies)), **parts)
    return rights_of(policies(document(spec)))


@table(
    "use, people, controllers",
    {
        "by namespace": ("{namespaces: [a]}", "namespace a", "namespace a"),
        "both": (
            f"{{namespaces: [a], {GROUP}}}",
            "namespace a with Group platform",
            "namespace a, whoever wrote the workload",
        ),
        "by subjects alone": (f"{{{GROUP}}}", "Group platform", NEVER),
        "an exact service account": (
            "{subjects: [{kind: ServiceAccount, namespace: ci, name: runner}]}",
            "ServiceAccount ci/runner",
            "what ServiceAccount ci/runner makes for itself",
        ),
        "any namespace": (f"{{namespaces: ['*'], {GROUP}}}", "namespace * with Group platform", NEVER),
        "two": (f"[{{namespaces: [a]}}, {{{GROUP}}}]", "namespace a, or Group platform", f"namespace a, or {NEVER}"),
        "by a label": (f"{{{LABEL}}}", "namespaces labelled tier=infra", "namespaces labelled tier=infra"),
        "nobody": ("[]", "nobody", "nobody"),
    },
)
def test_who_may_use_a_range(use, people, controllers):
    """Namespaces decide about what controllers make, subjects about those who ask for themselves."""
    row, define = rows(f"reserve: {{from: 5, to: 9, use: {use}, define: {{{GROUP}, names: [x]}}}}")
    assert (row.right, row.about, row.people, row.controllers) == ("use", "5 to 9", people, controllers)
    assert (define.right, define.people, define.controllers) == ("define", "Group platform under a name x", SAME)


def test_ranges_come_first_by_their_value():
    """Then what other rules give."""
    found = rows(
        f"protectAnnotations: {{keys: [a.io/x], allow: {{{GROUP}}}}}",
        "reserve: {from: 50, to: 60}",
        "reserve: {from: 5, to: 9}",
        "validate: {expression: 'true', message: m}",
    )
    assert [row.about for row in found] == ["5 to 9", "5 to 9", "50 to 60", "50 to 60", "a.io/x at UPDATE"]
    assert (found[-1].people, found[-1].controllers) == ("Group platform", SAME)


def test_a_right_at_creation_holds_by_namespace():
    """Whoever sets an annotation of a new pod may be a controller."""
    (row,) = rows(f"protectAnnotations: {{keys: [a.io/x], operations: [CREATE], allow: {{namespaces: [a], {GROUP}}}}}")
    assert row.controllers == "namespace a, whoever wrote the workload"


def test_where_a_policy_holds():
    """Match, exclude, conditions and the enforcement of a rule are part of what is said."""
    parts = {"match": "{namespaces: [a]}", "exclude": "{namespaces: [b]}", "enforcement": "warn"}
    row, _ = rows("reserve: {from: 5, to: 9}", **parts, conditions="[{name: c, expression: 'true'}]")
    assert (row.holds, row.enforcement) == ("namespace a, without namespace b, if c", "warn")


DENY = rule("priorityClasses: {deny: [x]}")


@table(
    "old, new, found",
    {
        "the enforcement of a policy": (
            DENY,
            rule("priorityClasses: {deny: [x]}", enforcement="audit"),
            ["p/r: enforcement enforce becomes audit"],
        ),
        "a stricter rule": (rule("priorityClasses: {deny: [x]}, enforcement: warn"), DENY, []),
        "another content is not compared": (DENY, rule("priorityClasses: {deny: [y]}"), []),
    },
)
def test_what_is_gone_or_softer(old, new, found):
    """Rules that are softer, by their own enforcement or by their policy's, are told by id; no other content is."""
    assert [str(row) for row in removals(policies(document(old)), policies(document(new)))] == found
    assert removals(policies(), policies(document(new))) == []
