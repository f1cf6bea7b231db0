"""What a policy set lacks of the one before it, by id."""

from tests.policy.builders import policies, rule, rules, table
from webhook.policy.model.policies import Policies
from webhook.policy.removals import removals

TWO = rules("{name: a, priorityClasses: {deny: [x]}}", "{name: b, priorityClasses: {deny: [y]}}")
DENY = rule("priorityClasses: {deny: [x]}")


@table(
    "old, new, found",
    {
        "a policy": (TWO, "", ["p: the PriorityPolicy with its 2 rules is gone"]),
        "rules": (TWO, DENY, ["p/a: the rule is gone", "p/b: the rule is gone"]),
        "the enforcement of a rule": (
            DENY,
            rule("priorityClasses: {deny: [x]}, enforcement: warn"),
            ["p/r: enforcement enforce becomes warn"],
        ),
        "the enforcement of a policy": (
            DENY,
            rule("priorityClasses: {deny: [x]}", enforcement="audit"),
            ["p/r: enforcement enforce becomes audit"],
        ),
        "another kind": (
            rule("copyAnnotations: [a.io/x]"),
            rule("defaultPriorityClass: x"),
            ["p/r: it is a rule of another kind now"],
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


def test_a_preemption_policy_that_is_gone():
    """Pods of its classes would find nobody who preempts for them."""
    old = policies("preemptors: {priorityClasses: [a]}", "PreemptionPolicy")
    [removal] = removals(old, Policies())
    assert "nothing preempts" in removal.what
    assert removals(old, old) == []
