"""What differs between two runs of the same future, as sentences, the weightiest first."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.simulation.report.summary import Group, Summary

__all__ = ["differences", "shown"]

_LEAST = 1.0
"""Seconds by which a placement must differ to be worth a sentence."""


def differences(a: Summary, b: Summary) -> list[str]:
    """Sentences that say what is otherwise with `b` than with `a`; one that says so if nothing is."""
    found = [*_totals(a, b), *_evicted(a, b), *_waiting(a, b), *_placed(a, b), *_refused(a, b)]
    return found or [f"With {b.name} nothing is otherwise than with {a.name}."]


def shown(seconds: float) -> str:
    """A time for people: `40 s`, `3 min 20 s`, `1 h 5 min`, `2 d 3 h`."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for unit, size, lesser, least in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            count, rest = divmod(whole, size)
            return f"{count} {unit} {rest // least} {lesser}" if rest // least else f"{count} {unit}"
    return f"{whole} s"


def _totals(a: Summary, b: Summary) -> Iterator[str]:
    for metric, words in (
        ("evictions", "evicted"),
        ("evictions-by-drain", "evicted by the drain"),
        ("waiting", "waiting in the end"),
    ):
        before, after = int(a.metrics[metric]), int(b.metrics[metric])
        if before != after:
            more = "more" if after > before else "fewer"
            count = abs(after - before)
            yield f"With {b.name} {count} {more} {_pods(count)} {words}: {after}, not {before}."
    before_lost, after_lost = a.metrics["work-lost"], b.metrics["work-lost"]
    if abs(before_lost - after_lost) >= 60:
        more = "more" if after_lost > before_lost else "less"
        yield f"With {b.name} {shown(abs(after_lost - before_lost))} {more} of work is lost."


def _evicted(a: Summary, b: Summary) -> Iterator[str]:
    """By owner: pods evicted with the one that stay with the other."""
    rows = []
    for one, other in ((b, a), (a, b)):
        spared = {row.pod for row in other.evictions}
        counts: dict[str, int] = {}
        for row in one.evictions:
            if row.pod not in spared:
                counts[row.owner] = counts.get(row.owner, 0) + 1
        rows += [(count, owner, one.name, other.name) for owner, count in counts.items()]
    for count, owner, with_, stays in sorted(rows, key=lambda row: (-row[0], row[1], row[2])):
        yield f"With {with_} {count} {_pods(count)} of {owner} {_are(count)} evicted that {_stay(count)} with {stays}."


def _waiting(a: Summary, b: Summary) -> Iterator[str]:
    before, after = _by_name(a.owners), _by_name(b.owners)
    rows = []
    for owner in before.keys() | after.keys():
        one, other = before.get(owner, Group(name=owner)), after.get(owner, Group(name=owner))
        if one.waiting != other.waiting:
            rows.append((other.waiting - one.waiting, owner))
    for change, owner in sorted(rows, key=lambda row: (-abs(row[0]), row[1])):
        with_, runs = (b.name, a.name) if change > 0 else (a.name, b.name)
        count = abs(change)
        verb = "waits" if count == 1 else "wait"
        yield f"With {with_} {count} {_pods(count)} of {owner} {verb} in the end that {_run(count)} with {runs}."


def _placed(a: Summary, b: Summary) -> Iterator[str]:
    before, after = _by_name(a.owners), _by_name(b.owners)
    rows = []
    for owner in before.keys() & after.keys():
        one, other = before[owner], after[owner]
        if one.placed == other.placed and one.longest is not None and other.longest is not None:
            change = other.longest - one.longest
            if abs(change) >= _LEAST:
                rows.append((change, owner))
    for change, owner in sorted(rows, key=lambda row: (-abs(row[0]), row[1])):
        yield f"With {b.name} {owner} is placed {shown(abs(change))} {'later' if change > 0 else 'earlier'}."


def _refused(a: Summary, b: Summary) -> Iterator[str]:
    for one, other in ((b, a), (a, b)):
        for name, why in one.refused.items():
            if name not in other.refused:
                yield f"With {one.name} {name} is refused, and with {other.name} it is not: {why}"


def _by_name(groups: list[Group]) -> dict[str, Group]:
    return {group.name: group for group in groups}


def _pods(count: int) -> str:
    return "pod" if count == 1 else "pods"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _stay(count: int) -> str:
    return "stays" if count == 1 else "stay"


def _run(count: int) -> str:
    return "runs" if count == 1 else "run"
