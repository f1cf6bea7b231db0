"""What a new leader believes of the plans and decisions that it finds on pods."""

from typing import Any

import msgspec
import pytest

from tests.reconciler.builders import START, Desk, Setting, node, pod, policy, preemptor
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import GroupDisruption, Groups, PreemptionPolicy
from webhook.policy.model.values import DECISION, PLAN
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter, PlannedEviction
from webhook.reconciler.plans.actions import End
from webhook.reconciler.plans.adoption import Adopted, adopt, disagreement, recalled
from webhook.reconciler.state.annotations import DecidedVictim, DecisionRecord, PlanRecord, encode
from webhook.reconciler.state.plan_victims import PlanVictim

WEB = "Deployment/default/web"
GANG = "jobset.sigs.k8s.io/jobset-name"


def decided(*victims: tuple[str, str], age: float = 10.0, name: str = "p") -> Pod:
    """A preemptor with a decision of so many seconds ago, for victims given as (name, owner)."""
    made = preemptor(name)
    said = DecisionRecord(
        plan="x",
        at=rfc3339(START - age),
        node="n1",
        policy="test",
        attempt=1,
        victims=tuple(DecidedVictim(pod=f"default/{victim}", priority=1, owner=owner) for victim, owner in victims),
    )
    made.metadata.annotations = {DECISION: encode(said)}
    return made


def web(name: str, *, age: float, **more: Any) -> Pod:
    """A pod of the Deployment web that was made so many seconds ago."""
    found = pod(name, labels={"pod-template-hash": "1"}, owner=("ReplicaSet", "web-1"), **more)
    found.metadata.creation_timestamp = rfc3339(START - age)
    return found


def charged(*preemptors: Pod, pods: tuple[Pod, ...] = ()) -> list[str]:
    """Whose rates are used up, once for each eviction."""
    told = recalled(preemptors, {key_of(one): one for one in pods}, START, EvictionLimiter().eviction_of)
    return [eviction.owner for _, _, evictions in told for eviction in evictions]


@pytest.mark.parametrize(
    ("victims", "pods", "owners"),
    [
        pytest.param([("a", WEB)], [], [], id="gone, and the owner made no other"),
        pytest.param([("a", WEB)], [web("b", age=9)], [WEB], id="gone and replaced"),
        pytest.param([("a", WEB), ("b", WEB)], [web("c", age=9)], [WEB], id="one replacement stands for one"),
        pytest.param([("a", WEB)], [web("b", age=3600)], [], id="an old pod is no replacement"),
        pytest.param([("a", WEB)], [web("a", age=3600)], [], id="still there"),
        pytest.param([("a", WEB)], [web("a", age=3600, deleted=rfc3339(START))], [WEB], id="leaving"),
        pytest.param([("a", "Job/default/x")], [web("a", age=60, deleted=rfc3339(START))], [WEB], id="whose it is"),
        pytest.param([("a", WEB)], [web("a", age=5)], [WEB], id="replaced under the same name"),
        pytest.param([("a", "")], [], [""], id="a bare pod that is gone"),
        pytest.param([("a", "")], [web("a", age=3600)], [], id="a bare pod that is there"),
    ],
)
def test_an_eviction_counts_when_the_cluster_bears_it_out(victims, pods, owners):
    """A decision's text alone uses up nobody's rate."""
    assert charged(decided(*victims), pods=tuple(pods)) == owners


@pytest.mark.parametrize(
    ("victim", "pods", "evicted_from"),
    [
        pytest.param({}, [], "n1", id="on the plan's node, or written before nodes were"),
        pytest.param({"node": "n2"}, [], "n2", id="elsewhere, and gone"),
        pytest.param({"node": "n2"}, [pod("a", node="n2", deleted=rfc3339(START))], "n2", id="elsewhere, and leaving"),
        pytest.param({}, [pod("a", node="n2", deleted=rfc3339(START))], "n2", id="the pod tells where it is"),
        pytest.param({}, [pod("a", deleted=rfc3339(START))], "n1", id="the pod has no node"),
        pytest.param({"node": "N 2"}, [], None, id="no name of a node"),
    ],
)
def test_an_eviction_counts_on_its_own_node(victim: dict[str, str], pods: list[Pod], evicted_from: str | None):
    """Of a group that goes whole, some are on other nodes than the plan's: `perNode` counts each where it was."""
    asks = preemptor()
    asks.metadata.annotations = {
        DECISION: encode(
            DecisionRecord(
                plan="x",
                at=rfc3339(START - 10),
                node="n1",
                policy="test",
                attempt=1,
                victims=(DecidedVictim(pod="default/a", priority=1, **victim),),
            )
        )
    }
    told = recalled([asks], {key_of(there): there for there in pods}, START, EvictionLimiter().eviction_of)
    nodes = [eviction.node for _, _, evictions in told for eviction in evictions]
    assert nodes == ([] if evicted_from is None else [evicted_from])


