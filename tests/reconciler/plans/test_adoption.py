"""What a new leader believes of the plans and decisions that it finds on pods."""

from collections.abc import Callable

import msgspec
import pytest

from tests.reconciler.builders import START, Desk, Setting, decided, node, planned, pod, policy, preemptor
from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import GroupDisruption, Groups, PreemptionPolicy
from webhook.policy.model.values import DECISION, PLAN
from webhook.reconciler.evaluate.eviction_limiter import PlannedEviction
from webhook.reconciler.evaluate.eviction_record import NOTHING
from webhook.reconciler.plans.actions import End
from webhook.reconciler.plans.adoption import Adopted, TakeOff, adopt, disagreement, recall_evictions
from webhook.reconciler.state.annotations import DecidedVictim, DecisionRecord, PlanRecord, encode, is_sealed, sealed
from webhook.reconciler.state.plan_victims import PlanVictim

WEB = "Deployment/default/web"
GANG = "jobset.sigs.k8s.io/jobset-name"


def web(name: str, *, node: str = "n1", deleted: str | None = None) -> Pod:
    """A pod of the Deployment web."""
    return pod(name, node=node, labels={"pod-template-hash": "1"}, owner=("ReplicaSet", "web-1"), deleted=deleted)


def of_web(name: str = "a", **fields: str) -> DecidedVictim:
    """A victim of the Deployment web, as the decision has it."""
    return DecidedVictim(**({"pod": f"default/{name}", "priority": 1, "owner": WEB} | fields))


def counted(*there: Pod) -> list[tuple[str, str, float]]:
    """Whose rates are used up, on which node and how many seconds ago, once for each eviction."""
    setting = Setting(node("n1"))
    setting.clock.now = 1000.0
    setting.clock.jump = -1000.0
    setting.add(*there)
    recall_evictions(setting.evaluator, setting.policy_set, NOTHING, "")
    return [(row.owner, row.node, 1000.0 - at) for row, at in setting.evaluator.limiter.recent(1000.0)]


LEAVES = {"deleted": rfc3339(START)}


@pytest.mark.parametrize(
    ("row", "there", "evicted"),
    [
        pytest.param(of_web(), [], (WEB, "n1"), id="gone"),
        pytest.param(of_web(), [web("b")], (WEB, "n1"), id="gone, whoever came in its place"),
        pytest.param(of_web(), [web("a")], None, id="still there"),
        pytest.param(of_web(), [web("a", **LEAVES)], (WEB, "n1"), id="leaving"),
        pytest.param(of_web(owner="Job/default/x"), [web("a", **LEAVES)], (WEB, "n1"), id="the pod tells whose it is"),
        pytest.param(of_web(owner=""), [], ("", "n1"), id="a bare pod that is gone"),
        pytest.param(of_web(node="n2"), [], (WEB, "n2"), id="elsewhere, and gone"),
        pytest.param(of_web(node="n2"), [web("a", node="n2", **LEAVES)], (WEB, "n2"), id="elsewhere, and leaving"),
        pytest.param(of_web(), [web("a", node="", **LEAVES)], (WEB, "n1"), id="it leaves, and has no node"),
    ],
)
def test_a_plan_on_a_pod_tells_of_evictions(row: DecidedVictim, there: list[Pod], evicted: tuple[str, str] | None):
    """A victim that is gone, or leaves, counts where it was, as of now: when it was is not known."""
    assert counted(planned(preemptor(), *decided(row)), *there) == ([(*evicted, 0.0)] if evicted else [])


def test_another_pod_of_a_victims_name():
    """The victim itself is gone."""
    successor = web("a")
    successor.metadata.uid = "another"
    assert counted(planned(preemptor(), *decided(of_web())), successor) == [(WEB, "n1", 0.0)]


def test_members_of_a_gang_share_a_victim():
    """It went once."""
    rows = decided(of_web())
    assert len(counted(planned(preemptor("p"), *rows), planned(preemptor("q"), *rows))) == 1


def forged(made: Pod) -> Pod:
    """The pod with a plan that no leader has sealed like this."""
    text = (made.metadata.annotations or {})[PLAN]
    made.metadata.annotations = {**(made.metadata.annotations or {}), PLAN: text.replace('"x"', '"y"')}
    return made


def moved(made: Pod) -> Pod:
    """Another pod with the plan of this one."""
    made.metadata.uid = "another"
    return made


