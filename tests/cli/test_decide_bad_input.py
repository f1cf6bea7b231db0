"""Clusters that no API server would hold: `giveway decide` says what is wrong and where, without a traceback."""

import contextlib
import gzip
import json
import random
from pathlib import Path

import pytest

from tests.preemption.building import budget, cluster, node, pod
from webhook.cli.decide import read_line
from webhook.preemption.decision import decide
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.victims.rules import kubernetes_rules

DATA = Path(__file__).parent.parent / "preemption" / "data"
HUGE = 2**31
NUMBERS = (0, -1, HUGE, -HUGE - 1, 2**63, -(2**63) - 1, 10**30)
TEXTS = (
    "",
    "-1",
    "1e400",
    "9" * 70,
    "NaN",
    "Gt",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "\u0000",
    "metadata.name",
)
OTHERS = (None, [], {}, True, 1.5, 1e300)


def decided(data):
    """Decide on a cluster given as data, as the command does, and read the whole decision."""
    given = read_line(json.dumps(data).encode(), ())
    decision = decide(given.snapshot, given.preemptor, kubernetes_rules(), given.now)
    return decision.candidates, decision.node_reasons, decision.scores(3), decision.unresolvable


def spread(**fields):
    return {"topologySpreadConstraints": [{"topologyKey": "kubernetes.io/hostname", **fields}]}


ASKING = pod("preemptor", priority=100, cpu="4")
PLACED = pod("victim", on="n1", cpu="4")


@pytest.mark.parametrize(
    ("data", "place"),
    [
        pytest.param(
            cluster([node("n1")], [pod("victim", on="n1", priority=HUGE)], ASKING),
            "pods[0]: pod default/victim: spec.priority: 2147483648",
            id="a pod's priority",
        ),
        pytest.param(
            cluster([node("n1")], [PLACED], pod("preemptor", priority=-HUGE - 1)),
            "pod default/preemptor: spec.priority: -2147483649",
            id="the preemptor's priority",
        ),
        pytest.param(
            cluster([node("n1")], [PLACED], ASKING, podDisruptionBudgets=[budget("web", {"app": "victim"}, 2**63)]),
            "podDisruptionBudgets[0]: poddisruptionbudget default/web: status.disruptionsAllowed: 9223372036854775808",
            id="what a budget allows",
        ),
        pytest.param(
            cluster(
                [node("n1")],
                [PLACED],
                ASKING,
                csiNodes=[
                    {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "d", "allocatable": {"count": HUGE}}]}}
                ],
            ),
            "csiNodes[0]: csinode n1: spec.drivers: allocatable.count of d: 2147483648",
            id="what a node can attach",
        ),
        pytest.param(
            cluster([node("n1")], [PLACED], pod("preemptor", priority=100, **spread(maxSkew=2**64))),
            "pod default/preemptor: spec.topologySpreadConstraints: maxSkew: 18446744073709551616",
            id="the skew",
        ),
        pytest.param(
            cluster([node("n1")], [PLACED], pod("preemptor", priority=100, **spread(minDomains=2**64))),
            "pod default/preemptor: spec.topologySpreadConstraints: minDomains: 18446744073709551616",
            id="the number of domains",
        ),
    ],
)
def test_a_number_that_no_field_can_hold_is_named(data, place):
    """A number beyond an int32 is an error that says where it is and what would be right."""
    with pytest.raises(ClusterError) as error:
        decided(data)
    assert str(error.value).startswith(f"{place} is not within -2147483648 and 2147483647")


def leaves(part, path=()):
    """The places of all values that hold no others, of lists only in the first few items."""
    if isinstance(part, dict | list) and part:
        items = part.items() if isinstance(part, dict) else enumerate(part[:3])
        return [leaf for key, value in items for leaf in leaves(value, (*path, key))]
    return [path]


def mutated(data, rng):
    """The cluster with one to three values changed, mostly to another of the same type."""
    changed = json.loads(json.dumps(data))
    for _ in range(rng.randint(1, 3)):
        top = rng.choice(list(changed))
        *way, last = rng.choice(leaves({top: changed[top]}))
        holder = changed
        for key in way:
            holder = holder[key]
        before = holder[last]
        alike = NUMBERS if type(before) is int else TEXTS if isinstance(before, str) else OTHERS
        holder[last] = rng.choice(alike if rng.random() < 0.9 else OTHERS)
    return changed


@pytest.mark.parametrize("name", ["bigmix", "micro", "pdb", "csilimits", "spread"])
def test_mutated_clusters_are_decided_or_refused(name):
    """Recorded clusters with some values changed: each gets a decision, or an error of its own kind."""
    lines = gzip.decompress((DATA / f"{name}.jsonl.gz").read_bytes()).splitlines()
    rows = [json.loads(line)["input"] for line in lines]
    small = sorted(rows, key=lambda row: len(row["pods"]))[:12]
    rng, decisions = random.Random(name), 0
    for _ in range(120):
        with contextlib.suppress(ClusterError):
            decided(mutated(rng.choice(small), rng))
            decisions += 1
    assert 12 < decisions < 120
