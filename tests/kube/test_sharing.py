"""Pods without repetition: nothing that is read changes, what is equal is one object, and dead parts are forgotten."""

import gc
import tracemalloc

import msgspec
import pytest

from tests.bench.large_cluster import REPLICAS, LargeCluster
from webhook.kube.objects import sharing
from webhook.kube.objects.pod import Pod
from webhook.kube.objects.sharing import SharedPods
from webhook.kube.pods import RESIZE_PENDING
from webhook.preemption.snapshot.kinds import PODS
from webhook.preemption.snapshot.snapshot import Snapshot

DECODER = msgspec.json.Decoder(Pod)
CLUSTER = LargeCluster(100_000, 5000)


def decoded(**fields):
    """A pod from JSON."""
    return msgspec.convert({"metadata": {"name": "p", "namespace": "a", "uid": "u"}, **fields}, Pod)


def ordinary(number):
    """One of many pods as an API server sends them."""
    return DECODER.decode(CLUSTER.pod(number))


def test_a_pod_takes_little_memory():
    """A pod of two containers and a sidecar takes less than 2.5 kB next to others of its workload."""
    share, count = SharedPods(), 40 * REPLICAS
    raws = [CLUSTER.pod(number) for number in range(count)]
    share(DECODER.decode(raws[0]))
    gc.collect()
    tracemalloc.start()
    kept = [share(DECODER.decode(raw)) for raw in raws]
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / len(kept) < 2500


def test_what_pods_have_in_common_is_one_object():
    """Labels, owner, containers, tolerations and affinity of one workload's pods are the same objects."""
    share = SharedPods()
    one, other = share(ordinary(0)), share(ordinary(1))
    assert one.metadata.name != other.metadata.name
    assert one.spec.node_name != other.spec.node_name
    assert one.metadata.labels is other.metadata.labels
    assert one.metadata.owner_references is other.metadata.owner_references
    assert one.metadata.generate_name is other.metadata.generate_name
    assert one.status.conditions is other.status.conditions
    for part in ("containers", "init_containers", "tolerations", "affinity"):
        assert getattr(one.spec, part) is getattr(other.spec, part)


def test_pods_of_a_stateful_set_share():
    """Pods that differ in their claims have their containers in common all the same."""
    share = SharedPods()
    kept = [
        share(decoded(spec={"nodeName": node, "containers": [{"name": "c"}], "volumes": [claim(node)]}))
        for node in ("n1", "n2")
    ]
    assert kept[0].spec.containers is kept[1].spec.containers
    assert [pod.spec.volumes[0].persistent_volume_claim.claim_name for pod in kept] == ["data-n1", "data-n2"]


def claim(node):
    """A volume whose claim is named for a node."""
    return {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{node}"}}


PARTS = [
    pytest.param({}, id="nothing"),
    pytest.param({"spec": {"nodeName": "n1", "priority": 5, "priorityClassName": "low"}}, id="bound"),
    pytest.param({"spec": {"nodeName": "n1", "overhead": {"cpu": "1"}}}, id="overhead"),
    pytest.param({"spec": {"nodeName": "n1", "containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}}, id="port"),
    pytest.param(
        {"spec": {"nodeName": "n1", "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}},
        id="claim",
    ),
    pytest.param({"spec": {"nodeName": "n1", "volumes": [{"name": "v", "ephemeral": {"a": 1}}]}}, id="ephemeral"),
    pytest.param(
        {
            "spec": {"nodeName": "n1"},
            "status": {
                "phase": "Running",
                "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
            },
        },
        id="disrupted",
    ),
    pytest.param(
        {
            "metadata": {"name": "p", "namespace": "a", "annotations": {"giveway.dev/plan": "{}"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "v"}]},
            "status": {
                "nominatedNodeName": "n1",
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "message": "0/3", "lastTransitionTime": "2026-01-01"}
                ],
            },
        },
        id="pending",
    ),
]


@pytest.mark.parametrize("fields", PARTS)
def test_a_pod_says_the_same_as_before(fields):
    """Nothing is lost, and a second pod that is equal but for name and node does not get the first one's."""
    share, spec = SharedPods(), fields.get("spec", {})
    elsewhere = {**fields, "spec": {**spec, "nodeName": "n2"}} if "nodeName" in spec else fields
    for given in (fields, elsewhere, fields):
        assert share(decoded(**given)) == decoded(**given)


def test_what_nobody_reads_is_left_out():
    """Of a pod with a node, images, its own ports, idle volumes, messages and instants of conditions are not kept."""
    conditions = [{"type": "Ready", "status": "False", "message": "why", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    volumes = [{"name": "kube-api-access-x2v4p"}, {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}]}
    spec = {"nodeName": "n1", "volumes": volumes, "containers": [container]}
    kept = SharedPods()(decoded(spec=spec, status={"conditions": conditions}))
    assert (kept.spec.containers[0].image, [port.host_port for port in kept.spec.containers[0].ports]) == ("", [81])
    assert [volume.name for volume in kept.spec.volumes] == ["v"]
    assert msgspec.to_builtins(kept.status.conditions) == [{"type": "Ready", "status": "False"}]


@pytest.mark.parametrize(
    ("type_", "timed", "kept"), [(RESIZE_PENDING, (), True), ("a", ("a",), True), ("b", ("a",), False)]
)
def test_some_instants_are_read(type_, timed, kept):
    """Since when a pod wants to grow decides when it is its turn; who reads further instants says so."""
    since = "2026-01-01T00:00:00Z"
    status = {"conditions": [{"type": type_, "status": "True", "message": "why", "lastTransitionTime": since}]}
    [condition] = SharedPods(timed=timed)(decoded(spec={"nodeName": "n1"}, status=status)).status.conditions
    assert (condition.message, condition.last_transition_time) == ("", since if kept else None)


def test_the_snapshot_is_the_same():
    """Whether pods are shared makes no difference to what decisions see of them."""
    plain, shared, share = Snapshot(), Snapshot(), SharedPods()
    for number in range(0, 2000, 7):
        plain.put(PODS, ordinary(number))
        shared.put(PODS, share(ordinary(number)))
    for ids in ("owners", "profiles", "identities"):
        assert getattr(plain.pods, ids).values == getattr(shared.pods, ids).values
    for texts in ("names", "namespaces", "uids"):
        assert getattr(plain.pods, texts) == getattr(shared.pods, texts)
    columns = (
        "amounts",
        "node",
        "start",
        "priority",
        "port_set",
        "anti_set",
        "claim_set",
        "owner",
        "profile",
        "identity",
    )
    for column in (*columns, "terminating", "disruption"):
        assert (getattr(plain.pods, column) == getattr(shared.pods, column)).all()


def test_what_is_kept_for_sharing_is_bounded(monkeypatch):
    """Parts that nobody asks for any more are forgotten, those in use stay, and what is too large is not kept."""
    monkeypatch.setattr(sharing, "_MOST", 20)
    share = SharedPods()

    def labels(says):
        return share(decoded(metadata={"name": "p", "namespace": "a", "labels": {"a": says}})).metadata.labels

    first = labels("first")
    for number in range(100):
        labels(f"part {number}")
        assert labels("first") is first
        assert len(share._labels) <= 20
    assert labels("x" * 5000) is not labels("x" * 5000)
