"""Others that wait take devices first: nobody is evicted for those (docs/semantics.md D11)."""

from typing import Any

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import START, node, pod, preemptor
from tests.reconciler.device_settings import DRIVER, TEMPLATE, Devices, claim, holder, uses
from webhook.kube.instants import rfc3339
from webhook.kube.objects.devices import DeviceClass
from webhook.kube.resources import DEVICE_CLASS
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.reconciler.evaluate.outcomes import Evicts, Fits, Promised, Unschedulable
from webhook.reconciler.state.pending import CountedOn


def whole_node(count: int) -> Devices:
    """A node with so many devices, all of them held by one pod, `holder`."""
    setting = Devices(n1=count)
    for number in range(count):
        setting.remove(f"default/n1-{number}")
        setting.claim(claim(f"c-n1-{number}"))
    held = tuple(f"d{number}" for number in range(count))
    setting.add(holder("holder"))
    setting.claim(claim("c-holder", count, held=held, by=("holder",)))
    return setting


def wants(count: int, claim: str = "first", cpu: str = "100m", *, priority: int = 200, **spec: Any) -> dict[str, Any]:
    """A pod that waits, and the claim by which it asks for so many devices."""
    return {"count": count, "claim": claim, "cpu": cpu, "priority": priority, "spec": spec}


@table(
    "waiting, evicts",
    ("nobody", [], True),
    ("one that leaves enough", [wants(2)], True),
    ("one that wants too many", [wants(3)], False),
    ("two that want too many", [wants(2), wants(1, "second")], False),
    ("two that share a claim", [wants(2, "both"), wants(2, "both")], True),
    ("one that goes elsewhere", [wants(3, nodeSelector={"there": "not"})], True),
    ("one of equal priority", [wants(3, priority=100)], True),
    ("one of another scheduler", [wants(3, schedulerName="other")], True),
    ("one that wants more than there are", [wants(5)], True),
    ("pods that share the preemptor's claim", [wants(2, "p"), wants(2, "p")], True),
    ("three of which all have room", [wants(1, name, "2") for name in "abc"], False),
    ("three of which two have room", [wants(1, name, "3") for name in "abc"], True),
)
def test_what_pods_in_front_take(waiting: list[dict[str, Any]], evicts: bool):
    """Of four devices that one pod holds two have to be left for the preemptor."""
    setting = whole_node(4)
    made = setting.wants("p", 2)
    for number, row in enumerate(waiting):
        setting.claim(claim(f"c-{row['claim']}", row["count"]))
        spec = {**uses(f"c-{row['claim']}"), **row["spec"]}
        setting.add(pod(f"front-{number}", row["cpu"], priority=row["priority"] + number, spec=spec))
    outcome = setting.evaluate(made)
    assert isinstance(outcome, Evicts if evicts else Unschedulable), outcome
    assert evicts or "it is kept for default/front-" in outcome.reason


@pytest.mark.parametrize("wanted", [1, 2])
def test_what_was_emptied_for_a_pod_of_lower_priority(wanted: int):
    """It gets the device for which pods were evicted; a pod of higher priority evicts for others only."""
    setting = Devices(n1=2)
    lower = setting.wants("lower", 1)
    setting.state.hold_devices("default/lower", "uid-lower", [DeviceId(DRIVER, "n1", "d0")])
    setting.state.pending.count_on("plan", {"default/lower": CountedOn("uid-lower", node="n1")})
    setting.ends("n1-0")
    higher = setting.wants("higher", wanted, priority=200)
    promised = Promised(held={"n1": [lower]})
    outcome = setting.evaluate(higher, promised=promised)
    if wanted == 1:
        assert isinstance(outcome, Fits)
    else:
        assert isinstance(outcome, Unschedulable)
        assert "it is kept for default/lower of priority 100" in outcome.reason