def told_otherwise(made: Pod) -> Pod:
    """The pod with another decision than that of its plan."""
    said = msgspec.structs.replace(decided(of_web())[1], victims=(of_web(owner="Job/default/x"),))
    made.metadata.annotations = {**(made.metadata.annotations or {}), DECISION: encode(said)}
    return made


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(forged, id="changed"),
        pytest.param(moved, id="of another pod"),
        pytest.param(told_otherwise, id="with another decision"),
        pytest.param(lambda made: planned(made, *decided(of_web()), key="guessed"), id="sealed with another key"),
        pytest.param(lambda made: annotated(made, encode(decided(of_web())[0])), id="not sealed"),
        pytest.param(lambda made: annotated(made, "{"), id="unreadable"),
    ],
)
async def test_what_no_leader_has_sealed(change: Callable[[Pod], Pod]):
    """It uses up no rate, and is taken off: nobody goes for it, and a gone victim does not make it a plan begun."""
    made = change(planned(preemptor(nominated="n1"), *decided(of_web())))
    assert counted(made) == []
    desk = Desk(Setting(node("n1")))
    desk.reconciler.state.pods.take("default/p", made)
    found = adopt(made, desk.reconciler.plan_manager, desk.reconciler.policy_set, (), "")
    assert isinstance(found, TakeOff)


def annotated(made: Pod, text: str) -> Pod:
    """The pod with this text in place of a plan."""
    made.metadata.annotations = {PLAN: text}
    return made


def test_fields_that_are_not_known_keep_the_seal():
    """A later version may write more: the seal is one of the text, not of what is understood of it."""
    made, (record, _) = preemptor(), decided()
    text = encode(record)[:-1] + ',"later":1}'
    assert is_sealed(annotated(made, sealed(text, made, "", "k")), "k")


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
    desk.lead()
    (line,) = desk.lines("decision")
    assert {victim["pod"]: victim.get("node") for victim in line["victims"]} == {"default/a": None, "default/b": "n2"}
    assert [victim["group"] for victim in line["victims"]] == ["JobSet default/train"] * 2


async def test_a_plan_names_its_groups_also_after_it_is_taken_over():
    """By the pods that are there; what victims on other nodes go for by the decision."""
    desk = Desk(grouped())
    desk.lead()
    (plan,) = desk.reconciler.plans.values()
    asks = preemptor("p", "5", nominated="n1")
    record = DecisionRecord(
        plan=plan.record.id, at=rfc3339(START), node="n1", policy="test", attempt=1, room="to make room in zone a"
    )
    planned(asks, plan.record, record)
    taken = Desk(grouped())
    taken.reconciler.state.pods.take("default/p", asks)
    adopted = adopt(asks, taken.reconciler.plan_manager, taken.reconciler.policy_set, (), "")
    assert isinstance(adopted, Adopted)
    assert adopted.plan.groups == plan.groups == {1: "JobSet default/train"}
    assert adopted.plan.with_all_of({"uid-b"}).endswith(" to make room in zone a")
    await desk.reconciler.stop()


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
    planned(unreadable, written("v"))
    setting.add(pod("v", "8", node="n1"), unreadable, preemptor("b"))
    desk = Desk(setting)
    desk.lead()
    assert [(line["preemptor"], line["ending"]) for line in desk.lines("plan ended")] == [("default/a", "outdated")]
    assert "default/b" in desk.reconciler.queue


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
        planned(made, record)
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


async def test_a_plan_with_too_many_victims_to_name_them_is_taken_over():
    """Its victims are found by their uids; those that are gone count as asked."""
    names = [f"v{number:04}" for number in range(1200)]
    setting, made = Setting(node("n1", "1200", pods="2000")), preemptor("p", "1200", nominated="n1")
    record = msgspec.structs.replace(written(*names), deadline=rfc3339(START + 300))
    planned(made, record)
    setting.add(*(pod(name, "1", node="n1") for name in names[100:]), made)
    desk = Desk(setting)
    desk.lead()
    plan = desk.reconciler.plans["default/p"]
    assert {victim.key for victim in plan.record.victims if victim.name} == {f"default/{name}" for name in names[100:]}
    assert len(plan.gone) == 100
    assert plan.ended is None


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
    planned(made, record)
    assert '"name"' not in made.metadata.annotations[PLAN]
    left = {f"train-{'long' * 15}-007-{on}" for on in gone}
    for key, name, on in members:
        if key not in left:
            setting.add(pod(key, "1", node=on, labels={GANG: name}))
    setting.add(made)
    desk = Desk(setting)
    desk.lead()
    plan = desk.reconciler.plans["default/p"]
    assert {(victim.key, victim.group) for victim in plan.record.victims if victim.name} == {
        (victim.key, 1) for victim in victims if victim.name not in left
    }
    assert len(plan.gone) == len(gone)
    assert len(plan.bound_to_go(())) == bound
    assert plan.ended is None


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
    planned(made, msgspec.structs.replace(written("a", "b"), deadline=rfc3339(START + 300)))
    setting.add(pod("a", "4", node="n1", deleted=rfc3339(START)), pod("b", "4", node="n1"), made)
    desk = Desk(setting)
    other = PlannedEviction("", "n2")
    desk.reconciler.evaluator.limiter.note([other] * evicted, setting.clock.now)
    desk.lead()
    setting.clock.now += 1.0
    desk.reconciler.evaluator.limiter.note([other] * since, setting.clock.now)
    plan = desk.reconciler.plans["default/p"]
    action = desk.reconciler.plan_manager.next_action(plan)
    assert (action.note if isinstance(action, End) else "").startswith(why)
    assert isinstance(action, End) == bool(why)
