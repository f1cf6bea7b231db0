"""Room that a pod of higher priority takes is left to it: in a decision, in waiting, and before an eviction."""

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import START, Setting, asks, node, plan_for, pod, policy, preemptor
from webhook.kube.instants import rfc3339
from webhook.kube.objects.storage import PersistentVolume, PersistentVolumeClaim
from webhook.policy.model.values import CAN_BE_PREEMPTED
from webhook.preemption.snapshot.kinds import VOLUME_CLAIMS, VOLUMES
from webhook.preemption.snapshot.pod_groups import POD_GROUP
from webhook.reconciler.evaluate.outcomes import Evicts, Promised, Unschedulable, Waits
from webhook.reconciler.plans.actions import Verb
from webhook.reconciler.state.annotations import PlanRecord, PlanVictim


def in_front(cpu: str, priority: int = 200, nominated: str = ""):
    """A pod of higher priority that waits and that nobody preempts for."""
    return preemptor("front", cpu, priority=priority, class_name="other", nominated=nominated)


def full(*leaving: str, more: int = 0, under=None) -> Setting:
    """A node of 8 CPU with four pods of 2 CPU, some of which leave; beside it, `more` pods of their own nodes."""
    setting = Setting(node("n1"), *(node(f"m{number}", "4") for number in range(more)), under=under)
    for number in range(4):
        name = f"v{number}"
        deleted = rfc3339(START + 20) if name in leaving else None
        setting.add(pod(name, node="n1", start=rfc3339(START - 4000 + number), deleted=deleted))
    setting.add(*(pod(f"w{number}", "4", node=f"m{number}") for number in range(more)))
    return setting


@table(
    "leaving, planned",
    ("pods that leave by themselves", ("v2", "v3"), ()),
    ("one that another plan has yet to ask", ("v3",), ("v2",)),
)
def test_waits_only_for_room_that_is_left_to_it(leaving: tuple[str, ...], planned: tuple[str, ...]):
    """Where a pod in front takes the room that comes up, the preemptor is not nominated there."""
    setting = full(*leaving)
    asked = Promised(planned={f"default/{name}" for name in planned})
    for name in planned:
        setting.expect(preemptor("other", priority=90), Waits("n1", 0, (setting.state.pods.get(f"default/{name}"),)))
    setting.add(preemptor("p", "4"))
    assert isinstance(setting.evaluate(preemptor("p", "4"), promised=asked), Waits)
    setting.add(in_front("4"))
    outcome = setting.evaluate(preemptor("p", "4"), promised=asked)
    assert isinstance(outcome, Unschedulable)
    assert outcome.behind


def zoned(name: str, cpu: str, zone: str):
    """A node in a zone."""
    made = node(name, cpu)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels={"zone": zone}))


@table(
    "cpus, minimum, nominated, comes",
    ("one that needs no other", "3", 1, "", True),
    ("one that is nominated there", "3", 2, "n1", True),
    ("one that is nominated elsewhere", "3", 2, "n2", False),
    ("one that needs another one", "3", 2, "", False),
    ("two that need each other, and fit there together", "2 2", 2, "", True),
    ("two that need each other, and do not fit there together", "3 3", 2, "", False),
    ("two that need a third one", "2 2", 3, "", False),
)
def test_a_member_of_a_gang_in_front(cpus: str, minimum: int, nominated: str, comes: bool):
    """It takes room where it is nominated, where as many fit as its gang still needs, or if it needs no other."""
    setting = Setting(node("n1", "4"), node("n2", "1"))
    setting.group("g", minimum, POD_GROUP)
    setting.add(pod("v", "4", node="n1", deleted=rfc3339(START + 20)))
    spec = {"schedulingGroup": {"podGroupName": "g"}}
    for number, cpu in enumerate(cpus.split()):
        front = preemptor(f"front-{number}", cpu, priority=200, class_name="other", spec=spec, nominated=nominated)
        setting.add(front)
    assert isinstance(setting.evaluate(preemptor("p", "4")), Unschedulable if comes else Waits)


@table(
    "wanted, leaves, waits_for",
    ("nobody has to go for it but by the other plan", "2", False, ()),
    ("one has to go for it, in vain if the other one stays", "6", False, None),
    ("the other one leaves", "6", True, ("mine",)),
)
def test_asks_nobody_beside_one_that_another_plan_may_not_get(wanted: str, leaves: bool, waits_for):
    """Of two pods that another plan has yet to ask, it may evict one: it waits until the other one leaves."""
    setting = Setting(node("n1"))
    mine, theirs = pod("mine", "4", node="n1"), pod("theirs", "2", node="n1", annotations={})
    setting.add(mine, theirs, pod("stays", "2", node="n1", annotations={}))
    setting.expect(preemptor("other", priority=90), Waits("n1", 0, (mine, theirs)))
    if leaves:
        setting.add(pod("theirs", "2", node="n1", annotations={}, deleted=rfc3339(START + 20)))
    promised = Promised(planned={"default/mine", "default/theirs"})
    outcome = setting.evaluate(preemptor("p", wanted), promised=promised)
    victims = tuple(victim.metadata.name for victim in outcome.victims) if isinstance(outcome, Waits) else None
    assert victims == waits_for


