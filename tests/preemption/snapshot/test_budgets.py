"""Disruption budgets: read strictly as the Eviction API does, and loosely as kube-scheduler does."""

import msgspec
import pytest

from tests.cases import table
from tests.preemption.building import budget, cluster, decided, node, outcome, pod, rules, snapshot_of
from tests.preemption.costs import READY
from webhook.kube.objects.pod import PodDisruptionBudget
from webhook.policy.model.preemption import BudgetMode, EvictionMode
from webhook.preemption.snapshot.kinds import BUDGETS
from webhook.preemption.victims.rules import kubernetes_rules

WEB = {"app": "web"}
BEST_EFFORT, DELETE = rules(budgets=BudgetMode.BEST_EFFORT), rules(eviction=EvictionMode.DELETE)
UNREADY = [{"type": "Ready", "status": "False"}]


def of_web(name, *, cpu="2", conditions=(), phase="Running", going=False, **more):
    """A pod of the app that budgets cover."""
    made = pod(name, on="n1", cpu=cpu, **more)
    made["metadata"] |= {"labels": WEB} | ({"deletionTimestamp": "2027-01-15T08:00:00Z"} if going else {})
    made["status"] |= {"conditions": list(conditions), "phase": phase}
    return made


def replicas(count, **of_first):
    """Pods alike, of which the last one started last and is the least important; what is told is of the first."""
    return [of_web(f"r{number}", started=3600 - number, **({} if number else of_first)) for number in range(count)]


def asking(cpu):
    return pod("preemptor", priority=100, cpu=cpu)


def web(allowed, *, generation=None, health=None, **status):
    """The budget of the app, with a policy for pods that are not ready if one is given."""
    made = budget("web", WEB, allowed, **status)
    made["metadata"] |= {"generation": generation} if generation is not None else {}
    made["spec"] |= {"unhealthyPodEvictionPolicy": health} if health else {}
    return made