@table(
    "owner, waiting",
    ("alone", None, False),
    ("its controller puts another one in its place", ("Job", "j"), False),
    ("one that waits names its claim", None, True),
)
def test_the_room_beside_a_claim_goes_to_a_pod_in_front(owner: tuple[str, str] | None, waiting: bool):
    """Nobody is evicted for room that a pod in front takes with the devices there, or may take."""
    setting = Devices(n1=1)
    setting.add(holder("n1-0", "5", owner=owner))
    if waiting:
        setting.add(pod("waits", "100m", priority=50, spec={**uses("c-n1-0"), "nodeSelector": {"there": "not"}}))
    setting.claim(claim("c-first"))
    setting.add(pod("first", "5", priority=200, spec=uses("c-first")))
    assert isinstance(setting.evaluate(preemptor("p", "6")), Unschedulable)
    setting.remove("default/first")
    assert isinstance(setting.evaluate(preemptor("p", "6")), Evicts)


SERVED = "example.com/gpu"


@pytest.mark.parametrize("plugin", [False, True], ids=["devices only", "another node has a device plugin"])
@pytest.mark.parametrize("front", ["claim", "resource"])
@pytest.mark.parametrize("own", ["claim", "resource"])
def test_an_extended_resource_that_a_class_serves(own: str, front: str, plugin: bool):
    """Whether devices are asked for by claim or by an extended resource, who is in front takes them first."""
    setting = whole_node(4)
    served = {"metadata": {"name": "served"}, "spec": {"extendedResourceName": SERVED}}
    setting.state.caches[DEVICE_CLASS].take("served", msgspec.convert(served, DeviceClass))
    if plugin:
        without_room = node("n2", "0")
        without_room.status.allocatable[SERVED] = "8"
        setting.state.nodes.take("n2", without_room)
    setting.claim(claim("c-first", 3))
    setting.add(pod("first", "100m", priority=200, spec=uses("c-first") if front == "claim" else asks(3)))
    made = setting.wants("p", 2) if own == "claim" else preemptor("p", "100m", spec=asks(2))
    outcome = setting.evaluate(made)
    assert isinstance(outcome, Unschedulable), outcome
    assert "it is kept for default/first of priority 200" in outcome.reason
    setting.remove("default/first")
    assert isinstance(setting.evaluate(made), Evicts)


def asks(count: int) -> dict[str, Any]:
    """What a pod's spec says to ask for so many of the extended resource."""
    requests = {"cpu": "100m", SERVED: str(count)}
    return {"containers": [{"name": "c", "resources": {"requests": requests}}]}


def setting_of(*, whole: bool) -> Devices:
    """Two nodes with two devices each, held one by one on `n1`, and by one pod on `n2` if `whole`."""
    setting = Devices(n1=2, n2=2)
    if whole:
        for number in range(2):
            setting.remove(f"default/n2-{number}")
            setting.claim(claim(f"c-n2-{number}"))
        setting.add(holder("both", on="n2", class_name="", priority=90))
        setting.claim(claim("c-both", 2, held=("d0", "d1"), on="n2", by=("both",)))
    return setting


REFUSED = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": rfc3339(START)}]


def waits(setting: Devices, count: int, *, priority: int = 10, looked_at: bool = True, **spec: Any) -> None:
    """A pod waits for so many devices, and its scheduler has found no room for it, if it has looked at it at all."""
    setting.claim(claim("c-other", count))
    conditions = REFUSED if looked_at else []
    setting.add(pod("other", "100m", priority=priority, conditions=conditions, spec={**uses("c-other"), **spec}))


FIRST = (
    "on n1 devices come free one by one, and default/other of priority {}, which waits, would take a part of them first"
)


