"""The answers as one HTML file: the look of the reconciler's own page, with a picture, and nothing loaded from outside.

Pictures are stretched to the width there is, so what is written beside them is HTML and keeps its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from webhook.kube.instants import time_span
from webhook.page.markup import Html, joined, plural, table, text
from webhook.simulation.report.sections import MOST, Section, ending, figures, sections, shown_differences
from webhook.simulation.report.summary import METRICS, Summary

_WIDE, _TALL = 1000, 180
_CONTENT = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a browser may load: nothing but what is in the file."""


def page(summaries: Sequence[Summary], sources: Sequence[str]) -> Html:
    """The whole file."""
    names = " and ".join(summary.name for summary in summaries)
    style = joined(
        files(package).joinpath(name).read_text()
        for package, name in (("webhook.page", "page.css"), ("webhook.simulation.report", "report.css"))
    )
    compared = ""
    if sentences := shown_differences(summaries):
        items = joined(f"<li>{text(sentence)}</li>" for sentence in sentences)
        compared = _section("Differences", f'<ul class="differences">{items}</ul>')
    numbers = _section("In numbers", _table(figures(summaries), len(METRICS)))
    span = max((_span(summary) for summary in summaries), default=1.0)
    runs = joined(_run(summary, span, several=len(summaries) > 1) for summary in summaries)
    return Html(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>giveway simulate: {text(names)}</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT}">'
        f"<style>{style}</style></head><body>"
        f'<header><div class="bar"><h1>What would happen</h1></div><p class="identity">{text(", ".join(sources))},'
        f" simulated with {text(names)}</p></header><main>{compared}{numbers}{runs}</main>"
        "<footer>Written by giveway simulate. Times are virtual, from the moment of the snapshot.</footer>"
        "</body></html>"
    )


def _run(summary: Summary, span: float, *, several: bool) -> Html:
    """The sections of one run; with several runs each heading names its own."""
    of_run = Html(f" <small>{text(summary.name)}</small>") if several else Html("")
    drawn = f'{_timeline(summary, span)}<p class="more">{ending(summary)}</p>'
    told = [(section.title, _table(section, MOST)) for section in sections(summary)]
    return joined(
        _section(f"{title}{of_run}", body) for title, body in (("Evictions and placements over time", drawn), *told)
    )


def _section(title: str, body: str) -> Html:
    return Html(f"<section><h2>{title}</h2>{body}</section>")


def _table(section: Section, most: int) -> Html:
    """The first rows, and how many more there are."""
    rows = [tuple(map(text, row)) for row in section.rows[:most]]
    more = f'<p class="more">and {len(section.rows) - most} more</p>' if len(section.rows) > most else ""
    return joined((table(section.title, section.heads, rows, numbers=section.numbers), more))


def _span(summary: Summary) -> float:
    """Until when something happens, in seconds, at least one."""
    times = [row.at for row in summary.evictions] + [row[0] for row in summary.placements]
    return max([1.0, *times, *(at for at, _ in summary.notes)])


def _timeline(summary: Summary, span: float) -> Html:
    """Two rising lines: how many were evicted, and placed, until then."""
    evicted = [row.at for row in summary.evictions]
    placed = [row[0] for row in summary.placements]
    most = max(len(evicted), len(placed), 1)
    said = f"{plural(len(evicted), 'pod')} gone and {len(placed)} placed within {time_span(_span(summary))}"
    notes = joined(
        f'<path class="note" d="M{_x(at, span)} 0V{_TALL}"><title>{text(what)}</title></path>'
        for at, what in summary.notes
    )
    lines = (("evicted", evicted), ("placed", placed))
    paths = joined(f'<path class="{kind}" d="{_steps(times, span, most)}"/>' for kind, times in lines)
    legend = (
        f'<ul class="legend"><li><span class="key evicted"></span>{plural(len(evicted), "pod")} evicted, drained or '
        "lost with a node</li>"
        f'<li><span class="key placed"></span>{plural(len(placed), "pod")} placed</li></ul>'
    )
    return Html(
        f'{legend}<div class="chart"><div class="y-axis"><span>{plural(most, "pod")}</span><span>0</span></div>'
        f'<svg class="plot" viewBox="0 0 {_WIDE} {_TALL}" preserveAspectRatio="none" role="img" '
        f'aria-label="{text(said)}">{notes}{paths}</svg>'
        f'<div class="axis"><span>0 s</span><span>{text(time_span(span))}</span></div></div>'
    )


def _steps(times: Sequence[float], span: float, most: int) -> str:
    """A line that rises by one at each time; times closer than the picture can show are one step."""
    counts = {round(_x(at, span)): count for count, at in enumerate(sorted(times), start=1)}
    steps = (f"H{x}V{_TALL - 4 - (_TALL - 12) * count / most:.1f}" for x, count in counts.items())
    return "".join((f"M0 {_TALL - 4}", *steps, f"H{_WIDE}"))


def _x(at: float, span: float) -> float:
    return round(max(0.0, at) / span * (_WIDE - 8) + 4, 1)
