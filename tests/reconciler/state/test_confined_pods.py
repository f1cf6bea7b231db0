"""Which pods could run on no other node: the same answer for every decision, and newer when the cluster is."""

from typing import Any

import msgspec

from tests.cases import table
from tests.preemption import building
from tests.reconciler.builders import Setting, names, pod, preemptor
from tests.reconciler.device_settings import Devices, claim
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import ResourceClaim
from webhook.kube.objects.storage import PersistentVolume, PersistentVolumeClaim
from webhook.kube.resources import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM

HOST, ZONE, POOL = building.HOST, building.ZONE, "pool"


def host(name: str, zone: str = "a", **labels: str) -> Node:
    """A node with a host name, in a zone."""
    return msgspec.convert(building.node(name, "8", labels={ZONE: zone, "kubernetes.io/os": "linux", **labels}), Node)


def term(key: str, *values: str, fields: bool = False) -> dict[str, Any]:
    return {"matchFields" if fields else "matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def affine(*terms: dict[str, Any]) -> dict[str, Any]:
    """The spec of a pod with these alternatives."""
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


DATA = {"volumes": building.volumes_of("data")}
"""The spec of a pod with that claim."""


def volume(setting: Setting, *terms: dict[str, Any], **labels: str) -> None:
    """Let the watch show the claim, bound to a volume that can be reached from there."""
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}} if terms else {}
    made, backing = building.bound("data", claimRef={"namespace": "default", "name": "data"}, **affinity)
    backing["metadata"]["labels"] = labels
    caches = setting.state.caches
    caches[PERSISTENT_VOLUME].take("pv-data", msgspec.convert(backing, PersistentVolume))
    caches[PERSISTENT_VOLUME_CLAIM].take("default/data", msgspec.convert(made, PersistentVolumeClaim))


def goes(setting: Setting, spec: dict[str, Any]) -> str:
    """Who goes for a preemptor: a pod with that spec, or one that can run anywhere and is more important."""
    setting.add(pod("bound", "4", node="n1", priority=1, spec=spec), pod("free", "4", node="n1", priority=90))
    [gone] = names(setting.evaluate(preemptor("p", "4", spec={"nodeSelector": {HOST: "n1"}})))
    return gone


@table(
    "spec, others, gone",
    ("it can run anywhere", {}, ["n2"], "bound"),
    ("a host name", {"nodeSelector": {HOST: "n1"}}, ["n2"], "free"),
    ("what any node could have", {"nodeSelector": {"kubernetes.io/os": "linux"}}, [], "bound"),
    ("the only node of its pool", {"nodeSelector": {POOL: "n1"}}, ["n2"], "free"),
    ("the other node is in its zone", {"nodeSelector": {ZONE: "a"}}, ["n2"], "bound"),
    ("one alternative", affine(term(HOST, "n1")), ["n2"], "free"),
    ("alternatives name different nodes", affine(term(HOST, "n1"), term(HOST, "n2")), ["n2"], "bound"),
    ("the node of the other one is gone", affine(term(HOST, "n1"), term(HOST, "n9")), ["n2"], "free"),
    ("one alternative names no node", affine(term(HOST, "n1"), term(POOL, "n2")), ["n2"], "bound"),
    ("one of two nodes", affine(term(HOST, "n1", "n2")), ["n2"], "bound"),
    ("the field of the node's name", affine(term("metadata.name", "n1", fields=True)), ["n2"], "free"),
    ("of one node nobody can say that", {"nodeSelector": {HOST: "n1"}}, [], "bound"),
    (
        "the fields of two nodes",
        affine(term("metadata.name", "n1", fields=True), term("metadata.name", "n2", fields=True)),
        ["n2"],
        "bound",
    ),
)
def test_who_can_run_on_no_other_node_goes_last(spec: dict[str, Any], others: list[str], gone: str):
    """Among victims a pod is kept, though it is less important, if what it asks for rules out every other node."""
    assert goes(Setting(host("n1", pool="n1"), *(host(name, pool=name) for name in others)), spec) == gone


@table(
    "terms, labels, zones, gone",
    ("a local volume", [term(HOST, "n1")], {}, ["a"], "free"),
    ("a zonal volume, and no other node is in the zone", [term(ZONE, "a")], {}, ["b"], "free"),
    ("another node is in the zone", [term(ZONE, "a")], {}, ["b", "a"], "bound"),
    ("a volume that is zonal by its label", [], {ZONE: "a"}, ["b"], "free"),
    ("a volume that can be reached from everywhere", [], {}, ["b"], "bound"),
)
def test_volumes_keep_a_pod_on_its_node(terms: list, labels: dict[str, str], zones: list[str], gone: str):
    """A pod whose volume only its node reaches goes last: its replacement would use the same claim."""
    setting = Setting(host("n1"), *(host(f"n{number + 2}", zone) for number, zone in enumerate(zones)))
    volume(setting, *terms, **labels)
    assert goes(setting, DATA) == gone


@table(
    "more, shared, pinned",
    ("no other node has such devices", {"n2": 0}, False, True),
    ("another node has them, too", {"n2": 1}, False, False),
    ("the claim stays allocated, since another pod uses it", {"n2": 1}, True, True),
)
def test_devices_keep_a_pod_on_its_node(more: dict[str, int], shared: bool, pinned: bool):
    """A pod with devices goes last if only its node has such ones, or if it shares a claim that is allocated there."""
    setting = Devices(n1=1, **more)
    if shared:
        setting.add(pod("other", node="n1"))
        body = msgspec.to_builtins(claim("c-n1-0", held=("d0",), by=("n1-0", "other")))
        selector = {"nodeSelectorTerms": [term("metadata.name", "n1", fields=True)]}
        body["status"]["allocation"]["nodeSelector"] = selector
        setting.claim(msgspec.convert(body, ResourceClaim))
    assert ("default/n1-0" in set(setting.state.index.on_one_node())) is pinned


def test_what_is_known_of_nodes_and_volumes_is_newest():
    """Another node, another label of it, and a volume that is known only now change the answer."""
    setting = Setting(host("n1"), host("n2", "b"))
    setting.add(pod("a", node="n1", spec={"nodeSelector": {ZONE: "a"}}))
    pinned = lambda: set(setting.state.index.on_one_node())  # noqa: E731
    assert pinned() == {"default/a"}
    setting.state.nodes.take("n2", host("n2", "a"))
    assert pinned() == set()
    setting.state.nodes.take("n2", host("n2", "b"))
    assert pinned() == {"default/a"}
    setting.state.nodes.take("n3", host("n3", "a"))
    assert pinned() == set()
    setting.add(pod("b", node="n1", spec=DATA))
    assert pinned() == set()
    volume(setting, term(HOST, "n1"))
    assert pinned() == {"default/b"}
    for key in ("default/a", "default/b"):
        setting.remove(key)
    assert pinned() == set()
    assert not setting.state.index._confined
