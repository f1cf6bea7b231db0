"""Claims that wait for their first consumer: volumes of other classes are not looked at. The rest, the oracle says."""

import pytest

from tests.preemption.building import as_pod, cluster, node, pod, snapshot_of
from webhook.preemption.decision import fits
from webhook.preemption.filters import volumes as module
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.snapshot.nodes import Nodes


def volume(name, on, *, size="10Gi", of_class="local"):
    """A free volume that only node `on` reaches."""
    row = {"key": "kubernetes.io/hostname", "operator": "In", "values": [on]}
    spec = {"storageClassName": of_class, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}}
    reach = {"required": {"nodeSelectorTerms": [{"matchExpressions": [row]}]}}
    return {"metadata": {"name": name}, "spec": spec | {"nodeAffinity": reach}, "status": {"phase": "Available"}}


def where(volumes, size="5Gi"):
    """The nodes that a pod fits on with a claim of this size of the class `local`."""
    requests = {"requests": {"storage": size}}
    claim = {
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "resources": requests},
    }
    late = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "kubernetes.io/no-provisioner"}
    data = cluster(
        [node(f"n{number}") for number in range(3)],
        [],
        pod("preemptor", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]),
        persistentVolumes=volumes,
        persistentVolumeClaims=[claim],
        storageClasses=[{"metadata": {"name": "local"}, **late}],
    )
    return fits(snapshot_of(data), as_pod(data["preemptor"]))


@pytest.mark.parametrize("own", [0, 1000])
def test_volumes_of_others_are_not_looked_at(monkeypatch, own):
    """However many volumes the claim's class has, nodes are compared once; without one they are not."""
    asked = []
    for owner, name in ((module, "affinity_mask"), (Nodes, "has_label_in")):
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, real=real, **more: asked.append(args) or real(*args, **more))
    volumes = [volume(f"own-{n}", f"n{n % 3}") for n in range(own)]
    volumes += [volume(f"other-{n}", f"n{n % 3}", of_class=f"class-{n % 5}") for n in range(6000 - own)]
    assert where(volumes) == (["n0", "n1", "n2"] if own else [])
    assert len(asked) == (1 if own else 0)


def test_a_capacity_that_is_no_quantity_is_an_error_at_once():
    """A volume or a claim whose size cannot be read is named."""
    with pytest.raises(ClusterError, match="persistentvolume a: storage: "):
        where([volume("a", "n1", size="huge")])
    with pytest.raises(ClusterError, match="persistentvolumeclaim data: storage: "):
        where([volume("a", "n1")], size="huge")
