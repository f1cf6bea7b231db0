"""Pods by what their claims and wishes allow: those that wait and are alike, and those that could run on no other node.

The answers are the same for every decision, and newer when the cluster is.
"""

from typing import Any

import msgspec
import numpy as np
import pytest

from tests.cases import table
from tests.preemption import building
from tests.reconciler.builders import Setting, names, only_on, pod, preemptor
from tests.reconciler.device_settings import Devices
from tests.reconciler.device_settings import claim as device_claim
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import ResourceClaim
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.storage import PersistentVolume, PersistentVolumeClaim
from webhook.kube.resources import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM


def claim(name: str, size: str = "1Gi", *, meta: dict | None = None, phase: str = "", **spec) -> PersistentVolumeClaim:
    """A claim of a StatefulSet's pod."""
    body = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", **spec}
    body["resources"] = {"requests": {"storage": size}}
    made = {"metadata": {"name": name, "namespace": "default", **(meta or {})}, "spec": body}
    return msgspec.convert({**made, "status": {"phase": phase}}, PersistentVolumeClaim)


def pinned_in(setting: Setting) -> set[str]:
    """The pods that could run on no other node than theirs."""
    state = setting.state
    return set(map(state.snapshot.pods.key, np.flatnonzero(state.index.last_resort()).tolist()))


def volume(name: str, zone: str = "a", driver: str = "d", of: str = "") -> PersistentVolume:
    """A volume of a zone; `of` is the claim that it is reserved for."""
    rule = {"key": "zone", "operator": "In", "values": [zone]}
    spec = {
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}},
        "csi": {"driver": driver, "volumeHandle": name},
        "claimRef": {"namespace": "default", "name": of} if of else None,
        "storageClassName": "fast",
        "capacity": {"storage": "1Gi"},
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, PersistentVolume)


SELECTED = {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}
BOUND = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}


def both(**fields) -> list[PersistentVolumeClaim]:
    """The claims of both pods, each with this."""
    return [claim(name, **fields) for name in ("one-data", "other-data")]


def other(size: str = "1Gi", **fields) -> list[PersistentVolumeClaim]:
    """The claims of both pods, that of the other one with this."""
    return [claim("one-data"), claim("other-data", size, **fields)]


def bound(zone: str = "a", driver: str = "d") -> list:
    """The claims of both pods, bound to volumes; that of the other one is of this zone and driver."""
    names = (("one-data", "v1"), ("other-data", "v2"))
    claims = [claim(name, meta=BOUND, volumeName=to) for name, to in names]
    return [*claims, volume("v1", of="one-data"), volume("v2", zone, driver, of="other-data")]


def show(setting: Setting, *there: PersistentVolumeClaim | PersistentVolume) -> None:
    """Let the watch show these claims and volumes."""
    for one in there:
        resource = PERSISTENT_VOLUME_CLAIM if isinstance(one, PersistentVolumeClaim) else PERSISTENT_VOLUME
        setting.state.caches[resource].take(key_of(one), one)


def are_alike(setting: Setting) -> bool:
    """Whether both pods have one shape."""
    shape = setting.state.index.shape
    return shape("default/one") == shape("default/other")


@pytest.mark.parametrize("kind", ["named", "made for the pod"])
@table(
    "there, same",
    ("they differ by name only", both(), True),
    ("they are missing", [], False),
    ("another size", other("2Gi"), False),
    ("another class", other(storageClassName="slow"), False),
    ("another mode", other(volumeMode="Block"), False),
    ("selector", other(selector={"matchLabels": {"a": "b"}}), False),
    ("a node is selected for one", other(meta=SELECTED), False),
    ("the same node is selected", both(meta=SELECTED), True),
    ("only one pod may use each", both(accessModes=["ReadWriteOncePod"]), False),
    ("other pods may use them, too", both(accessModes=["ReadWriteMany"]), False),
    ("they are being deleted", both(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), False),
    ("their volumes are lost", both(phase="Lost"), True),
    ("the volume of one is lost", other(phase="Lost"), False),
    ("bound to volumes that are missing", bound()[:2], False),
    ("bound to volumes of one zone", bound(), True),
    ("bound to volumes of two zones", bound("b"), False),
    ("bound to volumes of two drivers", bound(driver="e"), False),
    ("a volume is reserved for one", [*both(), volume("v1", of="one-data")], False),
)
@pytest.mark.parametrize("first", ["the pods", "the claims"])
def test_claims_count_by_what_they_allow(first: str, there: list, same: bool, kind: str):
    """Claims whose pods may go to the same nodes tell these apart by nothing, whatever came first."""
    setting = Setting()
    pods = []
    for name in ("one", "other"):
        made = {"persistentVolumeClaim": {"claimName": f"{name}-data"}} if kind == "named" else {"ephemeral": {}}
        pods.append(preemptor(name, spec={"volumes": [{"name": "data", **made}]}))
    if first == "the pods":
        setting.add(*pods)
    show(setting, *there)
    if first == "the claims":
        setting.add(*pods)
    assert are_alike(setting) is same


