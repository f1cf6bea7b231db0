"""`giveway decide` on good and bad input."""

import gzip
import json
import lzma
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.preemption.building import budget, cluster, node, pod, priority_class
from webhook.cli.main import main

DATA = Path(__file__).parent.parent / "preemption" / "data"
GOOD = cluster(
    [node("n1"), node("n2", "1")], [pod("victim", on="n1", cpu="3")], pod("preemptor", priority=100, cpu="4")
)
POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: PreemptionPolicy
metadata: {{name: {name}}}
spec:
  preemptors: {{priorityClasses: [{name}]}}
"""


def run(*arguments, lines=()):
    """Run the command; lines that are not text yet are encoded."""
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return CliRunner().invoke(main, ["decide", *arguments], input=text, catch_exceptions=False)


def answers(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_answer_in_full():
    """One line in, one line out, with every field."""
    result = run("--rules", "kubernetes", lines=[GOOD])
    assert result.exit_code == 0
    assert answers(result) == [
        {
            "name": "test",
            "eligible": True,
            "reason": "",
            "fits": [],
            "unresolvable": ["n2"],
            "candidates": [{"node": "n1", "victims": ["default/victim"], "pdbViolations": 0}],
            "selected": "n1",
            "nodeReasons": {"n1": "Insufficient cpu", "n2": "Insufficient cpu"},
        }
    ]


def test_recorded_clusters_from_files(tmp_path):
    """Files are read one after the other, and every cluster in them is answered as recorded."""
    files, expected = [], []
    for path in sorted(DATA.glob("[nv]*.gz")):
        rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        files.append(tmp_path / path.stem)
        files[-1].write_text("\n".join(json.dumps(row["input"]) for row in rows))
        expected += [row["kubeScheduler"] for row in rows]
    found = answers(run(*map(str, files)))
    assert [one["name"] for one in found] == [one["name"] for one in expected]
    assert [one["candidates"] for one in found] == [one["candidates"] for one in expected]


def test_timing():
    """--timing adds the milliseconds of snapshot and decision."""
    (found,) = answers(run("--timing", "3", lines=[GOOD]))
    assert set(found["timingMs"]) == {"snapshot", "decision"}
    assert 0 < found["timingMs"]["decision"] < 1000


def changed(**fields):
    return {**GOOD, **fields}


def with_pod(**spec):
    return changed(pods=[pod("a", on="n1", **spec)])


def avoiding(topology, selector):
    """Anti-affinity to the pods that a selector selects."""
    term = {"topologyKey": topology, "labelSelector": selector}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


BROKEN_SELECTOR = {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["x"]}]}
BROKEN_SPREAD = {"topologyKey": "zone", "labelSelector": BROKEN_SELECTOR}
TWICE = [pod("a", on="n1"), pod("a", on="n2")]
STARTS_AT_NOON = {**pod("a", on="n1"), "status": {"startTime": "noon"}}
AVOIDS_NOBODY = pod("v", on="n1", cpu="3", affinity=avoiding("kubernetes.io/hostname", BROKEN_SELECTOR))
COVERS_NOBODY = {**budget("b", {}, 0), "spec": {"selector": BROKEN_SELECTOR}}
ENDED = {**pod("done", on="n1", cpu="4"), "status": {"phase": "Succeeded"}}
BAD = {
    "not JSON": ("{", "not a cluster"),
    "not an object": ("[1]", "Expected `object`"),
    "NaN": (json.dumps(changed(now=float("nan"))), "not a cluster: JSON is malformed"),
    "an instant that is none": (changed(now="yesterday"), "now: 'yesterday' is not an RFC 3339 instant"),
    "no nodes": ({"name": "x", "pods": [], "preemptor": pod("p")}, "missing required field `nodes`"),
    "no preemptor": ({"name": "x", "pods": [], "nodes": []}, "missing required field `preemptor`"),
    "a preemptor that is null": (changed(preemptor=None), "preemptor: Expected `object`"),
    "nodes of the wrong type": (changed(nodes={}), "Expected `array | null`, got `object` - at `$.nodes`"),
    "a node that is a number": (changed(nodes=[1]), r"nodes[0]: Expected `object`"),
    "a pod without a name": (changed(pods=[{"metadata": {"name": ""}}]), "pods[0]: metadata.name is missing"),
    "metadata that is null": (changed(pods=[{"metadata": None}]), "pods[0]: Expected `object`, got `null`"),
    "priority as text": (with_pod(priority="high"), "pods[0]: Expected `int | null`, got `str` - at `$.spec.priority`"),
    "two pods of one name": (changed(pods=TWICE), "pods[1]: pods[0] has the same name, default/a"),
    "two nodes of one name": (changed(nodes=[node("n1"), node("n1")]), "nodes[1]: nodes[0] has the same name, n1"),
    "a negative request": (with_pod(cpu="-1"), "pods[0]: pod default/a: cpu is -1: an amount must not be negative"),
    "a negative allocatable": (changed(nodes=[node("n1", "-4")]), "nodes[0]: node n1: status.allocatable: cpu is -4"),
    "a quantity that is none": (with_pod(cpu="lots"), "pods[0]: pod default/a: 'lots' is not a quantity"),
    "a start that is none": (changed(pods=[STARTS_AT_NOON]), "pods[0]: pod default/a: status.startTime"),
    "a preemptor's bad affinity": (
        changed(preemptor=pod("p", affinity=avoiding("zone", BROKEN_SELECTOR))),
        "pod default/p: spec.affinity.podAntiAffinity: operator 'Near'",
    ),
    "a preemptor's bad spread": (
        changed(preemptor=pod("p", topologySpreadConstraints=[BROKEN_SPREAD])),
        "pod default/p: spec.topologySpreadConstraints: operator 'Near'",
    ),
    "nested too deep": ('{"name":' + "[" * 100000, "not a cluster"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_lines(name):
    """A bad line gets a clear error, the others their answers, and the exit code says so."""
    line, said = BAD[name]
    result = run(lines=[GOOD, line, changed(name="after")])
    before, bad, after = answers(result)
    assert result.exit_code == 1
    assert set(bad) == {"name", "error"}
    assert said in bad["error"]
    assert (before["selected"], after["name"], after["selected"]) == ("n1", "after", "n1")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            changed(pods=[*GOOD["pods"], pod("stray", on="nowhere", cpu="9")]), "n1", id="a pod on an unknown node"
        ),
        pytest.param(changed(pods=[pod("huge", on="n1", cpu="1e30")]), "n1", id="1e30 CPUs"),
        pytest.param(changed(nodes=[node("n1", "1e30")], pods=[]), None, id="a node of 1e30 CPUs"),
        pytest.param(changed(nodes=[], pods=[]), None, id="no node at all"),
        pytest.param(changed(nodes=None, pods=None), None, id="nodes and pods that are null"),
        pytest.param(changed(pods=[AVOIDS_NOBODY]), "n1", id="an existing pod's bad selector"),
        pytest.param(changed(podDisruptionBudgets=[COVERS_NOBODY]), "n1", id="a budget's bad selector"),
        pytest.param(changed(podDisruptionBudgets=None, namespaces=None, storageClasses=None), "n1", id="nulls"),
        pytest.param(changed(pods=[ENDED]), None, id="a pod that ended"),
    ],
)
def test_odd_but_answered(line, expected):
    """What Kubernetes itself would shrug off is answered."""
    result = run(lines=[line])
    (found,) = answers(result)
    assert result.exit_code == 0
    assert found["selected"] == expected


def test_the_name_of_a_bad_line():
    """A bad line is named by its own name where that can be read, else by its number."""
    result = run(lines=[{"name": "mine"}, "{"])
    assert [one["name"] for one in answers(result)] == ["mine", "line 2"]


def policies(tmp_path, *names):
    for name in names:
        (tmp_path / f"{name}.yaml").write_text(POLICY.format(name=name))
    return str(tmp_path)


def managed_cluster(class_name):
    victim = pod("victim", on="n1", cpu="3", priorityClassName="low")
    says = {"godel.bytedance.com/can-be-preempted": "true"}
    classes = [priority_class("low", **says), priority_class(class_name, 100)]
    preemptor = pod("preemptor", priority=100, cpu="4", priorityClassName=class_name, preemptionPolicy="Never")
    return changed(pods=[victim], preemptor=preemptor, priorityClasses=classes)


def test_policies(tmp_path):
    """With several policies the one that manages the preemptor's class decides; without one nothing is evicted."""
    where = policies(tmp_path, "gold", "silver")
    (managed,) = answers(run("--policies", where, lines=[managed_cluster("silver")]))
    assert (managed["eligible"], managed["selected"]) == (True, "n1")
    (other,) = answers(run("--policies", where, lines=[managed_cluster("bronze")]))
    assert (other["eligible"], other["selected"]) == (False, None)
    assert other["reason"] == "not eligible: no PreemptionPolicy manages pods of PriorityClass 'bronze'."


