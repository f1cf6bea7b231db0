"""What a policy says about victims beyond Gödel's rules: mode, schedulers, system pods, pairs, budgets, Never."""

import pytest

from tests.preemption.building import NOW, as_pod, budget, cluster, node, pod, priority_class, snapshot_of
from webhook.kube.objects import LabelSelector, Requirement
from webhook.policy.model import (
    CAN_BE_PREEMPTED,
    Budgets,
    Eviction,
    Pair,
    PodsMatch,
    PreemptionPolicy,
    Source,
    VictimMode,
    Victims,
)
from webhook.preemption.amounts import ClusterError
from webhook.preemption.decision import decide
from webhook.preemption.rules import compile_rules, kubernetes_rules
from webhook.preemption.snapshot import Snapshot


def rules(*, budgets=Budgets.STRICT, **victims):
    """An opt-out policy, so that only what a test is about excludes a pod."""
    chosen = Victims(**({"mode": VictimMode.OPT_OUT} | victims))
    return compile_rules(PreemptionPolicy(name="policy", source=Source(), victims=chosen, budgets=budgets))


def labels(**wanted):
    return LabelSelector(match_labels=wanted)


def outcome(pods, by, *, nodes=None, preemptor=None, **more):
    """Who goes, and what keeps the others: {pod: rule}."""
    data = cluster(nodes or [node("n1")], pods, preemptor or pod("preemptor", priority=100, cpu="4"), **more)
    decision = decide(snapshot_of(data, by), as_pod(data["preemptor"]), by, NOW)
    excluded = {
        one.pod.split("/")[1]: one.rule for name in data["nodes"] for one in decision.excluded(name["metadata"]["name"])
    }
    return [victim.name for victim in decision.selected.victims] if decision.selected else [], excluded


@pytest.mark.parametrize(
    ("own", "of_class", "may_go"),
    [
        pytest.param(None, None, True, id="unmarked pods may go"),
        pytest.param("false", None, False, id="a pod marked false may not"),
        pytest.param(None, "false", False, id="nor one whose class is marked false"),
        pytest.param("true", "false", True, id="the pod's own word counts before the class's"),
        pytest.param("False", None, True, id="only the exact word protects"),
        pytest.param("", "false", False, id="an empty annotation says nothing"),
    ],
)
def test_opt_out(own, of_class, may_go):
    """In opt-out mode everything of lower priority may go unless marked "false"."""
    victim = pod("victim", on="n1", cpu="3", priorityClassName="low")
    if own is not None:
        victim["metadata"]["annotations"] = {CAN_BE_PREEMPTED: own}
    classes = [priority_class("low", **({CAN_BE_PREEMPTED: of_class} if of_class else {}))]
    went, excluded = outcome([victim], rules(), priorityClasses=classes)
    assert (went, excluded) == ((["victim"], {}) if may_go else ([], {"victim": "policy/opt-out"}))


def test_further_annotation_keys_are_read_in_order():
    """The first listed key that is present decides."""
    keys = ("volcano.sh/preemptable", CAN_BE_PREEMPTED)
    victim = pod("victim", on="n1", cpu="3", priorityClassName="low")
    victim["metadata"]["annotations"] = {"volcano.sh/preemptable": "true", CAN_BE_PREEMPTED: "false"}
    went, _ = outcome([victim], rules(mode=VictimMode.OPT_IN, preemptible_annotations=keys))
    assert went == ["victim"]


def test_pods_of_other_schedulers_stay():
    """A pod that another scheduler placed is not evicted."""
    victim = pod("victim", on="n1", cpu="3", schedulerName="other")
    assert outcome([victim], rules()) == ([], {"victim": "policy/scheduler"})
    assert outcome([victim], rules(scheduler_names=("other",))) == (["victim"], {})


def test_system_critical_pods_stay():
    """A pod of priority 2000000000 or more is no victim, whoever asks."""
    victims = [
        pod("system", on="n1", cpu="2", priority=2_000_000_000),
        pod("user", on="n1", cpu="2", priority=1_999_999_999),
    ]
    asking = pod("preemptor", priority=2_000_001_000, cpu="2")
    assert outcome(victims, rules(), preemptor=asking) == (["user"], {"system": "policy/system-critical"})


@pytest.mark.parametrize(
    ("victims", "may_go"),
    [
        pytest.param(PodsMatch(), True, id="an empty side is every pod"),
        pytest.param(PodsMatch(priority_classes=("batch-*",)), True, id="classes by glob"),
        pytest.param(PodsMatch(priority_classes=("web",)), False, id="another class"),
        pytest.param(PodsMatch(namespaces=("default",)), True, id="namespace"),
        pytest.param(PodsMatch(namespaces=("team-*",)), False, id="another namespace"),
        pytest.param(PodsMatch(namespace_selector=labels(env="test")), True, id="namespace labels"),
        pytest.param(PodsMatch(namespace_selector=labels(env="prod")), False, id="other namespace labels"),
        pytest.param(PodsMatch(labels=labels(app="victim")), True, id="labels"),
        pytest.param(PodsMatch(priority_classes=("batch-low",), labels=labels(app="x")), False, id="all must hold"),
    ],
)  # fmt: skip
def test_pairs_name_the_victims(victims, may_go):
    """With pairs only pods on the victims' side of one may go."""
    by = rules(pairs=(Pair(victims=victims),))
    victim = pod("victim", on="n1", cpu="3", priorityClassName="batch-low")
    spaces = [{"metadata": {"name": "default", "labels": {"env": "test"}}}]
    expected = (["victim"], {}) if may_go else ([], {"victim": "policy/pairs"})
    assert outcome([victim], by, namespaces=spaces) == expected