def test_waits_for_the_room_that_is_left():
    """The node that the pod in front does not fill is waited for; without one it is told who comes first."""
    setting = Setting(node("n1", "4"), node("n2", "8"))
    setting.add(*(pod(f"v-{on}", cpu, node=on, deleted=rfc3339(START + 20)) for on, cpu in (("n1", "4"), ("n2", "8"))))
    setting.add(in_front("4"))
    assert setting.evaluate(preemptor("p", "4")) == Waits("n2", 1)
    setting.state.nodes.take("n2", None)
    outcome = setting.evaluate(preemptor("p", "3"))
    assert isinstance(outcome, Unschedulable)
    assert outcome.behind
    assert outcome.reason == "wherever room can be made, it is kept for default/front of priority 200, which waits, too"


def test_a_nomination_keeps_room_also_if_it_fits_no_more():
    """A pod in front takes what another one is nominated for; that one stays nominated and keeps the rest."""
    setting = full()
    setting.add(preemptor("nominee", "4", priority=150, class_name="other", nominated="n1"))
    assert isinstance(setting.evaluate(preemptor("p", "2")), Evicts)
    setting.add(in_front("4"))
    outcome = setting.evaluate(preemptor("p", "2"))
    assert isinstance(outcome, Unschedulable)
    assert outcome.behind


