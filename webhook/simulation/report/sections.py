"""What a report tells, as sections of plain texts: a title, heads and rows. Terminal, Markdown and HTML render them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from webhook.kube.instants import time_span
from webhook.simulation.report.compare import metric_text
from webhook.simulation.report.summary import METRICS, Group, Summary

MOST = 15
"""Rows of a section that people see; the JSON has all."""
_ALWAYS = frozenset({"evictions", "waiting", "placed"})


class Section(NamedTuple):
    """A table; `numbers` are its columns of numbers. What is not `brief` is left out where there is little room."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: tuple[int, ...] = ()
    brief: bool = True


def figures(summaries: Sequence[Summary]) -> Section:
    """The metrics of all runs, a column each, without those that are nothing in every run."""
    rows = []
    for name, words in METRICS.items():
        values = [summary.metrics[name] for summary in summaries]
        if any(values) or name in _ALWAYS:
            rows.append((words, *(metric_text(name, value) for value in values)))
    heads = ("", *(summary.name for summary in summaries))
    return Section("In numbers", heads, rows, tuple(range(1, len(heads))))


def sections(summary: Summary) -> Iterator[Section]:
    """What happened in one run, to whom, who waits, and what rules and limits say of it; those that have rows."""
    changes = [(time_span(at), what) for at, what in summary.notes]
    waiting = [(row.reason, str(row.pods), ", ".join(row.examples)) for row in summary.waiting]
    limits = [
        (row.owner, row.policy, str(row.evicted), str(row.most), f"{row.allowed} in {time_span(row.window)}")
        for row in summary.limits
    ]
    evictions = [(row.pod, time_span(row.at), row.preemptor, row.by, row.rule) for row in summary.evictions]
    every = (
        Section("Changes", ("at", "what"), changes),
        _of_groups("Whose pods", "owner", summary.owners),
        _of_groups("Namespaces", "namespace", summary.namespaces, brief=False),
        _of_groups("PriorityClasses", "class", summary.classes, brief=False),
        _of_groups("Nodes", "node", summary.nodes, brief=False),
        Section("Who displaced whom", ("for", "evicted", "pods", "by"), list(_displaced(summary)), (2,), brief=False),
        Section("Evictions", ("evicted", "at", "for", "by", "rule"), evictions, brief=False),
        Section(
            "Groups of pods",
            ("group", "minimum", "running", "waiting", "placed after", "evicted", "in the end"),
            list(_pod_groups(summary)),
            (1, 2, 3, 4, 5),
            brief=False,
        ),
        Section("Who waits, and why", ("why", "pods", "for example"), waiting, (1,)),
        Section(
            "Evictions against limits",
            ("owner", "policy", "evicted", "most within the window", "the limit"),
            limits,
            (2, 3),
            brief=False,
        ),
        Section("Refused by admission", ("what", "why"), list(summary.refused.items())),
        Section("Cannot be judged", ("rule", "why"), list(summary.cannot_be_judged.items())),
        Section("Not played", ("field", "what happens instead"), list(summary.not_played.items())),
        Section("Internal errors", ("error",), [(error,) for error in summary.errors]),
    )
    return (section for section in every if section.rows)


def _of_groups(title: str, what: str, groups: Sequence[Group], *, brief: bool = True) -> Section:
    rows = [
        (
            group.name,
            str(group.evicted),
            time_span(group.lost) if group.lost else "",
            str(group.placed),
            "" if group.longest is None else time_span(group.longest),
            str(group.waiting),
            str(group.running),
        )
        for group in groups
        if group.is_touched
    ]
    heads = (what, "evicted", "work lost", "placed", "longest wait", "waiting", "running")
    return Section(title, heads, rows, (1, 2, 3, 4, 5, 6), brief)


def _displaced(summary: Summary) -> Iterator[tuple[str, ...]]:
    """Owner by owner, the most frequent first, with the rule that let it."""
    pairs = Counter(
        (row.preemptor_owner or row.preemptor or row.by, row.owner, row.rule or row.by) for row in summary.evictions
    )
    for (who, whom, rule), count in sorted(pairs.items(), key=lambda item: (-item[1], item[0])):
        yield who, whom, str(count), rule


def _pod_groups(summary: Summary) -> Iterator[tuple[str, ...]]:
    """Gangs that waited, and groups that lost pods."""
    for group in summary.groups:
        yield (
            group.name,
            str(group.minimum) if group.minimum else "",
            str(group.running),
            str(group.waiting),
            "" if group.waited is None else time_span(group.waited),
            str(group.evicted),
            "evicted whole" if group.whole else "left below its minimum" if group.broken else "",
        )
