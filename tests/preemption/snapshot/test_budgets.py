"""Disruption budgets: read strictly as the Eviction API does, and loosely as kube-scheduler does."""

import msgspec
import pytest

from tests.preemption.building import budget, cluster, decided, node, outcome, pod, rules, snapshot_of
from webhook.kube.objects.pod import PodDisruptionBudget
from webhook.policy.model.preemption import BudgetMode, EvictionMode, PreemptionPolicy
from webhook.policy.model.victims import VictimMode, Victims
from webhook.policy.shapes.yaml_nodes import SourcePosition
from webhook.preemption.snapshot.kinds import BUDGETS
from webhook.preemption.victims.rules import compile_rules, kubernetes_rules


def replicas(count, cpu="2"):
    made = [pod(f"r{number}", on="n1", cpu=cpu, started=3600 - number) for number in range(count)]
    for one in made:
        one["metadata"]["labels"] = {"app": "web"}
    return made


@pytest.mark.parametrize(
    ("allowed", "asked", "went"),
    [
        pytest.param(0, "3", [], id="a used-up budget lets nobody go"),
        pytest.param(1, "3", ["r2"], id="one disruption left: the least important goes"),
        pytest.param(1, "5", [], id="one left and two needed: nobody goes"),
        pytest.param(2, "5", ["r1", "r2"], id="two left and two needed"),
    ],
)
def test_strict_budgets(allowed, asked, went):
    """Of the pods of one budget at most as many go as it allows, the least important ones."""
    asking = pod("preemptor", priority=100, cpu=asked)
    got, _ = outcome(
        replicas(3), rules(), nodes=[node("n1", "7")], preemptor=asking,
        podDisruptionBudgets=[budget("web", {"app": "web"}, allowed)],
    )  # fmt: skip
    assert got == went


def test_strict_budgets_count_across_sizes():
    """Where only the more important pod of a budget makes enough room, it goes alone."""
    large, small = pod("large", on="n1", cpu="3", priority=5), pod("small", on="n1", cpu="1")
    for one in (large, small):
        one["metadata"]["labels"] = {"app": "web"}
    got, _ = outcome(
        [large, small], rules(), preemptor=pod("preemptor", priority=100, cpu="3"),
        podDisruptionBudgets=[budget("web", {"app": "web"}, 1)],
    )  # fmt: skip
    assert got == ["large"]


def test_strict_budgets_go_to_the_more_important_where_the_less_do_not_make_the_room():
    """If the least important of a budget's pods cannot make the room within it, a more important one goes.

    The small pod would go first. Then the large one has to go too, since the other pod, which is more important, has
    the room that is left: two of a budget that allows one. As kube-scheduler counts, the large one has the budget.
    """
    large, small = pod("large", on="n1", cpu="2", started=3600), pod("small", on="n1", cpu="1")
    for one in (large, small):
        one["metadata"]["labels"] = {"app": "web"}
    got, _ = outcome(
        [large, small, pod("other", on="n1", cpu="1", priority=5)], rules(), nodes=[node("n1", "4")],
        preemptor=pod("preemptor", priority=100, cpu="3"), podDisruptionBudgets=[budget("web", {"app": "web"}, 1)],
    )  # fmt: skip
    assert got == ["other", "large"]


def test_a_used_up_budget_is_named():
    """A pod kept by its budget says so."""
    _, excluded = outcome(replicas(1), rules(), podDisruptionBudgets=[budget("web", {"app": "web"}, 0)])
    assert excluded == {"r0": "policy/budget"}


def test_a_pod_already_counted_may_go():
    """A pod in disruptedPods does not use its budget again."""
    counted = budget("web", {"app": "web"}, 0, disruptedPods={"r0": "2026-01-01T00:00:00Z"})
    got, excluded = outcome(replicas(1), rules(), podDisruptionBudgets=[counted])
    assert (got, excluded) == (["r0"], {})


