"""The answers: differences as sentences, tables, Markdown, one HTML file, and thresholds."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from tests.preemption.building import NOW
from tests.simulation.clusters import POLICY, added, cluster_of, full, large, loaded, node, pod, policy_text, run, write
from tests.simulation.futures import pod_group, ring
from webhook.cli.main import main
from webhook.cli.simulate import print_summaries
from webhook.kube.instants import rfc3339, time_span
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import CAN_BE_PREEMPTED
from webhook.simulation.report.html import page
from webhook.simulation.report.sections import differences, markdown, metric_text
from webhook.simulation.report.summary import METRICS, Summary, summarize


@cache
def both() -> tuple[Summary, Summary]:
    """The same cluster without preemption, and with it."""
    objects = full(pods=[pod("p", "2", "high")])
    return summarize("A", run(objects, Policies())), summarize("B", run(objects))


def test_differences_are_told_as_sentences():
    """The totals first, then whose pods."""
    assert differences(*both()) == [
        "With B 2 more pods are evicted: 2, not 0.",
        "With B 1 more pod waits in the end: 2, not 1.",
        "With B 2 h more of work is lost.",
        "With B 2 pods of ReplicaSet/default/web are evicted. With A they stay.",
        "With B 2 pods of ReplicaSet/default/web wait in the end. With A they run.",
        "With A Pod/default/p waits in the end. With B it runs.",
    ]
    a, _ = both()
    assert differences(a, a) == ["A and A give the same numbers."]


def test_an_eviction_says_why_it_was():
    """For whom, by which policy and rule, and how long the pod had run; and how near its owner came to its limit."""
    limited = loaded(policy_text(limits={"perOwner": {"evictions": 1, "window": "60s"}}))
    summary = summarize("A", run(full(pods=[pod(name, "1", "high") for name in "pq"]), limited))
    rows, limit = summary.evictions, summary.limits[0]
    assert [(row.preemptor, row.preemptor_owner, row.ran) for row in rows] == [
        ("default/q", "Pod/default/q", 3600.0),
        ("default/p", "Pod/default/p", 3660.0),
    ]
    assert {(row.policy, row.rule) for row in rows} == {("high", "high/opt-in")}
    assert summary.metrics["evicted-again"] == 1
    assert (limit.owner, limit.evicted, limit.most, limit.allowed) == ("ReplicaSet/default/web", 2, 1, 1)
    of_scheduler = summarize("A", run(full(pods=[pod("p", "2", "plain")])))
    assert {(row.preemptor, row.policy) for row in of_scheduler.evictions} == {("default/p", "")}


def test_placements_tell_the_node():
    """Each tells when which pod of whom came to which node, also of a preemptor that was nominated before."""
    summary = summarize("A", run(full(pods=[pod("p", "2", "high")])))
    placed = {name: (owner, node) for _, name, owner, node in summary.placements}
    assert placed["default/p"] == ("Pod/default/p", summary.evictions[0].node)
    assert all(node for _, node in placed.values())


def test_the_sums_of_all_tables_agree():
    """Over namespaces, owners, classes and lists: who goes for others, by a drain or with a node, and who waits."""
    ending = pod("q", "2", "high")
    ending["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/kept"]}
    objects = full(pods=[pod("p", "2", "high"), ending])
    summary = summarize("A", run(objects, None, "10m:drain a", "20m:without-node b"))
    metrics = summary.metrics
    ways = [metrics[name] for name in ("evictions", "evictions-by-drain", "lost-with-nodes")]
    assert all(ways)
    for groups in (summary.namespaces, summary.owners, summary.classes):
        assert sum(group.evicted for group in groups) == sum(ways) == len(summary.evictions)
        assert sum(group.lost for group in groups) == pytest.approx(metrics["work-lost"])
        assert sum(group.waiting for group in groups) == metrics["waiting"] == sum(row.pods for row in summary.waiting)
        assert sum(group.running for group in groups) == metrics["running"]
        assert sum(group.placed for group in groups) == metrics["placed"] == len(summary.placements)


LABEL = "scheduling.x-k8s.io/pod-group"
MAY_GO = {CAN_BE_PREEMPTED: "true"}
SAVED = "example.com/saved-at"


def test_a_gang_that_is_placed_and_one_that_waits():
    """A gang counts as bound once as many as it needs have a node, with the time that took; else it waits."""
    bound, waits = (summarize("a", run(ring(minimum, 2))) for minimum in (2, 3))
    (row,) = bound.groups
    assert (row.name, row.minimum, row.running, row.waiting) == ("default/ring", 2, 2, 0)
    last = max(at for at, name, *_ in bound.placements if "ring" in name)
    assert row.waited == pytest.approx(last + 60, abs=1)
    assert (bound.metrics["gangs-bound"], bound.metrics["gangs-waiting"]) == (1, 0)
    assert bound.metrics["gangs-placed-max"] == bound.metrics["gangs-placed-p50"] == row.waited
    assert (waits.metrics["gangs-bound"], waits.metrics["gangs-waiting"]) == (0, 1)
    assert "With a 1 more gang waits in the end: 1, not 0." in differences(bound, waits)


def training(whole):
    """The future of a group of two with that minimum, one of which is in the way of a preemptor."""
    pods = [
        *(pod(f"train-{name}", "2", on=name, labels={LABEL: "train"}, annotations=MAY_GO) for name in "ab"),
        pod("p", "2", "high"),
    ]
    cluster = cluster_of([node(name, "2") for name in "ab"], pods, CoschedulingPodGroup=[pod_group("train", 2)])
    return run(cluster, loaded(policy_text(groups={"disruption": "Group" if whole else "Pod"})))


def test_groups_that_lose_pods():
    """A group that keeps fewer than its minimum is broken, one that loses all goes whole; a comparison says so."""
    broken, whole = summarize("parts", training(whole=False)), summarize("whole", training(whole=True))
    names = ("groups-broken", "groups-evicted-whole", "evictions")
    assert [broken.metrics[name] for name in names] == [1, 0, 1]
    assert [whole.metrics[name] for name in names] == [0, 1, 2]
    said = differences(broken, whole)
    assert "With whole 1 fewer group is left below its minimum: 0, not 1." in said
    assert "With whole 1 more group is evicted whole: 1, not 0." in said
    assert "groups left below their minimum | 1 | 0 |" in markdown([broken, whole])
    assert "evicted whole" in page([whole], ["cluster"])


def test_work_that_was_saved_is_not_lost():
    """Work counts from the last checkpoint by the annotations that a policy names, as the decision counts it."""
    annotations = MAY_GO | {SAVED: rfc3339(NOW - 100)}
    cluster = cluster_of([node("a", "2")], [pod("v", "2", on="a", annotations=annotations), pod("p", "2", "high")])
    cost = {"lostWork": {"checkpoints": [SAVED]}}
    knows = loaded(policy_text(victims={"mode": "opt-in", "cost": cost}))
    lost = [
        summarize("a", run(cluster, policies, checkpoints=more)).metrics["work-lost"]
        for policies, more in ((None, ()), (knows, ()), (None, (SAVED,)))
    ]
    assert lost == [pytest.approx(3600, abs=5), pytest.approx(100, abs=5), pytest.approx(100, abs=5)]


def test_a_pod_that_is_made_again_may_be_evicted_again():
    """A StatefulSet's pod has the name of the one before: each time counts."""
    _, once = both()
    twice = msgspec.structs.replace(once, name="C", evictions=[*once.evictions, once.evictions[0]])
    assert "With C 1 pod of ReplicaSet/default/web is evicted. With B it stays." in differences(once, twice)


