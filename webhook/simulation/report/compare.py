"""What differs between two runs of the same future, as sentences, the weightiest first; and numbers for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from webhook.kube.instants import time_span
from webhook.simulation.report.summary import METRICS, Group, Summary

_LEAST_WORK = 60.0
"""Seconds of work by which two runs must differ to be worth a sentence."""
_LEAST = 1.0
"""Seconds by which a placement must differ to be worth a sentence."""
_OF_GROUPS = (
    ("cycles", "eviction in turn (cycles)", "evictions in turn (cycles)"),
    ("evicted-again", "eviction of owners once more", "evictions of owners once more"),
    ("gangs-waiting", "gang waits in the end", "gangs wait in the end"),
    ("groups-broken", "group is left below its minimum", "groups are left below their minimum"),
    ("groups-evicted-whole", "group is evicted whole", "groups are evicted whole"),
)
_TIMES = frozenset({"placed-p50", "placed-p99", "placed-max", "work-lost", "gangs-placed-p50", "gangs-placed-max"})
_SHARES = frozenset({"cpu-free", "memory-free"})


def differences(a: Summary, b: Summary) -> list[str]:
    """Sentences that say how `b` differs from `a`. If there are none, each metric that differs; else that none does."""
    sentences: list[str] = []
    for metric, singular, plural in (
        ("evictions", "pod is evicted", "pods are evicted"),
        ("evictions-by-drain", "pod is evicted by the drain", "pods are evicted by the drain"),
        ("lost-with-nodes", "pod is lost with its node", "pods are lost with their nodes"),
        ("waiting", "pod waits in the end", "pods wait in the end"),
    ):
        before, after = int(a.metrics[metric]), int(b.metrics[metric])
        if change := after - before:
            more = "more" if change > 0 else "fewer"
            pods = _by_number(abs(change), singular, plural)
            sentences.append(f"With {b.name} {abs(change)} {more} {pods}: {after}, not {before}.")
    lost = b.metrics["work-lost"] - a.metrics["work-lost"]
    if abs(lost) >= _LEAST_WORK:
        sentences.append(f"With {b.name} {time_span(abs(lost))} {'more' if lost > 0 else 'less'} of work is lost.")
    sentences += _gangs(a, b)
    sentences += _namespaces(a, b)
    # Pods that are evicted with the one, and stay with the other
    evicted = []
    for summary, other in ((b, a), (a, b)):
        # A pod that is made again under its name may be evicted again
        beyond = Counter((row.owner, row.pod) for row in summary.evictions)
        beyond.subtract((row.owner, row.pod) for row in other.evictions)
        counts = Counter(owner for owner, _ in beyond.elements())
        evicted += [(count, owner, summary.name, other.name) for owner, count in counts.items()]
    for count, owner, with_, stays in sorted(evicted, key=lambda row: (-row[0], row[1], row[2])):
        are, stay = ("is", "it stays") if count == 1 else ("are", "they stay")
        sentences.append(f"With {with_} {_pods_of(owner, count)} {are} evicted. With {stays} {stay}.")
    sentences += _owners_placed(a, b)
    for summary, other in ((b, a), (a, b)):
        for name, why in summary.refused.items():
            if name not in other.refused:
                sentences.append(f"With {summary.name} {name} is refused, and with {other.name} it is not: {why}")
    return sentences or list(_metrics(a, b)) or [f"{a.name} and {b.name} give the same numbers."]


def ending(summary: Summary) -> str:
    """How a run ended, as a sentence."""
    end = "nothing moves any more" if summary.at_rest else "the time was over, and things still moved"
    return f"After {time_span(summary.seconds)} {end}."


def metric_text(name: str, value: float) -> str:
    """The value of a metric for people."""
    if name in _TIMES:
        return time_span(value)
    return f"{value:.0%}" if name in _SHARES else f"{value:g}"


def _metrics(a: Summary, b: Summary) -> Iterator[str]:
    """Each metric that people see differ."""
    for name, words in METRICS.items():
        before, after = (metric_text(name, summary.metrics[name]) for summary in (a, b))
        if before != after:
            yield f"{words[0].upper()}{words[1:]}: {after} with {b.name}, {before} with {a.name}."


def _gangs(a: Summary, b: Summary) -> Iterator[str]:
    """How many gangs wait in the end, how long the last one took, and what became of groups that lost pods."""
    for metric, singular, plural in _OF_GROUPS:
        before, after = int(a.metrics[metric]), int(b.metrics[metric])
        if before != after:
            yield f"With {b.name} {after} {_by_number(after, singular, plural)}, not {before}."
    longer = b.metrics["gangs-placed-max"] - a.metrics["gangs-placed-max"]
    if a.metrics["gangs-bound"] and b.metrics["gangs-bound"] and abs(longer) >= _LEAST:
        yield f"With {b.name} the last gang is placed {_later(longer)}."


def _namespaces(a: Summary, b: Summary) -> Iterator[str]:
    """By namespace: how much more or less work is lost, how many pods wait in the end, how long the longest waited."""
    before, after = ({group.name: group for group in summary.namespaces} for summary in (a, b))
    names = sorted(
        name
        for name in before.keys() | after.keys()
        if any(name in groups and groups[name].is_touched for groups in (before, after))
    )
    rows = []
    for name in names if len(names) > 1 else ():
        group, other = before.get(name, Group(name=name)), after.get(name, Group(name=name))
        parts = []
        if abs(lost := other.lost - group.lost) >= _LEAST_WORK:
            parts.append(f"loses {time_span(abs(lost))} {'more' if lost > 0 else 'less'} of work")
        if waiting := other.waiting - group.waiting:
            parts.append(f"has {abs(waiting)} {'more' if waiting > 0 else 'fewer'} waiting in the end")
        longer = (other.longest or 0.0) - (group.longest or 0.0)
        if group.longest is not None and other.longest is not None and abs(longer) >= _LEAST:
            parts.append(f"waits up to {time_span(abs(longer))} {'longer' if longer > 0 else 'less'} for a place")
        if parts:
            rows.append((abs(lost), name, " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)))
    for _, name, text in sorted(rows, key=lambda row: (-row[0], row[1])):
        yield f"With {b.name} namespace {name} {text}."


def _owners_placed(a: Summary, b: Summary) -> Iterator[str]:
    """By owner: first whose pods wait with the one and run with the other, then how much later they are placed."""
    before, after = ({group.name: group for group in summary.owners} for summary in (a, b))
    waiting: list[tuple[int, str]] = []
    later: list[tuple[float, str]] = []
    for owner in before.keys() | after.keys():
        group, other = before.get(owner, Group(name=owner)), after.get(owner, Group(name=owner))
        if group.waiting != other.waiting:
            waiting.append((other.waiting - group.waiting, owner))
        if group.placed == other.placed and group.longest is not None and other.longest is not None:
            later.append((other.longest - group.longest, owner))
    for change, owner in sorted(waiting, key=lambda row: (-abs(row[0]), row[1])):
        with_, runs, count = (b.name, a.name, change) if change > 0 else (a.name, b.name, -change)
        wait, run = ("waits", "it runs") if count == 1 else ("wait", "they run")
        yield f"With {with_} {_pods_of(owner, count)} {wait} in the end. With {runs} {run}."
    for seconds, owner in sorted(later, key=lambda row: (-abs(row[0]), row[1])):
        if abs(seconds) >= _LEAST:
            yield f"With {b.name} {owner} is placed {_later(seconds)}."


def _later(seconds: float) -> str:
    return f"{time_span(abs(seconds))} {'later' if seconds > 0 else 'earlier'}"


def _pods_of(owner: str, count: int) -> str:
    """So many pods of an owner; a pod without one is its own."""
    return owner if owner.startswith("Pod/") else f"{count} {_by_number(count, 'pod', 'pods')} of {owner}"


def _by_number(count: int, singular: str, plural: str) -> str:
    return singular if count == 1 else plural
