"""`giveway decide` on good and bad input, for programs."""

import contextlib
import gzip
import json
import random

import pytest

from tests.cases import cases
from tests.cli.deciding import DATA, GOOD, POLICY, answers, changed, run
from tests.preemption.building import budget, cluster, node, pod, priority_class
from webhook.cli.decide import read_line
from webhook.preemption.decision import decide
from webhook.preemption.snapshot.amounts import ClusterError
from webhook.preemption.victims.rules import kubernetes_rules

HUGE = 2**31


def test_answer_in_full():
    """One line in, one line out, with every field; --timing adds the milliseconds of snapshot and decision."""
    [answer] = answers("--rules", "kubernetes", "--timing", "3", lines=[GOOD])
    timing = answer.pop("timingMs")
    assert (set(timing), 0 < timing["decision"] < 1000) == ({"snapshot", "decision"}, True)
    assert answer == {
        "name": "test",
        "eligible": True,
        "reason": "",
        "fits": [],
        "unresolvable": ["n2"],
        "candidates": [{"node": "n1", "victims": ["default/victim"], "pdbViolations": 0}],
        "selected": "n1",
        "nodeReasons": {"n1": "Insufficient cpu", "n2": "Insufficient cpu"},
    }


def test_recorded_clusters_from_files(tmp_path):
    """Files are read one after the other, and every cluster in them is answered as recorded."""
    files, expected = [], []
    for path in sorted(DATA.glob("[nv]*.gz")):
        rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        files.append(tmp_path / path.stem)
        files[-1].write_text("\n".join(json.dumps(row["input"]) for row in rows))
        expected += [(row["kubeScheduler"]["name"], row["kubeScheduler"]["candidates"]) for row in rows]
    assert [(answer["name"], answer["candidates"]) for answer in answers(*files)] == expected


def with_pod(**spec):
    return changed(pods=[pod("a", on="n1", **spec)])


def asking(**spec):
    return changed(preemptor=pod("p", priority=100, **spec))


def avoiding(topology, selector):
    """Anti-affinity to the pods that a selector selects."""
    term = {"topologyKey": topology, "labelSelector": selector}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(**fields):
    return {"topologySpreadConstraints": [{"topologyKey": "kubernetes.io/hostname", **fields}]}


BROKEN_SELECTOR = {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["x"]}]}
STARTS_AT_NOON = {**pod("a", on="n1"), "status": {"startTime": "noon"}}
ATTACHES = {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "d", "allocatable": {"count": HUGE}}]}}
A_BUDGET = "podDisruptionBudgets[0]: poddisruptionbudget default/web"
A_SPREAD = "pod default/p: spec.topologySpreadConstraints"
BAD = cases(
    ("not JSON", "{", "not a cluster"),
    ("not an object", "[1]", "Expected `object`"),
    ("NaN", json.dumps(changed(now=float("nan"))), "not a cluster: JSON is malformed"),
    ("nested too deep", '{"name":' + "[" * 100000, "not a cluster"),
    ("an instant that is none", changed(now="yesterday"), "now: 'yesterday' is not an RFC 3339 instant"),
    ("no nodes", {"name": "x", "pods": [], "preemptor": pod("p")}, "missing required field `nodes`"),
    ("no preemptor", {"name": "x", "pods": [], "nodes": []}, "missing required field `preemptor`"),
    ("a preemptor that is null", changed(preemptor=None), "preemptor: Expected `object`"),
    ("nodes of the wrong type", changed(nodes={}), "Expected `array | null`, got `object` - at `$.nodes`"),
    ("a node that is a number", changed(nodes=[1]), r"nodes[0]: Expected `object`"),
    ("a pod without a name", changed(pods=[{"metadata": {"name": ""}}]), "pods[0]: metadata.name is missing"),
    ("metadata that is null", changed(pods=[{"metadata": None}]), "pods[0]: Expected `object`, got `null`"),
    ("priority as text", with_pod(priority="x"), "pods[0]: Expected `int | null`, got `str` - at `$.spec.priority`"),
    (
        "two pods of one name",
        changed(pods=[pod("a", on="n1"), pod("a", on="n2")]),
        "pods[1]: pods[0] has the same name, default/a",
    ),
    ("two nodes of one name", changed(nodes=[node("n1"), node("n1")]), "nodes[1]: nodes[0] has the same name, n1"),
    ("a negative request", with_pod(cpu="-1"), "pods[0]: pod default/a: cpu is -1: an amount must not be negative"),
    ("a negative allocatable", changed(nodes=[node("n1", "-4")]), "nodes[0]: node n1: status.allocatable: cpu is -4"),
    ("a quantity that is none", with_pod(cpu="lots"), "pods[0]: pod default/a: 'lots' is not a quantity"),
    ("a start that is none", changed(pods=[STARTS_AT_NOON]), "pods[0]: pod default/a: status.startTime"),
    (
        "a preemptor's bad affinity",
        asking(affinity=avoiding("zone", BROKEN_SELECTOR)),
        "pod default/p: spec.affinity.podAntiAffinity: operator 'Near'",
    ),
    (
        "a preemptor's bad spread",
        asking(**spread(labelSelector=BROKEN_SELECTOR)),
        "pod default/p: spec.topologySpreadConstraints: operator 'Near'",
    ),
    *(
        (place, line, f"{place}: {amount} is not within -2147483648 and 2147483647")
        for place, line, amount in (
            ("pods[0]: pod default/a: spec.priority", with_pod(priority=HUGE), HUGE),
            ("pod default/p: spec.priority", changed(preemptor=pod("p", priority=-HUGE - 1)), -HUGE - 1),
            (f"{A_BUDGET}: status.disruptionsAllowed", changed(podDisruptionBudgets=[budget("web", {}, 2**63)]), 2**63),
            ("csiNodes[0]: csinode n1: spec.drivers: allocatable.count of d", changed(csiNodes=[ATTACHES]), HUGE),
            (f"{A_SPREAD}: maxSkew", asking(**spread(maxSkew=2**64)), 2**64),
            (f"{A_SPREAD}: minDomains", asking(**spread(minDomains=2**64)), 2**64),
        )
    ),
)