@table(
    "fields, node",
    ("nobody", None, "n1"),
    ("of lower priority", {"count": 1}, "n2"),
    ("of equal priority", {"count": 1, "priority": 100}, "n2"),
    ("of another scheduler", {"count": 1, "schedulerName": "other"}, "n2"),
    ("wants as much", {"count": 2}, "n1"),
    ("no scheduler looks at it", {"count": 1, "looked_at": False}, "n1"),
    ("goes elsewhere", {"count": 1, "nodeSelector": {"there": "not"}}, "n1"),
)
def test_devices_that_come_free_at_once_are_preferred(fields: dict[str, Any] | None, node: str):
    """One pod of higher priority goes rather than two whose devices a waiting pod would take one by one."""
    setting = setting_of(whole=True)
    if fields is not None:
        waits(setting, **fields)
    outcome = setting.evaluate(setting.wants("p", 2))
    assert isinstance(outcome, Evicts)
    assert outcome.node == node
    told = FIRST.format((fields or {}).get("priority", 10))
    assert (told in outcome.because, "would take" in outcome.because) == (node == "n2", node == "n2")


def test_a_candidate_behind_many_others():
    """Where all the best candidates come free one by one the first one is taken to which no pod that waits comes."""
    setting = Devices(**{f"n{number:02}": 2 for number in range(12)})
    for number in range(2):
        setting.add(holder(f"n11-{number}", on="n11", class_name="", priority=95))
    here = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n11"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [here]}]}
    waits(setting, 1, affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    outcome = setting.evaluate(setting.wants("p", 2))
    assert isinstance(outcome, Evicts), outcome
    assert outcome.node == "n11"
    told = "on n00 devices come free one by one, and default/other of priority 10, which waits,"
    assert outcome.because.startswith(told)


@pytest.mark.parametrize("fills", [False, True], ids=["room for both", "the preemptor fills the node"])
def test_where_they_come_free_one_by_one_everywhere(fills: bool):
    """Nobody is evicted, unless the preemptor's nomination keeps the other pod off the node by other resources."""
    setting = setting_of(whole=False)
    waits(setting, 1)
    made = preemptor("p", "8" if fills else "1", spec=uses("c-p"))
    setting.claim(claim("c-p", 2))
    outcome = setting.evaluate(made)
    if fills:
        assert isinstance(outcome, Evicts)
        return
    assert isinstance(outcome, Unschedulable)
    assert outcome.reason == (
        "wherever room can be made, devices come free one by one, and default/other of priority 10, which waits, would"
        " take a part of them first"
    )
    one_device = setting.evaluate(setting.wants("one", 1))
    assert isinstance(one_device, Evicts), "that is no part"
    assert "would take" not in one_device.because
    for name in ("other", "one"):
        setting.remove(f"default/{name}")
    assert isinstance(setting.evaluate(made), Evicts)


@table(
    "kind, count, evicts",
    ("ReplicaSet", "ReplicaSet", 2, False),
    ("StatefulSet", "StatefulSet", 2, False),
    ("a Job, which takes ten seconds", "Job", 2, True),
    ("one device", "ReplicaSet", 1, True),
)
def test_pods_that_are_replaced_at_once(kind: str, count: int, evicts: bool):
    """The pod in a victim's place wants one device again and takes the first that comes free."""
    setting = Devices(n1=2)
    for number in range(2):
        setting.add(holder(f"n1-{number}", owner=(kind, "w"), spec=TEMPLATE))
    outcome = setting.evaluate(setting.wants("p", count))
    assert isinstance(outcome, Evicts if evicts else Unschedulable)
    if not evicts:
        assert f"the pod that {kind} w puts in place of a victim would take a part of them first" in outcome.reason


@pytest.mark.parametrize("alone", [True, False])
def test_members_of_a_gang(alone: bool):
    """Nobody is evicted for a gang either if a waiting pod takes a part of what a member needs; members do not."""
    setting = Devices(n1=2, n2=2)
    if not alone:
        waits(setting, 1)
    ready = []
    for number in range(2):
        setting.claim(claim(f"c-gang-{number}", 2))
        labels = {"scheduling.x-k8s.io/pod-group": "gang"}
        ready.append(preemptor(f"gang-{number}", "1", labels=labels, spec=uses(f"c-gang-{number}")))
    setting.group()
    outcome = setting.evaluate_gang(*ready)
    assert isinstance(outcome, Evicts if alone else Unschedulable), outcome
    assert alone or (
        outcome.behind and "default/other of priority 10, which waits, would take a part" in outcome.reason
    )
