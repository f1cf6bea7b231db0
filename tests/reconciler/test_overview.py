"""What the page's model says of a reconciler: its queue, its plans, what it decided, and the ladder of priorities.

The plan of a gang is shown as one, and victims that go as one group together.
"""

import re

import msgspec
import pytest

from tests.cases import table
from tests.processor_time import within
from tests.reconciler.acting import playing
from tests.reconciler.builders import START, Setting, evicted, node, plan_for, pod, policy, preemptor
from tests.reconciler.device_settings import DRIVER, Devices, begun
from tests.workloads import eventually
from webhook.kube.instants import epoch, rfc3339
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import key_of
from webhook.page.html import document, sections
from webhook.page.model import Leadership, OwnerEvictions, Page
from webhook.policy.model.policies import Policies
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import PriorityRule, Reserve
from webhook.policy.model.values import CAN_BE_PREEMPTED, DECISION, NOTICE, PLAN, PROTECTION_DURATION, READY
from webhook.policy.model.victims import PodsMatch, PreemptionPair, Victims
from webhook.policy.shapes.yaml_nodes import SourcePosition
from webhook.preemption.ranking import how_compared
from webhook.preemption.snapshot.kinds import PRIORITY_CLASSES
from webhook.reconciler.clock import Now
from webhook.reconciler.evictions.log import EvictionLog
from webhook.reconciler.evictions.store import record_of
from webhook.reconciler.overview import overview as model
from webhook.reconciler.overview.priorities import ladder
from webhook.reconciler.plans.actions import Ending
from webhook.reconciler.plans.plan import Member, Plan
from webhook.reconciler.preemptors import PolicySet
from webhook.reconciler.state import annotations
from webhook.reconciler.state.annotations import DecidedVictim, DecisionRecord, PlanRecord, PlanVictim, encode

MAY = {CAN_BE_PREEMPTED: "true"}


FIRST, SECOND = "0123456789abcdef", "fedcba9876543210"


def decision(plan=FIRST, at=START, victim="default/v", owner="Deployment/default/v"):
    victims = (DecidedVictim(pod=victim, priority=80, owner=owner, rule="test/opt-in"),)
    return DecisionRecord(plan=plan, at=rfc3339(at), node="n1", policy="test", attempt=1, victims=victims)


def decided(record, **endings):
    """The plan of that decision, made by this process, for members with these endings."""
    rows = (Member(f"default/{key}", key, 100, "n1", decision=record, ended=ending) for key, ending in endings.items())
    members = {row.key: row for row in rows}
    return Plan(PlanRecord(id=record.plan, node="n1", begun=record.at, deadline=record.at), members, 0.0, 0.0)


def written(record, name="p", **fields):
    """A preemptor with a decision."""
    made = preemptor(name, **fields)
    made.metadata.annotations = {DECISION: encode(record)}
    return made


def remembered(*known):
    """What is shown of these plans, and of pods on which decisions are written."""
    pods = {key_of(pod): pod for pod in known if not isinstance(pod, Plan)}
    return model.decisions([plan for plan in known if isinstance(plan, Plan)], pods, START)


@table(
    "known, expected",
    (
        "a decision and its end, the newest first",
        [decided(decision(), p=Ending.BOUND), decided(decision(SECOND, START + 5), p=None)],
        [("default/p", SECOND, ""), ("default/p", FIRST, "bound")],
    ),
    (
        "each member has its own end",
        [decided(decision(), p=Ending.TIMED_OUT, q=Ending.BOUND)],
        [("default/p", FIRST, "timed-out"), ("default/q", FIRST, "bound")],
    ),
    ("what is known twice counts once", [written(decision()), decided(decision(), p=None)], [("default/p", FIRST, "")]),
    ("a bound pod tells it by itself", [written(decision(), node="n1")], [("default/p", FIRST, "bound")]),
    ("an odd owner", [decided(decision(owner="My_Kind/default/My name"), p=None)], [("default/p", FIRST, "")]),
    ("what nobody can read", [written(decision(owner="Kind/default/\n"))], []),
)
def test_what_is_remembered_of_decisions(known, expected):
    """The leader knows what it decided, and how plans ended; a follower, and a new leader, read it off the pods."""
    assert [(row.preemptor, row.plan, row.ending) for row in remembered(*known)] == expected


