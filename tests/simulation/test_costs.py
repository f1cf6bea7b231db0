"""Costs, limits of workloads and fair turns in the simulation: what two policies make of the same future."""

import json

from tests.simulation.clusters import (
    added,
    cluster_of,
    evicted,
    loaded,
    node,
    placed,
    pod,
    policy_text,
    replica_set,
    run,
)
from webhook.simulation.report.compare import differences
from webhook.simulation.report.summary import summarize

ONE_IN_FIVE_MINUTES = {"perCluster": {"evictions": 1, "window": "5m"}}


def policies(**spec):
    return loaded(policy_text(**spec))


def two_workloads():
    """Two pods of workload web that began a minute ago, one of db that began an hour ago, and two preemptors.

    Replacements have room on a node that preemptors do not use.
    """
    owners = {name: ("ReplicaSet", name) for name in ("web", "db")}
    spare = node("spare", "8")
    spare["spec"] = {"taints": [{"key": "spare", "effect": "NoSchedule"}]}
    tolerates = {"tolerations": [{"key": "spare", "operator": "Exists"}]}
    return cluster_of(
        [*(node(name, "2") for name in "abc"), spare],
        [
            *(pod(f"web-{on}", "2", on=on, owner=owners["web"], ran=60, spec=tolerates) for on in "ab"),
            pod("db-c", "2", on="c", owner=owners["db"], spec=tolerates),
            *(pod(f"p{number}", "2", "high", namespace="online") for number in range(2)),
        ],
        ReplicaSet=[replica_set("web", 2, "2", **tolerates), replica_set("db", 1, "2", **tolerates)],
        Namespace=[{"metadata": {"name": "online"}}],
    )


def both(**spec):
    """Summaries of the two workloads' future without the spec, and with it."""
    with_limits = {"limits": ONE_IN_FIVE_MINUTES | spec.pop("limits", {})} | spec
    a = summarize("A", run(two_workloads(), policies(limits=ONE_IN_FIVE_MINUTES), until=1200))
    return a, summarize("B", run(two_workloads(), policies(**with_limits), until=1200))


def test_a_workload_is_not_evicted_again_at_once():
    """By start alone the same workload goes again, because it is the youngest; by costs or a limit the other one."""
    for spec in (
        {"victims": {"mode": "opt-in", "cost": {"recentEvictions": "1h"}}},
        {"limits": {"perWorkload": {"evictions": 1, "window": "24h"}}},
    ):
        a, b = both(**json.loads(json.dumps(spec)))
        assert [row.owner for row in a.evictions] == ["ReplicaSet/default/web"] * len(a.evictions)
        assert {row.owner for row in b.evictions} == {"ReplicaSet/default/web", "ReplicaSet/default/db"}
        assert (a.metrics["evicted-again"], b.metrics["evicted-again"]) == (len(a.evictions) - 1, 0)
        told = differences(a, b)
        assert any("evictions of owners once more, not" in one for one in told), told
        assert any("With B namespace default loses" in one and "more of work" in one for one in told), told


def test_nobody_starves_beside_a_namespace_with_many_pods():
    """A younger preemptor of another namespace is served after one of the many, not after all of them."""
    nodes = [node(f"n{number:02d}", "1") for number in range(12)]
    victims = [pod(f"v{number}", "1", on=f"n{number:02d}") for number in range(12)]
    greedy = [pod(f"g{number}", "1", "high", namespace="greedy") for number in range(11)]
    modest = pod("modest", "1", "high", namespace="modest")
    modest["metadata"]["creationTimestamp"] = greedy[0]["metadata"]["creationTimestamp"].replace("2027", "2028")
    spaces = [{"metadata": {"name": name}} for name in ("greedy", "modest")]
    objects = added(cluster_of(nodes, [*victims, *greedy, modest]), "Namespace", *spaces)
    result = run(objects, policies(limits={"perCluster": {"evictions": 1, "window": "1m"}}), until=1800)
    when = placed(result)
    assert len(when) == 12
    assert sorted(when, key=lambda name: when[name]).index("modest") <= 1
    assert len(evicted(result)) == 12
