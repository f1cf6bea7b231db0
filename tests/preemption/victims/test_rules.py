"""What a policy says about victims beyond Gödel's rules: mode, schedulers, system pods, pairs, Never.

And what no filter knows of a preemptor, for which nobody goes.
"""

import msgspec
import pytest

from tests.cases import table
from tests.preemption import building
from tests.preemption.building import cluster, decided, node, outcome, pod, priority_class, rules, snapshot_of, victim
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import LabelSelector, Requirement
from webhook.policy.model.values import CAN_BE_PREEMPTED
from webhook.policy.model.victims import PodsMatch, PreemptibilityAnnotations, PreemptionPair, VictimMode
from webhook.preemption.decision import decide
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.kinds import PRIORITY_CLASSES
from webhook.preemption.snapshot.snapshot import Snapshot
from webhook.preemption.victims.rules import kubernetes_rules

OUT, IN = VictimMode.OPT_OUT, VictimMode.OPT_IN
TRUE = {CAN_BE_PREEMPTED: "true"}
OWN = 'its annotation says "{}"'
OF_CLASS = 'the annotation of PriorityClass low says "{}"'


def alone(asking=None, victims=None, **more):
    """A cluster of one node with one pod, and a preemptor that takes all of it."""
    asking = asking or pod("preemptor", priority=100, cpu="4")
    return cluster([node("n1")], [victim()] if victims is None else victims, asking, **more)


@table(
    "mode, own, of_class, goes, because",
    ("no", OUT, None, None, True, 'neither its annotations nor those of its PriorityClass say "false"'),
    ("a pod marked false stays", OUT, "false", None, False, OWN.format("false")),
    ("and one whose class is marked false", OUT, None, "false", False, OF_CLASS.format("false")),
    ("its own word comes first", OUT, "true", "false", True, OWN.format("true") + ', not "false"'),
    ("only the exact word protects", OUT, "False", None, True, OWN.format("False") + ', not "false"'),
    ("an empty annotation says nothing", OUT, "", "false", False, OF_CLASS.format("false")),
    ("opt-in by its own word", IN, "true", None, True, OWN.format("true")),
    ("opt-in by its class", IN, None, "true", True, OF_CLASS.format("true")),
)
def test_every_pod_has_its_rule(mode, own, of_class, goes, because):
    """Of every pod a decision says by which rule it may go or stays, and because of what.

    In opt-out mode everything of lower priority may go unless marked "false".
    """
    classes = [priority_class("low", **({CAN_BE_PREEMPTED: of_class} if of_class else {}))]
    judged = victim(says=None if own is None else {CAN_BE_PREEMPTED: own})
    decision = decided(alone(victims=[judged], priorityClasses=classes), rules(mode=mode))
    rule = f"policy/{mode.value}"
    assert decision.excluded("n1") == ([] if goes else [("default/victim", rule, because)])
    if goes:
        assert [gone.key for gone in decision.selected.victims] == ["default/victim"]
        assert decision.victim_reason("default/victim")[:2] == (rule, because)


def labels(**wanted):
    return LabelSelector(match_labels=wanted)


def among(preemptors=None, **victims):
    """A policy with a pair."""
    return rules(pairs=(PreemptionPair(preemptors=preemptors or PodsMatch(), victims=PodsMatch(**victims)),))


def classes(**values):
    return {"priorityClasses": [priority_class(name, value) for name, value in values.items()]}


