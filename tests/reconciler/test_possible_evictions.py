"""Who could evict a pod, by which rule, and from when."""

import msgspec
import pytest

from tests.reconciler.builders import START, Setting, budget, node, pod, policy
from webhook.kube.instants import rfc3339
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import LabelSelector
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import Preemptors, Protection
from webhook.policy.model.schedule import Schedule
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION
from webhook.policy.model.victims import PodsMatch, PreemptionPair, VictimMode, Victims
from webhook.preemption.snapshot.kinds import PRIORITY_CLASSES
from webhook.reconciler.possible_evictions import possible_evictions
from webhook.reconciler.preemptors import PolicySet

MAY = {CAN_BE_PREEMPTED: "true"}
OPT_OUT = Victims(mode=VictimMode.OPT_OUT)


def priority_class(name, value, preemption_policy="Never"):
    return msgspec.convert(
        {"metadata": {"name": name}, "value": value, "preemptionPolicy": preemption_policy}, PriorityClass
    )


def setting(*classes, **fields):
    made = Setting(node("n1"), under=policy(**fields))
    for one in classes or (priority_class("high", 100),):
        made.state.snapshot.put(PRIORITY_CLASSES, one)
    return made


# START is 08:00 UTC.
AT_10 = Schedule(cron="0 10 * * *", duration=3600.0)


@pytest.mark.parametrize(
    ("fields", "seconds", "since"),
    [
        pytest.param({}, 60, START + 7200, id="when the schedule begins"),
        pytest.param({}, 7260, START + 7260, id="when the protection ends within it"),
        pytest.param({}, 12000, START + 26 * 3600, id="the day after, if the protection ends after it"),
        pytest.param(
            {"protection": Protection(schedule=AT_10)}, 12000, START + 26 * 3600, id="protected while it lasts"
        ),
    ],
)
def test_a_policy_with_a_schedule(fields, seconds, since):
    """Ends of protection and beginnings of the schedule are followed until both let the pod go."""
    made = setting(schedule=AT_10, **fields)
    annotations = MAY | {PROTECTION_DURATION: str(seconds)}
    found, _ = asked(made, pod("v", node="n1", annotations=annotations, start=rfc3339(START)))
    assert found.since == since
    assert f"only by the policy's schedule: {AT_10}" in found.conditions


def asked(made, one):
    """What may be done to the pod by the policy, and by kube-scheduler."""
    made.add(one)
    return possible_evictions(made.state, made.policy_set, f"default/{one.metadata.name}", START)


@pytest.mark.parametrize(
    ("fields", "more", "since", "rule", "words"),
    [
        pytest.param({}, {"annotations": MAY}, START, "test/opt-in", 'its annotation says "true"', id="now"),
        pytest.param({}, {"annotations": {}}, None, "test/opt-in", "neither its annotations", id="not opted in"),
        pytest.param(
            {"victims": OPT_OUT},
            {"annotations": {}, "priority": 70},
            None,
            "test/opt-out",
            "PriorityClass low was made again: its value is 80, and the priority is 70",
            id="its class was made again",
        ),
        pytest.param(
            {},
            {"annotations": MAY | {PROTECTION_DURATION: "60"}, "start": rfc3339(START)},
            START + 60,
            "test/opt-in",
            'its annotation says "true"',
            id="when its protection ends",
        ),
        pytest.param(
            {},
            {"annotations": {PROTECTION_DURATION: "60"}, "start": rfc3339(START)},
            None,
            "test/opt-in",
            "neither its annotations",
            id="not even when its protection ends",
        ),
        pytest.param({}, {"annotations": MAY, "owner": ("Node", "n1")}, None, "test/static", "static", id="static"),
        pytest.param({}, {"annotations": MAY, "priority": 100}, None, "test/priority", "no class above", id="equal"),
        pytest.param(
            {}, {"annotations": MAY, "labels": {"app": "web"}}, None, "test/budget", "no more disruptions", id="budget"
        ),
        pytest.param(
            {
                "victims": msgspec.structs.replace(
                    OPT_OUT, pairs=(PreemptionPair(victims=PodsMatch(namespaces=("other",))),)
                )
            },
            {},
            None,
            "test/pairs",
            "no pair of the policy names it",
            id="pairs about others",
        ),
    ],
)
def test_a_policy(fields, more, since, rule, words):
    """The rule that decides is named, with the moment from which it lets the pod go."""
    made = setting(**fields)
    made.budget(budget("web", 0, {"app": "web"}))
    found, _ = asked(made, pod("v", node="n1", **more))
    assert (found.since, found.rule) == (since, rule)
    assert words in found.text


def test_pairs_name_the_preemptors():
    """A pair counts for the classes that it names; what else it asks of preemptors is a condition."""
    labels = LabelSelector(match_labels={"tier": "web"})
    pair = PreemptionPair(preemptors=PodsMatch(priority_classes=("hi*",), namespaces=("a", "b"), labels=labels))
    made = setting(
        priority_class("high", 100),
        priority_class("higher", 200),
        victims=msgspec.structs.replace(OPT_OUT, pairs=(pair,)),
    )
    found, _ = asked(made, pod("v", node="n1"))
    assert found.classes == (("high", 100),), "the policy manages high only"
    assert found.conditions == ("only if the policy's pairs name the preemptor",)


def test_a_last_resort_is_said_to_be_one():
    """A DaemonSet's pod goes only if nothing else makes room."""
    found, _ = asked(setting(), pod("v", node="n1", owner=("DaemonSet", "agent")))
    assert found.since == START
    assert found.conditions == ("only if nothing else makes room: its replacement could run on no other node",)


def test_kube_scheduler():
    """Classes that no policy has made Never preempt by priority alone; twins' originals are moved, and do not."""
    classes = (
        priority_class("high", 100),
        priority_class("legacy", 150, "PreemptLowerPriority"),
        priority_class("system-node-critical", 2_000_001_000, None),
        priority_class("moved", 300, None),
        priority_class("moved-twin", 300),
        priority_class("below", 80, None),
    )
    made = setting(*classes)
    made.policy = msgspec.structs.replace(
        made.policy, preemptors=Preemptors(priority_classes=("high",), twins={"moved": "moved-twin"})
    )
    made.policy_set = PolicySet(Policies(preemption=(made.policy,)))
    by_policy, by_scheduler = asked(made, pod("v", node="n1", annotations={}))
    assert by_policy.classes == (("high", 100), ("moved-twin", 300))
    assert by_scheduler.classes == (("legacy", 150), ("system-node-critical", 2_000_001_000))
    assert (by_scheduler.policy, by_scheduler.since) == ("", 0.0)


def test_a_pending_pod_is_nobodys_victim():
    """A pod on no node, or that is not known, has nothing to lose."""
    made = setting()
    assert asked(made, pod("v")) == []
    assert possible_evictions(made.state, made.policy_set, "default/ghost", START) == []