def test_a_claim_that_was_not_made_for_the_pod():
    """Its pod is refused, and so it is not like one whose claim was made for it."""
    setting = Setting()
    for name, owners in (("one", building.owned_by("Pod", "one")), ("other", [])):
        show(setting, claim(f"{name}-data", meta={"ownerReferences": owners}))
        setting.add(preemptor(name, spec={"volumes": [{"name": "data", "ephemeral": {}}]}))
    assert not are_alike(setting)


def test_pods_that_are_made_for_nodes_are_one_group():
    """Those of a DaemonSet differ by their node alone: they are one group, and a verdict on one is none on another."""
    setting = Setting()
    setting.add(preemptor("one", spec=only_on("n1")), preemptor("other", spec=only_on("n2")), preemptor("any"))
    setting.add(preemptor("more", spec=only_on("n3", matchExpressions=[{"key": "zone", "operator": "Exists"}])))
    groups = sorted(sorted(key.partition("/")[2] for key in group.pods) for group in setting.state.index.groups())
    assert groups == [["any"], ["more"], ["one", "other"]]
    assert not are_alike(setting)


HOST, ZONE, POOL = building.HOST, building.ZONE, "pool"


def host(name: str, zone: str = "a", **labels: str) -> Node:
    """A node with a host name, in a zone."""
    return msgspec.convert(building.node(name, "8", labels={ZONE: zone, "kubernetes.io/os": "linux", **labels}), Node)


def term(key: str, *values: str, by: str = "matchExpressions") -> dict[str, Any]:
    return {by: [{"key": key, "operator": "In", "values": list(values)}]}


def affine(*terms: dict[str, Any]) -> dict[str, Any]:
    """The spec of a pod with these alternatives."""
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


CALLED_N1, CALLED_N2 = (term("metadata.name", name, by="matchFields") for name in ("n1", "n2"))
DATA = {"volumes": building.volumes_of("data")}
"""The spec of a pod with that claim."""


def bound_from(setting: Setting, *terms: dict[str, Any], **labels: str) -> None:
    """Let the watch show the claim, bound to a volume that can be reached from there."""
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}} if terms else {}
    made, backing = building.bound("data", claimRef={"namespace": "default", "name": "data"}, **affinity)
    backing["metadata"]["labels"] = labels
    show(setting, msgspec.convert(backing, PersistentVolume), msgspec.convert(made, PersistentVolumeClaim))


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
    ("the field of the node's name", affine(CALLED_N1), ["n2"], "free"),
    ("of one node nobody can say that", {"nodeSelector": {HOST: "n1"}}, [], "bound"),
    ("the fields of two nodes", affine(CALLED_N1, CALLED_N2), ["n2"], "bound"),
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
    bound_from(setting, *terms, **labels)
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
        body = msgspec.to_builtins(device_claim("c-n1-0", held=("d0",), by=("n1-0", "other")))
        body["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [CALLED_N1]}
        setting.claim(msgspec.convert(body, ResourceClaim))
    assert ("default/n1-0" in pinned_in(setting)) is pinned


def test_what_is_known_of_nodes_and_volumes_is_newest():
    """Another node, another label of it, and a volume that is known only now change the answer."""
    setting = Setting(host("n1"), host("n2", "b"))
    setting.add(pod("a", node="n1", spec={"nodeSelector": {ZONE: "a"}}))
    assert pinned_in(setting) == {"default/a"}
    setting.state.nodes.take("n2", host("n2", "a"))
    assert pinned_in(setting) == set()
    setting.state.nodes.take("n2", host("n2", "b"))
    assert pinned_in(setting) == {"default/a"}
    setting.state.nodes.take("n3", host("n3", "a"))
    assert pinned_in(setting) == set()
    setting.add(pod("b", node="n1", spec=DATA))
    assert pinned_in(setting) == set()
    bound_from(setting, term(HOST, "n1"))
    assert pinned_in(setting) == {"default/b"}
    for key in ("default/a", "default/b"):
        setting.remove(key)
    assert pinned_in(setting) == set()
    assert not setting.state.index._confined
