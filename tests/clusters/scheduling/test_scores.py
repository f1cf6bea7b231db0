"""The scores of kube-scheduler's default profile, reckoned by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from tests.preemption.building import node, pod
from webhook.clusters.scheduling.default_spread import Selecting, Selectors
from webhook.clusters.scheduling.scores import View, best_node, scores
from webhook.clusters.scheduling.tally import Tally
from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import REPLICA_SET, SERVICE
from webhook.preemption.filters.filtering import prefilter, run_filters
from webhook.preemption.snapshot.kinds import NODES, PODS
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.snapshot.snapshot import Snapshot

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def view(nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> View:
    snapshot, tally = Snapshot(), Tally()
    for one in nodes:
        snapshot.put(NODES, msgspec.convert(one, Node))
    for one in pods:
        taken = msgspec.convert(one, Pod)
        snapshot.put(PODS, taken)
        tally.put(f"default/{taken.metadata.name}", taken)
    return View(snapshot, tally, Selectors())


def scored(over: View, incoming: dict[str, Any]) -> dict[str, int]:
    rows = over.snapshot.nodes.known()
    found = scores(over, compile_pod(msgspec.convert(incoming, Pod)), rows)
    return {over.snapshot.nodes.names[row]: int(score) for row, score in zip(rows, found, strict=True)}


def gained(over: View, comes: dict[str, Any], plain: dict[str, Any]) -> dict[str, int]:
    """What a pod scores on each node beyond a plain one."""
    before = scored(over, plain)
    return {name: score - before[name] for name, score in scored(over, comes).items()}


def sized(name: str, cpu: str, memory: str, **spec: Any) -> dict[str, Any]:
    made = pod(name, **spec)
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu, "memory": memory}}
    return made


def two_zones() -> list[dict[str, Any]]:
    return [node(name, "4", labels={ZONE: zone}) for name, zone in (("a", "z1"), ("b", "z2"))]


def labelled(made: dict[str, Any], **labels: str) -> dict[str, Any]:
    made["metadata"]["labels"] = labels
    return made


def test_free_and_balanced_shares():
    """75 % of the cpu and 75 % of the memory free are 75 points; shares that stay equal another 75.

    Where cpu is used and memory is not, a pod that asks for memory makes the shares equal: from 75 to 100 points.
    """
    over = view([node("a", "4")], [])
    assert scored(over, sized("p", "1", "16Gi")) == {"a": 75 + 75}
    assert scored(over, sized("p", "1", "48Gi")) == {"a": (75 + 25) // 2 + 50 + (50 + 75 - 100) // 2}
    over = view([node("a", "4")], [sized("there", "2", "0", on="a")])
    assert scored(over, sized("p", "0", "32Gi")) == {"a": 50 + 50 + (50 + 100 - 75) // 2}


def test_containers_without_requests_count_with_the_defaults():
    """A pod that asks for nothing weighs 100 millicores and 200 MiB, on its node and as the one that comes."""
    bare = pod("there", on="a", cpu="")
    over = view([node("a", "1"), node("b", "1")], [bare])
    assert scored(over, pod("p", cpu="")) == {"a": (80 + 99) // 2, "b": (90 + 99) // 2}


def test_taints_that_are_not_tolerated_are_counted():
    """The node with the most taints PreferNoSchedule gets nothing, one without all."""
    nodes = [node("a"), node("b"), node("c")]
    soft = [{"key": str(number), "effect": "PreferNoSchedule"} for number in range(4)]
    nodes[1]["spec"]["taints"], nodes[2]["spec"]["taints"] = soft[:1], soft
    tolerates = pod("p", tolerations=[{"operator": "Exists"}])
    assert gained(view(nodes, []), pod("p"), tolerates) == {"a": 3 * 100, "b": 3 * 75, "c": 0}


def test_preferred_nodes():
    """The heaviest sum of preferences is 100 points, others are in proportion; each counts double."""
    nodes = [node("a", labels={"disk": "ssd", "gen": "2"}), node("b", labels={"disk": "ssd"}), node("c")]
    prefer = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}
        for key, weight in (("disk", 10), ("gen", 30))
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": prefer}}
    assert gained(view(nodes, []), pod("p", affinity=affinity), pod("p")) == {"a": 200, "b": 50, "c": 0}


def company(kind: str, app: str, key: str = HOST) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    rows = [{"weight": 50, "podAffinityTerm": term}]
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": rows}}


NEW = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "new"}}}


@pytest.mark.parametrize(
    ("there", "comes", "best"),
    [
        pytest.param({}, company("podAffinity", "web"), "a", id="it-wants-company"),
        pytest.param({}, company("podAntiAffinity", "web"), "b", id="it-keeps-away"),
        pytest.param(company("podAffinity", "new"), {}, "a", id="they-want-its-company"),
        pytest.param(company("podAntiAffinity", "new"), {}, "b", id="they-keep-away-from-it"),
        pytest.param({}, company("podAntiAffinity", "web", "no-such-label"), None, id="a-topology-that-is-not-there"),
        pytest.param(
            {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEW]}}, {}, "a", id="they-require-it"
        ),
    ],
)
def test_preferred_company(there, comes, best):
    """Preferences are followed in both directions, and move a node by 200 points."""
    web = labelled(sized("web", "1", "16Gi", on="a", affinity=there), app="web")
    other = labelled(sized("other", "1", "16Gi", on="b"), app="other")
    found = scored(view([node("a"), node("b")], [web, other]), labelled(pod("p", affinity=comes), app="new"))
    assert found["a"] - found["b"] == {"a": 200, "b": -200, None: 0}[best]


def test_soft_spread():
    """The zone with three of five matching pods gets 2/3 of the points of the other: 200 * 2 // 3, doubled."""
    soft = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
    soft["labelSelector"] = {"matchLabels": {"app": "web"}}
    there = [labelled(pod(f"w{number}", on="a" if number < 3 else "b", cpu="0"), app="web") for number in range(5)]
    comes = labelled(pod("p", topologySpreadConstraints=[soft]), app="web")
    # ln(2 + 2) * 3 rounds to 4, ln(4) * 2 to 3: (4 + 3 - 4) * 100 // 4 and (4 + 3 - 3) * 100 // 4
    assert gained(view(two_zones(), there), comes, labelled(pod("p"), app="web")) == {"a": 2 * 75, "b": 2 * 100}