def test_forged_decisions_push_out_none_of_this_process():
    """A follower, and a new leader, read them off the pods: who writes there can neither hide one nor date it ahead."""
    forged = [decision(f"forged-{number}", START + (10_000_000 if number % 2 else 60)) for number in range(100)]
    pods = (written(record, f"f{number}") for number, record in enumerate(forged))
    shown = remembered(decided(decision(), p=None), *pods)
    assert FIRST in [row.plan for row in shown]
    assert max(epoch(row.at) for row in shown) == START + 60


def test_what_is_remembered_is_bounded():
    """Of many decisions the last ones are shown."""
    many = [decided(decision(f"plan-{number}", START + number), p=None) for number in range(2000)]
    assert [row.plan for row in remembered(*many)] == [f"plan-{number}" for number in range(1999, 1979, -1)]


@pytest.mark.parametrize(("minutes", "quarter"), [(0, 3), (14, 3), (16, 2), (31, 1), (46, 0), (59, 0), (61, None)])
def test_evictions_of_an_hour_are_told_by_its_quarters(minutes: int, quarter: int | None):
    """So many minutes later it counts in that quarter, and after an hour no more; a bare pod stands by itself."""
    log, now = EvictionLog(), 60.0 * minutes
    for name in ("Deployment/default/v", "Pod/default/w"):
        evicted(log, name, 0.0)
    shown = model._evictions(record_of(log, Now(now, START + now)), START + now)
    quarters = tuple(int(number == quarter) for number in range(4))
    owners = [OwnerEvictions(name, quarters, START) for name in ("Deployment/default/v", "default/w")]
    assert (shown.total, shown.owners) == ((0, ()) if quarter is None else (2, tuple(owners)))


def drawn(*pods, classes=(), pending=(), bands=(), **fields):
    """The ladder of a cluster with these pods and classes, under policies that reserve bands."""
    setting = Setting(node("n1"), under=policy(**fields))
    for name, value, said in classes:
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": said}
        setting.state.snapshot.put(PRIORITY_CLASSES, msgspec.convert(body, PriorityClass))
    setting.add(*pods)
    reserving = []
    for name, rule, first, last in bands:
        reserve = Reserve(from_=first, to=last)
        made = PriorityRule(name=rule, source=SourcePosition(), enforcement="enforce", reserve=reserve)
        reserving.append(PriorityPolicy(name=name, source=SourcePosition(), rules=(made,)))
    policies = Policies(priority=tuple(reserving), preemption=(setting.policy,))
    return ladder(setting.state, PolicySet(policies), pending, START)


def test_the_ladder():
    """Pods are counted by class: who may go now, who is protected until when, who is kept, who is pending."""
    protected = MAY | {PROTECTION_DURATION: "600"}
    shown = drawn(
        *(pod(f"a{n}", node="n1", annotations=MAY) for n in range(3)),
        pod("b", node="n1", annotations=protected, start=rfc3339(START - 100)),
        pod("c", node="n1", annotations=protected, start=rfc3339(START - 30)),
        pod("d", node="n1", annotations={}),
        pod("e", node="n1", annotations=MAY, owner=("Node", "n1")),
        pod("f", node="n1", annotations=MAY, priority=2_000_001_000, class_name="system-node-critical"),
        pod("g", node="n1", annotations=MAY, priority=7, class_name=""),
        classes=(("high", 100, "Never"), ("legacy", 900, None), ("system-node-critical", 2_000_001_000, None)),
        pending=[preemptor()],
        bands=(("teams", "band", 500, 999),),
    )
    rungs = {rung.name: rung for rung in shown.rungs}
    assert list(rungs) == ["system-node-critical", "legacy", "high", "low", "no class"]
    low = rungs["low"]
    assert (low.running, low.preemptible, low.protected, low.kept) == (7, 3, 2, 2)
    assert (low.first_end, low.last_end) == (START + 500, START + 570)
    assert (rungs["high"].pending, rungs["high"].policy, rungs["high"].preempts) == (1, "test", False)
    assert (rungs["legacy"].policy, rungs["legacy"].preempts) == ("", True)
    assert (rungs["system-node-critical"].preemptible, rungs["no class"].kept) == (0, 1)
    bands = {band.name: (band.first, band.last) for band in shown.bands}
    assert (list(bands), bands["teams/band"]) == (["Kubernetes' own classes", "teams/band"], (500, 999))


