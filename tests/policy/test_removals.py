"""What a policy set lacks of the one before it; the texts are in tests/admission/test_configmaps.py."""

from tests.policy.builders import document, policies, rule, table
from webhook.policy.reports import removals

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
        "another kind": (
            DENY,
            rule("reserve: {from: 1, to: 2}"),
            ["p/r: it is a rule of another kind now"],
        ),
        "another content is not compared": (DENY, rule("priorityClasses: {deny: [y]}"), []),
    },
)
def test_what_is_gone_or_softer(old, new, found):
    """Policies and rules that are gone, of another kind or softer are told by id, and nothing else."""
    assert [str(row) for row in removals(policies(document(old)), policies(document(new)))] == found
    assert removals(policies(), policies(document(new))) == []
