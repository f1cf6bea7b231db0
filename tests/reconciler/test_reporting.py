"""What Events say, and how often: on victims, on preemptors that wait, and the series that evictions count in."""

from prometheus_client import CollectorRegistry, generate_latest

from tests.cases import table
from tests.preemption import building
from tests.reconciler.builders import START, Desk, Setting, node, plan_for, pod, policy, preemptor, went
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptorNaming
from webhook.policy.model.values import NOTICE, READY
from webhook.policy.model.victims import Victims
from webhook.reconciler.evaluate.outcomes import Unschedulable
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.reporting import ReconcilerMetrics, Reporter
from webhook.reconciler.state.annotations import DecidedVictim, NoticeRecord, PlanRecord, PlanVictim, encode

BY = "2027-01-15T08:00:00Z"


class Told(Reporter):
    """A reporter that keeps the Events that it tells."""

    def __init__(self, naming=PreemptorNaming.SAME_NAMESPACE):
        self.occurrences = []
        policies = PolicySet(Policies(preemption=(policy(name_preemptor=naming),)))
        super().__init__(ReconcilerMetrics(CollectorRegistry()), lambda *_, **__: None, self, policy_set=policies)

    def event(self, occurrence):
        self.occurrences.append(occurrence)

    def notes(self, reason):
        return [occurrence.note for occurrence in self.occurrences if occurrence.reason == reason]

    def series(self, name):
        text = generate_latest(self.metrics.registry).decode()
        return {line.removeprefix(name) for line in text.splitlines() if line.startswith(f"{name}{{")}


def plan(key="default/web", **more):
    return plan_for(PlanRecord(id="p", node="n1", policy="test", **more), key, uid="u-1")


TRAIN = ", with all of JobSet default/train"


@table(
    "numbers, on_victim, on_preemptor",
    ("by themselves", (0, 0, 0), "", ""),
    ("one", (1, 1, 0), TRAIN, TRAIN),
    ("two groups", (1, 2, 0), TRAIN, f"{TRAIN}, JobSet default/other"),
    ("a group whose name is not known any more", (3, 3, 0), "", ""),
)
def test_events_name_the_groups_that_go(numbers, on_victim, on_preemptor):
    """On a victim that with which it goes, on the preemptor all: two go with a group, one goes by itself."""
    rows = zip("abc", numbers, strict=True)
    going = plan(victims=tuple(PlanVictim("default", name, f"uid-{name}", number) for name, number in rows))
    going.groups = {1: "JobSet default/train", 2: "JobSet default/other"}
    for victim in going.record.victims:
        went(going, victim.name)
    made = Told()
    made.victim_asked(going, pod("a", node="n1"))
    made.victim_asked(going, pod("c", node="n1"))
    by = "Preempted by pod default/web of priority 100 on node n1"
    assert made.notes("Preempted") == [f"{by}{on_victim} (policy test)", f"{by} (policy test)"]
    made.evicted(going, preemptor("web"))
    assert made.notes("PreemptForPodSuccessfully")[0].endswith(f"default/c (uid uid-c){on_preemptor}")
    made.told(going, pod("a", node="n1"), NoticeRecord(plan="p", by=BY, uid="u-1", priority=100))
    assert f"on node n1{on_victim}; with the annotation" in made.notes("PreemptionNotice")[0]


def told(made, key="default/web"):
    """The plan for that pod, and its victim, which is told."""
    going, victim = plan(key), pod("a", node="n1")
    notice = NoticeRecord(plan="p", by=BY, uid="u-1", priority=100, preemptor=made.preemptor_shown(going, victim))
    victim.metadata.annotations = {NOTICE: encode(notice)}
    made.told(going, victim, notice)
    going.note_told(victim.metadata.uid, 60.0)
    return going, victim


@table(
    "key, naming, said",
    ("same-namespace", "default/web", "same-namespace", "pod default/web of priority 100"),
    ("another", "shop/web", "same-namespace", "pod u-1 of another namespace, of priority 100"),
    ("always", "shop/web", "always", "pod shop/web of priority 100"),
)
def test_what_a_victim_is_told(key, naming, said):
    """By when, for whom as far as the policy lets its namespace know, how to answer; later that it goes or stays."""
    made = Told(PreemptorNaming(naming))
    _, victim = told(made, key)
    answer = "with the annotation giveway.dev/ready-to-leave=true it is asked at once"
    assert made.notes("PreemptionNotice") == [f"Is asked to leave by {BY} for {said} on node n1; {answer}"]
    made.victim_asked(plan(key), pod("a", node="n1"))
    assert made.notes("Preempted") == [f"Preempted by {said} on node n1 (policy test)"]
    made.withdrawn(victim)
    assert len(made.notes("PreemptionNoticeWithdrawn")) == 1