def test_pods_that_no_pair_names_are_kept():
    """They opted in, and no preemptor may evict them: they are not counted as preemptible."""
    victims = Victims(pairs=(PreemptionPair(victims=PodsMatch(priority_classes=("low",))),))
    pods = (pod(name, node="n1", annotations=MAY, class_name=name) for name in ("low", "batch"))
    counted = {rung.name: rung.preemptible for rung in drawn(*pods, victims=victims).rungs}
    assert (counted["low"], counted["batch"]) == (1, 0)


def test_the_system_range_is_shown_once():
    """A policy that reserves it has its name."""
    reserved = drawn(pod("a", node="n1"), bands=[("kubernetes", "r", 1_000_000_001, 2**31 - 1)])
    assert [band.name for band in reserved.bands] == ["kubernetes/r"]


def test_a_ladder_of_many_classes_is_cut():
    """Classes without pods go first, and it is said how many are not shown."""
    classes = [(f"c{number}", number, None) for number in range(500)]
    shown = drawn(pod("a", node="n1", priority=3, class_name="c3"), classes=classes)
    assert (len(shown.rungs), shown.hidden) == (60, 501 - 60)
    assert "c3" in [rung.name for rung in shown.rungs]


def test_a_large_cluster_takes_little_time():
    """The page is made on the loop that also decides, so counting must not hold it up."""
    setting = Setting(node("n1"))
    setting.add(*(pod(f"p{number}", node="n1", annotations=MAY) for number in range(20_000)))
    with within(0.2):
        rungs = ladder(setting.state, setting.policy_set, [], START).rungs
    assert [rung.preemptible for rung in rungs if rung.name == "low"] == [20_000]


JOB_SET = {"jobset.sigs.k8s.io/jobset-name": "wide"}
WIDE = "JobSet default/wide"
KUEUE = {"kueue.x-k8s.io/pod-group-total-count": "4"}


def record(*victims, members=()):
    """A plan for n1, or for members on the nodes of their numbers; victims are names with their groups."""
    named = tuple(PlanVictim("default", name, f"uid-{name}", group) for name, group in victims)
    plan = PlanRecord(id="id", node="n1", victims=named, begun=rfc3339(START + 4.0), deadline=rfc3339(START + 64.0))
    own = tuple(annotations.PlanMember(f"g-{number}", f"uid-g-{number}", f"n{number}") for number in members)
    return msgspec.structs.replace(plan, members=own) if own else plan


def member(number, **more):
    labels = {"kueue.x-k8s.io/pod-group-name": "g"}
    return pod(f"g-{number}", priority=100, labels=labels, annotations=KUEUE, **more)


def shown(setting, plan, *pods):
    """What is shown of a plan that is written on these pods, by default on one."""
    pods, nodes = pods or (preemptor(),), {row.uid: row.node for row in plan.members or ()}
    for one in pods:
        own = msgspec.structs.replace(plan, node=nodes.get(one.metadata.uid, plan.node))
        one.metadata.annotations = {**(one.metadata.annotations or {}), PLAN: encode(own)}
        setting.add(one)
    (written,) = model.written_plans(setting.state, pods, 0.0)
    return model.plan_shown(setting.state, written, 0.0)