def test_pairs_name_the_preemptors():
    """A pair whose preemptors' side is someone else opens nothing; an empty list of pairs closes everything."""
    victim = pod("victim", on="n1", cpu="3")
    asking = pod("preemptor", priority=100, cpu="4", priorityClassName="gold")
    gold, silver = (Pair(preemptors=PodsMatch(priority_classes=(name,))) for name in ("gold", "silver"))
    assert outcome([victim], rules(pairs=(silver, gold)), preemptor=asking) == (["victim"], {})
    assert outcome([victim], rules(pairs=(silver,)), preemptor=asking) == ([], {"victim": "policy/pairs"})
    assert outcome([victim], rules(pairs=()), preemptor=asking) == ([], {"victim": "policy/pairs"})


def test_a_selector_that_cannot_be_parsed_is_an_error_at_once():
    """A bad selector in a pair is found when the policy is compiled."""
    broken = PodsMatch(labels=LabelSelector(match_expressions=[Requirement(key="a", operator="Near", values=["b"])]))
    with pytest.raises(ClusterError, match="pairs: operator 'Near'"):
        compile_rules(PreemptionPolicy(name="bad", source=Source(), victims=Victims(pairs=(Pair(victims=broken),))))


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
    by = rules(budgets=Budgets.BEST_EFFORT)
    decision = decide(snapshot_of(data, by), as_pod(data["preemptor"]), by, NOW)
    assert decision.selected.pdb_violations == 1


def test_never_is_by_design_under_a_policy():
    """A pod of preemptionPolicy Never is eligible for a policy, and not under plain Kubernetes rules."""
    data = cluster(
        [node("n1")],
        [pod("victim", on="n1", cpu="3")],
        pod("preemptor", priority=100, cpu="4", preemptionPolicy="Never"),
    )
    plain = decide(snapshot_of(data), as_pod(data["preemptor"]), kubernetes_rules(), NOW)
    assert (plain.eligible, plain.reason) == (False, "not eligible due to preemptionPolicy=Never.")
    assert decide(snapshot_of(data), as_pod(data["preemptor"]), rules(), NOW).selected.node == "n1"


@pytest.mark.parametrize(
    ("reason", "eligible_by_policy"), [("PreemptionByScheduler", False), ("EvictionByEvictionAPI", False), (None, True)]
)
def test_victims_on_their_way_out_are_waited_for(reason, eligible_by_policy):
    """While a victim terminates on the nominated node nothing more is evicted; an eviction counts under a policy."""
    going = pod("going", on="n1", cpu="3")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if reason:
        going["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": reason}]
    asking = pod("preemptor", priority=100, cpu="4")
    asking["status"]["nominatedNodeName"] = "n1"
    data = cluster([node("n1")], [going], asking)
    assert decide(snapshot_of(data), as_pod(asking), rules(), NOW).eligible is eligible_by_policy
    by_kubernetes = decide(snapshot_of(data), as_pod(asking), kubernetes_rules(), NOW)
    assert by_kubernetes.eligible is (reason != "PreemptionByScheduler")


def test_a_snapshot_without_the_annotations_is_refused():
    """Rules that read an annotation the snapshot does not keep are refused instead of misjudging."""
    by = rules(preemptible_annotations=("example.com/evictable",))
    with pytest.raises(ValueError, match=r"does not keep example.com/evictable"):
        decide(Snapshot(), as_pod(pod("preemptor")), by, NOW)


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
    by_kubernetes = decide(snapshot_of(data), as_pod(data["preemptor"]), kubernetes_rules(), NOW).selected
    assert by_kubernetes.pdb_violations == (0 if loosely else 1)


@pytest.mark.parametrize(
    ("eviction", "went"),
    [
        pytest.param(Eviction.EVICT, [], id="the Eviction API refuses it for ever"),
        pytest.param(Eviction.DELETE, ["victim"], id="a delete asks no budget"),
    ],
)
def test_a_pod_under_several_budgets(eviction, went):
    """A pod that two budgets cover cannot be evicted whatever they have left, so it is no victim; it can be deleted."""
    victim = pod("victim", on="n1", cpu="3")
    both = [budget("one", {"app": "victim"}, 5), budget("two", {"app": "victim"}, 5)]
    by = compile_rules(
        PreemptionPolicy(name="policy", source=Source(), victims=Victims(mode=VictimMode.OPT_OUT), eviction=eviction)
    )
    data = cluster([node("n1")], [victim], pod("preemptor", priority=100, cpu="4"), podDisruptionBudgets=both)
    decision = decide(snapshot_of(data, by), as_pod(data["preemptor"]), by, NOW)
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


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param({"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}, "resourceClaims", id="devices"),
        pytest.param({"schedulingGroup": {"podGroupName": "ring"}}, "schedulingGroup", id="a group of pods"),
    ],
)
def test_what_no_filter_knows_evicts_nobody(spec, why):
    """For a pod that asks for what is not judged here nobody is evicted, and the reason says what it is."""
    asking = pod("preemptor", priority=100, cpu="4", **spec)
    data = cluster([node("n1")], [pod("victim", on="n1", cpu="3")], asking)
    for by in (rules(), kubernetes_rules()):
        decision = decide(snapshot_of(data), as_pod(asking), by, NOW)
        assert (decision.eligible, decision.selected, decision.fits) == (False, None, [])
        assert why in decision.reason
        assert decision.unresolvable == ["n1"]
        assert why in decision.node_reasons["n1"]


def test_pods_with_claims_may_be_victims():
    """What is not judged of a preemptor does not matter of a victim."""
    assert outcome([pod("victim", on="n1", cpu="3", resourceClaims=[{"name": "gpu"}])], rules()) == (["victim"], {})
