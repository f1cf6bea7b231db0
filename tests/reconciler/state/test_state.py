"""The state: what was done counts until the watch shows it, not a moment longer, and what is gone leaves nothing."""

import pytest

from tests.reconciler.builders import START, Setting, budget, node, pod, preemptor
from webhook.kube.instants import rfc3339
from webhook.kube.object_cache import Change
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.policy.model.values import PLAN
from webhook.reconciler.evaluate.outcomes import Evicts
from webhook.reconciler.state.pending import Pending
from webhook.reconciler.state.state import Indexes, State

VICTIM = "default/v"
READY = [{"type": "Ready", "status": "True"}]


def expecting() -> Pending:
    pending = Pending()
    pending.expect_leaving(pod("v", node="n1"), "plan", START)
    pending.expect_nominated("default/p", "uid-p", "plan", "n1")
    return pending


def budgeted(*victims: Pod, plans: tuple[str, ...] = ("plan",)) -> Pending:
    """These pods, all of one budget, are expected to leave for these plans."""
    pending = Pending()
    pending.budget_changed(Change("added", "default/web", None, budget("web", 3, {})), {})
    for victim in victims:
        for plan in plans:
            pending.expect_leaving(victim, plan, START)
    return pending


def left(pending: Pending, shown: PodDisruptionBudget) -> int:
    """How many disruptions the budget has left, by what is expected beside what it shows."""
    return pending.overlay_budget("default/web", shown).status.disruptions_allowed


def test_victim_counts_as_leaving_until_it_is_seen_leaving():
    """Between the eviction and the watch event the victim is terminating to every decision."""
    pending = expecting()
    seen = pod("v", node="n1")
    assert pending.overlay(VICTIM, seen).metadata.deletion_timestamp == rfc3339(START)
    assert seen.metadata.deletion_timestamp is None
    leaving = pod("v", node="n1", deleted=rfc3339(START + 30))
    assert pending.overlay(VICTIM, leaving) is leaving
    assert pending.overlay(VICTIM, seen) is seen, "nothing is expected of it any more"


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        pytest.param(VICTIM, pod("v", node="n1", uid="another"), id="a pod made again under the victim's name"),
        pytest.param("default/p", preemptor(node="n2"), id="a preemptor that was bound"),
        pytest.param("default/other", pod("other", node="n1"), id="another pod"),
    ],
)
def test_of_whom_nothing_is_expected(key: str, shown: Pod):
    """It counts as it is shown: it neither leaves nor holds a place."""
    assert expecting().overlay(key, shown) is shown


def test_preemptor_counts_as_nominated_until_it_is_seen():
    """The room is reserved from the decision on."""
    pending = expecting()
    assert pending.overlay("default/p", preemptor()).status.nominated_node_name == "n1"
    earlier = preemptor(nominated="n1")
    assert pending.overlay("default/p", earlier) is not earlier, "an earlier plan's nomination is not this one"
    assert pending.overlay("default/p", preemptor()).status.nominated_node_name == "n1"
    ours = preemptor(nominated="n1")
    ours.metadata.annotations = {PLAN: '{"id":"plan"}'}
    pending.overlay("default/p", ours)
    assert pending.overlay("default/p", preemptor()).status.nominated_node_name == ""


@pytest.mark.parametrize("later", ["n1", "n2"])
def test_nomination_of_a_plan_before_the_last_one(later: str):
    """A plan was taken off a pod and so is the next one, before the watch has shown the first: neither holds room."""
    setting = Setting(node("n1"), node("n2"))
    state = setting.state
    shown, between, last = (preemptor("p", nominated=name) for name in ("n1", "", later))
    for place, (made, plan) in enumerate(((shown, "first"), (between, ""), (last, "second"))):
        made.metadata.resource_version = str(place + 1)
        made.metadata.annotations = {PLAN: f'{{"id":"{plan}"}}'} if plan else {}

    def counted(version: Pod) -> list[str]:
        setting.add(version)
        return sorted(state.index.nominated)

    assert counted(shown) == ["n1"]
    state.expect_cleared("first", "n1", shown, done=False)
    state.expect_cleared("first", "n1", between, done=True)
    state.expect_cleared("second", later, shown, done=False)
    assert [counted(version) for version in (shown, between, last)] == [[], [], []]


