"""Every rate of a policy counts wherever rates do: a new field of `Limits` fails here until all of them know it."""

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import Setting, node, pod, policy, preemptor
from webhook.policy.model.limits import LabelRate, Limits, Rate, WorkloadLimit
from webhook.policy.shapes.object_shape import yaml_name
from webhook.reconciler.evaluate.limits import _NEVER, NOT_NOW
from webhook.reconciler.evaluate.outcomes import Evicts, Unschedulable

OTHER = {"cycles": "which of two workloads stays", "attempts_per_preemptor": "how often it is tried, not how much"}
"""The fields of `Limits` that are no rate, and what they say instead."""
RATES = [field for field in Limits.__struct_fields__ if field not in OTHER]


def only(field, evictions=1):
    """Limits with this rate alone."""
    label = {"label": "team"} if field == "per_label" else {}
    return msgspec.convert({field: {"evictions": evictions, "window": 60.0, **label}}, Limits)


def setting_of(limits, *names):
    """A full node with such victims, all of one owner, namespace and team, in a cluster that had an hour of peace."""
    setting = Setting(node("n1"), under=policy(limits=limits))
    setting.clock.now = 3600.0
    setting.evaluator.log.remember(limits)
    setting.add(*(victim(name, "8" if len(names) == 1 else "4") for name in names))
    return setting


def victim(name, cpu="8"):
    """A pod for which every rate counts."""
    return pod(name, cpu, node="n1", owner=("Job", "a"), labels={"team": "a"})


def evicted(setting):
    """Such a pod was asked to leave 10 s ago."""
    log = setting.evaluator.log
    log.asked("gone", log.eviction_of(victim("gone"), "API"), setting.clock.monotonic() - 10.0)


def test_the_rates():
    """What is a rate is in the lists of rates."""
    every = msgspec.structs.replace(Limits(), **{field: getattr(only(field), field) for field in RATES})
    assert set(_NEVER.values()) == {yaml_name(field) for field in RATES}
    assert NOT_NOW not in _NEVER
    assert set(every.rates) == {field for field in RATES if not isinstance(getattr(every, field), WorkloadLimit)}


@pytest.mark.parametrize("field", RATES)
def test_a_rate_that_is_used_up_holds_evictions_back(field):
    """It alone keeps the pods, says so by its name, and no longer once the eviction has left its window."""
    setting = setting_of(only(field), "v")
    evicted(setting)
    outcome = setting.evaluate(preemptor())
    assert isinstance(outcome, Unschedulable)
    assert (outcome.limited, outcome.due) == (True, pytest.approx(3650.0))
    assert f"limits.{yaml_name(field)} leaves room again" in outcome.change
    setting.clock.now = 3651.0
    assert not isinstance(setting.evaluate(preemptor()), Unschedulable)


@pytest.mark.parametrize("field", RATES)
def test_a_rate_holds_a_part_of_a_plan_back(field):
    """What recent evictions leave of it is less than the plan needs, so the preemptor waits for the window."""
    setting = setting_of(only(field, 2), "v", "w")
    evicted(setting)
    outcome = setting.evaluate(preemptor(cpu="8"))
    assert isinstance(outcome, Unschedulable)
    assert (outcome.limited, outcome.due) == (True, pytest.approx(3650.0))


@pytest.mark.parametrize("field", RATES)
def test_a_plan_larger_than_a_rate_is_none(field):
    """No time helps a plan that takes more at once than the rate ever allows."""
    outcome = setting_of(only(field), "v", "w").evaluate(preemptor(cpu="8"))
    assert isinstance(outcome, Unschedulable)
    assert outcome.reason.endswith(f"than limits.{yaml_name(field)} ever allows")


@pytest.mark.parametrize("field", RATES)
def test_a_rate_that_got_smaller_ends_a_plan(field):
    """A plan that was made under a larger rate is told by which it is too large now."""
    setting = setting_of(only(field, 2), "v", "w")
    log, uids, now = setting.evaluator.log, ["uid-v", "uid-w"], setting.clock.monotonic()
    log.intend("plan", {f"uid-{name}": log.eviction_of(victim(name)) for name in "vw"})
    assert log.overdrawn(only(field, 2), uids, now) == ""
    told = f"limits.{yaml_name(field)} does not allow so many evictions any more"
    assert log.overdrawn(only(field), uids, now) == told


RED, BLUE = {"namespace": "red"}, {"namespace": "blue"}
TEAM_A, TEAM_B = {"labels": {"team": "a"}}, {"labels": {"team": "b"}}
BY_NAMESPACE, BY_TEAM = Limits(per_namespace=Rate(1, 60.0)), Limits(per_label=LabelRate("team", 1, 60.0))


@table(
    "limits, before, victims, goes",
    ("its namespace had its share", BY_NAMESPACE, RED, [RED], False),
    ("another namespace had", BY_NAMESPACE, BLUE, [RED], True),
    ("its team had its share", BY_TEAM, TEAM_A, [TEAM_A], False),
    ("another team had", BY_TEAM, TEAM_A, [TEAM_B], True),
    ("pods without the label do not count", BY_TEAM, {}, [{}, {}], True),
    ("a team in two namespaces is one", BY_TEAM, TEAM_A | RED, [TEAM_A | BLUE], False),
    ("pods without an owner have no rate", Limits(per_owner=Rate(1, 60.0)), {}, [{}, {}], True),
)
def test_whose_evictions_count_together(limits, before, victims, goes):
    """A rate that is used up keeps the pods of its namespace, team or owner, and no others."""
    setting = setting_of(limits)
    setting.add(*(pod(f"v{number}", "3", node="n1", **more) for number, more in enumerate(victims)))
    log = setting.evaluator.log
    log.asked("gone", log.eviction_of(pod("gone", node="n1", **before)), setting.clock.monotonic() - 10.0)
    assert isinstance(setting.evaluate(preemptor(cpu="8")), Evicts if goes else Unschedulable)
