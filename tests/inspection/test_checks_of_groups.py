"""The checks of groups of `giveway doctor`: who waits for members that do not come, and who can never have room."""

import pytest
from msgspec import convert

from tests.inspection.observing import NOW, found, observed, summary
from tests.preemption import building
from webhook.inspection.checks import groups
from webhook.kube.instants import rfc3339
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import DeviceClass, DeviceClassSpec
from webhook.kube.objects.scheduling import PodGroup, PodGroupSpec, SchedulingConstraints, TopologyConstraint

RING = ("PodGroup", "team-a", "ring")


@pytest.mark.parametrize(
    ("there", "minutes", "minimum", "told"),
    [
        pytest.param(2, 25, 3, True, id="one-is-missing"),
        pytest.param(2, 5, 3, False, id="for-a-moment"),
        pytest.param(3, 25, 3, False, id="all-are-there"),
        pytest.param(2, 25, None, False, id="no-minimum"),
    ],
)
def test_groups_too_small(there, minutes, minimum, told):
    """A group is told of if pods of it have waited for long and there are fewer than it needs."""
    since = rfc3339(NOW - 60 * minutes)
    pods = [summary(f"ring-{number}", node="" if number else "n1", created=since) for number in range(there)]
    known = {"minima": {RING: minimum}, "members": {RING: pods}} if minimum else {}
    texts = [what for _, what in found(groups.too_small, observed(**known))]
    said = "PodGroup team-a/ring needs 3 pods and has had 2 for 25 min."
    assert texts == ([said] if told else [])


WEST = {"labels": {"zone": "west"}}
APART = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "ring"}}}
    ]
}
ALONE = {"affinity": {"podAntiAffinity": APART}}
TAINTED = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
NOT_READY = {"conditions": [{"type": "Ready", "status": "Unknown"}]}


def ring(*sizes, bound=0, **spec):
    """Members of a group that ask for so many CPUs, the first of which are bound."""
    pods = []
    for number, cpu in enumerate(sizes):
        made = building.pod(f"ring-{number}", on="n0" if number < bound else "", cpu=cpu, **spec)
        made["metadata"]["labels"] = {"app": "ring"}
        pods.append(building.as_pod(made))
    return pods


def nodes(number, *, status=None, **given):
    """So many nodes of 4 CPU."""
    made = [building.node(f"n{place}", **given) for place in range(number)]
    return [convert(one | {"status": one["status"] | (status or {})}, Node) for one in made]


@pytest.mark.parametrize(
    ("members", "there", "minimum", "topology", "told"),
    [
        pytest.param(ring("4", "4"), nodes(2), 2, "", "", id="one-on-each"),
        pytest.param(ring("4", "4", "4"), nodes(2), 3, "", "at most 2 of its 3 have room", id="a-node-too-few"),
        pytest.param(ring("4", "4", "4", bound=1), nodes(2), 3, "", "at most 2 of its 3", id="bound-ones-count"),
        pytest.param(ring("4", "4", "4"), nodes(2), 2, "", "", id="beyond-the-minimum"),
        pytest.param(ring("8", "8"), nodes(2), 2, "", "at most 0 of its 2", id="nodes-too-small"),
        pytest.param(ring("4", "8"), nodes(2), 2, "", "at most 1 of its 2", id="one-of-them-too-large"),
        pytest.param(ring("8", "8"), nodes(2), 3, "", "at most 0 of its 2", id="even-those-that-are-there"),
        pytest.param(ring("1", "1"), nodes(2, **TAINTED), 2, "", "at most 0 of its 2", id="taint"),
        pytest.param(ring("1", nodeSelector={"a": "b"}), nodes(2), 1, "", "at most 0 of its 1", id="node-selector"),
        pytest.param(ring("1", "1"), nodes(2, unschedulable=True), 2, "", "at most 0 of its 2", id="cordoned"),
        pytest.param(ring("1", "1"), nodes(2, status=NOT_READY), 2, "", "at most 0 of its 2", id="not-ready"),
        pytest.param(ring("1", "1", "1", **ALONE), nodes(2), 3, "", "at most 2 of its 3", id="each-on-its-own-node"),
        pytest.param(ring("4", "4"), nodes(2, **WEST), 2, "zone", "", id="one-zone-has-it"),
        pytest.param(
            ring("4", "4"), nodes(2), 2, "kubernetes.io/hostname", "room in one domain of its topology", id="domain"
        ),
        pytest.param(ring("1", volumes=[{"name": "v"}], resourceClaims=[{"name": "c"}]), nodes(1), 1, "", "", id="lax"),
        pytest.param(ring(*["2"] * 40), nodes(19), 40, "", "at most 38 of its 40", id="many"),
    ],
)
def test_groups_without_room(members, there, minimum, topology, told):
    """A group is told of if its pods have no room together even on empty nodes, and not if they may have."""
    constraints = SchedulingConstraints(topology=[TopologyConstraint(key=topology)]) if topology else None
    group = PodGroup(spec=PodGroupSpec(scheduling_constraints=constraints))
    known = {"nodes": there, "minima": {RING: minimum}, "pod_groups": {RING: group}, "members": {RING: members}}
    texts = [what for _, what in found(groups.without_room, observed(**known))]
    assert len(texts) == bool(told)
    assert all(told in text for text in texts)


def test_room_of_device_classes_counts():
    """A resource that a device class provides may be there though no node says so."""
    gpu = {"containers": [{"name": "main", "resources": {"requests": {"example.com/gpu": "1"}}}]}
    known = {"nodes": nodes(1), "minima": {RING: 1}, "members": {RING: ring("1", **gpu)}}
    assert len(found(groups.without_room, observed(**known))) == 1
    classes = [DeviceClass(spec=DeviceClassSpec(extended_resource_name="example.com/gpu"))]
    assert found(groups.without_room, observed(**known, device_classes=classes)) == []


def quota(hard, *, of="team-a", **spec):
    return {"metadata": {"name": "q", "namespace": of}, "spec": {"hard": hard, **spec}}


def scoped(operator, *values):
    """A scope by the PriorityClass."""
    return {
        "scopeSelector": {
            "matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": list(values)}]
        }
    }


def by_class(*scope, of="team-a"):
    return quota({"pods": "1"}, of=of, **scoped(*scope))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        pytest.param(
            by_class("In", "online"), "q counts pods of PriorityClass online, and it does not", id="the old class"
        ),
        pytest.param(by_class("NotIn", "online"), "q does not count pods of PriorityClass online", id="all others"),
        pytest.param(by_class("In", "giveway-online"), "and it counts those of its twin", id="the twin alone"),
        pytest.param(by_class("In", "online", "giveway-online"), "", id="both"),
        pytest.param(by_class("NotIn", "online", "giveway-online"), "", id="neither"),
        pytest.param(by_class("Exists"), "", id="any class"),
        pytest.param(by_class("In", "other"), "", id="another class"),
        pytest.param(quota({"pods": "1"}, scopes=["PriorityClass"]), "", id="a scope without values"),
        pytest.param(quota({"pods": "1"}), "", id="no scope"),
        pytest.param(by_class("In", "online", of="kube-system"), "", id="where nobody is moved"),
    ],
)
def test_quotas_that_a_twin_passes_by(given, told):
    """A quota by class is told of if it counts a class and its twin differently: pods are moved before it counts."""
    texts = [what for _, what in found(groups.by_class, observed(resourcequotas=[given]))]
    assert len(texts) == bool(told)
    assert all(told in text and "ResourceQuota team-a/q " in text for text in texts)