@pytest.mark.parametrize("name", METRICS)
def test_no_metric_differs_without_a_word(name):
    """A metric that alone is another one is told with its value, also one without a sentence of its own."""
    a = msgspec.structs.replace(both()[0], metrics=dict.fromkeys(METRICS, 0))
    b = msgspec.structs.replace(a, name="B", metrics={**a.metrics, name: 600})
    sentences = differences(a, b)
    assert len(sentences) == 1
    assert metric_text(name, 600) in sentences[0]


def test_times_for_people():
    """The two largest units."""
    spans = {0: "0 s", 0.25: "0.25 s", 59: "59 s", 61: "1 min 1 s", 3600: "1 h", 3660: "1 h 1 min", 90000: "1 d 1 h"}
    assert {seconds: time_span(seconds) for seconds in spans} == spans


def test_the_page_is_one_file_and_everything_in_it_is_escaped():
    """Names cannot become markup, and nothing is loaded from anywhere."""
    objects = full(pods=[pod("p", "2", "high")])
    evil = "<script>alert(1)</script>"
    one = summarize(evil, run(objects))
    one.waiting[0].reason = evil
    text = page([one, one], [evil])
    assert evil not in text
    assert "&lt;script&gt;" in text
    assert 'class="plot"' in text
    assert not any(word in text for word in ('src="http', "@import", "url(http", 'href="http'))