KEYS = PreemptibilityAnnotations(preemptible=("volcano.sh/preemptable", CAN_BE_PREEMPTED))
BOTH = {"volcano.sh/preemptable": "true", CAN_BE_PREEMPTED: "false"}
OTHERS = victim(says=TRUE, schedulerName="other")
SAYING = victim(says=TRUE, priority=80)
BARE = victim()
del BARE["spec"]["priority"]
PREEMPTIBLE = {"priorityClasses": [priority_class("low", 0, **TRUE)]}
SPACE = {"namespaces": [{"metadata": {"name": "default", "labels": {"env": "test"}}}]}
OTHER = {"namespaces": [{"metadata": {"name": "other"}}]}
NOT_TEST = LabelSelector(match_expressions=[Requirement(key="env", operator="NotIn", values=["test"])])
JUDGED = {
    "the first key that is there decides": (rules(mode=IN, annotations=KEYS), victim(says=BOTH), {}, ""),
    "a class of value 0 speaks for a pod without priority": (rules(mode=IN), BARE, PREEMPTIBLE, ""),
    "what is not judged of a preemptor": (rules(), victim(resourceClaims=[{"name": "gpu"}]), {}, ""),
    # Plain Kubernetes evicts a pod that names its node, whatever scheduler it names; opt-in is for one by default
    "another scheduler, opt-in": (rules(mode=IN), OTHERS, {}, "scheduler"),
    "opt-out: whoever makes a pod chooses its scheduler": (rules(), OTHERS, {}, ""),
    "opt-out, another one is named": (rules(scheduler_names=("default-scheduler",)), OTHERS, {}, "scheduler"),
    "it is named": (rules(mode=IN, scheduler_names=("other",)), OTHERS, {}, ""),
    "any is named": (rules(mode=IN, scheduler_names=("*",)), OTHERS, {}, ""),
    "an empty side of a pair is every pod": (among(), victim(), {}, ""),
    "classes by glob": (among(priority_classes=("lo*",)), victim(), {}, ""),
    "another class": (among(priority_classes=("web",)), victim(), {}, "pairs"),
    "namespace": (among(namespaces=("default",)), victim(), {}, ""),
    "another namespace": (among(namespaces=("team-*",)), victim(), {}, "pairs"),
    "namespace labels": (among(namespace_selector=labels(env="test")), victim(), SPACE, ""),
    "other namespace labels": (among(namespace_selector=labels(env="prod")), victim(), SPACE, "pairs"),
    "labels of a namespace that no watch has shown": (among(namespace_selector=NOT_TEST), victim(), OTHER, "pairs"),
    "labels": (among(labels=labels(app="victim")), victim(), {}, ""),
    "all must hold": (among(priority_classes=("low",), labels=labels(app="x")), victim(), {}, "pairs"),
    "no pairs": (rules(pairs=()), victim(), {}, "pairs"),
    # A pod that says itself that it may go is in a pair by its class only if that speaks
    "its class speaks": (among(priority_classes=("low",)), SAYING, classes(low=80), ""),
    "its class was made again": (among(priority_classes=("low",)), SAYING, classes(low=81), "pairs"),
    "its class is gone": (among(priority_classes=("lo*",)), SAYING, classes(other=80), "pairs"),
    "no class is asked for": (among(), SAYING, classes(low=81), ""),
    "any class": (among(priority_classes=("*",)), SAYING, classes(other=80), ""),
}
"""By what a rule is about: the policy, the pod, further objects, and the rule that keeps the pod, empty if it goes."""


@pytest.mark.parametrize(("by", "judged", "more", "rule"), JUDGED.values(), ids=JUDGED)
def test_who_may_go(by, judged, more, rule):
    """A pod may go if its scheduler, its class, its annotations, and a pair of the policy let it."""
    expected = ([], {"victim": f"policy/{rule}"}) if rule else (["victim"], {})
    assert outcome([judged], by, **more) == expected


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


def test_pairs_name_the_preemptors():
    """A pair whose preemptors' side is someone else opens nothing."""
    asking = pod("preemptor", priority=100, cpu="4", priorityClassName="gold")
    gold, silver = (PreemptionPair(preemptors=PodsMatch(priority_classes=(name,))) for name in ("gold", "silver"))
    given = {"preemptor": asking, **classes(gold=100, silver=100, low=0)}
    assert outcome([victim()], rules(pairs=(silver, gold)), **given) == (["victim"], {})
    assert outcome([victim()], rules(pairs=(silver,)), **given) == ([], {"victim": "policy/pairs"})
    assert outcome([], rules(pairs=(gold,)), **given) == ([], {})


GOLD_GONE = "PriorityClass gold does not exist"
GOLD_AGAIN = "PriorityClass gold was made again: its value is 7, and the priority is 100"


