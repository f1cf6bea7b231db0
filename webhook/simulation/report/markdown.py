"""The answers as Markdown, for a comment under a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from webhook.kube.instants import time_span
from webhook.simulation.report.compare import differences, ending, metric_text
from webhook.simulation.report.summary import Summary

_MOST = 15
_MOST_SENTENCES = 20
_IN_OTHER_WAYS = ("evictions-by-drain", "lost-with-nodes")
"""How pods go that count as evicted besides; shown if some do."""
_HEADLINES = (
    "evictions",
    *_IN_OTHER_WAYS,
    "waiting",
    "placed",
    "placed-p50",
    "placed-p99",
    "placed-max",
    "work-lost",
    "refused",
)
_OF_GROUPS = ("gangs-bound", "gangs-waiting", "gangs-placed-max", "groups-evicted-whole", "groups-broken")
_WORDS = {
    "evictions": "evicted for others",
    "evictions-by-drain": "evicted by a drain",
    "lost-with-nodes": "lost with their nodes",
    "waiting": "waiting in the end",
    "placed": "placed",
    "placed-p50": "time until placed, half",
    "placed-p99": "time until placed, 99 %",
    "placed-max": "time until placed, the last",
    "work-lost": "work lost",
    "refused": "refused by admission",
    "gangs-bound": "gangs placed",
    "gangs-waiting": "gangs waiting in the end",
    "gangs-placed-max": "time until placed, the last gang",
    "groups-evicted-whole": "groups evicted whole",
    "groups-broken": "groups left below their minimum",
}


def markdown(summaries: Sequence[Summary]) -> str:
    """One run, or two with the difference first."""
    lines = ["### giveway simulate", ""]
    if len(summaries) == 2:
        sentences = differences(*summaries)
        lines += [f"- {_text(sentence)}" for sentence in sentences[:_MOST_SENTENCES]]
        if len(sentences) > _MOST_SENTENCES:
            lines.append(f"- and {len(sentences) - _MOST_SENTENCES} more differences")
        lines.append("")
    lines_of = (*_HEADLINES, *(_OF_GROUPS if any(summary.groups for summary in summaries) else ()))
    rows = [
        [_WORDS[name], *(metric_text(name, summary.metrics[name]) for summary in summaries)]
        for name in lines_of
        if name not in _IN_OTHER_WAYS or any(summary.metrics[name] for summary in summaries)
    ]
    lines += _table(["", *(summary.name for summary in summaries)], rows)
    for summary in summaries:
        several = len(summaries) > 1
        lines += [
            "",
            f"<details><summary>{_text(summary.name)}: who</summary>" if several else "#### Who",
            "",
        ]
        touched = [owner for owner in summary.owners if owner.is_touched]
        rows = []
        for owner in touched[:_MOST]:
            longest, lost = (
                "" if owner.longest is None else time_span(owner.longest),
                time_span(owner.lost) if owner.lost else "",
            )
            numbers = [str(owner.evicted), lost, str(owner.placed), longest, str(owner.waiting), str(owner.running)]
            rows.append([_text(owner.name), *numbers])
        lines += _table(["owner", "evicted", "work lost", "placed", "longest wait", "waiting", "running"], rows)
        if len(touched) > _MOST:
            lines += ["", f"and {len(touched) - _MOST} more owners"]
        waiting = [f"{row.pods}: {_text(row.reason)} (for example {_text(row.examples[0])})" for row in summary.waiting]
        refused, not_judged, not_played = (
            [f"{_text(name)}: {_text(why)}" for name, why in said.items()]
            for said in (summary.refused, summary.cannot_be_judged, summary.not_played)
        )
        for heading, items in (
            ("Who waits, and why:", waiting),
            ("Refused by admission:", refused),
            ("Cannot be judged:", not_judged),
            ("Not played:", not_played),
        ):
            if items:
                lines += ["", heading, "", *(f"- {item}" for item in items[:_MOST])]
        lines += ["", ending(summary)]
        if several:
            lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(map(_text, heads))} |", f"|{'---|' * len(heads)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


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