@pytest.mark.parametrize(("rules", "fits"), [("kubernetes", ["n2"]), ("policies", [])])
def test_a_nominee_counts_in_its_zone_under_policies(tmp_path, rules, fits):
    """What is nominated to another node of the zone counts there for the reconciler, and not for kube-scheduler."""
    term = {"labelSelector": {"matchLabels": {"app": "nominee"}}, "topologyKey": "zone"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    nominee = pod("nominee", priority=100)
    nominee["status"]["nominatedNodeName"] = "n1"
    preemptor = pod("preemptor", priority=100, affinity=apart, priorityClassName="high")
    zone = {"zone": "a"}
    line = cluster([node("n1", labels=zone), node("n2", labels=zone)], [nominee], preemptor)
    (tmp_path / "p.yaml").write_text(POLICY.format(name="high"))
    arguments = ("--rules", rules) if rules == "kubernetes" else ("--policies", str(tmp_path))
    [answer] = answers(run(*arguments, lines=[line]))
    assert answer["fits"] == fits


def test_policies_that_are_wrong_or_missing(tmp_path):
    """A policy error is shown with its place and nothing is decided; an empty directory says what to do."""
    (tmp_path / "bad.yaml").write_text(POLICY.format(name="a") + "  budgets: lax\n")
    result = run("--policies", str(tmp_path), lines=[GOOD])
    assert result.exit_code == 1
    assert "bad.yaml:6:" in result.stderr
    (tmp_path / "bad.yaml").unlink()
    assert "holds no PreemptionPolicy" in run("--policies", str(tmp_path), lines=[GOOD]).stderr
    assert run("--policies", str(tmp_path), "--rules", "kubernetes", lines=[GOOD]).exit_code == 2


SIDES = [("n1", 1, 400), ("n1", 2, 110), ("n2", 1, 400), ("n2", 2, 200)]
"""Node, number and priority of pods, two on each node."""


def test_explain_for_people(monkeypatch):
    """--explain names the plan, why it won, what fails on every node, who would go, and who is kept by which rule."""
    monkeypatch.setenv("COLUMNS", "200")
    protected = pod("kept", on="n1", cpu="1", priority=500)
    other = pod("other", on="n3", cpu="3", priority=50)
    line = changed(
        nodes=[*GOOD["nodes"], node("n3")],
        pods=[*GOOD["pods"], protected, other],
        preemptor=pod("asking", priority=100, cpu="3"),
    )
    shown = " ".join(run("--explain", lines=[line]).stdout.split())
    for said in (
        "default/asking (priority 100) asks for cpu 3; by plain Kubernetes rules",
        "Plan: evict 1 pod for room on n1, the best of 2 candidates among 3 nodes.",
        "n1 is preferred to n3 because its most important victim has a lower priority.",
        "Insufficient cpu",
        "no eviction can cure this",
        "default/kept — kubernetes/priority: ",
    ):
        assert said in shown


def test_sums_of_priorities_are_shown_plainly(monkeypatch):
    """The table shows what priorities add up to, not the raised sum that the choice compares."""
    monkeypatch.setenv("COLUMNS", "120")
    pods = [pod(f"{node_name}-{n}", on=node_name, cpu="2", priority=p) for node_name, n, p in SIDES]
    line = changed(nodes=[node("n1"), node("n2")], pods=pods, preemptor=pod("asking", priority=1000, cpu="4"))
    text = run("--explain", lines=[line]).stdout
    assert "2^31" not in text
    lines = [line.replace("│", " ").split() for line in text.splitlines()]
    rows = {cells[0]: cells[1:5] for cells in lines if cells[:1] in (["n1"], ["n2"]) and cells[1].isdigit()}
    assert rows == {"n1": ["0", "400", "2", "510"], "n2": ["0", "400", "2", "600"]}
    assert "n1 is preferred to n2 because its victims' priorities add up to less." in text


def test_explain_stays_short_on_many_nodes(monkeypatch):
    """On many nodes the best are shown, and the others counted by what fails."""
    monkeypatch.setenv("COLUMNS", "200")
    low = [(f"low-{number:02}", 1) for number in range(15)]
    high = [(f"high-{number:02}", 500) for number in range(20)]
    line = changed(
        nodes=[node(name) for name, _ in low + high] + [node(f"tiny-{number:02}", "1") for number in range(30)],
        pods=[pod(f"on-{name}", on=name, cpu="3", priority=priority) for name, priority in low + high],
        preemptor=pod("asking", priority=100, cpu="4"),
    )
    lines = run("--explain", lines=[line]).stdout.splitlines()
    rows = [[cell.strip() for cell in text.strip("│").split("│")] for text in lines if text.startswith("│")]
    assert [row[0] for row in rows if row[0].startswith("low-")] == [f"low-{number:02}" for number in range(10)]
    assert [text for text in lines if " more: " in text] == [
        "30 nodes more: Insufficient cpu; no eviction can cure this",
        "25 nodes more: Insufficient cpu",
    ]


@pytest.mark.parametrize(
    ("preemptor", "said"),
    [
        pytest.param(
            pod("asking", priority=100, cpu="99"),
            "No preemption: no eviction could make it fit on any node.",
            id="larger than any node",
        ),
        pytest.param(
            pod("asking", priority=0, cpu="4"),
            "No preemption: evicting all who may go does not make room on any node.",
            id="nobody of lower priority",
        ),
        pytest.param(
            pod("asking", priority=100, resourceClaims=[{"name": "gpu", "future": "x"}]),
            "No preemption: not eligible: it asks for devices, and its claim gpu is given in a way that is not known",
            id="what is not known here",
        ),
    ],
)
def test_explain_says_why_not(monkeypatch, preemptor, said):
    """Where nobody would be evicted, the first line says whether eviction cannot help or may not be done."""
    monkeypatch.setenv("COLUMNS", "200")
    line = changed(nodes=[node("n1")], pods=[pod("there", on="n1", cpu="3")], preemptor=preemptor)
    assert said in run("--explain", lines=[line]).stdout


def test_explain_says_hostile_names_literally(monkeypatch):
    """Terminal escapes, markup and direction marks in names and labels are shown as text and do nothing."""
    monkeypatch.setenv("COLUMNS", "400")
    evil = "\x1b[2J[red]x[/red]\u202e\r\n"
    nodes = [node(f"{evil}{number}") for number in range(12)]
    victims = [pod(f"{evil}v{number}", on=f"{evil}{number}", cpu="3") for number in range(12)]
    budgets = [budget(evil, {"app": f"{evil}v0"}, 0)]
    line = cluster(nodes, victims, pod(f"{evil}p", priority=100, cpu="4"), podDisruptionBudgets=budgets)
    line["name"] = evil
    text = run("--rules", "kubernetes", "--explain", lines=[line]).stdout
    assert "evict 1 pod for room on" in text
    assert r"\u001b[2J[red]x[/red]\u202e" in text
    assert not {"\x1b", "\r", "\u202e"} & set(text)


def test_explain_says_who_holds_the_devices(monkeypatch):
    """For a pod that asks for devices each node says how many are held, by which claims, and what evictions free."""
    monkeypatch.setenv("COLUMNS", "300")
    with lzma.open(DATA / "devices" / "named.jsonl.xz") as rows:
        line = json.loads(next(rows))["input"]
    text = run("--rules", "kubernetes", "--explain", lines=[line]).stdout
    assert "2 of 2 devices of gpu.example.com are held by" in " ".join(text.replace("│", " ").split())
    assert "evicting all who may go frees 1" in " ".join(text.replace("│", " ").split())