def test_hostile_texts_are_printed_literally():
    """Terminal escapes, markup and direction marks in names and reasons are shown as text and do nothing."""
    evil = "\x1b[2J[red]x[/red]\u202e\r"
    pods = [pod(f"{evil}v", "2", on="c", namespace=evil), pod("p", "2", "high"), pod(f"{evil}w", "64", "high")]
    result = run(added(full(1, pods=pods), "Node", node(f"{evil}n", "2"), node("c", "2")), None, "0s:drain zone-a")
    result.history.refused[evil] = evil
    result.policies.left_out[evil] = evil
    result.history.notes.append((0.0, evil))
    one = summarize(evil, result)
    output = io.StringIO()
    print_summaries(Console(file=output, width=400, highlight=False), [one, msgspec.structs.replace(one, name="b")])
    assert output.getvalue().count(r"\u001b[2J[red]x[/red]\u202e") > 12
    assert not {"\x1b", "\r", "\u202e"} & set(output.getvalue())


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A small cluster file and two sets of policies: files of the command."""
    write(tmp_path / "c.gz", large(3, 30, 2))
    for name, text in (
        ("a", POLICY),
        ("b", policy_text(victims={"mode": "opt-in", "pairs": [{"victims": {"namespaces": ["nowhere"]}}]})),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "p.yaml").write_text(text)
    return [str(tmp_path / "c.gz"), "--policies", str(tmp_path / "a"), "--against", str(tmp_path / "b")]


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["simulate", *arguments])


@pytest.mark.parametrize("layout", ["table", "json", "markdown"])
def test_every_format_says_the_difference_first(files, layout):
    """Tables, JSON and Markdown."""
    result = invoke(*files, "--format", layout)
    assert result.exit_code == 0, result.output
    assert "With b 4 fewer pods are evicted: 0, not 4." in result.output[:300]


@pytest.mark.parametrize(
    ("condition", "code"),
    [("evictions > 3", 1), ("evictions > 4", 0), ("placed-max >= 1m", 1), ("cpu-free < 1%", 0), ("waiting != 0", 1)],
)
def test_thresholds_decide_the_exit_code(files, condition, code):
    """One that holds in any run is named, and the exit code is 1."""
    result = invoke(*files, "--fail-on", condition)
    assert result.exit_code == code, result.output
    assert ("threshold: " in result.output) == bool(code)


def test_what_is_not_understood_is_explained(files, tmp_path):
    """A threshold of an unknown name names the known ones; a file that is no cluster file ends with 2."""
    result = invoke(*files, "--fail-on", "sorrow > 3")
    assert result.exit_code == 2
    assert all(name in result.output for name in METRICS)
    (tmp_path / "bad").write_text("hello")
    result = invoke(str(tmp_path / "bad"), *files[1:])
    assert (result.exit_code, "neither a snapshot" in result.output) == (2, True)