def whole_groups() -> PreemptionPolicy:
    """A policy by which groups go whole."""
    return policy(groups=Groups(disruption=GroupDisruption.GROUP))


def grouped() -> Setting:
    """A preemptor p whose plan for n1 evicts a whole group: a there, b on n2."""
    setting, group = Setting(node("n1"), node("n2"), under=whole_groups()), {"labels": {GANG: "train"}}
    setting.add(pod("a", "6", node="n1", **group), pod("b", "1", node="n2", **group))
    setting.add(pod("other", "7", node="n2", priority=1000), preemptor("p", "5"))
    return setting


async def test_a_decision_says_where_the_others_of_a_group_are():
    """A victim on the node of the plan needs no node of its own; both name the group that they go with."""
    desk = Desk(grouped())
    desk.reconciler.look_at_all()
    desk.reconciler.turn()
    (line,) = desk.lines("decision")
    assert {victim["pod"]: victim.get("node") for victim in line["victims"]} == {"default/a": None, "default/b": "n2"}
    assert [victim["group"] for victim in line["victims"]] == ["JobSet default/train"] * 2
    await desk.reconciler.stop()


async def test_a_plan_names_its_groups_also_after_it_is_taken_over():
    """By the pods that are there; what victims on other nodes go for by the decision."""
    desk = Desk(grouped())
    desk.reconciler.look_at_all()
    desk.reconciler.turn()
    (plan,) = desk.reconciler.plans.values()
    asks = preemptor("p", "5", nominated="n1")
    record = DecisionRecord(
        plan=plan.record.id, at=rfc3339(START), node="n1", policy="test", attempt=1, room="to make room in zone a"
    )
    asks.metadata.annotations = {PLAN: encode(plan.record), DECISION: encode(record)}
    taken = Desk(grouped())
    taken.reconciler.state.pods.take("default/p", asks)
    adopted = adopt(asks, taken.reconciler.plan_manager, taken.reconciler.policy_set, ())
    assert isinstance(adopted, Adopted)
    assert adopted.plan.groups == plan.groups == {1: "JobSet default/train"}
    assert adopted.plan.with_all_of({"uid-b"}).endswith(" to make room in zone a")
    await desk.reconciler.stop()
    await taken.reconciler.stop()


def test_decisions_share_the_replacements():
    """Two decisions that name victims of one owner are borne out by two replacements, whichever is older."""
    both = decided(("a", WEB), age=10, name="p"), decided(("b", WEB), age=100, name="q")
    assert charged(*both, pods=(web("c", age=5),)) == [WEB]
    assert charged(*both, pods=(web("c", age=5), web("d", age=90))) == [WEB, WEB]


def test_a_young_victim_that_the_plan_has_yet_to_ask():
    """By the clock of the leader before, the victim may be younger than the decision: the plan names it by its uid."""
    asks, here = decided(("a", WEB)), web("a", age=5)
    named = PlanRecord(id="x", node="n1", victims=(PlanVictim("default", "a", here.metadata.uid),))
    for record, owners in ((named, []), (msgspec.structs.replace(named, id="y"), [WEB])):
        asks.metadata.annotations |= {PLAN: encode(record)}
        assert charged(asks, pods=(here,)) == owners


def test_a_decision_on_a_pod_that_is_being_deleted():
    """Nobody judges what is written on such a pod, so whoever owns it could write a decision of their own."""
    leaving = decided(("a", ""))
    leaving.metadata.deletion_timestamp = rfc3339(START)
    assert charged(leaving) == []