@pytest.mark.parametrize(("line", "said"), BAD)
def test_bad_lines(line, said):
    """A bad line gets a clear error, the others their answers, and the exit code says so."""
    result = run(lines=[GOOD, line, changed(name="after")])
    before, bad, after = map(json.loads, result.stdout.splitlines())
    assert (result.exit_code, set(bad), said in bad["error"]) == (1, {"name", "error"}, True), bad
    assert (before["selected"], after["name"], after["selected"]) == ("n1", "after", "n1")


def test_the_name_of_a_bad_line():
    """A bad line is named by its own name where that can be read, else by its number."""
    assert [answer["name"] for answer in answers(lines=[{"name": "mine"}, "{"])] == ["mine", "line 2"]


@pytest.mark.parametrize(
    ("line", "expected"),
    cases(
        ("a pod on an unknown node", changed(pods=[*GOOD["pods"], pod("stray", on="nowhere", cpu="9")]), "n1"),
        ("1e30 CPUs", changed(pods=[pod("huge", on="n1", cpu="1e30")]), "n1"),
        ("a node of 1e30 CPUs", changed(nodes=[node("n1", "1e30")], pods=[]), None),
        ("no node at all", changed(nodes=[], pods=[]), None),
        ("nodes and pods that are null", changed(nodes=None, pods=None), None),
        (
            "an existing pod's bad selector",
            changed(pods=[pod("v", on="n1", cpu="3", affinity=avoiding("kubernetes.io/hostname", BROKEN_SELECTOR))]),
            "n1",
        ),
        (
            "a budget's bad selector",
            changed(podDisruptionBudgets=[{**budget("b", {}, 0), "spec": {"selector": BROKEN_SELECTOR}}]),
            "n1",
        ),
        ("nulls", changed(podDisruptionBudgets=None, namespaces=None, storageClasses=None), "n1"),
        ("a pod that ended", changed(pods=[{**pod("done", on="n1", cpu="4"), "status": {"phase": "Succeeded"}}]), None),
    ),
)
def test_odd_but_answered(line, expected):
    """What Kubernetes itself would shrug off is answered."""
    result = run(lines=[line])
    assert (result.exit_code, json.loads(result.stdout)["selected"]) == (0, expected)


def managed_cluster(class_name):
    victim = pod("victim", on="n1", cpu="3", priorityClassName="low")
    says = {"godel.bytedance.com/can-be-preempted": "true"}
    classes = [priority_class("low", **says), priority_class(class_name, 100)]
    preemptor = pod("preemptor", priority=100, cpu="4", priorityClassName=class_name, preemptionPolicy="Never")
    return changed(pods=[victim], preemptor=preemptor, priorityClasses=classes)


