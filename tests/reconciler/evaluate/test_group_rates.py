"""Rates of namespaces and of the values of a label: who stays, when that changes, and what a new leader knows of it."""

import pytest

from tests.reconciler.builders import Setting, node, pod, policy, preemptor
from webhook.policy.model.limits import LabelRate, Limits, Rate
from webhook.reconciler.evaluate.outcomes import Evicts, Unschedulable

BY_NAMESPACE = Limits(per_namespace=Rate(1, 60.0))
BY_TEAM = Limits(per_label=LabelRate("team", 1, 60.0))


def evicted(setting, limits, **more):
    """Note that such a pod was evicted 10 s ago."""
    limiter = setting.evaluator.limiter
    limiter.remember(limits)
    gone = pod("gone", node="n1", **more)
    limiter.note([limiter.eviction_of(gone)], setting.clock.monotonic() - 10.0)


@pytest.mark.parametrize(
    ("limits", "before", "victim", "goes"),
    [
        pytest.param(BY_NAMESPACE, {"namespace": "red"}, {"namespace": "red"}, False, id="its namespace had its share"),
        pytest.param(BY_NAMESPACE, {"namespace": "blue"}, {"namespace": "red"}, True, id="another namespace had"),
        pytest.param(BY_TEAM, {"labels": {"team": "a"}}, {"labels": {"team": "a"}}, False, id="its team had its share"),
        pytest.param(BY_TEAM, {"labels": {"team": "a"}}, {"labels": {"team": "b"}}, True, id="another team had"),
        pytest.param(BY_TEAM, {"labels": {}}, {"labels": {}}, True, id="pods without the label do not count"),
        pytest.param(
            BY_TEAM,
            {"labels": {"team": "a"}, "namespace": "red"},
            {"labels": {"team": "a"}, "namespace": "blue"},
            False,
            id="a team in two namespaces is one",
        ),
    ],
)
def test_who_had_its_share_stays(limits, before, victim, goes):
    """A rate that is used up keeps the pods of its group, until the first eviction leaves the window."""
    setting = Setting(node("n1"), under=policy(limits=limits))
    setting.clock.now = 100.0
    setting.add(pod("v", "6", node="n1", **victim))
    evicted(setting, limits, **before)
    outcome = setting.evaluate(preemptor())
    assert isinstance(outcome, Evicts if goes else Unschedulable)
    if not goes:
        assert outcome.limited
        assert outcome.due == pytest.approx(150.0)
        name = "perNamespace" if limits is BY_NAMESPACE else "perLabel"
        assert f"limits.{name} leaves room again" in outcome.change
        setting.clock.now = 151.0
        assert isinstance(setting.evaluate(preemptor()), Evicts)


@pytest.mark.parametrize(
    ("limits", "key"), [(BY_NAMESPACE, "namespace"), (BY_TEAM, "labels")], ids=["namespace", "label"]
)
def test_one_plan_takes_no_more_than_the_rate(limits, key):
    """A node whose victims are of two groups is taken rather than one where one group would lose two pods."""
    groups = {"namespace": ("red", "blue"), "labels": ({"team": "a"}, {"team": "b"})}[key]
    setting = Setting(node("n1"), node("n2"), under=policy(limits=limits))
    setting.add(*(pod(f"a{n}", "4", node="n1", **{key: groups[0]}) for n in range(2)))
    setting.add(*(pod(f"b{n}", "4", node="n2", priority=90, **{key: groups[n]}) for n in range(2)))
    assert setting.evaluate(preemptor(cpu="8")).node == "n2"
