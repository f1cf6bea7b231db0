"""Who could evict a pod, by which rule, and from when."""

import msgspec

from tests.cases import table
from tests.reconciler.builders import START, Setting, budget, node, pod, policy
from webhook.kube.instants import rfc3339
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import LabelSelector
from webhook.policy.model.preemption import Preemptors, Protection
from webhook.policy.model.schedule import Schedule
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION
from webhook.policy.model.victims import PodsMatch, PreemptionPair, VictimMode, Victims
from webhook.preemption.snapshot.kinds import PRIORITY_CLASSES
from webhook.reconciler.possible_evictions import possible_evictions

MAY = {CAN_BE_PREEMPTED: "true"}
OPT_OUT = Victims(mode=VictimMode.OPT_OUT)
HIGH = {"high": (100, "Never")}


def asked(one, classes=HIGH, **fields):
    """What may be done to the pod by the policy, and by kube-scheduler, in a cluster with these classes."""
    made = Setting(node("n1"), under=policy(**fields))
    for name, (value, said) in classes.items():
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": said}
        made.state.snapshot.put(PRIORITY_CLASSES, msgspec.convert(body, PriorityClass))
    made.budget(budget("web", 0, {"app": "web"}))
    made.add(one)
    return possible_evictions(made.state, made.policy_set, f"default/{one.metadata.name}", START)


def protected(seconds, **more):
    """Annotations of a pod that has run for no time yet, and is protected so long."""
    return {"annotations": {PROTECTION_DURATION: str(seconds), **more}, "start": rfc3339(START)}


# START is 08:00 UTC.
AT_10 = Schedule(cron="0 10 * * *", duration=3600.0)


@table(
    "fields, seconds, since",
    ("when the schedule begins", {}, 60, START + 7200),
    ("when the protection ends within it", {}, 7260, START + 7260),
    ("the day after, if the protection ends after it", {}, 12000, START + 26 * 3600),
    ("protected while it lasts", {"protection": Protection(schedule=AT_10)}, 12000, START + 26 * 3600),
)
def test_a_policy_with_a_schedule(fields, seconds, since):
    """Ends of protection and beginnings of the schedule are followed until both let the pod go."""
    possible, _ = asked(pod("v", node="n1", **protected(seconds, **MAY)), schedule=AT_10, **fields)
    assert possible.since == since
    assert f"only by the policy's schedule: {AT_10}" in possible.conditions


SAYS_NOTHING, NONE_ABOVE = "neither its annotations", "no class above"
AGAIN = "PriorityClass low was made again: its value is 80, and the priority is 70"
ELSEWHERE = msgspec.structs.replace(OPT_OUT, pairs=(PreemptionPair(victims=PodsMatch(namespaces=("other",))),))


@table(
    "fields, more, since, rule, words",
    ("now", {}, {"annotations": MAY}, START, "opt-in", 'its annotation says "true"'),
    ("not opted in", {}, {"annotations": {}}, None, "opt-in", SAYS_NOTHING),
    ("its class was made again", {"victims": OPT_OUT}, {"annotations": {}, "priority": 70}, None, "opt-out", AGAIN),
    ("when its protection ends", {}, protected(60, **MAY), START + 60, "opt-in", "says"),
    ("not even when its protection ends", {}, protected(60), None, "opt-in", SAYS_NOTHING),
    ("static", {}, {"annotations": MAY, "owner": ("Node", "n1")}, None, "static", "static"),
    ("equal", {}, {"annotations": MAY, "priority": 100}, None, "priority", NONE_ABOVE),
    ("budget", {}, {"annotations": MAY, "labels": {"app": "web"}}, None, "budget", "no more disruptions"),
    ("pairs about others", {"victims": ELSEWHERE}, {}, None, "pairs", "no pair of the policy names it"),
)
def test_a_policy(fields, more, since, rule, words):
    """The rule that decides is named, with the moment from which it lets the pod go."""
    possible, _ = asked(pod("v", node="n1", **more), **fields)
    assert (possible.since, possible.rule) == (since, f"test/{rule}")
    assert words in possible.text


WEB = LabelSelector(match_labels={"tier": "web"})
PAIR = PreemptionPair(preemptors=PodsMatch(priority_classes=("hi*",), namespaces=("a", "b"), labels=WEB))
NO_OTHER_NODE = "only if nothing else makes room: its replacement could run on no other node"


@table(
    "fields, owner, condition",
    (
        "what a pair asks of preemptors beside their class",
        {"victims": msgspec.structs.replace(OPT_OUT, pairs=(PAIR,))},
        None,
        "only if the policy's pairs name the preemptor",
    ),
    ("a DaemonSet's pod is a last resort", {}, ("DaemonSet", "agent"), NO_OTHER_NODE),
)
def test_under_which_conditions(fields, owner, condition):
    """What else must be is said, and for which classes of those that the policy manages."""
    possible, _ = asked(pod("v", node="n1", owner=owner), HIGH | {"higher": (200, "Never")}, **fields)
    assert (possible.since, possible.classes, possible.conditions) == (START, (("high", 100),), (condition,))


def test_kube_scheduler():
    """Classes that no policy has made Never preempt by priority alone; twins' originals are moved, and do not."""
    classes = HIGH | {
        "legacy": (150, "PreemptLowerPriority"),
        "system-node-critical": (2_000_001_000, None),
        "moved": (300, None),
        "moved-twin": (300, "Never"),
        "below": (80, None),
    }
    preemptors = Preemptors(priority_classes=("high",), twins={"moved": "moved-twin"})
    by_policy, by_scheduler = asked(pod("v", node="n1", annotations={}), classes, preemptors=preemptors)
    assert by_policy.classes == (("high", 100), ("moved-twin", 300))
    assert by_scheduler.classes == (("legacy", 150), ("system-node-critical", 2_000_001_000))
    assert (by_scheduler.policy, by_scheduler.since) == ("", 0.0)


def test_a_pending_pod_is_nobodys_victim():
    """A pod on no node, or that is not known, has nothing to lose."""
    assert asked(pod("v")) == []
    made = Setting(node("n1"))
    assert possible_evictions(made.state, made.policy_set, "default/ghost", START) == []
