"""Room that a pod of higher priority takes is left to it: in a decision, in waiting, and before an eviction."""

import msgspec
import pytest

from tests.cases import table
from tests.preemption import building
from tests.reconciler.builders import START, Setting, full, node, only_on, pod, preemptor
from webhook.kube.instants import rfc3339
from webhook.kube.objects.storage import PersistentVolume, PersistentVolumeClaim
from webhook.preemption.snapshot.kinds import VOLUME_CLAIMS, VOLUMES
from webhook.preemption.snapshot.pod_groups import POD_GROUP
from webhook.reconciler.evaluate.outcomes import Evicts, Promised, Unschedulable, Waits


def in_front(cpu: str, priority: int = 200, nominated: str = ""):
    """A pod of higher priority that waits and that nobody preempts for."""
    return preemptor("front", cpu, priority=priority, class_name="other", nominated=nominated)


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
    assert (type(outcome), outcome.behind) == (Unschedulable, True)


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
    promised = Promised(planned={"default/mine"} if leaves else {"default/mine", "default/theirs"})
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
    assert (type(outcome), outcome.behind) == (Unschedulable, True)
    assert outcome.reason == "wherever room can be made, it is kept for default/front of priority 200, which waits, too"


def test_nominations_of_others_keep_room():
    """One keeps what a pod in front leaves also if it fits no more; one of lower priority keeps none."""
    setting = full("v2", "v3")
    low = preemptor("low", "4", priority=90)
    setting.add(low)
    assert isinstance(setting.evaluate(preemptor("p", "4"), promised=Promised(held={"n1": [low]})), Waits)
    setting = full()
    setting.add(preemptor("nominee", "4", priority=150, class_name="other", nominated="n1"))
    assert isinstance(setting.evaluate(preemptor("p", "2")), Evicts)
    setting.add(in_front("4"))
    assert isinstance(setting.evaluate(preemptor("p", "2")), Unschedulable)


def on_port(port: int, cpu: str = "1") -> dict:
    """A pod with that host port."""
    ports = [{"containerPort": 80, "hostPort": port}]
    return {"spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}, "ports": ports}]}}


TERM = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": building.HOST}
APART = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}}
WEB = {"labels": {"app": "web"}}


def add_claim(setting: Setting, name: str, mode: str = "ReadWriteOnce") -> None:
    """A claim that is bound to a volume."""
    claim, volume = building.bound(name, mode)
    setting.state.snapshot.put(VOLUME_CLAIMS, msgspec.convert(claim, PersistentVolumeClaim))
    setting.state.snapshot.put(VOLUMES, msgspec.convert(volume, PersistentVolume))


def using(claim: str) -> dict:
    """A pod with that claim, which only one pod may use if it is called so."""
    return {"spec": {"volumes": building.volumes_of(claim)}}


@table(
    "own, front, goes",
    ("the one in front alone takes a host port", {}, on_port(80), True),
    ("they take different host ports", on_port(80), on_port(81), True),
    ("they take the same host port", on_port(80), on_port(80), False),
    ("they share a claim that only one pod may use", using("exclusive"), using("exclusive"), False),
    ("they share another claim", using("common"), using("common"), True),
    ("the preemptor's anti-affinity", {"spec": APART}, WEB, False),
    ("the anti-affinity of the one in front", WEB, {"spec": APART}, False),
    ("no anti-affinity", WEB, WEB, True),
    ("an anti-affinity against others", {"spec": APART}, {}, True),
)
def test_nobody_goes_if_the_one_in_front_takes_more_than_room(own: dict, front: dict, goes: bool):
    """Room for both is of no use to the preemptor if it cannot be on one node with the pod that comes first."""
    setting = Setting(node("n1"))
    setting.add(*(pod(f"v{number}", "2", node="n1") for number in range(4)))
    add_claim(setting, "exclusive", "ReadWriteOncePod")
    add_claim(setting, "common")
    setting.add(preemptor("front", "1", priority=200, **{"class_name": "other", **front}))
    outcome = setting.evaluate(preemptor("p", "1", **own))
    assert isinstance(outcome, Evicts if goes else Unschedulable)
    assert goes or outcome.behind


IN_ZONE = {"spec": building.apart_from(building.ZONE, app="web")}


@table(
    "own, front, zone, goes",
    ("the preemptor's anti-affinity", IN_ZONE, WEB, "a", False),
    ("the anti-affinity of the one in front", WEB, IN_ZONE, "a", False),
    ("it comes to another zone", IN_ZONE, WEB, "b", True),
    ("it keeps out of a node alone", {"spec": APART}, WEB, "a", True),
    ("a port is taken on a node alone", on_port(80, "4"), on_port(80), "a", True),
)
def test_the_one_in_front_comes_to_another_node_of_the_zone(own: dict, front: dict, zone: str, goes: bool):
    """Nobody goes for a pod that cannot be in the zone together with the one that comes first."""
    setting = Setting(node("n1", **{building.ZONE: "a"}), node("small", "2", **{building.ZONE: zone}))
    spec = {**front.get("spec", {}), "nodeSelector": {building.HOST: "small"}}
    setting.add(pod("v", "8", node="n1"), preemptor("front", "1", **{**front, "priority": 200, "spec": spec}))
    outcome = setting.evaluate(preemptor("p", "4", **own))
    assert isinstance(outcome, Evicts if goes else Unschedulable)
    assert goes or outcome.behind


@pytest.mark.parametrize(("free", "goes"), [("n1", True), ("", False)])
def test_pods_of_a_daemon_set_in_front(free: str, goes: bool):
    """Each of very many comes to its own node, and to no other: the one node without one is left to the preemptor."""
    names = [f"n{number}" for number in range(150)]
    setting = Setting(*(node(name, "4") for name in names))
    setting.add(*(pod(f"v-{name}", "4", node=name) for name in names))
    in_front = {"priority": 200, "class_name": "other"}
    setting.add(*(preemptor(f"front-{on}", "2", **in_front, spec=only_on(on)) for on in names if on != free))
    outcome = setting.evaluate(preemptor("p", "4"))
    assert isinstance(outcome, Evicts if goes else Unschedulable)
    assert outcome.node == free if goes else outcome.behind


@table(
    "own, between, goes",
    ("there is room for both", {}, None, True),
    ("a pod between them takes the rest", {}, "1", False),
    ("there is room for all three", {}, "500m", True),
    ("the pod between them fits nowhere", {}, "3", True),
    ("the pod between them takes the room anyway", {}, "2", True),
    ("they take the same host port", on_port(8080, "5"), None, False),
    ("they take different host ports", on_port(9090, "5"), None, True),
)
def test_room_made_for_a_lower_pod(own: dict, between: str | None, goes: bool):
    """A pod of higher priority evicts only if the one for which pods have gone is the next one there, and can be."""
    setting = full("v3")
    low = preemptor("low", "500m", priority=80, nominated="n1", **on_port(8080, "500m"))
    setting.add(low)
    if between is not None:
        setting.add(preemptor("between", between, priority=90, class_name="other"))
    outcome = setting.evaluate(preemptor("p", "5", **own), promised=Promised(held={"n1": [low]}))
    assert isinstance(outcome, Evicts if goes else Unschedulable)
    assert goes or "it is kept for default/low of priority 80" in outcome.reason