@table(
    "classes, why",
    ("gone", [priority_class("other", 100)], GOLD_GONE),
    ("nobody knows the classes", [], ""),
    ("made again", [priority_class("gold", 7)], GOLD_AGAIN),
    ("restored", [priority_class("gold", 100)], ""),
)
def test_a_preemptor_whose_class_does_not_speak_evicts_nobody(classes, why):
    """The policy goes by the class, so it does not act for a pod of that name alone, and says what would help."""
    asking = pod("preemptor", priority=100, cpu="4", priorityClassName="gold")
    decision = decided(alone(asking, [pod("victim", on="n1", cpu="3")], priorityClasses=classes), rules())
    assert (decision.selected is None, decision.eligible) == (bool(why), not why)
    mend = "policy policy goes by classes that speak: give the class the value 100 again, or make the pod again."
    assert decision.reason == (f"not eligible: {why}; {mend}" if why else "")


def test_a_selector_that_cannot_be_parsed_is_an_error_at_once():
    """A bad selector in a pair is found when the policy is compiled."""
    broken = PodsMatch(labels=LabelSelector(match_expressions=[Requirement(key="a", operator="Near", values=["b"])]))
    with pytest.raises(ClusterError, match="pairs: operator 'Near'"):
        rules(pairs=(PreemptionPair(victims=broken),))


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
    data = alone(asking, [going])
    assert decided(data, rules()).eligible is eligible_by_policy
    by_kubernetes = decided(data)
    assert by_kubernetes.eligible is (reason != "PreemptionByScheduler")


def test_a_snapshot_without_the_annotations_is_refused():
    """Rules that read an annotation the snapshot does not keep are refused instead of misjudging."""
    by = rules(annotations=PreemptibilityAnnotations(preemptible=("example.com/evictable",)))
    with pytest.raises(ValueError, match=r"does not keep example.com/evictable"):
        decide(Snapshot(), building.as_pod(pod("preemptor")), by, building.NOW)


@table(
    "spec, why",
    ("a new kind of claim", {"resourceClaims": [{"name": "gpu", "future": "x"}]}, "devices"),
    ("a group of pods", {"schedulingGroup": {"podGroupName": "ring"}}, "schedulingGroup"),
)
def test_what_no_filter_knows_evicts_nobody(spec, why):
    """For a pod that asks for what is not judged here nobody is evicted, and the reason says what it is."""
    asking = pod("preemptor", priority=100, cpu="4", **spec)
    data = alone(asking)
    for by in (rules(), kubernetes_rules()):
        decision = decided(data, by)
        assert (decision.eligible, decision.selected, decision.fits) == (False, None, [])
        assert why in decision.reason
        assert decision.unresolvable == ["n1"]
        assert why in decision.node_reasons["n1"]


GONE = "PriorityClass low does not exist"
MADE_AGAIN = "PriorityClass low was made again: its value is 1, and the priority is 0"


@pytest.mark.parametrize("mode", list(VictimMode))
@table(
    "classes, why",
    ("gone", [], GONE),
    ("made again", [priority_class("low", 1, **{CAN_BE_PREEMPTED: "true"})], MADE_AGAIN),
)
def test_a_class_of_another_value_permits_nothing(mode, classes, why):
    """A pod whose class is gone, or was made again with another value, stays in both modes, unless it says itself."""
    under = rules(mode=mode)
    (kept,) = decided(alone(priorityClasses=classes), under).excluded("n1")
    assert kept.rule == f"policy/{mode.value}"
    assert kept.text == f"it says nothing itself, and its class cannot: {why}"
    assert outcome([victim(says=TRUE)], under, priorityClasses=classes) == (["victim"], {})


def test_a_class_speaks_again_when_its_value_is_back():
    """What counts is the value of the class now, whichever object it is: one snapshot sees it go and come back."""
    asking, by = pod("preemptor", priority=100, cpu="4"), rules()
    snapshot = snapshot_of(alone(asking, [victim(priority=5)]), by)
    went = []
    for value in (5, None, 1, 5):
        snapshot.remove(PRIORITY_CLASSES, "low")
        if value is not None:
            snapshot.put(PRIORITY_CLASSES, msgspec.convert(priority_class("low", value), PriorityClass))
        went.append(decide(snapshot, building.as_pod(asking), by, building.NOW).selected is not None)
    assert went == [True, False, False, True]
