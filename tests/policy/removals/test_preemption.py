"""What a changed PreemptionPolicy gives up: preemptors that are served, and pods that are spared."""

import pytest

from tests.policy.builders import policies
from webhook.policy.removals.removals import removals

DAY = "schedule: {cron: 0 6 * * *, timeZone: Europe/Berlin, duration: 14h}"


DAY_TEXT = "0 6 * * * Europe/Berlin for 14h"


EXTENDER = "extenders: [{urlPrefix: 'http://e:1', preemptVerb: p}]\n"


WORKLOAD = "perWorkload: {evictions: 4, window: 1h}, "


PREEMPTION = f"""
{EXTENDER}preemptors: {{priorityClasses: [online], twins: {{high: high-never}}}}
protection: {{default: 30s, maximum: 1h}}
limits: {{perNode: {{evictions: 1, window: 1m}}, {WORKLOAD}attemptsPerPreemptor: 3}}
"""


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(("[online]", "[other]"), "classes are no longer managed: online", id="class"),
        pytest.param((", twins: {high: high-never}", ""), "classes have no twin any more: high", id="twin"),
        pytest.param(("default: 30s", "default: 10s"), "pods are protected for 10 s instead of 30 s", id="protection"),
        pytest.param(("maximum: 1h", "maximum: 1m"), "pods may ask for at most 60 s of protection", id="maximum"),
        pytest.param(("perNode: {evictions: 1, window: 1m}, ", ""), "the limit perNode is gone", id="limit"),
        pytest.param(("evictions: 1", "evictions: 2"), "the limit perNode allows more evictions", id="rate"),
        pytest.param((WORKLOAD, ""), "the limit perWorkload is gone", id="limit of workloads"),
        pytest.param(
            (WORKLOAD, WORKLOAD.replace("1h", "1m")),
            "the limit perWorkload allows more evictions",
            id="window of the limit of workloads",
        ),
        pytest.param(("Preemptor: 3", "Preemptor: 4"), "attemptsPerPreemptor rises from 3 to 4", id="attempts"),
        pytest.param(
            ("protection", "victims: {mode: opt-out}\nprotection"),
            "pods need no longer opt in to be evicted",
            id="mode",
        ),
        pytest.param(("protection", "budgets: best-effort\nprotection"), "budgets may be broken", id="budgets"),
        pytest.param(
            ("protection", "eviction: delete\nprotection"), "victims are deleted instead of evicted", id="delete"
        ),
        pytest.param(
            ("protection", "victims: {schedulerNames: [default-scheduler, other]}\nprotection"),
            "pods of more schedulers may be evicted: other",
            id="schedulers of victims",
        ),
        pytest.param(
            ("protection", "victims: {schedulerNames: ['*']}\nprotection"),
            "pods of more schedulers may be evicted: *",
            id="any scheduler of victims",
        ),
        pytest.param(
            ("protection", "gracePeriodSeconds: 5\nprotection"), "victims have only 5 s to end", id="grace period"
        ),
        pytest.param((EXTENDER, ""), "the extender http://e:1/p is no longer asked", id="extender"),
        pytest.param(
            ("preemptVerb: p", "preemptVerb: p, ignorable: true"),
            "the extender http://e:1/p is passed over if it fails",
            id="ignorable extender",
        ),
        pytest.param(
            ("preemptVerb: p", "preemptVerb: p, managedResources: [a.io/gpu]"),
            "the extender http://e:1/p is asked about fewer pods",
            id="managed resources of an extender",
        ),
        pytest.param(
            ("protection", "victims: {signals: [{annotation: e.io/k, permits: ['no']}]}\nprotection"),
            "values of e.io/k make a pod preemptible: no",
            id="signal that permits",
        ),
        pytest.param(
            ("protection", f"{DAY}\nprotection"),
            f"it evicts at other times: only by the schedule {DAY_TEXT} instead of always",
            id="schedule",
        ),
        pytest.param(
            ("maximum: 1h", f"maximum: 1h, {DAY}"),
            f"pods are protected only by the schedule {DAY_TEXT} instead of always",
            id="schedule of protection",
        ),
        pytest.param(
            ("window: 1m", f"window: 1m, {DAY}"),
            f"the limit perNode holds only by the schedule {DAY_TEXT} instead of always",
            id="schedule of a rate",
        ),
    ],
)
def test_preemption_policies(change, found):
    """Fewer pods served and fewer pods spared are both given up."""
    old, new = (policies(spec, "PreemptionPolicy") for spec in (PREEMPTION, PREEMPTION.replace(*change)))
    assert [str(one) for one in removals(old, new)] == [f"p: {found}"]
    assert removals(old, old) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(
            ("protects: ['true', x]", "protects: [x]"), ["values of e.io/k no longer protect: true"], id="value"
        ),
        pytest.param((", duration: true", ""), ["a duration in e.io/k no longer protects"], id="duration"),
        pytest.param(
            ("e.io/k", "e.io/l"),
            ["values of e.io/k no longer protect: true, x", "a duration in e.io/k no longer protects"],
            id="key",
        ),
        pytest.param(
            ("preemptionToleration: true", "preemptionToleration: false"),
            ["the annotations of PreemptionToleration no longer protect"],
            id="toleration",
        ),
        pytest.param(("protects: ['true', x]", "protects: ['true', x, y]"), [], id="one more value"),
        pytest.param(("true}]}", "true}, {annotation: e.io/k, protects: [z]}]}"), [], id="one more signal"),
    ],
)
def test_signals(change, found):
    """Whatever no longer protects is told; what protects besides is not."""
    signals = (
        "victims: {preemptionToleration: true, signals: [{annotation: e.io/k, protects: ['true', x], duration: true}]}"
    )
    before = f"{signals}\n{PREEMPTION}"
    old, new = (policies(spec, "PreemptionPolicy") for spec in (before, before.replace(*change)))
    assert [str(one) for one in removals(old, new)] == [f"p: {one}" for one in found]


@pytest.mark.parametrize("change", [(", " + DAY, ""), ("14h", "15h")], ids=["always", "longer"])
@pytest.mark.parametrize("part", ["maximum: 1h", "window: 1m"])
def test_what_protects_for_longer_gives_nothing_up(part, change):
    """A protection or a rate that holds at more times than before is at least as strict."""
    old = PREEMPTION.replace(part, f"{part}, {DAY}")
    assert removals(policies(old, "PreemptionPolicy"), policies(old.replace(*change), "PreemptionPolicy")) == []


def test_a_policy_that_evicts_at_more_times_gives_quiet_hours_up():
    """Both directions are told: at some times more is evicted, at others pods wait."""
    old, new = f"{DAY}\n{PREEMPTION}", f"{DAY}\n{PREEMPTION}".replace("14h", "15h")
    (found,) = removals(policies(old, "PreemptionPolicy"), policies(new, "PreemptionPolicy"))
    assert str(found).startswith("p: it evicts at other times: only by the schedule 0 6 * * * Europe/Berlin for 15h")


def test_a_shorter_notice_gives_time_up():
    """Victims have less time to save their work; a longer notice takes nothing from anybody."""
    long, short = (
        policies(PREEMPTION.replace("protection", f"victims: {{notice: {time}}}\nprotection"), "PreemptionPolicy")
        for time in ("60s", "10s")
    )
    told = "p: victims are told 10 s before they are asked to leave, not 60 s"
    assert [str(one) for one in removals(long, short)] == [told]
    assert removals(short, long) == []
