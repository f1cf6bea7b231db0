"""What a policy set lacks of the one before it, by id."""

import pytest

from tests.policy.builders import policies, rule, rules
from webhook.policy.model.policies import Policies
from webhook.policy.removals import removals

TWO = rules("{name: a, priorityClasses: {deny: [x]}}", "{name: b, priorityClasses: {deny: [y]}}")
DENY = rule("priorityClasses: {deny: [x]}")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        pytest.param(TWO, "", ["p: the PriorityPolicy with its 2 rules is gone"], id="a policy"),
        pytest.param(TWO, DENY, ["p/a: the rule is gone", "p/b: the rule is gone"], id="rules"),
        pytest.param(
            DENY,
            rule("priorityClasses: {deny: [x]}, enforcement: warn"),
            ["p/r: enforcement enforce becomes warn"],
            id="the enforcement of a rule",
        ),
        pytest.param(
            DENY,
            rule("priorityClasses: {deny: [x]}", enforcement="audit"),
            ["p/r: enforcement enforce becomes audit"],
            id="the enforcement of a policy",
        ),
        pytest.param(
            rule("copyAnnotations: [a.io/x]"),
            rule("defaultPriorityClass: x"),
            ["p/r: it is a rule of another kind now"],
            id="another kind",
        ),
        pytest.param(rule("priorityClasses: {deny: [x]}, enforcement: warn"), DENY, [], id="a stricter rule"),
        pytest.param(DENY, rule("priorityClasses: {deny: [y]}"), [], id="another content is not compared"),
        pytest.param("", TWO, [], id="a new policy"),
    ],
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