@pytest.fixture
def setting():
    made = Setting(*(node(f"n{number}") for number in range(4)))
    made.add(pod("v1", node="n1", labels=JOB_SET), pod("v2", node="n2"), pod("v3", node="n2", labels=JOB_SET))
    made.add(member(0, node="n0"))
    return made


def test_a_gang_is_one_plan(setting):
    """Its members are bound, nominated or neither; what is missing to the minimum is said."""
    whole = record(("v2", 0), ("v3", 2), ("gone", 0), ("v1", 2), members=(1, 2))
    assert shown(setting, record(), preemptor("alone")).gang is None
    plan = shown(setting, whole, member(1, nominated="n1"), member(2))
    assert (plan.step, plan.begun, plan.until, plan.reserved) == (2, START + 4.0, START + 64.0, False)
    gang, states = plan.gang, ("bound", "nominated", "to be nominated")
    assert (gang.name, gang.minimum) == ("Kueue pod group default/g", 4)
    assert (gang.bound, gang.nominated, gang.missing) == (1, 1, 2)
    rows = [(row.pod, row.node, row.state) for row in gang.members]
    assert rows == [(f"default/g-{number}", f"n{number}", state) for number, state in enumerate(states)]
    groups = [(row.pod.removeprefix("default/"), row.group) for row in plan.victims]
    assert groups == [("v2", ""), ("v3", WIDE), ("v1", WIDE), ("gone", "")]


def test_a_plan_whose_first_member_has_left_it(setting):
    """The first one that goes on stands for it, with its own priority and node."""
    first = Member("default/a", "uid-a", 200, "n1", ended=Ending.DELETED)
    members = {"default/a": first, "default/b": Member("default/b", "uid-b", 100, "n2")}
    row = model.plan_shown(setting.state, Plan(record(), members, 0.0, 300.0), 0.0)
    assert (row.preemptor, row.priority, row.node) == ("default/b", 100, "n2")


def test_victims_of_one_group_stand_together(setting):
    """Also if others are between them, and if one of them is gone; many are cut."""
    names = [("v1", 1), ("v2", 0), ("gone", 1), *((f"w{number}", 0) for number in range(11))]
    plan = shown(setting, record(*names))
    rows = [(row.pod.removeprefix("default/"), row.state, row.group) for row in plan.victims[:3]]
    assert rows == [("v1", "to be asked", WIDE), ("gone", "gone", WIDE), ("v2", "to be asked", "")]
    assert (len(plan.victims), plan.more_victims) == (12, 2)


def test_victims_that_the_record_does_not_name(setting):
    """Those that are there have their names, those that are gone are counted."""
    victims = (PlanVictim("", "", "uid-v2"), PlanVictim("", "", "of-one-that-is-gone"))
    row = shown(setting, msgspec.structs.replace(record(), victims=victims))
    assert ([one.pod for one in row.victims], row.more_victims) == (["default/v2"], 1)


def test_by_when_a_victim_goes(setting):
    """A victim that was told says by when it is asked, or that it is ready; a notice of another plan says nothing."""
    by = "2027-01-15T08:00:00Z"
    for name, plan, answer in (("v1", "id", {}), ("v2", "id", {READY: "true"}), ("v3", "id-2", {})):
        told = encode(annotations.NoticeRecord(plan=plan, by=by, uid="u", priority=100))
        setting.add(pod(name, node="n1", annotations={NOTICE: told, **answer}))
    plan = shown(setting, record(("v1", 0), ("v2", 0), ("v3", 0)))
    assert [one.state for one in plan.victims] == [f"to be asked by {by}", "told, and ready", "to be asked"]
    assert plan.step == 2


