"""What a policy says about victims beyond Gödel's rules: mode, schedulers, system pods, pairs, Never.

And what no filter knows of a preemptor, for which nobody goes.
"""

import msgspec
import pytest

from tests.preemption import oracle
from tests.preemption.building import (
    NOW,
    answer,
    as_pod,
    cluster,
    decided,
    node,
    outcome,
    pod,
    priority_class,
    rules,
    snapshot_of,
)
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import LabelSelector, Requirement
from webhook.policy.model.values import CAN_BE_PREEMPTED
from webhook.policy.model.victims import PodsMatch, PreemptibilityAnnotations, PreemptionPair, VictimMode
from webhook.preemption.decision import decide
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.kinds import PRIORITY_CLASSES
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import kubernetes_rules


def labels(**wanted):
    return LabelSelector(match_labels=wanted)


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
    went, _ = outcome([victim], rules(mode=VictimMode.OPT_IN, annotations=PreemptibilityAnnotations(preemptible=keys)))
    assert went == ["victim"]


@pytest.mark.parametrize(
    ("mode", "names", "may_go"),
    [
        pytest.param(VictimMode.OPT_IN, None, False, id="opt-in"),
        pytest.param(VictimMode.OPT_OUT, None, True, id="opt-out: whoever makes a pod chooses its scheduler"),
        pytest.param(VictimMode.OPT_OUT, ("default-scheduler",), False, id="opt-out, another one is named"),
        pytest.param(VictimMode.OPT_IN, ("other",), True, id="it is named"),
        pytest.param(VictimMode.OPT_IN, ("*",), True, id="any is named"),
    ],
)
def test_pods_of_other_schedulers(mode, names, may_go):
    """Plain Kubernetes evicts a pod that names its node, whatever scheduler it names; opt-in is for one by default."""
    victim = pod("victim", on="n1", cpu="3", schedulerName="other", priorityClassName="low")
    victim["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "true"}
    expected = (["victim"], {}) if may_go else ([], {"victim": "policy/scheduler"})
    assert outcome([victim], rules(mode=mode, scheduler_names=names)) == expected


def test_system_critical_pods_stay():
    """A pod of priority 2000000000 or more is no victim, whoever asks."""
    victims = [
        pod("system", on="n1", cpu="2", priority=2_000_000_000),
        pod("user", on="n1", cpu="2", priority=1_999_999_999),
    ]
    asking = pod("preemptor", priority=2_000_001_000, cpu="2")
    assert outcome(victims, rules(), preemptor=asking) == (["user"], {"system": "policy/system-critical"})


def test_static_pods_stay():
    """A policy lets no static pod go, since its kubelet runs it again; plain Kubernetes counts it as any pod."""
    static = pod("static", on="n1", cpu="2", priority=1)
    static["metadata"]["ownerReferences"] = [{"kind": "Node", "name": "n1", "uid": "n1", "controller": True}]
    victims = [static, pod("user", on="n1", cpu="2", priority=2)]
    asking = pod("preemptor", priority=1000, cpu="2")
    assert outcome(victims, rules(), preemptor=asking) == (["user"], {"static": "policy/static"})
    assert outcome(victims, kubernetes_rules(), preemptor=asking)[0] == ["static"]


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
    by = rules(pairs=(PreemptionPair(victims=victims),))
    victim = pod("victim", on="n1", cpu="3", priorityClassName="batch-low")
    spaces = [{"metadata": {"name": "default", "labels": {"env": "test"}}}]
    expected = (["victim"], {}) if may_go else ([], {"victim": "policy/pairs"})
    assert outcome([victim], by, namespaces=spaces) == expected


def test_pairs_name_the_preemptors():
    """A pair whose preemptors' side is someone else opens nothing; an empty list of pairs closes everything."""
    victim = pod("victim", on="n1", cpu="3")
    asking = pod("preemptor", priority=100, cpu="4", priorityClassName="gold")
    gold, silver = (PreemptionPair(preemptors=PodsMatch(priority_classes=(name,))) for name in ("gold", "silver"))
    given = {"preemptor": asking, "priorityClasses": [priority_class("gold", 100), priority_class("silver", 100)]}
    assert outcome([victim], rules(pairs=(silver, gold)), **given) == (["victim"], {})
    assert outcome([victim], rules(pairs=(silver,)), **given) == ([], {"victim": "policy/pairs"})
    assert outcome([victim], rules(pairs=()), **given) == ([], {"victim": "policy/pairs"})
    assert outcome([], rules(pairs=(gold,)), **given) == ([], {})


GOLD_GONE = "PriorityClass gold does not exist"
GOLD_AGAIN = "PriorityClass gold was made again: its value is 7, and the priority is 100"


@pytest.mark.parametrize(
    ("classes", "why"),
    [
        pytest.param([priority_class("other", 100)], GOLD_GONE, id="gone"),
        pytest.param([], "", id="nobody knows the classes"),
        pytest.param([priority_class("gold", 7)], GOLD_AGAIN, id="made again"),
        pytest.param([priority_class("gold", 100)], "", id="restored"),
    ],
)
def test_a_preemptor_whose_class_does_not_speak_evicts_nobody(classes, why):
    """The policy goes by the class, so it does not act for a pod of that name alone, and says what would help."""
    asking = pod("preemptor", priority=100, cpu="4", priorityClassName="gold")
    data = cluster([node("n1")], [pod("victim", on="n1", cpu="3")], asking, priorityClasses=classes)
    decision = decided(data, rules())
    assert (decision.selected is None, decision.eligible) == (bool(why), not why)
    mend = "policy policy goes by classes that speak: give the class the value 100 again, or make the pod again."
    assert decision.reason == (f"not eligible: {why}; {mend}" if why else "")


@pytest.mark.parametrize(
    ("value", "named", "goes"),
    [
        pytest.param(80, ("low",), True, id="it speaks"),
        pytest.param(81, ("low",), False, id="made again"),
        pytest.param(None, ("lo*",), False, id="gone"),
        pytest.param(81, None, True, id="no class is asked for"),
        pytest.param(None, ("*",), True, id="any class"),
    ],
)
def test_a_pair_names_victims_by_a_class_that_speaks(value, named, goes):
    """A pod that says itself that it may go is in a pair by its class only if that speaks."""
    says = {CAN_BE_PREEMPTED: "true"}
    victim = pod("victim", on="n1", cpu="3", priority=80, priorityClassName="low")
    victim["metadata"]["annotations"] = says
    by = rules(pairs=(PreemptionPair(victims=PodsMatch(priority_classes=named)),))
    classes = [priority_class("other", 80), *([] if value is None else [priority_class("low", value)])]
    expected = (["victim"], {}) if goes else ([], {"victim": "policy/pairs"})
    assert outcome([victim], by, priorityClasses=classes) == expected


def test_a_selector_that_cannot_be_parsed_is_an_error_at_once():
    """A bad selector in a pair is found when the policy is compiled."""
    broken = PodsMatch(labels=LabelSelector(match_expressions=[Requirement(key="a", operator="Near", values=["b"])]))
    with pytest.raises(ClusterError, match="pairs: operator 'Near'"):
        rules(pairs=(PreemptionPair(victims=broken),))


def test_never_is_by_design_under_a_policy():
    """A pod of preemptionPolicy Never is eligible for a policy, and not under plain Kubernetes rules."""
    data = cluster(
        [node("n1")],
        [pod("victim", on="n1", cpu="3")],
        pod("preemptor", priority=100, cpu="4", preemptionPolicy="Never"),
    )
    plain = decided(data)
    assert (plain.eligible, plain.reason) == (False, "not eligible due to preemptionPolicy=Never.")
    assert decided(data, rules()).selected.node == "n1"


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
    assert decided(data, rules()).eligible is eligible_by_policy
    by_kubernetes = decided(data)
    assert by_kubernetes.eligible is (reason != "PreemptionByScheduler")


def test_a_snapshot_without_the_annotations_is_refused():
    """Rules that read an annotation the snapshot does not keep are refused instead of misjudging."""
    by = rules(annotations=PreemptibilityAnnotations(preemptible=("example.com/evictable",)))
    with pytest.raises(ValueError, match=r"does not keep example.com/evictable"):
        decide(Snapshot(), as_pod(pod("preemptor")), by, NOW)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param({"resourceClaims": [{"name": "gpu", "future": "x"}]}, "devices", id="a new kind of claim"),
        pytest.param({"schedulingGroup": {"podGroupName": "ring"}}, "schedulingGroup", id="a group of pods"),
    ],
)
def test_what_no_filter_knows_evicts_nobody(spec, why):
    """For a pod that asks for what is not judged here nobody is evicted, and the reason says what it is."""
    asking = pod("preemptor", priority=100, cpu="4", **spec)
    data = cluster([node("n1")], [pod("victim", on="n1", cpu="3")], asking)
    for by in (rules(), kubernetes_rules()):
        decision = decided(data, by)
        assert (decision.eligible, decision.selected, decision.fits) == (False, None, [])
        assert why in decision.reason
        assert decision.unresolvable == ["n1"]
        assert why in decision.node_reasons["n1"]