def test_policies(tmp_path):
    """With several policies the one that manages the preemptor's class decides; without one nothing is evicted."""
    for name in ("gold", "silver"):
        (tmp_path / f"{name}.yaml").write_text(POLICY.format(name=name))
    managed, other = answers("--policies", tmp_path, lines=[managed_cluster("silver"), managed_cluster("bronze")])
    assert (managed["eligible"], managed["selected"]) == (True, "n1")
    assert (other["eligible"], other["selected"]) == (False, None)
    assert other["reason"] == "not eligible: no PreemptionPolicy manages pods of PriorityClass 'bronze'."


def test_a_nominee_counts_in_its_zone_under_policies(tmp_path):
    """What is nominated to another node of the zone counts there for the reconciler, and not for kube-scheduler."""
    nominee = pod("nominee", priority=100)
    nominee["status"]["nominatedNodeName"] = "n1"
    apart = avoiding("zone", {"matchLabels": {"app": "nominee"}})
    preemptor = pod("preemptor", priority=100, affinity=apart, priorityClassName="high")
    line = cluster([node(name, labels={"zone": "a"}) for name in ("n1", "n2")], [nominee], preemptor)
    (tmp_path / "p.yaml").write_text(POLICY.format(name="high"))
    for arguments, fits in ((("--rules", "kubernetes"), ["n2"]), (("--policies", tmp_path), [])):
        [answer] = answers(*arguments, lines=[line])
        assert answer["fits"] == fits


def test_policies_that_are_wrong_or_missing(tmp_path):
    """A policy error is shown with its place and nothing is decided; an empty directory says what to do."""
    (tmp_path / "bad.yaml").write_text(POLICY.format(name="a") + "  budgets: lax\n")
    result = run("--policies", tmp_path, lines=[GOOD])
    assert (result.exit_code, "bad.yaml:6:" in result.stderr) == (1, True)
    (tmp_path / "bad.yaml").unlink()
    assert "holds no PreemptionPolicy" in run("--policies", tmp_path, lines=[GOOD]).stderr
    assert run("--policies", tmp_path, "--rules", "kubernetes", lines=[GOOD]).exit_code == 2


NUMBERS = (0, -1, HUGE, -HUGE - 1, 2**63, -(2**63) - 1, 10**30)
TEXTS = (
    *("", "-1", "1e400", "9" * 70, "NaN", "Gt", "\u0000", "metadata.name"),
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
)
OTHERS = (None, [], {}, True, 1.5, 1e300)


def leaves(part, path=()):
    """The places of all values that hold no others, of lists only in the first few items."""
    if isinstance(part, dict | list) and part:
        items = part.items() if isinstance(part, dict) else enumerate(part[:3])
        return [leaf for key, value in items for leaf in leaves(value, (*path, key))]
    return [path]


def mutated(data, rng):
    """The cluster with one to three values changed, mostly to another of the same type."""
    copied = json.loads(json.dumps(data))
    for _ in range(rng.randint(1, 3)):
        top = rng.choice(list(copied))
        *way, last = rng.choice(leaves({top: copied[top]}))
        holder = copied
        for key in way:
            holder = holder[key]
        before = holder[last]
        alike = NUMBERS if type(before) is int else TEXTS if isinstance(before, str) else OTHERS
        holder[last] = rng.choice(alike if rng.random() < 0.9 else OTHERS)
    return copied


@pytest.mark.parametrize("name", ["bigmix", "micro", "pdb", "csilimits", "spread"])
def test_mutated_clusters_are_decided_or_refused(name):
    """Recorded clusters with some values changed: each gets a decision, or an error of its own kind."""
    lines = gzip.decompress((DATA / f"{name}.jsonl.gz").read_bytes()).splitlines()
    small = sorted((json.loads(line)["input"] for line in lines), key=lambda row: len(row["pods"]))[:12]
    rng, decisions = random.Random(name), 0
    for _ in range(120):
        with contextlib.suppress(ClusterError):
            given = read_line(json.dumps(mutated(rng.choice(small), rng)).encode(), ())
            decision = decide(given.snapshot, given.preemptor, kubernetes_rules(), given.now)
            # All of it is read, as the command does
            read = decision.candidates, decision.node_reasons, decision.scores(3), decision.unresolvable
            decisions += len(read) > 0
    assert 12 < decisions < 120
