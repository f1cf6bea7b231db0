"""`giveway decide` for people, and who goes together when groups go whole."""

import json
import lzma

import pytest

from tests.cases import cases
from tests.cli.deciding import DATA, GOOD, POLICY, answers, changed, shown
from tests.preemption.building import budget, cluster, node, pod


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    """Nothing is folded."""
    monkeypatch.setenv("COLUMNS", "400")


def test_explain_for_people():
    """--explain names the plan, why it won, what fails on every node, who would go, and who is kept by which rule."""
    line = changed(
        nodes=[*GOOD["nodes"], node("n3")],
        pods=[*GOOD["pods"], pod("kept", on="n1", cpu="1", priority=500), pod("other", on="n3", cpu="3", priority=50)],
        preemptor=pod("asking", priority=100, cpu="3"),
    )
    text = "\n".join(shown(line))
    for said in (
        "default/asking (priority 100) asks for cpu 3; by plain Kubernetes rules",
        "Plan: evict 1 pod for room on n1, the best of 2 candidates among 3 nodes.",
        "n1 is preferred to n3 because its most important victim has a lower priority.",
        "Insufficient cpu",
        "no eviction can cure this",
        "default/kept — kubernetes/priority: ",
    ):
        assert said in text


def test_sums_of_priorities_are_shown_plainly():
    """The table shows what priorities add up to, not the raised sum that the choice compares."""
    sides = [("n1", 1, 400), ("n1", 2, 110), ("n2", 1, 400), ("n2", 2, 200)]
    pods = [pod(f"{place}-{number}", on=place, cpu="2", priority=priority) for place, number, priority in sides]
    lines = shown(changed(nodes=[node("n1"), node("n2")], pods=pods, preemptor=pod("asking", priority=1000, cpu="4")))
    assert {"n1 0 400 2 510", "n2 0 400 2 600"} <= {" ".join(line.split()[:5]) for line in lines}
    assert "n1 is preferred to n2 because its victims' priorities add up to less." in lines
    assert not any("2^31" in line for line in lines)


def test_explain_stays_short_on_many_nodes():
    """On many nodes the best are shown, and the others counted by what fails."""
    low = [(f"low-{number:02}", 1) for number in range(15)]
    high = [(f"high-{number:02}", 500) for number in range(20)]
    line = changed(
        nodes=[node(name) for name, _ in low + high] + [node(f"tiny-{number:02}", "1") for number in range(30)],
        pods=[pod(f"on-{name}", on=name, cpu="3", priority=priority) for name, priority in low + high],
        preemptor=pod("asking", priority=100, cpu="4"),
    )
    lines = shown(line)
    rows = lines[next(at for at, text in enumerate(lines) if text.startswith("node what fails")) :]
    assert [row.split()[0] for row in rows if row.startswith("low-")] == [name for name, _ in low[:10]]
    assert [text for text in lines if " more: " in text] == [
        "30 nodes more: Insufficient cpu; no eviction can cure this",
        "25 nodes more: Insufficient cpu",
    ]


UNKNOWN_CLAIM = pod("asking", priority=100, resourceClaims=[{"name": "gpu", "future": "x"}])
UNKNOWN = "not eligible: it asks for devices, and its claim gpu is given in a way that is not known here."


@pytest.mark.parametrize(
    ("preemptor", "why"),
    cases(
        ("too large", pod("asking", priority=100, cpu="99"), "no eviction could make it fit on any node."),
        ("nobody", pod("asking", cpu="4"), "evicting all who may go does not make room on any node."),
        ("what is not known here", UNKNOWN_CLAIM, UNKNOWN),
    ),
)
def test_explain_says_why_not(preemptor, why):
    """Where nobody would be evicted, a line says whether eviction cannot help or may not be done."""
    line = changed(nodes=[node("n1")], pods=[pod("there", on="n1", cpu="3")], preemptor=preemptor)
    assert f"No preemption: {why}" in shown(line)


def test_explain_says_hostile_names_literally():
    """Terminal escapes, markup and direction marks in names and labels are shown as text and do nothing."""
    evil = "\x1b[2J[red]x[/red]\u202e\r\n"
    nodes = [node(f"{evil}{number}") for number in range(12)]
    victims = [pod(f"{evil}v{number}", on=f"{evil}{number}", cpu="3") for number in range(12)]
    budgets = [budget(evil, {"app": f"{evil}v0"}, 0)]
    line = cluster(nodes, victims, pod(f"{evil}p", priority=100, cpu="4"), podDisruptionBudgets=budgets)
    text = "\n".join(shown({**line, "name": evil}))
    assert "evict 1 pod for room on" in text
    assert r"\u001b[2J[red]x[/red]\u202e" in text
    assert not {"\x1b", "\r", "\u202e"} & set(text)


def test_explain_says_who_holds_the_devices():
    """For a pod that asks for devices each node says how many are held, by which claims, and what evictions free."""
    with lzma.open(DATA / "devices" / "named.jsonl.xz") as rows:
        text = " ".join(shown(json.loads(next(rows))["input"]))
    assert "2 of 2 devices of gpu.example.com are held by" in text
    assert "evicting all who may go frees 1" in text


MEMBER = {"schedulingGroup": {"podGroupName": "train"}}


def two_nodes(*pods):
    """A preemptor that needs most of n1, with these pods."""
    asks = pod("preemptor", priority=100, cpu="3", priorityClassName="gold", preemptionPolicy="Never")
    return cluster([node("n1"), node("n2")], pods, asks)


WHOLE = two_nodes(
    pod("a", on="n1", cpu="3", **MEMBER),
    pod("b", on="n2", cpu="1", **MEMBER),
    pod("kept", on="n2", cpu="3", priority=500),
)
FULL = pod("kept", on="n2", cpu="4", priority=500)
ALONE = two_nodes(pod("a", on="n1", cpu="3"), FULL)


@pytest.fixture
def whole_groups(tmp_path):
    """A policy under which groups go whole."""
    (tmp_path / "policy.yaml").write_text(
        POLICY.format(name="gold") + "  victims: {mode: opt-out}\n  groups: {disruption: Group}\n"
    )
    return "--policies", tmp_path


def test_an_answer_names_the_groups_that_go(whole_groups):
    """Each with its pods and their nodes; an answer about pods that go by themselves is as it was."""
    [whole], [alone] = (answer["candidates"] for answer in answers(*whole_groups, lines=[WHOLE, ALONE]))
    assert whole == {
        "node": "n1",
        "victims": ["default/a", "default/b"],
        "pdbViolations": 0,
        "groups": {"PodGroup default/train": {"default/a": "n1", "default/b": "n2"}},
    }
    assert alone.keys() == {"node", "victims", "pdbViolations"}


@pytest.mark.parametrize(
    ("line", "row", "pods"),
    cases(
        ("a group on two nodes", WHOLE, "default/b 0 n2 PodGroup default/train", "2 pods"),
        ("a pod by itself", ALONE, "default/a 0 n1", "1 pod"),
    ),
)
def test_people_read_who_goes_together(whole_groups, line, row, pods):
    """Where each victim is, and with which group it goes; also among those who would have to go, node by node."""
    lines = shown(line, *whole_groups)
    assert f"Plan: evict {pods} for room on n1, the best of 1 candidate among 2 nodes." in lines
    assert any(text.startswith(row) for text in lines)
    assert any(", with all of PodGroup default/train" in text for text in lines) is ("PodGroup" in row)
