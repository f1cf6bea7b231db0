"""Findings name the field beside the place, also where lines say nothing."""

from tests.policy.builders import table
from webhook.policy.files.loading import load_texts

HEAD = "apiVersion: giveway.dev/v1alpha1\nkind: PriorityPolicy\nmetadata: {name: p}\n"


@table(
    "text, fields",
    {
        "names and values": ("spec:\n  enforcment: warn\n  rules: []\n", ["spec.enforcment", "spec.rules"]),
        "a mapping as a whole, not its first field": ("spec:\n  enforcement: warn\n", ["spec"]),
        "entries of lists": (
            (
                "spec:\n  rules:\n  - name: a\n    reserve: {from: 9, to: 1}\n"
                "  - {name: b, priorityClasses: {deny: [5]}}\n"
            ),
            ["spec.rules[0].reserve.from", "spec.rules[1].priorityClasses.deny[0]"],
        ),
        "inside an expression": (
            (
                "spec:\n  rules:\n  - name: a\n    validate:\n      message: m\n      expression: |\n"
                "        true &&\n        foo\n"
            ),
            ["spec.rules[0].validate.expression"],
        ),
        "no mapping": ("spec: 5\n", ["spec"]),
        "an alias": ("spec: &a {rules: []}\nspce: *a\n", ["spec.rules", "spce"]),
        "what cannot be read has no fields": ("spec:\n  rules: [a\n", [""]),
    },
)
def test_the_field_of_a_finding(text, fields):
    """As kubectl names it."""
    found = load_texts([("p.yaml", HEAD + text)]).findings
    assert [one.field for one in found] == fields
    assert all(f"({one.field})" in str(one) for one in found if one.field)


def test_a_rule_of_many():
    """What is wrong between policies names the rule."""
    rules = "spec: {rules: [{name: a, reserve: {from: 1, to: 5}}, {name: b, reserve: {from: 5, to: 6}}]}\n"
    (found,) = load_texts([("p.yaml", HEAD + rules)]).findings
    assert (found.field, [other.field for other in found.related]) == ("spec.rules[1]", ["spec.rules[0]"])


def test_two_files():
    """The other place is named, too, in a file without a finding of its own."""
    rules = "spec: {rules: [{name: a, reserve: {from: 1, to: 5}}]}\n"
    (found,) = load_texts([("p.yaml", HEAD + rules), ("q.yaml", HEAD.replace("p}", "q}") + rules)]).findings
    assert "q.yaml:4:16: error: the range of q/a overlaps that of p/a" in str(found)
    assert "p.yaml:4:16: note: p/a reserves 1 to 5 (spec.rules[0])" in str(found)
