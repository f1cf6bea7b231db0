"""What a namespace or a value concerns is looked up: that leaves out only what cannot match, and costs little."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native.strategies import CLASS_NAMES, NAMESPACES, labels, policy_sets, users
from tests.policy.builders import create, define, engine, outcomes, pod, rules, user
from webhook.policy.evaluation.engine import Engine
from webhook.policy.model.policies import Policies

REQUESTS = st.builds(
    lambda name, value, who, space, found: (
        create(pod(name, labels=found), namespace=space, user=user(who[0], *who[1]), priority=value)
        if space
        else define(name, value, user=user(who[0], *who[1]))
    ),
    st.sampled_from(CLASS_NAMES),
    st.sampled_from([-60, -1, 0, 60, 61, 200]),
    users,
    st.sampled_from(["", *NAMESPACES]),
    labels,
)


@given(policy_sets(), REQUESTS)
def test_an_index_changes_no_verdict(policies, request):
    """Every policy asked by itself says what all of them say together."""
    one_by_one = {}
    for row in policies.priority:
        one_by_one |= outcomes(Engine(Policies(priority=(row,), preemption=policies.preemption)), request)
    assert outcomes(Engine(policies), request) == one_by_one


@pytest.mark.slow
def test_cost_hardly_grows_with_rules_that_do_not_match():
    """A thousand policies for other namespaces cost less than four times what ten cost."""

    def cost(count):
        rows = [
            rules("{name: r, priorityClasses: {deny: ['*']}}", match=f"{{namespaces: [other-{n}]}}")
            for n in range(count)
        ]
        judging, request = engine(*rows), create(pod("c"))
        best = float("inf")
        for _ in range(20):
            began = time.process_time()
            for _ in range(100):
                judging.judge(request)
            best = min(best, time.process_time() - began)
        return best

    assert cost(1000) < 4 * cost(10)