def test_best_effort_budgets_are_only_avoided():
    """With best effort a budget may be violated where nothing else helps, and is counted."""
    data = cluster([node("n1")], replicas(1), pod("preemptor", priority=100, cpu="4"),
                   podDisruptionBudgets=[budget("web", {"app": "web"}, 0)])  # fmt: skip
    by = rules(budgets=BudgetMode.BEST_EFFORT)
    decision = decided(data, by)
    assert decision.selected.pdb_violations == 1


@pytest.mark.parametrize(
    ("selector", "labels_of_pod", "strictly", "loosely"),
    [
        pytest.param({}, {"app": "web"}, [], ["victim"], id="an empty selector is every pod of the namespace"),
        pytest.param({}, {}, [], ["victim"], id="one without labels too"),
        pytest.param(None, {"app": "web"}, ["victim"], ["victim"], id="no selector is no pod"),
        pytest.param(
            {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}, {}, [], ["victim"],
            id="a pod without labels can be meant",
        ),
        pytest.param({"matchLabels": {"app": "web"}}, {"app": "web"}, [], [], id="what both read the same way"),
    ],
)  # fmt: skip
def test_strict_budgets_cover_what_the_api_server_says(selector, labels_of_pod, strictly, loosely):
    """A strict policy reads a budget's selector as the Eviction API does, plain Kubernetes rules as the scheduler."""
    victim = pod("victim", on="n1", cpu="3")
    victim["metadata"]["labels"] = labels_of_pod
    spent = budget("all", {}, 0)
    spent["spec"]["selector"] = selector
    assert outcome([victim], rules(), podDisruptionBudgets=[spent])[0] == strictly
    data = cluster([node("n1")], [victim], pod("preemptor", priority=100, cpu="4"), podDisruptionBudgets=[spent])
    by_kubernetes = decided(data).selected
    assert by_kubernetes.pdb_violations == (0 if loosely else 1)


@pytest.mark.parametrize(
    ("eviction", "went"),
    [
        pytest.param(EvictionMode.EVICT, [], id="the Eviction API refuses it always"),
        pytest.param(EvictionMode.DELETE, ["victim"], id="a delete asks no budget"),
    ],
)
def test_a_pod_under_several_budgets(eviction, went):
    """A pod that two budgets cover cannot be evicted whatever they have left, so it is no victim; it can be deleted."""
    victim = pod("victim", on="n1", cpu="3")
    both = [budget("one", {"app": "victim"}, 5), budget("two", {"app": "victim"}, 5)]
    by = compile_rules(
        PreemptionPolicy(
            name="policy", source=SourcePosition(), victims=Victims(mode=VictimMode.OPT_OUT), eviction=eviction
        )
    )
    data = cluster([node("n1")], [victim], pod("preemptor", priority=100, cpu="4"), podDisruptionBudgets=both)
    decision = decided(data, by)
    assert ([one.name for one in decision.selected.victims] if decision.selected else []) == went
    texts = [one.text for one in decision.excluded("n1")]
    assert texts == ([] if went else ["the Eviction API lets no pod go that several budgets cover: one, two"])


@pytest.mark.parametrize(
    ("generation", "observed", "went"),
    [
        pytest.param(2, 2, ["r0"], id="up to date"),
        pytest.param(2, 1, [], id="changed since it was counted"),
        pytest.param(1, None, [], id="never counted"),
        pytest.param(None, None, ["r0"], id="no generations known"),
    ],
)
def test_a_budget_whose_status_lags_lets_nobody_go(generation, observed, went):
    """The API server evicts nobody by a budget that changed since its status was written, so a strict plan does not."""
    lagging = budget("web", {"app": "web"}, 1, observedGeneration=observed)
    lagging["metadata"]["generation"] = generation
    got, excluded = outcome(replicas(1), rules(), podDisruptionBudgets=[lagging])
    assert (got, excluded) == (went, {} if went else {"r0": "policy/budget"})


