"""What a policy set lacks of the one before it; the texts are in tests/admission/test_refusals_of_policies.py."""

from tests.policy.builders import policies, rule, rules, table
from webhook.policy.model.policies import Policies
from webhook.policy.removals import removals

TWO = rules("{name: a, priorityClasses: {deny: [x]}}", "{name: b, priorityClasses: {deny: [y]}}")
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
        "a new policy": ("", TWO, []),
    },
)
def test_what_is_gone_or_softer(old, new, found):
    """Policies and rules that are gone, of another kind or softer are told by id, and nothing else."""
    assert [
        str(removal) for removal in removals(*(policies(spec) if spec else Policies() for spec in (old, new)))
    ] == found
