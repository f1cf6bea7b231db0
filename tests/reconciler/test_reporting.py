"""What Events say, and how often: on victims, on preemptors that wait, and the series that evictions count in."""

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.reconciler.builders import START, plan_for, pod, policy, preemptor
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptorNaming
from webhook.policy.model.values import NOTICE, READY
from webhook.preemption.victims.rules import VictimReason
from webhook.reconciler.evaluate.outcomes import Unschedulable
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.reporting import ReconcilerMetrics, Reporter
from webhook.reconciler.state.annotations import PlanRecord, PlanVictim
from webhook.reconciler.state.creations import ServerTime
from webhook.reconciler.state.notices import NoticeRecord, encode

BY = "2027-01-15T08:00:00Z"


class Recorded:
    """A recorder that keeps what it is told."""

    def __init__(self):
        self.occurrences = []

    def event(self, occurrence):
        self.occurrences.append(occurrence)

    def notes(self, reason):
        return [one.note for one in self.occurrences if one.reason == reason]


def reporter(recorder, naming=PreemptorNaming.SAME_NAMESPACE):
    policies = PolicySet(Policies(preemption=(policy(name_preemptor=naming),)))
    return Reporter(ReconcilerMetrics(CollectorRegistry()), lambda _: None, recorder, policy_set=policies)


def plan(key):
    return plan_for(PlanRecord(id="p", node="n1", policy="test"), key, uid="u-1")


def of_group(group):
    """The plan of default/web for three pods: two go with a group, one goes by itself."""
    victims = tuple(
        PlanVictim("default", name, f"uid-{name}", number) for name, number in zip("abc", group, strict=True)
    )
    made = plan_for(
        PlanRecord(id="p", node="n1", policy="test", victims=victims),
        "default/web",
        uid="u-1",
        groups={1: "JobSet default/train", 2: "JobSet default/other"},
    )
    for victim in victims:
        made.note_asked(victim.uid, 0.0, ServerTime(START))
    return made


@pytest.mark.parametrize(
    ("numbers", "on_victim", "on_preemptor"),
    [
        pytest.param((0, 0, 0), "", "", id="by themselves"),
        pytest.param((1, 1, 0), ", with all of JobSet default/train", ", with all of JobSet default/train", id="one"),
        pytest.param(
            (1, 2, 0),
            ", with all of JobSet default/train",
            ", with all of JobSet default/train, JobSet default/other",
            id="two groups",
        ),
        pytest.param((3, 3, 0), "", "", id="a group whose name is not known any more"),
    ],
)
def test_events_name_the_groups_that_go(numbers, on_victim, on_preemptor):
    """On a victim that with which it goes, on the preemptor all."""
    recorder, going = Recorded(), of_group(numbers)
    made = reporter(recorder)
    made.victim_asked(going, pod("a", node="n1"))
    made.victim_asked(going, pod("c", node="n1"))
    by = "Preempted by pod default/web of priority 100 on node n1"
    assert recorder.notes("Preempted") == [f"{by}{on_victim} (policy test)", f"{by} (policy test)"]
    made.evicted(going, preemptor("web"))
    assert recorder.notes("PreemptForPodSuccessfully")[0].endswith(f"default/c (uid uid-c){on_preemptor}")
    made.told(going, pod("a", node="n1"), NoticeRecord(plan="p", by=BY, uid="u-1", priority=100))
    assert f"on node n1{on_victim}; with the annotation" in recorder.notes("PreemptionNotice")[0]


def told(made, key):
    one = plan(key)
    victim = pod("a", node="n1")
    notice = NoticeRecord(plan="p", by=BY, uid="u-1", priority=100, preemptor=made.preemptor_shown(one, victim))
    victim.metadata.annotations = {NOTICE: encode(notice)}
    made.told(one, victim, notice)
    one.note_told(victim.metadata.uid, 60.0)
    return one, victim


@pytest.mark.parametrize(
    ("key", "naming", "said"),
    [
        pytest.param("default/web", "same-namespace", "pod default/web of priority 100", id="same-namespace"),
        pytest.param("shop/web", "same-namespace", "pod u-1 of another namespace, of priority 100", id="another"),
        pytest.param("shop/web", "always", "pod shop/web of priority 100", id="always"),
    ],
)
def test_what_a_victim_is_told(key, naming, said):
    """By when, for whom as far as the policy lets its namespace know, how to answer; later that it goes or stays."""
    recorder = Recorded()
    made = reporter(recorder, PreemptorNaming(naming))
    _, victim = told(made, key)
    answer = "with the annotation giveway.dev/ready-to-leave=true it is asked at once"
    assert recorder.notes("PreemptionNotice") == [f"Is asked to leave by {BY} for {said} on node n1; {answer}"]
    made.victim_asked(plan(key), pod("a", node="n1"))
    assert recorder.notes("Preempted") == [f"Preempted by {said} on node n1 (policy test)"]
    made.withdrawn(victim)
    assert len(recorder.notes("PreemptionNoticeWithdrawn")) == 1