def test_giving_up_keeps_those_already_asked():
    """A plan that is dropped half-way still expects the pods it has asked to leave."""
    pending = expecting()
    pending.expect_leaving(pod("w", node="n1"), "plan", START)
    assert set(pending.give_up("plan", but={"uid-v"}).pods) == {"default/w", "default/p"}
    assert pending.overlay(VICTIM, pod("v", node="n1")).metadata.deletion_timestamp == rfc3339(START)
    other = pod("w", node="n1")
    assert pending.overlay("default/w", other) is other


def test_nothing_is_expected_of_a_pod_that_is_gone():
    """Expectations end with the pod."""
    pending = expecting()
    pending.pod_changed(VICTIM, None)
    pending.pod_changed("default/p", None)
    assert len(pending) == 0


def test_budget_until_its_status_has_followed():
    """A disruption is taken off until the status names the victim, then no more."""
    pending = budgeted(pod("v", node="n1"), pod("w", node="n1"))
    assert left(pending, budget("web", 3, {})) == 1
    followed = budget("web", 2, {}, disruptedPods={"v": rfc3339(START)})
    assert left(pending, followed) == 1
    assert pending.pod_changed("default/w", None) == ["default/web"]
    assert pending.overlay_budget("default/web", followed) is followed
    assert pending.spending("default/web") == set()


def test_a_disruption_is_expected_as_long_as_one_plan_does():
    """Two plans may have a victim in common: that one of them gives up takes nothing back."""
    pending = budgeted(pod("v", node="n1"), plans=("first", "second"))
    assert pending.give_up("second").budgets == ["default/web"]
    assert left(pending, budget("web", 3, {})) == 2
    pending.give_up("first")
    assert len(pending) == 0


LEAVING = pod("v", node="n1", deleted=rfc3339(START + 30), conditions=READY)


def test_a_victim_that_leaves_is_counted_once_for_all_plans():
    """A plan that names it while it leaves takes nothing back when it gives up, and nothing counts longer for it."""
    pending = budgeted(pod("v", node="n1", conditions=READY), plans=("first",))
    pending.pod_changed(VICTIM, LEAVING)
    pending.overlay(VICTIM, LEAVING)
    assert pending.overdue(0.0) == []
    pending.expect_leaving(LEAVING, "second", START)
    pending.overlay(VICTIM, LEAVING)
    pending.give_up("second")
    assert left(pending, budget("web", 3, {})) == 2
    assert pending.overdue(120.0) == ["default/web"]
    assert len(pending) == 0


def test_budgets_have_counted_a_pod_whose_name_another_one_has():
    """A list that comes late shows a StatefulSet's new pod in the place of the victim."""
    pending, successor = budgeted(pod("v", node="n1")), pod("v", node="n1", uid="another")
    assert pending.pod_changed(VICTIM, successor) == ["default/web"]
    assert pending.overlay(VICTIM, successor) is successor
    assert len(pending) == 0


def test_deleted_victim_counts_once():
    """A victim that was deleted, not evicted, is no longer expected once the budget's status has counted it as gone."""
    setting = Setting(node("n1"))
    web = {"app": "web"}
    victims = [pod(name, "4", node="n1", labels=web, conditions=READY) for name in ("a", "b")]
    setting.add(*victims)
    setting.budget(budget("web", 2, web, currentHealthy=3, desiredHealthy=1))
    setting.expect(preemptor("p1", "4"), setting.evaluate(preemptor("p1", "4")))
    assert left(setting.state.pending, budget("web", 2, web)) == 1
    leaving = next(key for key in ("default/a", "default/b") if key in setting.state.index.leaving)
    setting.budget(budget("web", 2, web, currentHealthy=3, desiredHealthy=1, observedGeneration=2))
    assert setting.state.pending.spending("default/web") == {leaving[8:]}, "a status without it changes nothing"
    setting.add(pod(leaving[8:], "4", node="n1", labels=web, deleted=rfc3339(START + 30)))
    setting.budget(budget("web", 1, web, currentHealthy=2, desiredHealthy=1))
    second = setting.evaluate(preemptor("p2", "4"))
    assert isinstance(second, Evicts), "one more may go"
    setting.expect(preemptor("p2", "4"), second, "another")
    setting.remove(leaving)
    assert len(setting.state.pending.spending("default/web")) == 1
    assert not isinstance(setting.evaluate(preemptor("p3", "8")), Evicts), "and no more than that"


