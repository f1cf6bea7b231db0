"""A snapshot that was changed by events is what the objects say: to decisions, to the oracle's, and in its columns."""

import math
import random

import msgspec
import numpy as np
import pytest

from tests.preemption import oracle, oracle_budgets
from tests.preemption.building import NOW, as_data, as_pod, pod_group, rules, snapshot_of
from tests.preemption.clusters import FEATURES, plain
from tests.preemption.oracle_pods import grace, holds, importance, key, number, ports, priority
from tests.preemption.test_oracle import BY
from tests.preemption.units import group_name
from webhook.policy.model.preemption import GroupDisruption
from webhook.policy.model.victims import EvictionCost
from webhook.preemption.decision import decide, victims_needed
from webhook.preemption.snapshot import kinds
from webhook.preemption.snapshot.pod_groups import POD_GROUP

pytestmark = pytest.mark.slow

GROUPS = kinds.POD_GROUPS[POD_GROUP]
WHOLE = rules(groups=GroupDisruption.GROUP)
COSTLY = rules(groups=GroupDisruption.GROUP, cost=EvictionCost(deletion_cost=True))
POLICIES = [*BY.values(), (WHOLE, None), (COSTLY, None)]
"""Rules, and the same in the oracle's words; it knows no groups."""


def grouped(cluster, dice):
    """The cluster, of which many pods are in PodGroups of any mode, priority and minimum."""
    for one in cluster["pods"]:
        if dice.random() < 0.7:
            one["spec"]["schedulingGroup"] = {"podGroupName": dice.choice("abcd")}
    spaces = sorted({one["metadata"]["namespace"] for one in cluster["pods"]})
    groups = [
        pod_group(name, dice.choice((0, 1, 2, 4)), disruptionMode=mode, priority=dice.choice((None, None, 5, 30)))
        for name, mode in zip("abcd", dice.choices(("Pod", "PodGroup", None), k=4), strict=True)
        for _ in spaces
    ]
    for place, group in enumerate(groups):
        group["metadata"]["namespace"] = spaces[place % len(spaces)]
    return cluster | {"podGroups": groups}


def apply_events(snapshot, cluster, mixer, there):
    """Apply 40 random single-object events to the snapshot and, by kind and key, to what is there."""
    often = (kinds.NODES, kinds.VOLUMES, kinds.VOLUME_CLAIMS, GROUPS, *[kinds.PODS] * 3)
    for _ in range(40):
        kind = mixer.choice((*often, kinds.BUDGETS, kinds.NAMESPACES, kinds.STORAGE_CLASSES, kinds.CSI_NODES))
        if not cluster[kind.field]:
            continue
        item = mixer.choice(cluster[kind.field])
        meta = item["metadata"]
        name = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
        if mixer.random() < 0.25:
            snapshot.remove(kind, name)
            there[kind.field].pop(name, None)
            continue
        if mixer.random() < 0.4:
            other = mixer.choice(cluster[kind.field])
            labels = other["metadata"].get("labels")
            item = {**other, "metadata": {**meta, **({"labels": labels} if labels is not None else {})}}
        snapshot.put(kind, msgspec.convert(item, kind.type_))
        there[kind.field][name] = item


def columns(snapshot):
    """What the columns say of nodes, pods and groups, by their names, and which pods groups can spare."""
    nodes, pods, groups = snapshot.nodes, snapshot.pods, snapshot.pods.groups_now()
    said = {"spared": {pods.key(row) for row in groups.above.tolist()}}
    for name in snapshot.node_names():
        row = nodes.find(name)
        amounts = {
            resource: (int(nodes.allocatable[line, row]), int(nodes.used[line, row]))
            for resource, line in nodes.resources.items()
            if nodes.allocatable[line, row]
        }
        said[name] = amounts, int(nodes.pod_limit[row]), [pods.key(on_it) for on_it in pods.on_node(row)]
    rows = [row for row in range(1, pods.rows) if pods.names[row]]
    for row, is_unguarded in zip(rows, snapshot.budgets.unguarded(np.array(rows, np.intp)).tolist(), strict=True):
        said[pods.key(row)] = (
            nodes.names[pods.nominated[row]] if row in pods.nominees() else "",
            row in pods.leaving(),
            int(pods.grace[row]),
            set(map(tuple, pods.ports.values[pods.port_set[row]])),
            sorted(snapshot.budgets.covering(*pods.identities.values[pods.identity[row]][:2])),
            is_unguarded,
        )
    members = {str(group): (int(groups.sizes[id_]), int(groups.highest[id_])) for id_, group in pods.groups.used()}
    return said | {name: counts for name, counts in members.items() if counts[0]}


