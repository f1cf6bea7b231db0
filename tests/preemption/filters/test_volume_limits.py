"""How many volumes a node can attach: which count, and who has to go for one more."""

import pytest

from tests.preemption.building import bound, cluster, decided, node, pod, volumes_of

DRIVER = "disk.example.com"
EBS = "ebs.csi.aws.com"


def csi(handle, driver=DRIVER):
    return {"csi": {"driver": driver, "volumeHandle": handle}}


def ebs(handle):
    return {"awsElasticBlockStore": {"volumeID": f"aws://eu-west-1a/{handle}"}}


def using(name, *claims, on="", priority=0):
    return pod(name, on=on, priority=priority, cpu="100m", volumes=volumes_of(*claims))


def judged(sources, pods, *, limit, wants=("mine",), driver=DRIVER, csi_nodes=("n1",)):
    """The decision for a preemptor with claims on a node of four CPUs that attaches so many volumes of the driver."""
    pairs = [bound(name, **source) for name, source in sources.items()]
    data = cluster(
        [node("n1")],
        pods,
        using("preemptor", *wants, priority=100),
        persistentVolumeClaims=[claim for claim, _ in pairs],
        persistentVolumes=[volume for _, volume in pairs],
        csiNodes=[
            {"metadata": {"name": name}, "spec": {"drivers": [{"name": driver, "allocatable": {"count": limit}}]}}
            for name in csi_nodes
        ],
    )
    found = decided(data)
    victims = [victim.name for victim in found.selected.victims] if found.selected else []
    return found.fits, victims, found.node_reasons.get("n1", "")


EXCEEDED = "node(s) exceed max volume count"
OTHERS = {"mine": csi("m"), "a": csi("a"), "b": csi("b")}


@pytest.mark.parametrize(
    ("sources", "held", "given", "victims"),
    [
        pytest.param(OTHERS, (("a",), ("b",)), {"limit": 3}, None, id="room for one more"),
        pytest.param(OTHERS, (("a",), ("b",)), {"limit": 2}, ["p1"], id="none: the less important user goes"),
        pytest.param(
            {**OTHERS, "b": csi("a")}, (("a",), ("b",)), {"limit": 2}, None, id="two claims for one volume are one"
        ),
        pytest.param(
            {**OTHERS, "b": csi("a")}, (("a",), ("b",)), {"limit": 1}, ["p0", "p1"], id="both its users have to go"
        ),
        pytest.param({**OTHERS, "b": csi("m")}, (("a",), ("b",)), {"limit": 1}, None, id="its own is there already"),
        pytest.param({**OTHERS, "a": csi("a", "other")}, (("a",), ("b",)), {"limit": 2}, None, id="another driver"),
        pytest.param({**OTHERS, "a": {}}, (("a",), ("b",)), {"limit": 2}, None, id="no CSI volume"),
        pytest.param(OTHERS, (("a",), ("b",)), {"limit": 0, "csi_nodes": ()}, None, id="a node without a CSINode"),
        pytest.param(
            {"mine": ebs("m"), "a": csi("a", EBS), "b": ebs("b")},
            (("a",), ("b",)),
            {"limit": 2, "driver": EBS},
            ["p1"],
            id="in-tree disks belong to the driver that serves them",
        ),
        pytest.param(
            {"mine": ebs("a"), "a": csi("a", EBS), "b": ebs("b")},
            (("a",), ("b",)),
            {"limit": 1, "driver": EBS},
            None,
            id="and are the same volume by either name",
        ),
        pytest.param(
            {**OTHERS, "more": csi("o")},
            (("a",), ("b",)),
            {"limit": 3, "wants": ("mine", "more")},
            ["p1"],
            id="two volumes at once",
        ),
    ],
)
def test_volumes_that_a_node_can_attach(sources, held, given, victims):
    """Every volume counts once, whoever uses it, and as many pods go as it takes for the preemptor's to be attached."""
    pods = [using(f"p{place}", *claims, on="n1", priority=10 - place) for place, claims in enumerate(held)]
    expected = (["n1"], [], "") if victims is None else ([], victims, EXCEEDED)
    assert judged(sources, pods, **given) == expected


def test_volumes_of_pods_that_are_nominated_count():
    """A more important pod that is nominated to the node has its volume counted."""
    waiting = using("waiting", "a", priority=500)
    waiting["status"]["nominatedNodeName"] = "n1"
    assert judged(OTHERS, [waiting], limit=1) == ([], [], EXCEEDED)


def test_claims_made_for_a_pod_count():
    """The claim of an ephemeral volume counts under the name that it gets."""
    holder = pod("holder", on="n1", cpu="100m", volumes=[{"name": "scratch", "ephemeral": {}}])
    assert judged({"mine": csi("m"), "holder-scratch": csi("s")}, [holder], limit=1) == ([], ["holder"], EXCEEDED)