def test_what_came_of_notices_is_counted():
    """Each is told, and then ready, over, left or withdrawn; who was not told counts nowhere."""
    made = reporter(Recorded())
    one, victim = told(made, "default/web")
    made.victim_asked(one, victim)
    victim.metadata.annotations[READY] = "true"
    made.victim_asked(one, victim)
    made.victim_left(one, victim)
    made.withdrawn(victim)
    made.victim_asked(plan("default/web"), pod("b", node="n1"))
    text = generate_latest(made.metrics.registry).decode()
    shown = {line for line in text.splitlines() if line.startswith("giveway_preemption_notices_total")}
    counted = ("told", "expired", "ready", "left", "withdrawn")
    assert shown == {f'giveway_preemption_notices_total{{outcome="{outcome}"}} 1.0' for outcome in counted}


def test_victims_of_groups_are_counted():
    """By what defines the group; a pod of none does not count."""
    made = reporter(Recorded())
    for labels in ({}, {"jobset.sigs.k8s.io/jobset-name": "wide"}, {"jobset.sigs.k8s.io/jobset-name": "other"}):
        made.victim_asked(plan("default/web"), pod("a", node="n1", labels=labels))
    text = generate_latest(made.metrics.registry).decode()
    shown = [line for line in text.splitlines() if line.startswith("giveway_group_evictions_total")]
    assert shown == ['giveway_group_evictions_total{group="JobSet"} 2.0']


def in_vain(made, outcome, one=None, seconds=0.0):
    """Evaluate a preemptor in vain, so many seconds from the start."""
    made.evaluated(one or preemptor("p"), outcome, None, told="", seconds=0.0, wall=START + seconds)


def waits(made, recorder, seconds, reason="no node", change=""):
    """How often a preemptor was told why it waits, evaluated so many seconds from the start."""
    in_vain(made, Unschedulable(reason, change=change), seconds=seconds)
    return len(recorder.notes("PreemptionWaits"))


def test_a_waiting_preemptor_is_told_why_and_until_when():
    """One Event says the reason, from when it may change, and what says more."""
    recorder = Recorded()
    waits(reporter(recorder), recorder, 0, "a rate is used up", "That may change at 10:19.")
    [note] = recorder.notes("PreemptionWaits")
    assert note.startswith("No pod is evicted for it now: a rate is used up. That may change at 10:19. giveway explain")
    assert recorder.occurrences[0].distinct


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        pytest.param(Unschedulable("full", limited=True, due=1.0), "Waiting helps, or larger limits", id="a-rate"),
        pytest.param(
            Unschedulable("no node where it helps"), "Room on a node helps, or pods of lower", id="no-victims"
        ),
        pytest.param(Unschedulable("not eligible"), "not eligible. giveway explain", id="nothing-known"),
    ],
)
def test_a_waiting_preemptor_is_told_what_would_help(outcome, says):
    """As far as the reason tells."""
    recorder = Recorded()
    in_vain(reporter(recorder), outcome)
    assert says in recorder.notes("PreemptionWaits")[0]


def test_events_on_waiting_preemptors_are_bounded():
    """A reason is said again after half an hour, another one after a minute."""
    recorder = Recorded()
    made = reporter(recorder)
    assert waits(made, recorder, 0) == 1
    assert waits(made, recorder, 1799) == 1
    assert waits(made, recorder, 1800) == 2
    assert waits(made, recorder, 1850, "another") == 2
    assert waits(made, recorder, 1860, "another") == 3


def test_what_is_remembered_of_waiting_pods_is_bounded(monkeypatch):
    """The pod of which something was said longest ago is forgotten first."""
    monkeypatch.setattr("webhook.reconciler.reporting._MOST_WAITING", 10)
    recorder = Recorded()
    made = reporter(recorder)
    for number in range(50):
        one = preemptor("p")
        one = msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, uid=f"u{number}"))
        in_vain(made, Unschedulable("no"), one)
    assert list(made._waits) == [f"u{number}" for number in range(40, 50)]


def test_evictions_are_counted_in_a_bounded_number_of_series():
    """By policy, rule and namespace; the 51st namespace and further ones are `other`."""
    metrics = ReconcilerMetrics(CollectorRegistry())
    for number in range(60):
        metrics.evicted("test", "test/opt-in", f"team-{number}")
    metrics.evicted("test", "test/opt-in", "team-0")
    text = generate_latest(metrics.registry).decode()
    assert 'giveway_evictions_total{namespace="team-0",policy="test",rule="test/opt-in"} 2.0' in text
    assert 'giveway_evictions_total{namespace="other",policy="test",rule="test/opt-in"} 10.0' in text
    assert text.count("giveway_evictions_total{") == 51


def test_the_rule_is_told_and_counted():
    """The grounds of a victim stand in its Event."""
    recorder = Recorded()
    made, one = plan("default/web"), pod("a", node="n1")
    made.grounds[one.metadata.uid] = VictimReason("test/opt-in", "it says so", may_go=True)
    reporter(recorder).victim_asked(made, one)
    assert recorder.notes("Preempted")[0].endswith("(test/opt-in: it says so)")