def test_a_decision_of_tomorrow_is_none():
    """An instant beyond what clocks may differ by was never written by a leader."""
    assert charged(decided(("a", ""), age=-3600)) == []
    assert charged(decided(("a", ""), age=-10)) == [""]


def written(*victims: str) -> PlanRecord:
    """A plan on n1 that an earlier leader left, for these pods."""
    return PlanRecord(
        id="plan", node="n1", victims=tuple(PlanVictim("default", name, f"uid-{name}") for name in victims)
    )


@pytest.mark.parametrize(
    ("record", "why"),
    [
        pytest.param(written("web"), "", id="what a decision made now asks for"),
        pytest.param(written("web", "gone"), "", id="one of the victims has left"),
        pytest.param(written("agent"), "other pods than planned", id="a last resort though another would do"),
        pytest.param(written("static"), "other pods than planned", id="a static pod"),
        pytest.param(written("web", "agent"), "not all pods that were planned", id="more than needed"),
    ],
)
def test_plan_of_an_earlier_leader(record: PlanRecord, why: str):
    """The rest of a plan found on a pod is carried out only where it is what would be done now."""
    setting, made = Setting(node("n1")), preemptor(nominated="n1")
    setting.add(
        pod("agent", "3", node="n1", priority=1, owner=("DaemonSet", "agent")),
        pod("static", "1", node="n1", priority=1, owner=("Node", "n1")),
        pod("web", "4", node="n1", priority=90),
        made,
    )
    said = disagreement(setting.evaluator, made, setting.policy_set.rules[setting.policy.name], record)
    assert said.startswith(why)
    assert bool(said) == bool(why)


