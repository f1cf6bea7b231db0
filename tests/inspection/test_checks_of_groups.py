"""The checks of groups of `giveway doctor`: who waits for members that do not come, and who can never have room."""

from msgspec import convert

from tests.inspection.observing import NOW, assert_finds, finds, observed, summary
from tests.preemption import building
from webhook.inspection.checks import groups
from webhook.kube.instants import rfc3339
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.devices import DeviceClass, DeviceClassSpec
from webhook.kube.objects.scheduling import PodGroup, PodGroupSpec, SchedulingConstraints, TopologyConstraint
from webhook.preemption.snapshot.pod_groups import GroupKey

RING = GroupKey("PodGroup", "team-a", "ring")


def since(there, minutes, minimum):
    """A group of which so many pods are there since then, all but one of which wait."""
    created = rfc3339(NOW - 60 * minutes)
    pods = [summary(f"ring-{number}", node="" if number else "n1", created=created) for number in range(there)]
    return observed(**({"minima": {RING: minimum}, "members": {RING: pods}} if minimum else {}))


test_groups_too_small = finds(
    "A group is told of if pods of it have waited for long and there are fewer than it needs.",
    groups.too_small,
    ("one-is-missing", 2, 25, 3, "warning: PodGroup team-a/ring needs 3 pods and has had 2 for 25 min."),
    ("for-a-moment", 2, 5, 3, ""),
    ("all-are-there", 3, 25, 3, ""),
    ("no-minimum", 2, 25, None, ""),
    given=since,
)


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


def ring_on(members, there, minimum, topology):
    """A group with its minimum, and in one domain of a topology if one is given, on these nodes."""
    constraints = SchedulingConstraints(topology=[TopologyConstraint(key=topology)]) if topology else None
    group = PodGroup(spec=PodGroupSpec(scheduling_constraints=constraints))
    return observed(nodes=there, minima={RING: minimum}, pod_groups={RING: group}, members={RING: members})


test_groups_without_room = finds(
    "A group is told of if its pods have no room together even on empty nodes, and not if they may have.",
    groups.without_room,
    ("one-on-each", ring("4", "4"), nodes(2), 2, "", ""),
    ("a-node-too-few", ring("4", "4", "4"), nodes(2), 3, "", "at most 2 of its 3 have room"),
    ("bound-ones-count", ring("4", "4", "4", bound=1), nodes(2), 3, "", "at most 2 of its 3"),
    ("beyond-the-minimum", ring("4", "4", "4"), nodes(2), 2, "", ""),
    ("nodes-too-small", ring("8", "8"), nodes(2), 2, "", "at most 0 of its 2"),
    ("one-of-them-too-large", ring("4", "8"), nodes(2), 2, "", "at most 1 of its 2"),
    ("even-those-that-are-there", ring("8", "8"), nodes(2), 3, "", "at most 0 of its 2"),
    ("taint", ring("1", "1"), nodes(2, **TAINTED), 2, "", "at most 0 of its 2"),
    ("node-selector", ring("1", nodeSelector={"a": "b"}), nodes(2), 1, "", "at most 0 of its 1"),
    ("cordoned", ring("1", "1"), nodes(2, unschedulable=True), 2, "", "at most 0 of its 2"),
    ("not-ready", ring("1", "1"), nodes(2, status=NOT_READY), 2, "", "at most 0 of its 2"),
    ("each-on-its-own-node", ring("1", "1", "1", **ALONE), nodes(2), 3, "", "at most 2 of its 3"),
    ("one-zone-has-it", ring("4", "4"), nodes(2, **WEST), 2, "zone", ""),
    ("domain", ring("4", "4"), nodes(2), 2, "kubernetes.io/hostname", "room in one domain of its topology"),
    ("lax", ring("1", volumes=[{"name": "v"}], resourceClaims=[{"name": "c"}]), nodes(1), 1, "", ""),
    ("many", ring(*["2"] * 40), nodes(19), 40, "", "at most 38 of its 40"),
    given=ring_on,
    said="warning: *{}*",
)


def test_room_of_device_classes_counts():
    """A resource that a device class provides may be there though no node says so."""
    gpu = {"containers": [{"name": "main", "resources": {"requests": {"example.com/gpu": "1"}}}]}
    known = {"nodes": nodes(1), "minima": {RING: 1}, "members": {RING: ring("1", **gpu)}}
    assert_finds(groups.without_room, observed(**known), "warning: *at most 0 of its 1*")
    classes = [DeviceClass(spec=DeviceClassSpec(extended_resource_name="example.com/gpu"))]
    assert_finds(groups.without_room, observed(**known, device_classes=classes), "")


def quota(*, of="team-a", **spec):
    return {"metadata": {"name": "q", "namespace": of}, "spec": {"hard": {"pods": "1"}, **spec}}


def by_class(operator, *values, of="team-a"):
    """A quota with a scope by the PriorityClass."""
    scope = {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}
    return quota(of=of, scopeSelector={"matchExpressions": [scope]})


test_quotas_that_a_twin_passes_by = finds(
    "A quota by class is told of if it counts a class and its twin differently: pods are moved before it counts.",
    groups.by_class,
    ("the old class", by_class("In", "online"), "q counts pods of PriorityClass online, and it does not"),
    ("all others", by_class("NotIn", "online"), "q does not count pods of PriorityClass online"),
    ("the twin alone", by_class("In", "giveway-online"), "q does not count*and it counts those of its twin"),
    ("both", by_class("In", "online", "giveway-online"), ""),
    ("neither", by_class("NotIn", "online", "giveway-online"), ""),
    ("any class", by_class("Exists"), ""),
    ("another class", by_class("In", "other"), ""),
    ("a scope without values", quota(scopes=["PriorityClass"]), ""),
    ("no scope", quota(), ""),
    ("where nobody is moved", by_class("In", "online", of="kube-system"), ""),
    given=lambda found: observed(resourcequotas=[found]),
    said="warning: ResourceQuota team-a/{}*",
)
