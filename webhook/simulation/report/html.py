"""The answers as one HTML file: the look of the reconciler's own page, with pictures, and nothing loaded from outside.

Pictures are stretched to the width there is, so what is written beside them is HTML and keeps its size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files

from webhook.page.markup import Html, joined, number, plural, table, text
from webhook.simulation.report.compare import differences, shown
from webhook.simulation.report.summary import Group, Summary

__all__ = ["page"]

_MOST_ROWS = 15
_MOST_BARS = 240
_WIDE, _TALL = 1000, 180
_CONTENT = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a browser may load: nothing but what is in the file."""
_TILES = (
    ("evictions", "evicted", False),
    ("placed", "placed", False),
    ("waiting", "waiting in the end", False),
    ("placed-p99", "until placed, 99 %", True),
    ("work-lost", "work lost", True),
)


def page(summaries: Sequence[Summary], sources: Sequence[str]) -> Html:
    """The whole file."""
    names = " and ".join(one.name for one in summaries)
    style = joined(
        files(package).joinpath(name).read_text()
        for package, name in (("webhook.page", "page.css"), ("webhook.simulation.report", "report.css"))
    )
    compared = _section("Differences", _differences(*summaries)) if len(summaries) == 2 else ""
    span = max((_span(one) for one in summaries), default=1.0)
    runs = joined(_run(one, span, several=len(summaries) > 1) for one in summaries)
    return Html(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>giveway simulate: {text(names)}</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT}">'
        f"<style>{style}</style></head><body>"
        f'<header><div class="bar"><h1>What would happen</h1></div><p class="identity">{text(", ".join(sources))},'
        f" simulated with {text(names)}</p></header><main>{compared}{runs}</main>"
        "<footer>Written by giveway simulate. Times are virtual, from the moment of the snapshot.</footer>"
        "</body></html>"
    )


def _run(summary: Summary, span: float, *, several: bool) -> Html:
    name = Html(f" <small>{text(summary.name)}</small>") if several else Html("")
    end = "nothing moves any more" if summary.at_rest else "the time was over, and things still moved"
    parts = [
        _section(
            Html(f"In short{name}"),
            joined((_tiles(summary), f'<p class="more">After {shown(summary.seconds)} {end}.</p>')),
        ),
        _section(Html(f"Evictions and placements over time{name}"), _timeline(summary, span)),
        _section(Html(f"Who displaced whom{name}"), _displaced(summary)),
        _section(Html(f"Whose pods{name}"), _groups("Owners", summary.owners)),
        _section(
            Html(f"Classes and namespaces{name}"),
            joined((_groups("PriorityClasses", summary.classes), "<br>", _groups("Namespaces", summary.namespaces))),
        ),
        _section(Html(f"Room by node{name}"), _room(summary)),
    ]
    if summary.waiting:
        parts.append(_section(Html(f"Who waits, and why{name}"), _waiting(summary)))
    if summary.limits:
        parts.append(_section(Html(f"Evictions against limits{name}"), _limits(summary)))
    said = [*_pairs("refused by admission", summary.refused), *_pairs("cannot be judged", summary.cannot_be_judged)]
    if said:
        parts.append(
            _section(
                Html(f"Rules{name}"), table("Rules that refuse, or cannot be judged", ("what", "says", "why"), said)
            )
        )
    return joined(parts)


def _section(title: str, body: str) -> Html:
    return Html(f"<section><h2>{title}</h2>{body}</section>")


def _differences(a: Summary, b: Summary) -> Html:
    sentences = differences(a, b)
    rows = joined(f"<li>{text(one)}</li>" for one in sentences[:_MOST_ROWS])
    more = f'<p class="more">and {len(sentences) - _MOST_ROWS} more</p>' if len(sentences) > _MOST_ROWS else ""
    return Html(f'<ul class="differences">{rows}</ul>{more}')


def _tiles(summary: Summary) -> Html:
    tiles = joined(
        f"<div><dd>{value}</dd><dt>{words}</dt></div>"
        for value, words in (
            (text(shown(summary.metrics[name])) if is_time else number(int(summary.metrics[name])), words)
            for name, words, is_time in _TILES
        )
    )
    return Html(f'<dl class="tiles">{tiles}</dl>')


def _span(summary: Summary) -> float:
    """Until when something happens, in seconds, at least one."""
    times = [row.at for row in summary.evictions] + [row[0] for row in summary.placements]
    return max([1.0, *times, *(at for at, _ in summary.notes)])


def _timeline(summary: Summary, span: float) -> Html:
    """Two rising lines: how many were evicted, and placed, until then."""
    evicted = [row.at for row in summary.evictions]
    placed = [row[0] for row in summary.placements]
    most = max(len(evicted), len(placed), 1)
    notes = joined(
        f'<path class="note" d="M{_x(at, span)} 0V{_TALL}"><title>{text(what)}</title></path>'
        for at, what in summary.notes
    )
    svg = (
        f'<svg class="plot" viewBox="0 0 {_WIDE} {_TALL}" preserveAspectRatio="none" role="img" '
        f'aria-label="{text(_said(summary))}">{notes}'
        f'<path class="evicted" d="{_steps(evicted, span, most)}"/>'
        f'<path class="placed" d="{_steps(placed, span, most)}"/></svg>'
    )
    changes = joined(
        f'<li><span class="key changed"></span>{text(shown(at))}: {text(what)}</li>' for at, what in summary.notes
    )
    legend = (
        f'<ul class="legend"><li><span class="key evicted"></span>{plural(len(evicted), "pod")} evicted, drained or '
        "lost with a node</li>"
        f'<li><span class="key placed"></span>{plural(len(placed), "pod")} placed</li>{changes}</ul>'
    )
    return Html(f'{legend}{svg}<div class="axis"><span>0 s</span><span>{text(shown(span))}</span></div>')