ONE, LARGE = [of_web("large", started=3600), of_web("small", cpu="1")], of_web("large", cpu="3", priority=5)
OTHER, DISRUPTED = pod("other", on="n1", cpu="1", priority=5), {"r0": "2026-01-01T00:00:00Z"}
HEALTHY = {"currentHealthy": 2, "desiredHealthy": 2}
STRICT = {
    "a used-up budget lets nobody go": (replicas(3), web(0), "7", "3", []),
    "one disruption left: the least important goes": (replicas(3), web(1), "7", "3", ["r2"]),
    "one left and two needed: nobody goes": (replicas(3), web(1), "7", "5", []),
    "two left and two needed": (replicas(3), web(2), "7", "5", ["r1", "r2"]),
    "only the more important one makes the room alone": ([LARGE, ONE[1]], web(1), "4", "3", ["large"]),
    # The small pod would go first; the large one has to go too then, since the other one has the room that is left.
    "the less important one does not make it": ([*ONE, OTHER], web(1), "4", "3", ["other", "large"]),
    "who is counted already uses it no more": (replicas(1), web(0, disruptedPods=DISRUPTED), "4", "4", ["r0"]),
    "who leaves does not keep others": (replicas(2, going=True), web(0), "4", "4", []),
    "who leaves pays nothing": (replicas(2, going=True), web(1), "4", "4", ["r0", "r1"]),
    "up to date": (replicas(1), web(1, generation=2, observedGeneration=2), "4", "4", ["r0"]),
    "changed since it was counted": (replicas(1), web(1, generation=2, observedGeneration=1), "4", "4", []),
    "never counted": (replicas(1), web(1, generation=1, observedGeneration=None), "4", "4", []),
    "who is not ready leaves it to others": (
        replicas(2, conditions=READY), web(1, **HEALTHY), "4", "4", ["r0", "r1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pods", "covering", "room", "asked", "went"), STRICT.values(), ids=STRICT)
def test_strict_budgets(pods, covering, room, asked, went):
    """Of the pods of one budget at most as many go as it allows, if possible the least important ones.

    The API server evicts nobody by a budget that changed since its status was written, so a strict plan does not.
    """
    given = {"nodes": [node("n1", room)], "preemptor": asking(asked), "podDisruptionBudgets": [covering]}
    assert outcome(pods, rules(), **given)[0] == went


@table(
    "by",
    ("evicted", rules()),
    ("deleted", DELETE),
)
def test_a_used_up_budget_is_named(by):
    """A pod kept by its budget says so; where victims are deleted, nobody asks whether they are ready."""
    pods = replicas(1, conditions=READY if by is not DELETE else ())
    assert outcome(pods, by, podDisruptionBudgets=[web(0, **HEALTHY)]) == ([], {"r0": "policy/budget"})


@table(
"selector, labels_of_pod, strictly, loosely",
("an empty selector is every pod of the namespace", {}, {"app": "web"}, [], 0),
("one without labels too", {}, {}, [], 0),
("no selector is no pod", None, {"app": "web"}, ["victim"], 0),
("a pod without labels can be meant", {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}, {}, [], 0),
("what both read the same way", {"matchLabels": {"app": "web"}}, {"app": "web"}, [], 1),
)  # fmt: skip
def test_strict_budgets_cover_what_the_api_server_says(selector, labels_of_pod, strictly, loosely):
    """A strict policy reads a budget's selector as the Eviction API does, plain Kubernetes rules as the scheduler."""
    victim, spent = pod("victim", on="n1", cpu="3"), budget("all", {}, 0)
    victim["metadata"]["labels"], spent["spec"]["selector"] = labels_of_pod, selector
    assert outcome([victim], rules(), podDisruptionBudgets=[spent])[0] == strictly
    data = cluster([node("n1")], [victim], asking("4"), podDisruptionBudgets=[spent])
    assert decided(data).selected.pdb_violations == loosely


@table(
    "by, went",
    ("the Eviction API refuses it always", rules(), []),
    ("a delete asks no budget", DELETE, ["victim"]),
)
def test_a_pod_under_several_budgets(by, went):
    """A pod that two budgets cover cannot be evicted whatever they have left, so it is no victim; it can be deleted."""
    both = [budget("one", {"app": "victim"}, 5), budget("two", {"app": "victim"}, 5)]
    data = cluster([node("n1")], [pod("victim", on="n1", cpu="3")], asking("4"), podDisruptionBudgets=both)
    decision = decided(data, by)
    assert ([one.name for one in decision.selected.victims] if decision.selected else []) == went
    texts = [one.text for one in decision.excluded("n1")]
    assert texts == ([] if went else ["the Eviction API lets no pod go that several budgets cover: one, two"])


@table(
    "conditions, phase, policy, healthy, goes",
    ("a ready pod is guarded whatever the policy", READY, "Running", "AlwaysAllow", 0, False),
    ("AlwaysAllow lets one go that is not ready", UNREADY, "Running", "AlwaysAllow", 0, True),
    ("and one that never was", [], "Running", "AlwaysAllow", 0, True),
    ("IfHealthyBudget does if enough are healthy", UNREADY, "Running", "IfHealthyBudget", 2, True),
    ("it is the default", UNREADY, "Running", None, 2, True),
    ("but not if too few are", UNREADY, "Running", "IfHealthyBudget", 1, False),
    ("a pod that is still starting has no budget", UNREADY, "Pending", "IfHealthyBudget", 1, True),
)
def test_pods_that_the_eviction_api_lets_go_past_a_used_up_budget(conditions, phase, policy, healthy, goes):
    """Where victims go by the Eviction API they violate nothing and may go; plain Kubernetes rules count them.

    With best effort a budget may be violated where nothing else helps, and is counted.
    """
    victim = of_web("victim", cpu="3", conditions=conditions, phase=phase)
    spent = web(0, health=policy, currentHealthy=healthy, desiredHealthy=2)
    assert outcome([victim], rules(), podDisruptionBudgets=[spent])[0] == (["victim"] if goes else [])
    data = cluster([node("n1")], [victim], asking("4"), podDisruptionBudgets=[spent])
    for by, violations in ((BEST_EFFORT, int(not goes)), (kubernetes_rules(), 1)):
        assert decided(data, by).selected.pdb_violations == violations


@pytest.mark.parametrize("strict", [True, False])
def test_who_is_asked_first_of_a_budget(strict):
    """The budgets of a pod are known right after one came, whatever was asked before."""
    snapshot = snapshot_of(cluster([node("n1")], replicas(1), pod("p")))
    row = snapshot.pods.find("default", "r0")
    assert snapshot.budgets.of(row, strict=strict) == []
    snapshot.put(BUDGETS, msgspec.convert(web(1), PodDisruptionBudget))
    assert [one.name for one in snapshot.budgets.of(row, strict=strict)] == ["web"]