def test_soft_spread_by_the_pods_own_labels():
    """`matchLabelKeys` narrow an empty selector, too, to pods with the same values; by itself it counts nobody."""
    soft = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    over = view(two_zones(), [labelled(pod(name, on="a", cpu="0"), app=name) for name in ("web", "other")])
    for keys, points in ((["app"], {"a": 0, "b": 2 * 100}), ([], {"a": 2 * 100, "b": 2 * 100})):
        comes = labelled(pod("p", topologySpreadConstraints=[{**soft, "matchLabelKeys": keys}]), app="web")
        assert gained(over, comes, labelled(pod("p"), app="web")) == points


@pytest.mark.parametrize("resource", [SERVICE, REPLICA_SET], ids=["service", "replicaset"])
def test_pods_of_services_and_controllers_are_spread_by_default(resource):
    """Without constraints of its own a pod keeps away from its like, hosts and zones alike."""
    over = view(two_zones(), [labelled(pod("w", on="a", cpu="0"), app="web")])
    selector = {"app": "web"} if resource is SERVICE else {"matchLabels": {"app": "web"}}
    made = msgspec.convert({"metadata": {"name": "web"}, "spec": {"selector": selector}}, Selecting)
    comes = labelled(pod("p"), app="web")
    comes["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}]
    before = scored(over, comes)
    over.selectors.changed(resource, Change("added", "default/web", None, made))
    found = scored(over, comes)
    # hosts: ln 4 * 1 + 2, zones: ln 4 * 1 + 4; together 8.77 -> 9 on a, 6 on b
    assert {name: found[name] - before[name] for name in found} == {"a": 2 * 66, "b": 2 * 100}


def test_leaving_pods_do_not_count_and_tallies_come_back_to_nothing():
    """What was counted for a pod is taken back when it leaves, moves or is gone."""
    tally = Tally()
    there = labelled(pod("w", on="a", cpu="", affinity=company("podAffinity", "web")), app="web")
    tally.put("default/w", msgspec.convert(there, Pod))
    assert list(tally.matching("default", {"app": "web"}, lambda _: True)) == [{"a": 1}]
    there["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    tally.put("default/w", msgspec.convert(there, Pod))
    assert not list(tally.matching("default", {}, lambda _: True))
    tally.drop("default/w")
    assert not tally.more
    assert not list(tally.wishing("default", {"app": "web"}, {}))


def test_equal_nodes_go_by_name_and_the_nominated_one_goes_first():
    """Ties are broken by name; a nomination beats any score."""
    over = view([node("b"), node("a"), node("c", "2")], [])
    comes = compile_pod(msgspec.convert(pod("p"), Pod))
    assert best_node(over, comes, run_filters(prefilter(over.snapshot, comes))) == "a"
    comes.pod.status.nominated_node_name = "c"
    assert best_node(over, comes, run_filters(prefilter(over.snapshot, comes))) == "c"
    nobody = compile_pod(msgspec.convert(pod("p", cpu="9"), Pod))
    assert best_node(over, nobody, run_filters(prefilter(over.snapshot, nobody))) is None
    assert not np.any(over.snapshot.nodes.used)
