"""Findings name the field beside the place, also where lines say nothing."""

from tests.policy.builders import document, table
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


def test_the_other_place():
    """It is named and shown, too, in a file without a finding of its own."""
    rule = "rules: [{name: a, reserve: {from: 1, to: 5}}]"
    (found,) = load_texts([(f"{name}.yaml", document(rule, name=name)) for name in ("p", "q")]).findings
    assert "q.yaml:5:11: error: the range of q/a overlaps that of p/a" in str(found)
    assert f"p.yaml:5:11: note: p/a reserves 1 to 5 (spec.rules[0])\n    5 |   {rule}" in str(found)
