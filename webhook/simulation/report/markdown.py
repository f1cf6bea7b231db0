"""The answers as Markdown, for a comment under a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from webhook.simulation.report.compare import differences, shown
from webhook.simulation.report.summary import Group, Summary

__all__ = ["markdown"]

_MOST = 15
_MOST_SENTENCES = 20
_HEADLINES = ("evictions", "waiting", "placed", "placed-p50", "placed-p99", "placed-max", "work-lost", "refused")
_TIMES = frozenset({"placed-p50", "placed-p99", "placed-max", "work-lost"})
_WORDS = {
    "evictions": "evicted",
    "waiting": "waiting in the end",
    "placed": "placed",
    "placed-p50": "time until placed, half",
    "placed-p99": "time until placed, 99 %",
    "placed-max": "time until placed, the last",
    "work-lost": "work lost",
    "refused": "refused by admission",
}


def markdown(summaries: Sequence[Summary]) -> str:
    """One run, or two with the difference first."""
    lines = ["### giveway simulate", ""]
    if len(summaries) == 2:
        sentences = differences(*summaries)
        lines += [f"- {_text(one)}" for one in sentences[:_MOST_SENTENCES]]
        if len(sentences) > _MOST_SENTENCES:
            lines.append(f"- and {len(sentences) - _MOST_SENTENCES} more differences")
        lines.append("")
    rows = [[_WORDS[name], *(_value(name, one.metrics[name]) for one in summaries)] for name in _HEADLINES]
    lines += _table(["", *(one.name for one in summaries)], rows)
    for summary in summaries:
        lines += _details(summary, len(summaries) > 1)
    return "\n".join(lines) + "\n"


def _details(summary: Summary, several: bool) -> Iterable[str]:
    moved = [one for one in summary.owners if one.evicted or one.waiting or one.placed]
    lines = ["", f"<details><summary>{_text(summary.name)}: who</summary>" if several else "#### Who", ""]
    heads = ["owner", "evicted", "work lost", "placed", "longest wait", "waiting", "running"]
    lines += _table(heads, [_row(one) for one in moved[:_MOST]])
    if len(moved) > _MOST:
        lines += ["", f"and {len(moved) - _MOST} more owners"]
    if summary.waiting:
        lines += ["", "Who waits, and why:", ""]
        lines += [
            f"- {one.pods}: {_text(one.reason)} (for example {_text(one.examples[0])})"
            for one in summary.waiting[:_MOST]
        ]
    if summary.refused:
        lines += ["", "Refused by admission:", ""]
        lines += [f"- {_text(name)}: {_text(why)}" for name, why in list(summary.refused.items())[:_MOST]]
    if summary.cannot_be_judged:
        lines += ["", "Cannot be judged:", ""]
        lines += [f"- {_text(name)}: {_text(why)}" for name, why in list(summary.cannot_be_judged.items())[:_MOST]]
    end = "nothing moves any more" if summary.at_rest else "the time was over, and things still moved"
    lines += ["", f"After {shown(summary.seconds)} {end}."]
    return [*lines, "", "</details>"] if several else lines


def _row(one: Group) -> list[str]:
    longest = "" if one.longest is None else shown(one.longest)
    lost = shown(one.lost) if one.lost else ""
    return [_text(one.name), str(one.evicted), lost, str(one.placed), longest, str(one.waiting), str(one.running)]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(map(_text, heads))} |", f"|{'---|' * len(heads)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def _value(name: str, value: float) -> str:
    return shown(value) if name in _TIMES else f"{value:g}"


def _text(value: str) -> str:
    """A text from the cluster, without what Markdown or HTML would make something of."""
    plain = " ".join(value.split())
    for character, instead in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("|", "&#124;"),
        ("`", "&#96;"),
        ("@", "&#64;"),
    ):
        plain = plain.replace(character, instead)
    for character in "[]*_":
        plain = plain.replace(character, f"\\{character}")
    return plain
