"""Spread and volumes: what the oracle's clusters have too rarely, and what is counted beside their answers."""

import pytest

from tests.cases import table
from tests.preemption.building import HOST, NOW, as_pod, cluster, node, pod, rules, snapshot_of, spread, volumes_of
from webhook.preemption.decision import decide, fits
from webhook.preemption.filters import volumes as module
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.nodes import Nodes
from webhook.preemption.victims.rules import kubernetes_rules

SPREAD = spread(HOST, app="db")


def of_db(made, **metadata):
    """The pod as one of those that the constraint counts."""
    made["metadata"] |= {"labels": {"app": "db"}, **metadata}
    return made


@table(
    "by, victims",
    ("kube-scheduler counts one less for a pod it did not count", kubernetes_rules(), {"leaves", "filler"}),
    ("under a policy nobody goes in vain", rules(), None),
)
def test_a_pod_that_leaves_is_not_taken_away_twice(by, victims):
    """On a node with one pod too many of the spread, another one that leaves anyway makes no room under a policy."""
    pods = [
        of_db(pod("stays", on="full", priority=200)),
        of_db(pod("leaves", on="full", priority=5), deletionTimestamp="2026-01-01T00:00:00Z"),
        pod("filler", on="full", cpu="2", priority=5),
    ]
    preemptor = of_db(pod("preemptor", cpu="2", priority=100, **SPREAD))
    nodes = [node("full"), node("empty", unschedulable=True)]
    selected = decide(snapshot_of(cluster(nodes, pods, preemptor), by), as_pod(preemptor), by, NOW).selected
    assert (selected and {victim.name for victim in selected.victims}) == victims


STATIC = {
    "metadata": {"name": "local"},
    "volumeBindingMode": "WaitForFirstConsumer",
    "provisioner": "kubernetes.io/no-provisioner",
}


def claim(name="data", size="5Gi"):
    spec = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
    spec["resources"] = {"requests": {"storage": size}}
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "spec": spec}


def volume(name, on, size="10Gi", storage_class="local"):
    """A free volume, which only this node reaches."""
    row = {"key": "kubernetes.io/hostname", "operator": "In", "values": [on]}
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [row]}]}}}
    spec |= {"storageClassName": storage_class, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}}
    return {"metadata": {"name": name, "labels": {}}, "spec": spec, "status": {"phase": "Available"}}


def where(volumes, *claims):
    """Which of three nodes a pod with these claims fits on."""
    nodes = [node(f"n{number}") for number in range(3)]
    asking = pod("preemptor", priority=100, cpu="1", volumes=volumes_of(*(one["metadata"]["name"] for one in claims)))
    objects = {"persistentVolumes": volumes, "persistentVolumeClaims": claims, "storageClasses": [STATIC]}
    return fits(snapshot_of(cluster(nodes, [], asking, **objects)), as_pod(asking))


@pytest.mark.parametrize("own", [0, 1000])
def test_volumes_of_others_are_not_looked_at(monkeypatch, own):
    """However many volumes the claim's class has, nodes are compared once; without one they are not."""
    asked = []
    for owner, name in ((module, "affinity_mask"), (Nodes, "has_label_in")):
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, real=real, **more: asked.append(args) or real(*args, **more))
    volumes = [volume(f"own-{n}", f"n{n % 3}") for n in range(own)]
    volumes += [volume(f"other-{n}", f"n{n % 3}", storage_class=f"class-{n % 5}") for n in range(6000 - own)]
    assert where(volumes, claim()) == (["n0", "n1", "n2"] if own else [])
    assert len(asked) == (1 if own else 0)


def test_a_capacity_that_is_no_quantity_is_an_error_at_once():
    """A volume or a claim whose size cannot be read is named."""
    with pytest.raises(ClusterError, match="persistentvolume a: storage: "):
        where([volume("a", "n1", "huge")], claim())
    with pytest.raises(ClusterError, match="persistentvolumeclaim data: storage: "):
        where([volume("a", "n1")], claim(size="huge"))
