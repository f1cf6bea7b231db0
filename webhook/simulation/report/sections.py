"""What people read of simulations, as sentences and as sections of plain texts, and these as Markdown.

Terminal, Markdown and HTML render the same sections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from webhook.kube.instants import time_span
from webhook.simulation.report.summary import METRICS, Group, Summary

MOST, MOST_SENTENCES = 15, 20
"""Rows of a section, and sentences, that people see; the JSON has all."""
_LEAST_WORK, _LEAST = 60.0, 1.0
"""Seconds of work, and of a placement, by which two runs must differ to be worth a sentence."""
_COUNTED = {
    "evictions": ("pod is evicted", "pods are evicted"),
    "evictions-by-drain": ("pod is evicted by the drain", "pods are evicted by the drain"),
    "lost-with-nodes": ("pod is lost with its node", "pods are lost with their nodes"),
    "waiting": ("pod waits in the end", "pods wait in the end"),
    "cycles": ("eviction in turn (cycles)", "evictions in turn (cycles)"),
    "evicted-again": ("eviction of owners once more", "evictions of owners once more"),
    "gangs-waiting": ("gang waits in the end", "gangs wait in the end"),
    "groups-broken": ("group is left below its minimum", "groups are left below their minimum"),
    "groups-evicted-whole": ("group is evicted whole", "groups are evicted whole"),
}
_ALWAYS = frozenset({"evictions", "waiting", "placed"})
_TIMES = frozenset({"placed-p50", "placed-p99", "placed-max", "work-lost", "gangs-placed-p50", "gangs-placed-max"})
_SHARES = frozenset({"cpu-free", "memory-free"})
_ESCAPED = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "`": "&#96;", "@": "&#64;", **{c: f"\\{c}" for c in "[]*_"}}
)


class Section(NamedTuple):
    """A table; `numbers` are its columns of numbers. What is not `brief` is left out where there is little room."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: tuple[int, ...] = ()
    brief: bool = True


def differences(a: Summary, b: Summary) -> list[str]:
    """How `b` differs from `a`, the weightiest first; else each metric that differs, or that none does.

    Totals come first, then whose pods are evicted with one alone, owners, and what is refused.
    """
    sentences: list[str] = []
    for metric, (singular, plural) in _COUNTED.items():
        before, after = int(a.metrics[metric]), int(b.metrics[metric])
        if change := abs(after - before):
            pods = f"{'more' if after > before else 'fewer'} {singular if change == 1 else plural}"
            sentences.append(f"With {b.name} {change} {pods}: {after}, not {before}.")
    lost = b.metrics["work-lost"] - a.metrics["work-lost"]
    if abs(lost) >= _LEAST_WORK:
        sentences.append(f"With {b.name} {time_span(abs(lost))} {'more' if lost > 0 else 'less'} of work is lost.")
    evicted = []
    for summary, other in ((b, a), (a, b)):
        # A pod that is made again under its name may be evicted again
        beyond = Counter((row.owner, row.pod) for row in summary.evictions)
        beyond.subtract((row.owner, row.pod) for row in other.evictions)
        counts = Counter(owner for owner, _ in beyond.elements())
        evicted += [(-count, owner, summary.name, other.name) for owner, count in counts.items()]
    for count, owner, with_, stays in sorted(evicted):
        are, stay = ("is", "it stays") if count == -1 else ("are", "they stay")
        sentences.append(f"With {with_} {_pods_of(owner, -count)} {are} evicted. With {stays} {stay}.")
    sentences += _owners_placed(a, b)
    for summary, other in ((b, a), (a, b)):
        text = f"is refused, and with {other.name} it is not"
        refused = [(name, why) for name, why in summary.refused.items() if name not in other.refused]
        sentences += [f"With {summary.name} {name} {text}: {why}" for name, why in refused]
    if sentences:
        return sentences
    for name, words in METRICS.items():
        before_text, after_text = (metric_text(name, summary.metrics[name]) for summary in (a, b))
        if before_text != after_text:
            sentences.append(f"{words[0].upper()}{words[1:]}: {after_text} with {b.name}, {before_text} with {a.name}.")
    return sentences or [f"{a.name} and {b.name} give the same numbers."]


def shown_differences(summaries: Sequence[Summary]) -> list[str]:
    """The first differences of two runs, and how many more there are; none of a single run."""
    sentences = differences(*summaries) if len(summaries) == 2 else []
    more = [f"and {len(sentences) - MOST_SENTENCES} more differences"] if len(sentences) > MOST_SENTENCES else []
    return sentences[:MOST_SENTENCES] + more


