"""Costs, limits of workloads and fair turns in the simulation: what two policies make of the same future."""

import json
import random

from tests.preemption.building import NOW
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
from webhook.kube.instants import rfc3339
from webhook.simulation.report.sections import differences
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
        assert any("fewer eviction" in one and "of owners once more: 0, not" in one for one in told), told


def test_nobody_starves_beside_a_namespace_with_many_pods():
    """A younger preemptor of another namespace waits two minutes at most; by age it would wait eleven."""
    waiting, when = served({"greedy": 11, "modest": 1})
    assert len(when) == 12
    assert 60.0 * waiting.index("modest-0") == 660.0
    assert when["modest-0"] <= 120.0


def test_every_namespace_has_its_turn():
    """Of random numbers of pods the n-th of a namespace waits for n rounds at most, whatever the others ask for."""
    for seed in range(6):
        dice = random.Random(seed)
        sizes = {f"ns-{number}": dice.choice([1, 1, 2, 3, 8]) for number in range(dice.randint(2, 5))}
        _, when = served(sizes, dice)
        assert len(when) == sum(sizes.values())
        for name, size in sizes.items():
            times = sorted(at for pod_name, at in when.items() if pod_name.startswith(f"{name}-"))
            assert all(at <= 60.0 * ((place + 1) * len(sizes) + 1) for place, at in enumerate(times)), (
                seed,
                name,
                size,
            )


def served(sizes, dice=None):
    """Preemptors by namespace, the oldest first, of which one is served a minute; when each of them is placed."""
    names = [f"{namespace}-{number}" for namespace, count in sizes.items() for number in range(count)]
    if dice is not None:
        dice.shuffle(names)
    nodes = [node(f"n{number:02d}", "1") for number in range(len(names))]
    victims = [pod(f"v{number}", "1", on=f"n{number:02d}") for number in range(len(names))]
    preemptors = [pod(name, "1", "high", namespace=name.rpartition("-")[0]) for name in names]
    for age, one in enumerate(preemptors):
        one["metadata"]["creationTimestamp"] = rfc3339(NOW - 3600 + age)
    spaces = [{"metadata": {"name": name}} for name in sizes]
    objects = added(cluster_of(nodes, [*victims, *preemptors]), "Namespace", *spaces)
    once_a_minute = policies(limits={"perCluster": {"evictions": 1, "window": "1m"}})
    result = run(objects, once_a_minute, until=60.0 * (len(names) + 2))
    assert len(evicted(result)) == len(names)
    return names, placed(result)
