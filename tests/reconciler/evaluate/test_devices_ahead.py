"""Pods of higher priority that wait take devices first: nobody is evicted for those (docs/semantics.md D11)."""

from typing import Any

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import pod, preemptor
from tests.reconciler.device_settings import DRIVER, Devices, claim, uses
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import DeviceClass
from webhook.kube.resources import DEVICE_CLASS
from webhook.preemption.snapshot.device_index import DeviceId
from webhook.reconciler.evaluate.limits import _NEVER, BEYOND_BUDGET, NOT_NOW
from webhook.reconciler.evaluate.outcomes import Evicts, Fits, Promised, Unschedulable
from webhook.reconciler.evaluate.pods_ahead import AHEAD


def whole_node(count: int) -> Devices:
    """A node with so many devices, all of them held by one pod, `holder`."""
    setting = Devices(n1=count)
    for number in range(count):
        setting.remove(f"default/n1-{number}")
        setting.claim(claim(f"c-n1-{number}"))
    held = tuple(f"d{number}" for number in range(count))
    setting.add(pod("holder", "100m", node="n1", annotations={}, spec=uses("c-holder")))
    setting.claim(claim("c-holder", count, held=held, by=("holder",)))
    return setting


def in_front(setting: Devices, name: str, count: int, *, priority: int = 200, **spec: Any) -> None:
    """A pod of higher priority waits for so many devices; nobody preempts for it."""
    setting.claim(claim(f"c-{name}", count))
    setting.add(pod(name, "100m", priority=priority, spec={**uses(f"c-{name}"), **spec}))


def wants(count: int, claim: str = "first", priority: int = 200, **spec: Any) -> dict[str, Any]:
    """A pod that waits, and the claim by which it asks for so many devices."""
    return {"count": count, "claim": claim, "priority": priority, "spec": spec}


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
)
def test_what_pods_in_front_take(waiting: list[dict[str, Any]], evicts: bool):
    """Of four devices that one pod holds two have to be left for the preemptor."""
    setting = whole_node(4)
    made = setting.wants("p", 2)
    for number, row in enumerate(waiting):
        setting.claim(claim(f"c-{row['claim']}", row["count"]))
        spec = {**uses(f"c-{row['claim']}"), **row["spec"]}
        setting.add(pod(f"front-{number}", "100m", priority=row["priority"], spec=spec))
    outcome = setting.evaluate(made)
    assert isinstance(outcome, Evicts if evicts else Unschedulable), outcome
    assert evicts or "it is kept for default/front-" in outcome.reason


@pytest.mark.parametrize(("cpu", "evicts"), [("2", False), ("3", True)])
def test_pods_in_front_for_which_there_is_no_room(cpu: str, evicts: bool):
    """Of three that want a device each only those take one that have room on the node by other resources."""
    setting = whole_node(4)
    for number in range(3):
        setting.claim(claim(f"c-front-{number}"))
        setting.add(pod(f"front-{number}", cpu, priority=200 + number, spec=uses(f"c-front-{number}")))
    outcome = setting.evaluate(setting.wants("p", 2))
    assert isinstance(outcome, Evicts if evicts else Unschedulable), outcome


def test_pods_in_front_that_are_tried_in_the_other_order():
    """The second one takes what the preemptor needs, too, if it is tried before the first one."""
    setting = whole_node(2)
    in_front(setting, "first", 1, priority=210)
    in_front(setting, "second", 2)
    assert isinstance(setting.evaluate(setting.wants("p", 1)), Unschedulable)


def test_codes_of_rejections_differ():
    """What one filter says of a candidate is not read as what another one says."""
    codes = [AHEAD, BEYOND_BUDGET, NOT_NOW, *_NEVER]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("wanted", [1, 2])
def test_what_was_emptied_for_a_pod_of_lower_priority(wanted: int):
    """It gets the device for which pods were evicted; a pod of higher priority evicts for others only."""
    setting = Devices(n1=2)
    lower = setting.wants("lower", 1)
    setting.state.hold_devices(("default/lower", "uid-lower"), [DeviceId(DRIVER, "n1", "d0")])
    setting.state.pending.hold("plan", ("default/lower", "uid-lower"), "n1")
    setting.ends("n1-0")
    higher = setting.wants("higher", wanted, priority=200)
    promised = Promised(held={"n1": [lower]})
    outcome = setting.evaluate(higher, promised=promised)
    if wanted == 1:
        assert isinstance(outcome, Fits)
    else:
        assert isinstance(outcome, Unschedulable)
        assert "it is kept for default/lower of priority 100" in outcome.reason


def test_the_room_beside_a_claim_goes_to_a_pod_in_front():
    """Nobody is evicted for room that a pod in front takes with the devices there."""
    setting = Devices(n1=1)
    setting.add(pod("n1-0", "5", node="n1", annotations={}, spec=uses("c-n1-0")))
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
    setting.state.caches[DEVICE_CLASS].take("served", served_class())
    if plugin:
        setting.state.nodes.take("n2", with_plugin("n2"))
    if front == "claim":
        in_front(setting, "first", 3)
    else:
        setting.add(pod("first", "100m", priority=200, spec=asks(3)))
    made = setting.wants("p", 2) if own == "claim" else preemptor("p", "100m", spec=asks(2))
    outcome = setting.evaluate(made)
    assert isinstance(outcome, Unschedulable), outcome
    assert "it is kept for default/first of priority 200" in outcome.reason
    setting.remove("default/first")
    assert isinstance(setting.evaluate(made), Evicts)


def served_class() -> DeviceClass:
    """A class that serves the extended resource."""
    return msgspec.convert({"metadata": {"name": "served"}, "spec": {"extendedResourceName": SERVED}}, DeviceClass)


def with_plugin(name: str) -> Node:
    """A node without room for anybody, whose device plugin has the resource."""
    amounts = {"cpu": "0", "memory": "1Gi", "pods": "110", SERVED: "8"}
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": amounts}}, Node)


def asks(count: int) -> dict[str, Any]:
    """What a pod's spec says to ask for so many of the extended resource."""
    requests = {"cpu": "100m", SERVED: str(count)}
    return {"containers": [{"name": "c", "resources": {"requests": requests}}]}


def test_another_node_is_chosen():
    """A pod in front that can come to one node only leaves the other one to the preemptor."""
    setting = Devices(n1=2, n2=2)
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [by_name]}}
    in_front(setting, "first", 2, affinity={"nodeAffinity": required})
    outcome = setting.evaluate(setting.wants("p", 2))
    assert isinstance(outcome, Evicts)
    assert outcome.node == "n2"