def _owners_placed(a: Summary, b: Summary) -> Iterator[str]:
    """By owner: first whose pods wait with the one and run with the other, then how much later they are placed."""
    before, after = ({group.name: group for group in summary.owners} for summary in (a, b))
    names = sorted(before.keys() | after.keys())
    pairs = {name: (before.get(name) or Group(name=name), after.get(name) or Group(name=name)) for name in names}
    waiting = [(other.waiting - group.waiting, owner) for owner, (group, other) in pairs.items()]
    for change, owner in sorted(waiting, key=lambda row: (-abs(row[0]), row[1])):
        with_, runs = (b.name, a.name) if change > 0 else (a.name, b.name)
        wait, run = ("waits", "it runs") if abs(change) == 1 else ("wait", "they run")
        if change:
            yield f"With {with_} {_pods_of(owner, abs(change))} {wait} in the end. With {runs} {run}."
    later = [
        (other.longest - group.longest, owner)
        for owner, (group, other) in pairs.items()
        if group.placed == other.placed and group.longest is not None and other.longest is not None
    ]
    for seconds, owner in sorted(later, key=lambda row: (-abs(row[0]), row[1])):
        if abs(seconds) >= _LEAST:
            yield f"With {b.name} {owner} is placed {time_span(abs(seconds))} {'later' if seconds > 0 else 'earlier'}."


def _pods_of(owner: str, count: int) -> str:
    """So many pods of an owner; a pod without one is its own."""
    return owner if owner.startswith("Pod/") else f"{count} pod{'s' * (count != 1)} of {owner}"


def ending(summary: Summary) -> str:
    """How a run ended, as a sentence."""
    end = "nothing moves any more" if summary.at_rest else "the time was over, and things still moved"
    return f"After {time_span(summary.seconds)} {end}."


def metric_text(name: str, value: float) -> str:
    """The value of a metric for people."""
    if name in _TIMES:
        return time_span(value)
    return f"{value:.0%}" if name in _SHARES else f"{value:g}"


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
    evictions = [(row.pod, time_span(row.at), row.preemptor, row.by, row.rule) for row in summary.evictions]
    groups = [
        (
            group.name,
            str(group.minimum or ""),
            str(group.running),
            str(group.waiting),
            "" if group.waited is None else time_span(group.waited),
            str(group.evicted),
            "evicted whole" if group.whole else "left below its minimum" if group.broken else "",
        )
        for group in summary.groups
    ]
    every = (
        Section("Changes", ("at", "what"), changes),
        _of_groups("Whose pods", "owner", summary.owners),
        _of_groups("Namespaces", "namespace", summary.namespaces, brief=False),
        _of_groups("PriorityClasses", "class", summary.classes, brief=False),
        _of_groups("Nodes", "node", summary.nodes, brief=False),
        Section("Evictions", ("evicted", "at", "for", "by", "rule"), evictions, brief=False),
        Section(
            "Groups of pods",
            ("group", "minimum", "running", "waiting", "placed after", "evicted", "in the end"),
            groups,
            (1, 2, 3, 4, 5),
            brief=False,
        ),
        Section("Who waits, and why", ("why", "pods", "for example"), waiting, (1,)),
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
        if group.evicted or group.waiting or group.placed
    ]
    heads = (what, "evicted", "work lost", "placed", "longest wait", "waiting", "running")
    return Section(title, heads, rows, (1, 2, 3, 4, 5, 6), brief)


def markdown(summaries: Sequence[Summary]) -> str:
    """One run, or two with the difference first, as Markdown for a comment under a pull request."""
    lines = ["### giveway simulate", "", *(f"- {_escaped(sentence)}" for sentence in shown_differences(summaries)), ""]
    lines += _table(figures(summaries))
    several = len(summaries) > 1
    for summary in summaries:
        lines += ["", f"<details><summary>{_escaped(summary.name)}: who</summary>"] if several else []
        for section in filter(lambda section: section.brief, sections(summary)):
            lines += ["", f"#### {section.title}", "", *_table(section)]
            if len(section.rows) > MOST:
                lines += ["", f"and {len(section.rows) - MOST} more"]
        lines += ["", ending(summary), *(["", "</details>"] if several else [])]
    return "\n".join(lines) + "\n"


def _table(section: Section) -> list[str]:
    """The heads, and the first rows."""
    head, *rows = (f"| {' | '.join(map(_escaped, row))} |" for row in (section.heads, *section.rows[:MOST]))
    return [head, f"|{'---|' * len(section.heads)}", *rows]


def _escaped(value: str) -> str:
    """A text from the cluster, without what Markdown or HTML would make something of."""
    return " ".join(value.split()).translate(_ESCAPED)
