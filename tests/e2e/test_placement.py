"""Where kube-scheduler places a pod of the default profile, foretold by the scores: on any cluster."""

import random
from typing import Any

import pytest

from tests.e2e.conftest import LABEL
from webhook.clusters.scheduling.default_spread import SELECTING, Selecting, Selectors
from webhook.clusters.scheduling.scores import View, scores
from webhook.clusters.scheduling.tally import Tally
from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Namespace, Node
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import NAMESPACE, NODE, POD, minor_of
from webhook.preemption.filters.filtering import prefilter, run_filters
from webhook.preemption.snapshot import kinds
from webhook.preemption.snapshot.pod_info import compile_pod
from webhook.preemption.snapshot.snapshot import Snapshot

PODS = 10


async def seen(sandbox) -> View:
    """The sandbox's nodes, and all pods, as the cluster tells them now."""
    view = View(Snapshot(), Tally(), Selectors())
    for one in (await sandbox.client.list(NAMESPACE.path(), Namespace))[0]:
        view.snapshot.put(kinds.NAMESPACES, one)
    for one in (await sandbox.client.list(NODE.path(), Node, labelSelector=f"{LABEL}={sandbox.id}"))[0]:
        view.snapshot.put(kinds.NODES, one)
    for one in (await sandbox.client.list(POD.path(), Pod))[0]:
        if one.spec.node_name and one.status.phase not in {"Succeeded", "Failed"}:
            view.snapshot.put(kinds.PODS, one)
            view.tally.put(f"{one.metadata.namespace}/{one.metadata.name}", one)
    for resource in SELECTING:
        for one in (await sandbox.client.list(resource.path(), Selecting))[0]:
            change = Change("added", f"{one.metadata.namespace}/{one.metadata.name}", None, one)
            view.selectors.changed(resource, change)
    return view


def wanted(dice: random.Random) -> dict[str, Any]:
    """A pod's size, and now and then a preference."""
    fields: dict[str, Any] = {"cpu": f"{dice.randint(1, 12) * 50}m", "labels": {"app": dice.choice("ab")}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": dice.choice("ab")}}}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 40, "podAffinityTerm": term}]}
    if (kind := dice.choice(("podAffinity", "podAntiAffinity", ""))) != "":
        fields["affinity"] = {kind: preferred}
    elif dice.random() < 0.5:
        soft = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        fields["topologySpreadConstraints"] = [{**soft, "labelSelector": term["labelSelector"]}]
    return fields


@pytest.mark.parametrize("seed", range(3))
async def test_pods_go_where_the_scores_say(another_cluster, sandbox, seed):
    """Of the nodes a pod fits on it goes to one with the best score; to the one, if only one has it."""
    if (minor_of(await sandbox.client.get("/version")) or 0) < 36:
        pytest.skip("the scores are those of 1.36 (docs/kubernetes-behaviour.md K23)")
    dice = random.Random(seed)
    for number in range(4):
        await sandbox.node(f"n{number}", cpu=str(dice.choice((2, 3, 4, 6))))
    only = 0
    for number in range(PODS):
        name = f"p{number}"
        before = await seen(sandbox)
        node = await sandbox.run(name, **wanted(dice))
        incoming = compile_pod(await sandbox.client.get(f"{sandbox.pods}/{name}", Pod))
        incoming.pod.spec.node_name = ""
        failures = run_filters(prefilter(before.snapshot, incoming))
        rows = before.snapshot.nodes.known()
        rows = rows[failures.code[rows] == 0]
        found = scores(before, incoming, rows)
        best = {before.snapshot.nodes.names[row] for row in rows[found == found.max()]}
        assert node in best, dict(zip([before.snapshot.nodes.names[row] for row in rows], found, strict=True))
        only += len(best) == 1
    assert only > PODS // 2, "most placements had one best node"
