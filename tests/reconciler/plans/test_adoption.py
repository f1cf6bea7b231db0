"""What a new leader believes of the plans and decisions that it finds on pods."""

import msgspec
import pytest

from tests.cases import table
from tests.reconciler import builders
from tests.reconciler.builders import START, Desk, Setting, decided, logged, node, planned, pod, policy, preemptor
from webhook.kube.instants import rfc3339
from webhook.policy.model.limits import Limits, Rate
from webhook.policy.model.preemption import GroupDisruption, Groups, PreemptionPolicy
from webhook.policy.model.values import DECISION, PLAN
from webhook.reconciler.plans.actions import End
from webhook.reconciler.plans.adoption import adopt
from webhook.reconciler.plans.look import Look
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.state.annotations import DecidedVictim, PlanRecord, PlanVictim, encode

WEB = "Deployment/default/web"
GANG = "jobset.sigs.k8s.io/jobset-name"


VICTIM = DecidedVictim(pod="default/a", priority=1, owner=WEB)
RECORD, DECIDED = decided(VICTIM)
TOLD_OTHERWISE = msgspec.structs.replace(DECIDED, victims=(msgspec.structs.replace(VICTIM, owner="Job/default/x"),))


@table(
    "annotations, uid, believed",
    ("as it was", {}, "uid-p", True),
    ("changed", {PLAN: encode(RECORD).replace("uid-a", "uid-b")}, "uid-p", False),
    ("of another pod", {}, "another", False),
    ("with another decision", {DECISION: encode(TOLD_OTHERWISE)}, "uid-p", False),
    ("unreadable", {PLAN: "{"}, "uid-p", False),
    ("empty", {PLAN: ""}, "uid-p", False),
)
async def test_what_the_leader_before_has_written(annotations: dict[str, str], uid: str, believed: bool):
    """A plan goes on with the very text that the log tells of, once; any other one is taken off its pod."""
    reconciler, made = Desk(Setting(node("n1"))).reconciler, planned(preemptor(nominated="n1"), RECORD, DECIDED)
    logged(reconciler.evaluator.log, made)
    made.metadata.annotations |= annotations
    made.metadata.uid = uid
    reconciler.state.pods.take("default/p", made)
    for first in (True, False):
        plan = adopt(made, reconciler.plan_manager)
        assert (plan is not None) is (believed and first)
        assert reconciler.state.pending.over("default/p", made) == (None if plan else "n1")


@table("newest, since", ("this one", rfc3339(START - 5), -5.0), ("one that did not say which pods it knew", "", -10.0))
async def test_since_when_pods_are_put_back(newest: str, since: float):
    """Those that were made after the newest one that was known then; an earlier version says only when that was."""
    reconciler, record = Desk(Setting(node("n1"))).reconciler, msgspec.structs.replace(RECORD, newest=newest)
    made = planned(preemptor(nominated="n1"), record, DECIDED)
    logged(reconciler.evaluator.log, made)
    reconciler.state.pods.take("default/p", made)
    plan = adopt(made, reconciler.plan_manager)
    back = [pod("back", created=rfc3339(START + since + seconds)) for seconds in (-1.0, 1.0)]
    assert plan is not None
    assert plan.evicting is not None
    assert [plan.evicting.is_before(other) for other in back] == [False, True]


async def test_a_copy_of_a_plan_under_way():
    """It is taken off the pod on which somebody has put it, and the next leader believes the plan all the same."""
    reconciler = Desk(Setting(node("n1"))).reconciler
    found, known = [], reconciler.evaluator.log
    for name in "pq":
        made = planned(preemptor(name, nominated="n1"), RECORD, DECIDED)
        logged(known, *([made] if name == "p" else []))
        reconciler.state.pods.take(f"default/{name}", made)
        plan = adopt(made, reconciler.plan_manager)
        found.append((plan is not None, reconciler.executor._in_vain(made), list(known.plans)))
    assert found == [(True, "", ["uid-p"]), (False, "clear", ["uid-p"])]


@pytest.mark.parametrize(("seconds", "believed"), [(29.0, True), (31.0, False)])
async def test_a_plan_that_the_watch_shows_late(seconds: float, believed: bool):
    """It is taken over for half a minute; after that somebody has put it back."""
    setting = Setting(node("n1"))
    desk, made = Desk(setting), planned(preemptor(nominated="n1"), RECORD, DECIDED)
    desk.reconciler._began = 0.0
    desk.reconciler.executor.take_off = lambda _: None  # type: ignore[method-assign]
    logged(desk.reconciler.evaluator.log, made)
    setting.clock.now += seconds
    setting.add(made)
    desk.reconciler.turn()
    assert ("default/p" in desk.reconciler.plans) is believed


def whole_groups() -> PreemptionPolicy:
    """A policy by which groups go whole."""
    return policy(groups=Groups(disruption=GroupDisruption.GROUP))


def grouped() -> Setting:
    """A preemptor p whose plan for n1 evicts a whole group: a there, b on n2."""
    setting, group = Setting(node("n1"), node("n2"), under=whole_groups()), {"labels": {GANG: "train"}}
    setting.add(pod("a", "6", node="n1", **group), pod("b", "1", node="n2", **group))
    setting.add(pod("other", "7", node="n2", priority=1000), preemptor("p", "5"))
    return setting