PORT = {"containers": [{"resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 80, "hostPort": 80}]}]}
OTHER_PORT = {
    "containers": [{"resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 80, "hostPort": 81}]}]
}
TERM = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
APART = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}}
WEB = {"labels": {"app": "web"}}


def add_claim(setting: Setting, name: str, mode: str) -> None:
    """A claim with a volume of its name."""
    meta = {"name": name, "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    claim = {"metadata": meta, "spec": {"volumeName": name, "accessModes": [mode]}}
    setting.state.snapshot.put(VOLUME_CLAIMS, msgspec.convert(claim, PersistentVolumeClaim))
    volume = {"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Gi"}}}
    setting.state.snapshot.put(VOLUMES, msgspec.convert(volume, PersistentVolume))


def using(claim: str) -> dict:
    """A pod with that claim, which only one pod may use if it is called so."""
    return {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}}


@table(
    "own, front, goes",
    ("the one in front alone takes a host port", {}, {"spec": PORT}, True),
    ("they take different host ports", {"spec": PORT}, {"spec": OTHER_PORT}, True),
    ("they take the same host port", {"spec": PORT}, {"spec": PORT}, False),
    ("they share a claim that only one pod may use", using("exclusive"), using("exclusive"), False),
    ("they share another claim", using("common"), using("common"), True),
    ("the preemptor's anti-affinity", {"spec": APART}, WEB, False),
    ("the anti-affinity of the one in front", WEB, {"spec": APART}, False),
    ("no anti-affinity", WEB, WEB, True),
    ("an anti-affinity against others", {"spec": APART}, {}, True),
)
def test_nobody_goes_if_the_one_in_front_takes_more_than_room(own: dict, front: dict, goes: bool):
    """Room for both is of no use to the preemptor if it cannot be on one node with the pod that comes first."""
    setting = Setting(zoned("n1", "8", "a"))
    setting.add(*(pod(f"v{number}", "2", node="n1") for number in range(4)))
    for name, mode in (("exclusive", "ReadWriteOncePod"), ("common", "ReadWriteOnce")):
        add_claim(setting, name, mode)
    setting.add(preemptor("front", "1", priority=200, **{"class_name": "other", **front}))
    outcome = setting.evaluate(preemptor("p", "1", **own))
    assert isinstance(outcome, Evicts if goes else Unschedulable)
    assert goes or outcome.behind


@pytest.mark.parametrize("claims", [False, True])
def test_everybody_in_front_counts_who_is_like_many_others(claims: bool):
    """A pod counts as in front though hundreds go before it: those are alike, whatever is each one's own."""
    setting = Setting(node("n1", "4"))
    setting.add(pod("v", "4", node="n1", annotations={CAN_BE_PREEMPTED: "true"}))
    for number in range(150):
        labels = {"apps.kubernetes.io/pod-index": str(number), "statefulset.kubernetes.io/pod-name": f"large-{number}"}
        spec = {}
        if claims:
            spec = using(f"data-{number}")["spec"]
            add_claim(setting, f"data-{number}", "ReadWriteOnce")
        setting.add(preemptor(f"large-{number}", "9", priority=300, class_name="other", labels=labels, spec=spec))
    setting.add(in_front("4"))
    outcome = setting.evaluate(preemptor("p", "4"))
    assert isinstance(outcome, Unschedulable)
    assert outcome.behind


def for_node(name: str, node: str, cpu: str = "2"):
    """A pod of higher priority that a DaemonSet has made for one node."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    return preemptor(name, cpu, priority=200, class_name="other", spec={"affinity": affinity})


@pytest.mark.parametrize(("free", "goes"), [("n1", True), ("", False)])
def test_pods_of_a_daemon_set_in_front(free: str, goes: bool):
    """Each of very many comes to its own node, and to no other: the one node without one is left to the preemptor."""
    names = [f"n{number}" for number in range(150)]
    setting = Setting(*(node(name, "4") for name in names))
    setting.add(*(pod(f"v-{name}", "4", node=name) for name in names))
    setting.add(*(for_node(f"front-{name}", name) for name in names if name != free))
    outcome = setting.evaluate(preemptor("p", "4"))
    assert isinstance(outcome, Evicts if goes else Unschedulable)
    assert outcome.node == free if goes else outcome.behind


def test_a_lower_preemptor_does_not_keep_room_from_a_higher_one():
    """Room made for a pod of lower priority is waited for: that one gives way, as kube-scheduler has it."""
    setting = full("v2", "v3")
    low = preemptor("low", "4", priority=90)
    setting.add(low)
    assert isinstance(setting.evaluate(preemptor("p", "4"), promised=Promised(held={"n1": [low]})), Waits)


@table(
    "between, goes",
    ("there is room for both", None, True),
    ("a pod between them takes the rest", "1", False),
    ("there is room for all three", "500m", True),
    ("the pod between them fits nowhere", "3", True),
    ("the pod between them takes the room anyway", "2", True),
)
def test_room_made_for_a_lower_pod_goes_to_nobody_between(between: str | None, goes: bool):
    """A pod of higher priority does not evict if that lets others come before the one for which pods have gone."""
    setting = full("v3")
    low = preemptor("low", "500m", priority=80, nominated="n1")
    setting.add(low, preemptor("p", "5"))
    if between is not None:
        setting.add(preemptor("between", between, priority=90, class_name="other"))
    outcome = setting.evaluate(preemptor("p", "5"), promised=Promised(held={"n1": [low]}))
    assert isinstance(outcome, Evicts if goes else Unschedulable)
    if not goes:
        assert "it is kept for default/low of priority 80" in outcome.reason


@pytest.mark.parametrize("wait", [0.0, 60.0], ids=["no wait", "waits for a minute"])
@table(
    "front, wanted, leaving, nominated",
    ("another node is better", "1", "3", (), ""),
    ("the one in front takes the room that comes up", "2", "2", ("v3",), ""),
    ("nominated there, and all pods go", "1", "6", (), "n1"),
    ("nominated there, and one leaves", "3", "3", ("v3",), "n1"),
    ("room for both", "4", "2", (), ""),
    ("both fill the node", "4", "4", (), "n1"),
)
def test_what_was_decided_stands_before_the_first_eviction(
    front: str, wanted: str, leaving: tuple[str, ...], nominated: str, wait: float
):
    """The look before the first eviction agrees with the decision, since nothing has changed."""
    setting = full(*leaving, more=1, under=policy(wait_for_terminating=wait))
    setting.add(in_front(front, nominated=nominated))
    made = preemptor("p", wanted)
    outcome = setting.evaluate(made)
    assert isinstance(outcome, Evicts)
    setting.expect(made, outcome)
    victims = tuple(PlanVictim("default", victim.metadata.name, victim.metadata.uid) for victim in outcome.victims)
    record = PlanRecord(id="plan", node=outcome.node, victims=victims, policy="test")
    assert asks(setting.look(plan_for(record, nominated=True))).keys() & {Verb.ASK, Verb.TRY}


ALIKE = {"labelSelector": {"matchLabels": WEB["labels"]}, "topologyKey": "zone"}
SPREAD = {"topologySpreadConstraints": [{**ALIKE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}
NEAR = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ALIKE]}}}


@table(
    "binding, zone, alike, left",
    ("spread: the other zone keeps its pod", SPREAD, "b", ("stays", "too", "costlier"), ""),
    ("affinity: its zone keeps the pod that it asks for", NEAR, "a", ("costlier",), "n3"),
)
def test_only_the_victims_of_one_candidate_are_gone(binding: dict, zone: str, alike: tuple[str, ...], left: str):
    """Whether a pod in front comes to one candidate does not depend on the victims of another one."""
    setting = Setting(zoned("n1", "4", "a"), zoned("n2", "4", "a"), zoned("n3", "4", zone))
    for name, on, cpu, priority in (
        ("victim", "n1", "4", 10),
        ("costlier", "n3", "4", 20),
        ("stays", "n2", "4", 1000),
        ("too", "n2", "0", 1000),
    ):
        setting.add(pod(name, cpu, node=on, priority=priority, labels=WEB["labels"] if name in alike else {}))
    assert setting.evaluate(preemptor("p", "4")).node == "n1"
    setting.add(preemptor("front", "4", priority=200, class_name="other", spec=binding))
    outcome = setting.evaluate(preemptor("p", "4"))
    assert (outcome.node if isinstance(outcome, Evicts) else "") == left