def test_what_came_of_notices_is_counted():
    """Each is told, and then ready, over, left or withdrawn; who was not told counts nowhere."""
    made = Told()
    going, victim = told(made)
    made.victim_asked(going, victim)
    victim.metadata.annotations[READY] = "true"
    made.victim_asked(going, victim)
    made.victim_left(going, victim)
    made.withdrawn(victim)
    made.victim_asked(plan(), pod("b", node="n1"))
    counted = {f'{{outcome="{outcome}"}} 1.0' for outcome in ("told", "expired", "ready", "left", "withdrawn")}
    assert made.series("giveway_preemption_notices_total") == counted


NOWHERE = Unschedulable("no node")


def waits(made, seconds=0.0, outcome=NOWHERE, uid="uid-p"):
    """How often preemptors were told why they wait, after one was evaluated in vain so many seconds from the start."""
    made.evaluated(preemptor("p", uid=uid), outcome, None, told="", seconds=0.0, wall=START + seconds)
    return len(made.notes("PreemptionWaits"))


@table(
    "outcome, says",
    (
        "the reason, and until when",
        Unschedulable("a rate is used up", change="That may change at 10:19."),
        "No pod is evicted for it now: a rate is used up. That may change at 10:19. giveway explain",
    ),
    ("a rate", Unschedulable("full", limited=True, due=1.0), "Waiting helps, or larger limits"),
    ("no victims", Unschedulable("no node where it helps"), "Room on a node helps, or pods"),
    ("nothing known", Unschedulable("not eligible"), "not eligible. giveway explain"),
)
def test_a_waiting_preemptor_is_told_what_would_help(outcome, says):
    """One Event says that as far as the reason tells."""
    made = Told()
    assert waits(made, outcome=outcome) == 1
    assert says in made.notes("PreemptionWaits")[0]
    assert made.occurrences[0].distinct


def test_events_on_waiting_preemptors_are_bounded(monkeypatch):
    """A reason is said again after half an hour, another one after a minute.

    The pod of which something was said longest ago is forgotten first.
    """
    monkeypatch.setattr("webhook.reconciler.reporting._MOST_WAITING", 10)
    made, another = Told(), Unschedulable("another")
    assert [waits(made, seconds) for seconds in (0, 1799, 1800)] == [1, 1, 2]
    assert [waits(made, seconds, another) for seconds in (1850, 1860)] == [2, 3]
    for number in range(50):
        waits(made, uid=f"u{number}")
    assert list(made._waits) == [f"u{number}" for number in range(40, 50)]


def test_evictions_are_counted_in_a_bounded_number_of_series():
    """By policy, rule and namespace; the 51st namespace and further ones are `other`. The rule stands in the Event.

    Pods of groups are counted by what defines the group, too.
    """
    made = Told()
    for number in (*range(60), 0):
        labels = {"jobset.sigs.k8s.io/jobset-name": f"wide-{number}"} if number < 2 else {}
        victim, going = pod("a", node="n1", namespace=f"team-{number}", labels=labels), plan()
        row = DecidedVictim(pod="team/a", priority=80, rule="test/opt-in", because="it says so")
        going.grounds[victim.metadata.uid] = row
        made.victim_asked(going, victim)
    series = made.series("giveway_evictions_total")
    for namespace, count in (("team-0", 2), ("other", 10)):
        assert f'{{namespace="{namespace}",policy="test",rule="test/opt-in"}} {count}.0' in series
    assert (len(series), made.series("giveway_group_evictions_total")) == (51, {'{group="JobSet"} 3.0'})
    assert made.notes("Preempted")[0].endswith("(test/opt-in: it says so)")


def test_what_a_victim_elsewhere_goes_for():
    """Its Event says that once, beside the rule; what was decided says it of this victim."""
    zoned = (node(name, "4", zone="z") for name in ("a1", "a2"))
    setting = Setting(*zoned, under=policy(victims=Victims(across_nodes=True)))
    setting.add(pod("far", "1", node="a2", labels={"app": "x"}), pod("full", "3", node="a2", priority=1000))
    desk = Desk(setting)
    desk.reconciler.reporter = desk.reconciler.preempting._reporter = made = Told()
    setting.add(preemptor("p", "3", spec=building.apart_from("zone", app="x")))
    desk.reconciler.turn()
    (going,) = desk.reconciler.plans.values()
    (row,) = going.members["default/p"].decision.victims
    assert row.because.endswith("; it goes to make room in zone z")
    made.victim_asked(going, setting.state.pods.get("default/far"))
    assert made.notes("Preempted")[0].count("to make room in zone z") == 1