def test_a_pod_on_its_way_out_uses_no_budget():
    """A terminating pod has been counted already: strictly its budget neither keeps it nor pays for it again."""
    going, staying = replicas(2)
    going["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    asking = pod("preemptor", priority=100, cpu="4")
    for allowed, expected in ((0, []), (1, ["r0", "r1"])):
        got, _ = outcome(
            [going, staying], rules(), preemptor=asking, podDisruptionBudgets=[budget("web", {"app": "web"}, allowed)]
        )
        assert got == expected


READY = [{"type": "Ready", "status": "True"}]
UNREADY = [{"type": "Ready", "status": "False"}]


@pytest.mark.parametrize(
    ("conditions", "phase", "policy", "healthy", "went"),
    [
        pytest.param(READY, "Running", "AlwaysAllow", 0, False, id="a ready pod is guarded whatever the policy"),
        pytest.param(UNREADY, "Running", "AlwaysAllow", 0, True, id="AlwaysAllow lets one go that is not ready"),
        pytest.param([], "Running", "AlwaysAllow", 0, True, id="and one that never was"),
        pytest.param(UNREADY, "Running", "IfHealthyBudget", 2, True, id="IfHealthyBudget does if enough are healthy"),
        pytest.param(UNREADY, "Running", None, 2, True, id="it is the default"),
        pytest.param(UNREADY, "Running", "IfHealthyBudget", 1, False, id="but not if too few are"),
        pytest.param(UNREADY, "Pending", "IfHealthyBudget", 1, True, id="a pod that is still starting has no budget"),
    ],
)
def test_pods_that_the_eviction_api_lets_go_past_a_used_up_budget(conditions, phase, policy, healthy, went):
    """Where victims go by the Eviction API they violate nothing and may go; plain Kubernetes rules count them."""
    victim = pod("victim", on="n1", cpu="3")
    victim["status"] |= {"conditions": conditions, "phase": phase}
    spent = budget("web", {"app": "victim"}, 0, currentHealthy=healthy, desiredHealthy=2)
    if policy is not None:
        spent["spec"]["unhealthyPodEvictionPolicy"] = policy
    assert outcome([victim], rules(), podDisruptionBudgets=[spent])[0] == (["victim"] if went else [])
    data = cluster([node("n1")], [victim], pod("preemptor", priority=100, cpu="4"), podDisruptionBudgets=[spent])
    for by, violations in ((rules(budgets=BudgetMode.BEST_EFFORT), int(not went)), (kubernetes_rules(), 1)):
        decision = decided(data, by)
        assert decision.selected.pdb_violations == violations


def test_an_unready_pod_leaves_the_budget_to_others():
    """A pod that the API lets go anyway does not use up the one disruption that a ready pod needs."""
    ready, unready = replicas(2)
    ready["status"]["conditions"] = READY
    covering = budget("web", {"app": "web"}, 1, currentHealthy=2, desiredHealthy=2)
    asking = pod("preemptor", priority=100, cpu="4")
    assert outcome([ready, unready], rules(), preemptor=asking, podDisruptionBudgets=[covering])[0] == ["r0", "r1"]


def test_deleted_victims_are_counted_as_before():
    """Where victims are deleted nobody asks whether they are ready: a strict budget keeps them."""
    victim = pod("victim", on="n1", cpu="3")
    spent = budget("web", {"app": "victim"}, 0, currentHealthy=2, desiredHealthy=2)
    by = compile_rules(
        PreemptionPolicy(
            name="policy",
            source=SourcePosition(),
            victims=Victims(mode=VictimMode.OPT_OUT),
            eviction=EvictionMode.DELETE,
        )
    )
    assert outcome([victim], by, podDisruptionBudgets=[spent]) == ([], {"victim": "policy/budget"})


@pytest.mark.parametrize("strict", [True, False])
def test_who_is_asked_first_of_a_budget(strict):
    """The budgets of a pod are known right after one came, whatever was asked before."""
    snapshot = snapshot_of(cluster([node("n1")], replicas(1), pod("p")))
    row = snapshot.pods.find("default", "r0")
    assert snapshot.budgets.of(row, strict=strict) == []
    snapshot.put(BUDGETS, msgspec.convert(budget("web", {"app": "web"}, 1), PodDisruptionBudget))
    assert [one.name for one in snapshot.budgets.of(row, strict=strict)] == ["web"]