async def test_a_plan_on_a_pod_that_cannot_be_read():
    """It is ended, and keeps this process neither from leading nor from acting for the other pods."""
    setting = Setting(node("n1"))
    term = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "x", "operator": "Later"}]}}
    unreadable = preemptor(
        "a",
        nominated="n1",
        spec={"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}},
    )
    unreadable.metadata.annotations = {PLAN: encode(written("v"))}
    setting.add(pod("v", "8", node="n1"), unreadable, preemptor("b"))
    desk = Desk(setting)
    desk.reconciler.look_at_all()
    desk.reconciler.turn()
    assert [(line["preemptor"], line["ending"]) for line in desk.lines("plan ended")] == [("default/a", "outdated")]
    assert "default/b" in desk.reconciler.queue
    await desk.reconciler.stop()


async def test_plans_of_an_earlier_leader_are_taken_over_in_turns(monkeypatch: pytest.MonkeyPatch):
    """Each is judged by a decision, so others get their turn in between, and nothing is decided before all count."""
    setting = Setting(*(node(f"n{number}") for number in range(9)))
    monkeypatch.setattr(setting.clock, "stopwatch", iter(range(10**6)).__next__)
    for number in range(8):
        made, fields = (
            preemptor(f"p{number}", "8", nominated=f"n{number}"),
            {"id": f"plan-{number}", "node": f"n{number}"},
        )
        record = msgspec.structs.replace(written(f"v{number}"), deadline=rfc3339(START + 300), **fields)
        made.metadata.annotations = {PLAN: encode(record)}
        setting.add(pod(f"v{number}", "8", node=f"n{number}"), made)
    setting.add(pod("v8", "8", node="n8"), preemptor("new", "8"))
    desk, turns = Desk(setting), 0
    desk.reconciler.look_at_all()
    while len(desk.reconciler.plans) < 8 and turns < 20:
        assert "default/new" not in desk.reconciler.plans
        desk.reconciler.turn()
        turns += 1
    assert turns > 1
    assert {f"default/p{number}" for number in range(8)} <= set(desk.reconciler.plans)
    while "default/new" not in desk.reconciler.plans and turns < 40:
        desk.reconciler.turn()
        turns += 1
    assert desk.reconciler.plans["default/new"].record.node == "n8"
    await desk.reconciler.stop()


async def test_a_plan_with_too_many_victims_to_name_them_is_taken_over():
    """Its victims are found by their uids; those that are gone count as asked."""
    names = [f"v{number:04}" for number in range(1200)]
    setting, made = Setting(node("n1", "1200", pods="2000")), preemptor("p", "1200", nominated="n1")
    record = msgspec.structs.replace(written(*names), deadline=rfc3339(START + 300))
    made.metadata.annotations = {PLAN: encode(record)}
    setting.add(*(pod(name, "1", node="n1") for name in names[100:]), made)
    desk = Desk(setting)
    desk.reconciler.look_at_all()
    desk.reconciler.turn()
    plan = desk.reconciler.plans["default/p"]
    assert {victim.key for victim in plan.record.victims if victim.name} == {f"default/{name}" for name in names[100:]}
    assert len(plan.gone) == 100
    assert plan.ended is None
    await desk.reconciler.stop()


@pytest.mark.parametrize(
    ("gone", "bound"),
    [
        pytest.param([], 0, id="nobody was asked: the group is whole"),
        pytest.param(["n1"], 400, id="one of the plan's node is gone: the others go, too"),
        pytest.param(["n2"], 400, id="one elsewhere is gone"),
    ],
)
async def test_a_group_with_too_many_victims_to_name_them_stays_one(gone: list[str], bound: int):
    """Victims elsewhere are found by their uids, too, and all are still known to go together."""
    setting = Setting(node("n1", "200", pods="300"), node("n2", "200", pods="300"), under=whole_groups())
    made, where = preemptor("p", "200", nominated="n1"), {"train": ("n1", "n2"), "other": ("n2",)}
    members = [
        (f"{name}-{'long' * 15}-{number:03}-{on}", name, on)
        for name, nodes in where.items()
        for on in nodes
        for number in range(200)
    ]
    victims = [PlanVictim("default", key, f"uid-{key}", 1) for key, name, _ in members if name == "train"]
    record = msgspec.structs.replace(written(), victims=tuple(victims), deadline=rfc3339(START + 300))
    made.metadata.annotations = {PLAN: encode(record)}
    assert '"name"' not in made.metadata.annotations[PLAN]
    left = {f"train-{'long' * 15}-007-{on}" for on in gone}
    for key, name, on in members:
        if key not in left:
            setting.add(pod(key, "1", node=on, labels={GANG: name}))
    setting.add(made)
    desk = Desk(setting)
    desk.reconciler.look_at_all()
    desk.reconciler.turn()
    plan = desk.reconciler.plans["default/p"]
    assert {(victim.key, victim.group) for victim in plan.record.victims if victim.name} == {
        (victim.key, 1) for victim in victims if victim.name not in left
    }
    assert len(plan.gone) == len(gone)
    assert len(plan.bound_to_go(())) == bound
    assert plan.ended is None
    await desk.reconciler.stop()


@pytest.mark.parametrize(
    ("allowed", "evicted", "since", "why"),
    [
        pytest.param(2, 2, 0, "", id="what went before it counts for the leader that decided"),
        pytest.param(2, 0, 1, "", id="one eviction for another plan since, and one to come"),
        pytest.param(2, 0, 2, "limits.perCluster", id="others have used the rate up since"),
        pytest.param(0, 0, 0, "limits.perCluster", id="the policy allows none any more"),
    ],
)
async def test_a_rate_that_was_granted_stays_granted(allowed: int, evicted: int, since: int, why: str):
    """Of a plan that has evicted the rest goes as its leader allowed it, whose clock may have been another."""
    setting = Setting(node("n1"), under=policy(limits=Limits(per_cluster=Rate(allowed, 60.0))))
    made = preemptor("p", "8", nominated="n1")
    made.metadata.annotations = {
        PLAN: encode(msgspec.structs.replace(written("a", "b"), deadline=rfc3339(START + 300)))
    }
    setting.add(pod("a", "4", node="n1", deleted=rfc3339(START)), pod("b", "4", node="n1"), made)
    desk = Desk(setting)
    other = PlannedEviction("", "n2")
    desk.reconciler.evaluator.limiter.note([other] * evicted, setting.clock.now)
    desk.reconciler.look_at_all()
    desk.reconciler.turn()
    setting.clock.now += 1.0
    desk.reconciler.evaluator.limiter.note([other] * since, setting.clock.now)
    plan = desk.reconciler.plans["default/p"]
    action = desk.reconciler.plan_manager.next_action(plan)
    assert (action.note if isinstance(action, End) else "").startswith(why)
    assert isinstance(action, End) == bool(why)
    await desk.reconciler.stop()