async def test_a_plan_names_its_groups_also_after_it_is_taken_over():
    """A victim elsewhere says its node, and what it goes for; all name the group that they go with."""
    desk = Desk(grouped())
    desk.lead()
    (line,) = desk.lines("decision")
    assert {victim["pod"]: victim.get("node") for victim in line["victims"]} == {"default/a": None, "default/b": "n2"}
    assert [victim["group"] for victim in line["victims"]] == ["JobSet default/train"] * 2
    (plan,) = desk.reconciler.plans.values()
    told = msgspec.structs.replace(DECIDED, plan=plan.id, room="to make room in zone a")
    asks = planned(preemptor("p", "5", nominated="n1"), plan.record, told)
    taken = Desk(grouped())
    taken.reconciler.state.pods.take("default/p", asks)
    logged(taken.reconciler.evaluator.log, asks)
    adopted = adopt(asks, taken.reconciler.plan_manager)
    assert isinstance(adopted, Plan)
    assert adopted.evicting is not None, "pods that its owners put back are known by that"
    assert adopted.groups == plan.groups == {1: "JobSet default/train"}
    assert adopted.with_all_of({"uid-b"}).endswith(" to make room in zone a")
    await desk.reconciler.stop()


def written(*victims: str) -> PlanRecord:
    """A plan on n1 that an earlier leader left, for these pods."""
    return PlanRecord(
        id="plan", node="n1", victims=tuple(PlanVictim("default", name, f"uid-{name}") for name in victims)
    )


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
    assert "default/b" in desk.reconciler.queue.entries


async def test_plans_of_an_earlier_leader_are_taken_over_in_turns(monkeypatch: pytest.MonkeyPatch):
    """Others get their turn in between, and nothing is decided before all count."""
    setting = Setting(*(node(f"n{number}") for number in range(9)))
    monkeypatch.setattr(setting.clock, "stopwatch", iter(range(10**6)).__next__)
    setting.add(*(pod(f"v{number}", "8", node=f"n{number}") for number in range(9)), preemptor("new", "8"))
    for number in range(8):
        fields = {"id": f"plan-{number}", "node": f"n{number}", "deadline": rfc3339(START + 300)}
        record = msgspec.structs.replace(written(f"v{number}"), **fields)
        setting.add(planned(preemptor(f"p{number}", "8", nominated=f"n{number}"), record))
    desk, seen = Desk(setting), list[set[str]]()
    logged(desk.reconciler.evaluator.log, *setting.state.pods.items().values())
    desk.reconciler.look_at_all()
    while len(seen) < 40 and "default/new" not in desk.reconciler.plans:
        seen.append(set(desk.reconciler.plans))
        desk.reconciler.turn()
    assert len({len(plans) for plans in seen}) > 2
    assert seen[-1] == {f"default/p{number}" for number in range(8)}
    assert desk.reconciler.plans["default/new"].record.node == "n8"


@table("gone, bound", ("nobody was asked", [], 0), ("one is gone: the others go, too", ["n1"], 400))
async def test_a_group_with_too_many_victims_to_name_them_stays_one(gone: list[str], bound: int):
    """Victims elsewhere are found by their uids, too, and all are still known to go together."""
    setting = Setting(node("n1", "200", pods="300"), node("n2", "200", pods="300"), under=whole_groups())
    there = {f"{'long' * 15}-{number:03}-{on}": on for on in ("n1", "n2") for number in range(200)}
    victims = tuple(PlanVictim("default", name, f"uid-{name}", 1) for name in there)
    made = preemptor("p", "200", nominated="n1")
    planned(made, msgspec.structs.replace(written(), victims=victims, deadline=rfc3339(START + 300)))
    assert '"name"' not in made.metadata.annotations[PLAN]
    left = {f"{'long' * 15}-007-{on}" for on in gone}
    setting.add(made, *(pod(name, "1", node=on, labels={GANG: "t"}) for name, on in there.items() if name not in left))
    desk = Desk(setting)
    desk.lead()
    plan = desk.reconciler.plans["default/p"]
    named = [victim for victim in plan.record.victims if victim.name]
    assert named == [victim for victim in victims if victim.name not in left]
    context = desk.reconciler.plan_manager.context
    assert (len(plan.gone), len(Look(plan, context, setting.at).bound), plan.ended) == (len(gone), bound, None)


@table(
    "allowed, before, since, why",
    ("what went before it counts for the leader that decided", 2, 2, 0, ""),
    ("one eviction for another plan since, and one to come", 2, 0, 1, ""),
    ("others have used the rate up since", 2, 0, 2, "limits.perCluster"),
    ("the policy allows none any more", 0, 0, 0, "limits.perCluster"),
)
async def test_a_rate_that_was_granted_stays_granted(allowed: int, before: int, since: int, why: str):
    """Of a plan that has evicted the rest goes as its leader allowed it, whose clock may have been another."""
    setting = Setting(node("n1"), under=policy(limits=Limits(per_cluster=Rate(allowed, 60.0))))
    made = preemptor("p", "8", nominated="n1")
    planned(made, msgspec.structs.replace(written("a", "b"), deadline=rfc3339(START + 300)))
    setting.add(pod("a", "4", node="n1", deleted=rfc3339(START)), pod("b", "4", node="n1"), made)
    desk = Desk(setting)
    for _ in range(before):
        builders.evicted(desk.reconciler.evaluator.log, "", setting.clock.now)
    desk.lead()
    setting.clock.now += 2.0
    for _ in range(since):
        builders.evicted(desk.reconciler.evaluator.log, "", setting.clock.now)
    plan = desk.reconciler.plans.get("default/p")
    step = desk.reconciler.plan_manager.look(plan) if plan is not None else None
    said = [line["reason"] for line in desk.lines("plan ended")] + ([step.note] if isinstance(step, End) else [])
    assert [text.partition(" ")[0] for text in said] == ([why] if why else [])