def written(there):
    """The same as it is read off the objects."""
    kept = [one for one in there["pods"].values() if one["status"]["phase"] not in ("Succeeded", "Failed")]
    on, groups, spared = {name: [] for name in there["nodes"]}, {}, set()
    said = {"spared": spared}
    for one in kept:
        node, nominated = one["spec"].get("nodeName", ""), one["status"].get("nominatedNodeName", "")
        if node:
            on.setdefault(node, []).append(one)
            if name := group_name(one):
                groups.setdefault(f"PodGroup {one['metadata']['namespace']}/{name}", []).append(one)
        if node or nominated:
            budgets = list(there["podDisruptionBudgets"].values())
            said[key(one)] = (
                "" if node or "schedulingGates" in one["spec"] else nominated,
                bool(node) and is_leaving(one),
                grace(one),
                ports(one),
                sorted(map(key, oracle_budgets.covering(budgets, one))),
                oracle_budgets.unguarded(budgets, one),
            )
    for name, node in there["nodes"].items():
        amounts = {resource: number(amount) for resource, amount in node["status"]["allocatable"].items()}
        limit = amounts.pop("pods")
        used = {resource: sum(holds(one)[resource] for one in on[name]) for resource in amounts}
        both = {
            resource: (whole(resource, amount), whole(resource, used[resource]))
            for resource, amount in amounts.items()
            if amount
        }
        said[name] = both, int(limit), [key(one) for one in sorted(on[name], key=importance)]
    for name, members in groups.items():
        said[name] = len(members), max(map(priority, members))
        spec = there["podGroups"].get(name.split()[1], {"spec": {}})["spec"]
        least = spec.get("schedulingPolicy", {}).get("gang", {}).get("minCount", 0)
        stay = sorted(members, key=lambda one: (is_leaving(one), number_of(one), one["metadata"]["name"]))
        if spec.get("disruptionMode") != "PodGroup" and sum(not is_leaving(one) for one in members) >= least > 0:
            spared |= {key(one) for one in stay[least:]}
    return said


def is_leaving(pod):
    return "deletionTimestamp" in pod["metadata"]


def number_of(pod):
    """The number at the end of the pod's name."""
    end = pod["metadata"]["name"].rpartition("-")[2]
    return int(end) if end.isdigit() else 0


def whole(resource, amount):
    """The amount in millicores, bytes or counts, rounded up."""
    return math.ceil(amount * (1000 if resource == "cpu" else 1))


@pytest.mark.parametrize("seeds", [range(75), pytest.param(range(1000, 4000), marks=pytest.mark.soak)])
def test_events_end_where_a_fresh_snapshot_starts(seeds):
    """After any sequence of single-object events the columns are what the objects say.

    Decisions equal those on a snapshot made from what is there, and the oracle's where it knows the rules. So do their
    scores, and whom of every second pod the preemptor needs on the first node.
    """
    for seed in seeds:
        mixer, by = random.Random(seed), POLICIES[seed % len(POLICIES)]
        ours, theirs = by
        features = {*mixer.sample(FEATURES, mixer.randint(0, 5)), *(["pdb"] if theirs else [])}
        cluster = plain(seed, *sorted(features)) | {"podGroups": []}
        cluster = cluster if theirs else grouped(cluster, mixer)
        preemptor, snapshot = as_pod(cluster["preemptor"]), snapshot_of({}, ours)
        there = {kind: {} for kind in cluster if isinstance(cluster[kind], list)}
        for _ in range(4):
            apply_events(snapshot, cluster, mixer, there)
            now = {kind: list(items.values()) for kind, items in there.items()}
            assert columns(snapshot) == written(there), seed
            said, fresh = (answers(one, preemptor, there, ours) for one in (snapshot, snapshot_of(now, ours)))
            if by in BY.values():
                assert {"name": cluster["name"], **said[0]} == oracle.decide(cluster | now, policy=theirs), seed
            else:  # groups of equal importance go in any order
                for some in (*said[0]["candidates"], *fresh[0]["candidates"]):
                    some["victims"].sort()
            assert said == fresh, seed


def answers(snapshot, preemptor, there, rules):
    """The decision, its scores, and who of every second pod is needed on the first node."""
    decision = decide(snapshot, preemptor, rules, NOW)
    rows = snapshot.pod_rows(sorted(there["pods"])[::2])
    needed = [victims_needed(snapshot, preemptor, name, rows, rules=rules) for name in sorted(there["nodes"])[:1]]
    return as_data(decision), decision.scores(4), [sorted(snapshot.pods.names[row] for row in some) for some in needed]