def test_how_far_a_leader_is_with_a_victim(setting):
    """Also before the watch shows it."""
    plan = plan_for(record(("v1", 0), ("v2", 0), ("v3", 0), ("gone", 0)))
    plan.gone, plan.asking = {"uid-v1"}, {"uid-v2": pod("v2")}
    plan.needed -= {"uid-v1", "uid-v3"}
    states = [one.state for one in model.plan_shown(setting.state, plan, 0.0).victims]
    assert states == ["asked", "being asked", "stays", "gone"]


def test_victims_are_looked_up_for_plans_that_are_shown(setting):
    """Those without names are found among all pods: whoever may write annotations need not have that done for each."""
    preemptors = [preemptor(f"p{number}") for number in range(30)]
    for one in preemptors:
        plan = PlanRecord(id=one.metadata.name, node="n1", victims=(PlanVictim(uid="uid-v1"),))
        one.metadata.annotations = {PLAN: encode(plan)}
    named = [plan.record.victims[0].name for plan in model.written_plans(setting.state, preemptors, 0.0)]
    assert named == ["v1"] * 20 + [""] * 10


async def test_the_devices_of_a_plan():
    """The first sixteen, and the claims that have them: known to a leader, and written for all others."""
    setting = Devices(n1=20)
    made = setting.wants("p", 20, nominated="n1")
    _, plan = begun(setting, made)
    made.metadata.annotations = {**(made.metadata.annotations or {}), PLAN: encode(plan.written_on(plan.unplaced[0]))}
    for gone in ("", "0"):
        if gone:
            setting.ends("n1-0")
            setting.deallocated("c-n1-0")
        for known in (plan, *model.written_plans(setting.state, [made], 0.0)):
            row = model.plan_shown(setting.state, known, 0.0)
            held = {device.device.removeprefix(f"{DRIVER}/n1/d"): device.held_by for device in row.devices}
            assert held == {number: () if number == gone else (f"default/c-n1-{number}",) for number in held}
            assert ("0" in held, len(held), row.more_devices) == (True, 16, 4)


@table(
    "victim, headings, cells",
    ("by itself", {}, [], []),
    ("with a group", {"group": WIDE}, ["goes with all of"], [WIDE]),
    ("elsewhere", {"group": WIDE, "node": "n2"}, ["node", "goes with all of"], ["n2", WIDE]),
)
def test_who_goes_together_in_a_decision(victim, headings, cells):
    """The page has a column for groups if a victim goes with one, and one for nodes if a victim is elsewhere."""
    victims = (DecidedVictim(pod="default/a", priority=80, **victim),)
    record = msgspec.structs.replace(decision(), victims=victims)
    shown = model._decision(record, "default/p", "")
    markup = str(sections(Page(leadership=Leadership(identity="me", role="leads"), decisions=(shown,)))["decisions"])
    table = markup.partition("<caption>Victims</caption>")[2]
    assert re.findall(r'scope="col"[^>]*>([^<]*)</th>', table)[5:] == headings
    assert re.findall(r'class="value">([^<]*)</span>', table)[4:] == cells


def test_a_decision_says_how_nodes_are_compared():
    """By the keys that its record has."""
    compared = {"victims": "1", "sum of priorities": "80", "earliest start": "not started"}
    record = msgspec.structs.replace(decision(), selected=annotations.Alternative(node="n1", compared=compared))
    shown = model._decision(record, "default/p", "")
    assert shown.how_compared == how_compared(compared)
    assert "for earliest start, later is better" in shown.how_compared


async def test_ten_thousand_waiting_pods():
    """The page stays small, is made in little time, and says how many more wait."""
    async with playing(1) as play, play.reconciling() as service:
        await eventually(lambda: service.led_elsewhere() is None)
        for number in range(10_000):
            service.reconciler.queue.offer(
                f"default/p{number}", uid=f"{number}", priority=number, created=0.0, now=0.0, due=1e9
            )
        with within(0.5):
            page = model.overview(service, 6060, model.Surroundings())
            markup = document(page)
        assert len(markup) < 100_000
        assert page.waiting[0].priority == 9999
        assert "and 9\u202f950 pods more" in markup