def test_health_that_falls_for_another_reason():
    """A budget whose pods fail by themselves has not counted a victim that is not seen terminating yet."""
    pending = budgeted(pod("v", node="n1"))
    running, terminating = pod("v", node="n1"), pod("v", node="n1", deleted=rfc3339(START + 30))

    def healthy(name: str, before: int, now: int, seen: Pod) -> None:
        old, new = (budget(name, 1, {}, currentHealthy=number) for number in (before, now))
        pending.budget_changed(Change("modified", f"default/{name}", old, new), {"default/v": seen})

    healthy("web", 3, 2, running)
    healthy("other", 3, 2, terminating)
    healthy("web", 2, 3, terminating)
    assert pending.spending("default/web") == {"v"}
    healthy("web", 3, 2, terminating)
    assert pending.spending("default/web") == set()


LENIENT = {"currentHealthy": 2, "desiredHealthy": 1}


@pytest.mark.parametrize(
    ("victim", "status", "allowed"),
    [
        pytest.param(pod("v", node="n1", conditions=READY), LENIENT, 0, id="ready: it spends a disruption"),
        pytest.param(pod("v", node="n1"), LENIENT, 1, id="not ready, and enough are healthy"),
        pytest.param(pod("v", node="n1"), {"currentHealthy": 0}, 0, id="not ready, and the budget wants none healthy"),
        pytest.param(pod("v", node="n1", phase="Pending"), {}, 1, id="still starting: no budget is asked"),
    ],
)
def test_a_disruption_that_is_never_spent_is_not_expected(victim: Pod, status: dict, allowed: int):
    """The Eviction API lets a pod that is not ready past a budget without spending anything, so no status counts it."""
    assert left(budgeted(victim), budget("web", 1, {}, **status)) == allowed


@pytest.mark.parametrize("last", ["lenient", "strict"])
def test_each_budget_says_for_itself_whether_a_victim_spends(last: str):
    """A victim that is not ready spends nothing of a budget that has enough pods, and one disruption of the other."""
    shown = {"lenient": budget("lenient", 1, {}, **LENIENT), "strict": budget("strict", 1, {}, currentHealthy=0)}
    pending = Pending()
    for name, made in shown.items():
        pending.budget_changed(Change("added", f"default/{name}", None, made), {})
    pending.expect_leaving(pod("v", node="n1"), "plan", START)

    def allowed(name: str) -> int:
        return pending.overlay_budget(f"default/{name}", shown[name]).status.disruptions_allowed

    assert (allowed("strict"), allowed("lenient"), allowed(last)) == (0, 1, last == "lenient")
    pending.pod_changed(VICTIM, LEAVING)
    assert (pending.spending("default/strict"), pending.spending("default/lenient")) == ({"v"}, set())
    assert (allowed("strict"), allowed("lenient")) == (0, 1)


def test_what_a_victim_spends_is_settled_when_it_is_leaving():
    """It is ready or not until then; that it is not ready while it ends says nothing."""
    setting, web = Setting(node("n1")), {"app": "web"}
    states = {
        "unready": pod("v", "8", node="n1", labels=web),
        "ready": pod("v", "8", node="n1", labels=web, conditions=READY),
        "leaving": pod("v", "8", node="n1", labels=web, deleted=rfc3339(START + 30)),
    }

    def allowed() -> int:
        return int(setting.state.snapshot.budgets._allowed[0])

    setting.add(states["ready"])
    setting.budget(budget("web", 1, web, currentHealthy=2, desiredHealthy=1))
    setting.expect(preemptor("p", "8"), setting.evaluate(preemptor("p", "8")))
    assert allowed() == 0
    setting.add(states["unready"])
    assert (allowed(), setting.state.pending.spending("default/web")) == (1, set())
    setting.add(states["ready"])
    assert (allowed(), setting.state.pending.spending("default/web")) == (0, {"v"})
    setting.add(states["leaving"])
    setting.budget(budget("web", 1, web, currentHealthy=2, desiredHealthy=1, observedGeneration=2))
    assert allowed() == 0