def _said(summary: Summary) -> str:
    evicted, placed = int(summary.metrics["evictions"]), int(summary.metrics["placed"])
    return f"{evicted} pods evicted and {placed} placed within {shown(_span(summary))}"


def _steps(times: Sequence[float], span: float, most: int) -> str:
    """A line that rises by one at each time; times closer than the picture can show are one step."""
    path, last, height = [f"M0 {_TALL - 4}"], 0.0, _TALL - 12
    ordered = sorted(times)
    for count, at in enumerate(ordered, start=1):
        x = _x(at, span)
        if count < len(ordered) and _x(ordered[count], span) - last < 1 and x - last < 1:
            continue
        path.append(f"H{x:g}V{_TALL - 4 - height * count / most:.1f}")
        last = x
    return "".join((*path, f"H{_WIDE}"))


def _x(at: float, span: float) -> float:
    return round(max(0.0, at) / span * (_WIDE - 8) + 4, 1)


def _displaced(summary: Summary) -> Html:
    """Owner by owner, the most frequent first, with the rule that let it."""
    pairs: Counter[tuple[str, str, str]] = Counter()
    for row in summary.evictions:
        pairs[row.preemptor_owner or row.preemptor or row.by, row.owner, row.rule or row.by] += 1
    if not pairs:
        return Html('<p class="empty">Nobody is evicted.</p>')
    ordered = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))
    most = ordered[0][1]
    rows = [
        (
            text(who),
            text(whom),
            Html(f'<span class="share" style="width:{max(2, 90 * count // most)}px"></span>{number(count)}'),
            text(rule),
        )
        for (who, whom, rule), count in ordered[:_MOST_ROWS]
    ]
    return joined((table("Who displaced whom", ("for", "evicted", "pods", "by"), rows), _more(len(ordered))))


def _groups(caption: str, groups: Sequence[Group]) -> Html:
    moved = [one for one in groups if one.evicted or one.waiting or one.placed]
    if not moved:
        return Html('<p class="empty">Nothing happens to any of them.</p>')
    heads = (caption.lower(), "evicted", "work lost", "placed", "longest wait", "waiting", "running")
    rows = [
        (
            text(one.name),
            number(one.evicted),
            text(shown(one.lost)) if one.lost else "",
            number(one.placed),
            "" if one.longest is None else text(shown(one.longest)),
            number(one.waiting),
            number(one.running),
        )
        for one in moved[:_MOST_ROWS]
    ]
    return joined((table(caption, heads, rows, numbers=(1, 2, 3, 4, 5, 6)), _more(len(moved))))


def _room(summary: Summary) -> Html:
    """A bar a node, the fullest on the left: the share of its CPU that is free. Of many nodes every n-th."""
    rooms = summary.room
    every = max(1, -(-len(rooms) // _MOST_BARS))
    some = rooms[::every]
    width = _WIDE / max(len(some), 1)
    bars = joined(
        f'<rect class="used" x="{at * width:.2f}" y="0" width="{width * 0.86:.2f}" height="{_TALL}"/>'
        f'<rect class="free" x="{at * width:.2f}" y="{_TALL * (1 - one.cpu):.1f}" width="{width * 0.86:.2f}" '
        f'height="{_TALL * one.cpu:.1f}"><title>{text(one.node)}: {one.cpu:.0%} of the CPU and {one.memory:.0%} of the '
        f"memory free, {one.pods} pods</title></rect>"
        for at, one in enumerate(some)
    )
    cpu, memory = summary.metrics["cpu-free"], summary.metrics["memory-free"]
    said = f"{cpu:.0%} of the CPU and {memory:.0%} of the memory of {len(rooms)} nodes is free"
    of = f", every {every}th shown" if every > 1 else ""
    return Html(
        f'<p class="lead">{text(said)}{of}. A bar is a node; its coloured part is the CPU that is free.</p>'
        f'<svg class="plot" viewBox="0 0 {_WIDE} {_TALL}" preserveAspectRatio="none" role="img" '
        f'aria-label="{text(said)}">{bars}</svg>'
        '<div class="axis"><span>the fullest</span><span>the emptiest</span></div>'
    )


def _waiting(summary: Summary) -> Html:
    rows = [(text(row.reason), number(row.pods), text(", ".join(row.examples))) for row in summary.waiting[:_MOST_ROWS]]
    return joined((table("Who waits", ("why", "pods", "for example"), rows, numbers=(1,)), _more(len(summary.waiting))))


def _limits(summary: Summary) -> Html:
    rows = [
        (
            text(row.owner),
            text(row.policy),
            number(row.evicted),
            number(row.most),
            Html(f"{number(row.allowed)} in {text(shown(row.window))}"),
        )
        for row in summary.limits[:_MOST_ROWS]
    ]
    heads = ("owner", "policy", "evicted", "most within the window", "the limit")
    return joined((table("Evictions against limits", heads, rows, numbers=(2, 3)), _more(len(summary.limits))))


def _pairs(what: str, said: dict[str, str]) -> Iterable[tuple[Html, Html, Html]]:
    return ((text(name), text(what), text(why)) for name, why in list(said.items())[:_MOST_ROWS])


def _more(count: int) -> Html:
    return Html(f'<p class="more">and {count - _MOST_ROWS} more</p>') if count > _MOST_ROWS else Html("")