def test_pods_with_claims_may_be_victims():
    """What is not judged of a preemptor does not matter of a victim."""
    assert outcome([pod("victim", on="n1", cpu="3", resourceClaims=[{"name": "gpu"}])], rules()) == (["victim"], {})


VERSION_1 = {"matchExpressions": [{"key": "version", "operator": "In", "values": ["1"]}]}


@pytest.mark.parametrize(
    ("selector", "refused"),
    [
        pytest.param(VERSION_1, True, id="merged at creation, from a label that has changed since"),
        pytest.param({}, True, id="the label came later: the selector has nothing of it"),
    ],
)
@pytest.mark.parametrize("whose", ["existing", "incoming"])
def test_label_keys_of_stored_terms_are_not_merged_again(selector, refused, whose):
    """The API server merges matchLabelKeys of (anti-)affinity when a pod is made, and kube-scheduler never does."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector, "matchLabelKeys": ["version"]}
    spec = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    one, other = {"version": "2"}, {"version": "1"}
    there = pod("there", on="n1", cpu="1", priority=200, **({"affinity": spec} if whose == "existing" else {}))
    asking = pod("preemptor", priority=100, cpu="1", **({"affinity": spec} if whose == "incoming" else {}))
    there["metadata"]["labels"], asking["metadata"]["labels"] = (one, other) if whose == "existing" else (other, one)
    data = cluster([node("n1")], [there, asking], asking)
    decision = decided(data)
    assert (decision.fits == []) is refused
    assert answer(data) == oracle.decide(data)


@pytest.mark.parametrize(
    ("mode", "own", "of_class", "rule", "because"),
    [
        pytest.param(VictimMode.OPT_IN, "true", None, "policy/opt-in", 'its annotation says "true"', id="its own word"),
        pytest.param(
            VictimMode.OPT_IN,
            None,
            "true",
            "policy/opt-in",
            'the annotation of PriorityClass low says "true"',
            id="its class",
        ),
        pytest.param(
            VictimMode.OPT_OUT,
            None,
            None,
            "policy/opt-out",
            'neither its annotations nor those of its PriorityClass say "false"',
            id="nobody says no",
        ),
        pytest.param(
            VictimMode.OPT_OUT,
            "False",
            None,
            "policy/opt-out",
            'its annotation says "False", not "false"',
            id="odd word",
        ),
    ],
)
def test_every_victim_has_its_rule(mode, own, of_class, rule, because):
    """Of every victim a decision says by which rule it may go, and because of what."""
    victim = pod("victim", on="n1", cpu="3", priorityClassName="low")
    if own is not None:
        victim["metadata"]["annotations"] = {CAN_BE_PREEMPTED: own}
    classes = [priority_class("low", **({CAN_BE_PREEMPTED: of_class} if of_class else {}))]
    under = rules(mode=mode)
    data = cluster([node("n1")], [victim], pod("preemptor", cpu="4", priority=100), priorityClasses=classes)
    decision = decided(data, under)
    assert [one.key for one in decision.selected.victims] == ["default/victim"]
    assert decision.victim_reason("default/victim")[:2] == (rule, because)


GONE = "PriorityClass low does not exist"
MADE_AGAIN = "PriorityClass low was made again: its value is 1, and the priority is 0"


@pytest.mark.parametrize("mode", list(VictimMode))
@pytest.mark.parametrize(
    ("classes", "why"),
    [
        pytest.param([], GONE, id="gone"),
        pytest.param([priority_class("low", 1, **{CAN_BE_PREEMPTED: "true"})], MADE_AGAIN, id="made again"),
    ],
)
def test_a_class_of_another_value_permits_nothing(mode, classes, why):
    """A pod whose class is gone, or was made again with another value, stays in both modes, unless it says itself."""
    victim = pod("victim", on="n1", cpu="3", priorityClassName="low")
    under = rules(mode=mode)
    data = cluster([node("n1")], [victim], pod("preemptor", cpu="4", priority=100), priorityClasses=classes)
    (kept,) = decided(data, under).excluded("n1")
    assert kept.rule == f"policy/{mode.value}"
    assert kept.text == f"it says nothing itself, and its class cannot: {why}"
    victim["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "true"}
    assert outcome([victim], under, priorityClasses=classes) == (["victim"], {})


def test_a_class_speaks_again_when_its_value_is_back():
    """What counts is the value of the class now, whichever object it is: one snapshot sees it go and come back."""
    victim = pod("victim", on="n1", cpu="3", priority=5, priorityClassName="low")
    asking, by = pod("preemptor", priority=100, cpu="4"), rules()
    snapshot = snapshot_of(cluster([node("n1")], [victim], asking), by)
    went = []
    for value in (5, None, 1, 5):
        snapshot.remove(PRIORITY_CLASSES, "low")
        if value is not None:
            snapshot.put(PRIORITY_CLASSES, msgspec.convert(priority_class("low", value), PriorityClass))
        went.append(decide(snapshot, as_pod(asking), by, NOW).selected is not None)
    assert went == [True, False, False, True]


def test_a_pod_without_priority_counts_as_zero():
    """A class of value 0 speaks for a pod that carries no priority."""
    victim = pod("victim", on="n1", cpu="3", priorityClassName="low")
    del victim["spec"]["priority"]
    classes = [priority_class("low", 0, **{CAN_BE_PREEMPTED: "true"})]
    assert outcome([victim], rules(mode=VictimMode.OPT_IN), priorityClasses=classes) == (["victim"], {})