def test_what_no_status_shows_is_expected_for_two_minutes():
    """A list that came too late shows neither the victim in the status nor the fall: the budget is used again then."""
    setting, web = Setting(node("n1")), {"app": "web"}
    setting.add(pod("v", "8", node="n1", labels=web, conditions=READY))
    setting.budget(budget("web", 1, web, currentHealthy=2, desiredHealthy=1))
    setting.expect(preemptor("p", "8"), setting.evaluate(preemptor("p", "8")))
    assert not setting.state.forget_overdue(0.0)
    assert not setting.state.forget_overdue(1000.0), "it is not seen leaving yet"
    setting.add(pod("v", "8", node="n1", labels=web, deleted=rfc3339(START + 30)))
    assert not setting.state.forget_overdue(1000.0)
    assert not setting.state.forget_overdue(1119.0)
    assert setting.state.forget_overdue(1120.0)
    assert int(setting.state.snapshot.budgets._allowed[0]) == 1
    assert setting.state.pending.spending("default/web") == set()


def empty(indexes: Indexes) -> bool:
    return not any(vars(indexes).values())


def test_pod_from_nomination_to_its_end():
    """A pod is found by the node it is nominated to, then by its owner, then among those leaving, then nowhere."""
    indexes, owner = Indexes(), ("Job", "j")
    indexes.put("default/p", preemptor(nominated="n1", owner=owner))
    assert indexes.nominated == {"n1": {"default/p"}}
    indexes.put("default/p", preemptor(nominated="n2", owner=owner))
    assert indexes.nominated == {"n2": {"default/p"}}
    indexes.put("default/p", pod("p", node="n2", owner=owner, nominated="n2"))
    assert (indexes.nominated, indexes.owned) == ({}, {"Job/default/j": {"default/p"}})
    leaving = pod("p", node="n2", owner=owner, deleted=rfc3339(START))
    indexes.put("default/p", leaving)
    assert indexes.leaving == {"default/p": leaving}
    indexes.drop("default/p")
    assert empty(indexes)


def test_nothing_is_left_of_what_is_gone():
    """After a thousand namespaces with a budget and an evicted pod each, no memory of them is kept."""
    setting = Setting(node("n1"))
    state, labels = setting.state, {"app": "web"}
    for number in range(1000):
        team, meta = f"team-{number}", {"namespace": f"team-{number}"}
        covering = budget("web", 1, labels)
        covering.metadata.namespace = team
        state.budgets.take(f"{team}/web", covering)
        victim = pod("v", node="n1", labels=labels, **meta)
        setting.add(victim)
        state.expect("plan", [victim], {victim.metadata.uid: START})
        state.hold("plan", (f"{team}/p", "uid"), "n1")
        setting.remove(f"{team}/v")
        state.give_up("plan", ())
        state.budgets.take(f"{team}/web", None)
    assert empty(state.index)
    assert (len(state.pending), state.pending.covering(pod("v", labels=labels))) == (0, [])
    assert state.snapshot.budgets.rows == 1, "the row of a budget that is gone is used again"


def test_the_first_start_of_a_pod_counts():
    """Who writes another one into the status of a pod on a node changes nothing, also when the pods are listed again.

    A pod of its name that is made again has a start of its own, and so has one that got a node only now.
    """
    state = State(None, frozenset())  # type: ignore[arg-type]  # nothing is asked of a server

    def seen(started: float | None, uid: str = "u") -> float:
        made = pod("v", node="n1", uid=uid)
        made.status.start_time = None if started is None else rfc3339(START + started)
        state.pods.take(VICTIM, made)
        row = state.snapshot.pods.find("default", "v")
        return float(state.snapshot.pods.start[row]) - START

    waiting = pod("v", uid="u")
    waiting.status.start_time = rfc3339(START - 900)
    state.pods.take(VICTIM, waiting)
    assert seen(-50) == -50
    assert (seen(50), seen(None), seen(-200)) == (-50, -50, -50)
    assert seen(10, uid="another") == 10
