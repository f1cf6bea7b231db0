"""How the rates of a policy choose among plans, and when a preemptor that they hold back is tried again."""

import pytest

from tests.reconciler.builders import START, Setting, names, node, pod, policy, preemptor
from webhook.kube.instants import rfc3339
from webhook.policy.model.limits import Limits, Rate
from webhook.reconciler.evaluate.eviction_limiter import PlannedEviction
from webhook.reconciler.evaluate.outcomes import Unschedulable


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(Limits(per_owner=Rate(1, 60.0)), id="owner"),
        pytest.param(Limits(per_node=Rate(1, 60.0)), id="node"),
    ],
)
def test_rate_leads_elsewhere(limits: Limits):
    """Where an owner or a node has had its evictions, the next best plan is taken."""
    setting = Setting(node("n1"), node("n2"), under=policy(limits=limits))
    setting.add(
        pod("a", "6", node="n1", owner=("Job", "one"), priority=10), pod("b", "6", node="n2", owner=("Job", "two"))
    )
    setting.evaluator.limiter.remember(limits)
    setting.evaluator.limiter.note([PlannedEviction("Job/default/one", "n1")], 0.0)
    assert names(setting.evaluate(preemptor())) == ["b"]


def test_rate_of_the_cluster():
    """A cluster that has had its evictions keeps its pods until the window has passed."""
    limits = Limits(per_cluster=Rate(1, 60.0))
    setting = Setting(node("n1"), under=policy(limits=limits))
    setting.add(pod("a", "6", node="n1"))
    setting.evaluator.limiter.remember(limits)
    setting.evaluator.limiter.note([PlannedEviction("", "n2")], 0.0)
    outcome = setting.evaluate(preemptor())
    assert isinstance(outcome, Unschedulable)
    assert (outcome.limited, outcome.due) == (True, 60.0)
    assert outcome.change.startswith(f"That may change at {rfc3339(START + 60)}, when limits.")
    setting.clock.now = 60.1
    assert names(setting.evaluate(preemptor())) == ["a"]


def one_or_two(limits: Limits) -> Setting:
    """n1 needs two victims of low priority, n2 needs one of higher priority."""
    setting = Setting(node("n1"), node("n2"), under=policy(limits=limits))
    setting.add(*(pod(f"a{number}", "4", node="n1", priority=10, owner=("Job", "a")) for number in range(2)))
    setting.add(pod("b", "8", node="n2", priority=80, owner=("Job", "b")))
    return setting


ONE_AT_A_TIME = [
    pytest.param(Limits(per_owner=Rate(1, 60.0)), "limits.perOwner", id="owner"),
    pytest.param(Limits(per_node=Rate(1, 60.0)), "limits.perNode", id="node"),
    pytest.param(Limits(per_cluster=Rate(1, 60.0)), "limits.perCluster", id="cluster"),
]


@pytest.mark.parametrize(("limits", "name"), ONE_AT_A_TIME)
@pytest.mark.parametrize("now", [0.0, 1.0, 61.0, 3600.0])
def test_best_candidate_within_the_rates(limits: Limits, name: str, now: float):
    """A plan that is larger than a rate is passed over for the next best one, whenever it is tried."""
    setting = one_or_two(limits)
    setting.clock.now = now
    assert names(setting.evaluate(preemptor(cpu="6"))) == ["b"]


@pytest.mark.parametrize(("limits", "name"), ONE_AT_A_TIME)
def test_plan_larger_than_a_rate_waits_for_the_cluster(limits: Limits, name: str):
    """Where every plan is larger than a rate ever allows, it is said so, and no time is waited for."""
    setting = one_or_two(limits)
    setting.remove("default/b")
    setting.add(pod("b", "8", node="n2", priority=1000))
    outcome = setting.evaluate(preemptor(cpu="6"))
    assert isinstance(outcome, Unschedulable)
    assert (name in outcome.reason, outcome.limited, outcome.due) == (True, True, None)


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(Limits(per_owner=Rate(2, 60.0)), id="owner"),
        pytest.param(Limits(per_node=Rate(2, 60.0)), id="node"),
        pytest.param(Limits(per_cluster=Rate(2, 60.0)), id="cluster"),
    ],
)
def test_plan_larger_than_what_is_left_waits_for_the_window(limits: Limits):
    """If recent evictions leave too little of a rate, the preemptor is tried again when they stop counting."""
    setting = one_or_two(limits)
    setting.add(pod("b", "8", node="n2", priority=1000))
    setting.evaluator.limiter.remember(limits)
    setting.evaluator.limiter.note([PlannedEviction("Job/default/a", "n1")], 0.0)
    setting.clock.now = 10.0
    outcome = setting.evaluate(preemptor(cpu="6"))
    assert isinstance(outcome, Unschedulable)
    assert (outcome.limited, outcome.due) == (True, 60.0)
    setting.clock.now = outcome.due + 0.1
    assert names(setting.evaluate(preemptor(cpu="6"))) == ["a0", "a1"]


@pytest.mark.parametrize("limits", [made.values[0] for made in ONE_AT_A_TIME], ids=["owner", "node", "cluster"])
def test_fewer_victims_of_higher_priority_where_a_rate_asks_for_it(limits: Limits):
    """Where the least important pods are too many for a rate for good, one that is more important goes instead."""
    setting = Setting(node("n1"), under=policy(limits=limits))
    setting.add(*(pod(f"a{number}", "2", node="n1", priority=10, owner=("Job", "a")) for number in range(2)))
    setting.add(pod("b", "4", node="n1", priority=20, owner=("Job", "b")))
    assert names(setting.evaluate(preemptor(cpu="4"))) == ["b"]


def test_pods_without_an_owner_have_no_rate():
    """The rate of owners counts no bare pods, and each owner by itself."""
    setting = Setting(node("n1"), under=policy(limits=Limits(per_owner=Rate(1, 60.0))))
    setting.add(pod("bare-1", "2", node="n1"), pod("bare-2", "2", node="n1"))
    setting.add(pod("a", "2", node="n1", owner=("Job", "a")), pod("b", "2", node="n1", owner=("Job", "b")))
    assert len(names(setting.evaluate(preemptor(cpu="8")))) == 4
