"""Claims that wait for their first consumer: which volumes they take, and that no other volume is looked at."""

import pytest

from tests.preemption.building import as_pod, cluster, decided, node, pod, snapshot_of, volumes_of
from webhook.preemption.decision import fits
from webhook.preemption.filters import volumes as module
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.nodes import Nodes

LATE = {"metadata": {"name": "local"}, "volumeBindingMode": "WaitForFirstConsumer"}
STATIC = {**LATE, "provisioner": "kubernetes.io/no-provisioner"}


def claim(name="data", *, size="5Gi", uid="claim-uid", annotations=None, **spec):
    return {
        "metadata": {"name": name, "namespace": "default", "uid": uid, "annotations": annotations or {}},
        "spec": {
            "storageClassName": "local",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            **spec,
        },
    }


def volume(name, on=None, *, size="10Gi", phase="Available", **spec):
    """A free volume of the class, which only node `on` reaches if one is given."""
    row = {"key": "kubernetes.io/hostname", "operator": "In", "values": [on]}
    reach = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [row]}]}}} if on else {}
    return {
        "metadata": {"name": name, "labels": {}, "annotations": {}},
        "spec": {
            "storageClassName": "local",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            **reach,
            **spec,
        },
        "status": {"phase": phase},
    }


def asking(*names):
    return pod("preemptor", priority=100, cpu="1", volumes=volumes_of(*names))


def where(volumes, *claims, storage_class=STATIC, nodes=3):
    data = cluster(
        [node(f"n{number}") for number in range(nodes)],
        [],
        asking(*(one["metadata"]["name"] for one in claims)),
        persistentVolumes=volumes,
        persistentVolumeClaims=list(claims),
        storageClasses=[storage_class],
    )
    return fits(snapshot_of(data), as_pod(data["preemptor"]))


MINE = {"claimRef": {"namespace": "default", "name": "data"}}
BETA = "volume.beta.kubernetes.io/storage-class"


@pytest.mark.parametrize(
    ("volumes", "wanting", "nodes"),
    [
        pytest.param([volume("a", "n1")], claim(), ["n1"], id="a free one"),
        pytest.param([volume("a", "n1", size="4Gi")], claim(), [], id="too small"),
        pytest.param([volume("a", "n1", phase="Released")], claim(), [], id="not available"),
        pytest.param([volume("a", "n1", storageClassName="other")], claim(), [], id="of another class"),
        pytest.param([volume("a", "n1", **MINE), volume("b", "n2")], claim(), ["n1"], id="a reserved one goes first"),
        pytest.param(
            [volume("a", "n1", storageClassName="other", **MINE), volume("b", "n2")],
            claim(),
            ["n2"],
            id="not if reserved in another class",
        ),
        pytest.param(
            [volume("a", "n1", size="1Gi", **MINE), volume("b", "n2")], claim(), ["n2"], id="nor if it is too small"
        ),
        pytest.param(
            [volume("a", "n1", claimRef={**MINE["claimRef"], "uid": "older"})],
            claim(),
            [],
            id="nor if reserved for an earlier claim of that name",
        ),
        pytest.param(
            [volume("a", "n1", **MINE), volume("b", "n2", **MINE)], claim(), ["n1"], id="of two reserved ones the first"
        ),
        pytest.param(
            [volume("a", "n1", volumeAttributesClassName="gold")], claim(), [], id="attributes it did not ask for"
        ),
        pytest.param(
            [volume("a", "n1", volumeAttributesClassName="gold")],
            claim(volumeAttributesClassName="gold"),
            ["n1"],
            id="attributes it asked for",
        ),
        pytest.param(
            [volume("a", "n1")],
            claim(annotations={BETA: "local"}, storageClassName="ignored"),
            ["n1"],
            id="a claim's class by annotation",
        ),
    ],
)
def test_which_volume_a_claim_takes(volumes, wanting, nodes):
    """The smallest free volume that suits, in the claim's class; one that is reserved for it is the only one."""
    assert where(volumes, wanting) == nodes


def test_claims_do_not_share_a_volume():
    """Two claims need two volumes on one node."""
    here, there = [volume("a", "n1"), volume("b", "n1")], [volume("c", "n2")]
    assert where(here + there, claim("data"), claim("logs")) == ["n1"]


@pytest.mark.parametrize(
    ("sizes", "fast", "nodes"),
    [
        pytest.param({"a": "10Gi", "b": "10Gi"}, "a", [], id="which alone suits the larger one"),
        pytest.param({"a": "10Gi", "b": "10Gi"}, "b", ["n1"], id="which leaves the larger one its own"),
        pytest.param({"a": "10Gi", "b": "6Gi"}, "a", ["n1"], id="the smallest that is large enough"),
    ],
)
def test_the_smaller_claim_takes_its_volume_first(sizes, fast, nodes):
    """A claim of 5Gi, though named last, takes the first of the smallest volumes; one of 9Gi asks for the fast one."""
    volumes = [volume(name, "n1", size=size) for name, size in sizes.items()]
    for one in volumes:
        one["metadata"]["labels"] = {"kind": "fast" if one["metadata"]["name"] == fast else "slow"}
    larger = claim("logs", size="9Gi", selector={"matchLabels": {"kind": "fast"}})
    assert where(volumes, larger, claim("data")) == nodes


def test_volumes_are_made_where_the_class_allows():
    """Without a volume a claim waits for one to be made, on the nodes that the class's topologies name."""
    host = {"key": "kubernetes.io/hostname", "values": ["n1"]}
    made = {**LATE, "provisioner": "disk.example.com"}
    assert where([], claim(), storage_class=made) == ["n0", "n1", "n2"]
    allowed = {**made, "allowedTopologies": [{"matchLabelExpressions": [host]}]}
    assert where([], claim(), storage_class=allowed) == ["n1"]


@pytest.mark.parametrize(("own", "claims"), [(0, ["data"]), (1000, ["data"])])
def test_volumes_of_others_are_not_looked_at(monkeypatch, own, claims):
    """However many volumes the claim's class has, nodes are compared once; without one they are not."""
    asked = []
    for owner, name in ((module, "affinity_mask"), (Nodes, "has_label_in")):
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, real=real, **more: asked.append(args) or real(*args, **more))
    volumes = [volume(f"own-{n}", f"n{n % 3}") for n in range(own)]
    volumes += [volume(f"other-{n}", f"n{n % 3}", storageClassName=f"class-{n % 5}") for n in range(6000 - own)]
    found = where(volumes, *(claim(name) for name in claims))
    assert found == (["n0", "n1", "n2"] if own else [])
    assert len(asked) == (1 if own else 0)


def test_a_capacity_that_is_no_quantity_is_an_error_at_once():
    """A volume or a claim whose size cannot be read is named."""
    with pytest.raises(ClusterError, match="persistentvolume a: storage: "):
        where([volume("a", size="huge")], claim())
    with pytest.raises(ClusterError, match="persistentvolumeclaim data: storage: "):
        where([volume("a")], claim(size="huge"))


def test_preemption_happens_only_where_the_volume_is():
    """A node that cannot reach the reserved volume is no candidate, whatever is free there."""
    data = cluster(
        [node("n1"), node("n2")],
        [pod("a", on="n1", cpu="4"), pod("b", on="n2", cpu="4")],
        asking("data"),
        persistentVolumes=[volume("mine", "n2", **MINE), volume("free", "n1")],
        persistentVolumeClaims=[claim()],
        storageClasses=[STATIC],
    )
    decision = decided(data)
    assert [one.node for one in decision.candidates] == ["n2"]
