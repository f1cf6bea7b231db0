"""The ladder of priorities as a list: the highest on top, reserved ranges as bands around their rungs. Pure.

A rung is a row with a bar of its pods; the style sheet lays it out for the width there is. The distance between two
rungs says nothing: priorities run from -2147483648 to 2147483647 and lie close together.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.page.markup import Html, instant, joined, number, text
from webhook.page.model import Band, Ladder, Rung

_KINDS = {
    "preemptible": "preemptible now",
    "protected": "protected until its window ends",
    "kept": "kept: no victim by any policy",
    "pending": "pending",
}
"""The kinds of pods, in the order of their parts of a bar, and what the legend says of them."""
_LEAST = 0.5
"""Percent of a bar's length that stand for any pod."""


def picture(ladder: Ladder) -> Html:
    """The ladder, with what the parts of its bars mean above."""
    most = max((rung.running + rung.pending for rung in ladder.rungs), default=0)
    samples = joined(f"<li>{_svg(_part(kind, 0, 100), 22)} {label}</li>" for kind, label in _KINDS.items())
    rows: list[Html] = []
    for band, rungs in _grouped(ladder):
        inside = joined(_rung(rung, most) for rung in rungs)
        if band is None:
            rows.append(inside)
            continue
        ends = f"reserved, {number(band.first)} to {number(band.last)}"
        empty = "" if rungs else '<li class="band-ends">no class in it</li>'
        rows.append(
            Html(
                f'<li class="band"><span class="band-name">{text(band.name)}</span>'
                f' <span class="band-ends">{ends}</span><ol>{inside}{empty}</ol></li>'
            )
        )
    return Html(f'<ul class="legend">{samples}</ul>{_HATCHING}<ol class="ladder">{joined(rows)}</ol>')


def _grouped(ladder: Ladder) -> Iterator[tuple[Band | None, list[Rung]]]:
    """Bands and the rungs in them, and the rungs between them, from the highest down. The narrowest band has a rung."""
    groups: dict[Band | None, list[Rung]] = {band: [] for band in ladder.bands}
    order: list[tuple[int, Band | None, list[Rung]]] = []
    for rung in ladder.rungs:
        holding = [band for band in ladder.bands if band.first <= rung.value <= band.last]
        if holding:
            groups[min(holding, key=lambda band: band.last - band.first)].append(rung)
        else:
            order.append((rung.value, None, [rung]))
    order += [(band.last, band, groups[band]) for band in ladder.bands]
    for _, band, rungs in sorted(order, key=lambda group: -group[0]):
        yield band, rungs


def _rung(rung: Rung, most: int) -> Html:
    """One class: value, name, a bar of its pods, the same in numbers, and who preempts for it."""
    parts, at, counts = [], 0.0, []
    for kind in _KINDS:
        if count := getattr(rung, kind):
            size = max(_LEAST, (100 - len(_KINDS) * _LEAST) * count / most)
            parts.append(_part(kind, at, size))
            at += size
            counts.append(f"{number(count)} {kind}{_window(rung) if kind == 'protected' else ''}")
    by = f"giveway, policy {text(rung.policy)}," if rung.policy else "kube-scheduler" if rung.preempts else ""
    who = f'<span class="by">{by} preempts for it</span>' if by else ""
    return Html(
        f'<li class="rung"><span class="value">{number(rung.value)}</span>'
        f'<span class="name{" acts" if rung.policy else ""}">{text(rung.name)}</span>'
        f'{_svg(joined(parts), "100%")}<span class="count">{joined(counts, " · ") or "no pods"}</span>'
        f"{who}</li>"
    )


def _window(rung: Rung) -> Html:
    """When the first and the last protection window on a rung end."""
    if rung.first_end is None:
        return Html(" until they have started and some time has passed")
    ends = dict.fromkeys((rung.first_end, rung.first_end if rung.last_end is None else rung.last_end))
    return Html(f" until {joined(map(instant, ends), ' to ')}")


def _svg(parts: str, width: int | str) -> Html:
    """A bar; the words beside it say the same."""
    track = '<rect class="track" width="100%" height="14" rx="3"/>'
    return Html(f'<svg class="pods" width="{width}" height="14" aria-hidden="true">{track}{parts}</svg>')


def _part(kind: str, at: float, size: float) -> Html:
    """A part of a bar, in percent of its length; each kind has a pattern of its own beside its colour."""
    fill = ' fill="url(#hatching)"' if kind == "protected" else ""
    return Html(f'<rect class="{kind}"{fill} x="{at:.2f}%" width="{size:.2f}%" height="14" rx="2"/>')


_HATCHING = Html(
    '<svg class="hatching" width="0" height="0" aria-hidden="true"><defs><pattern id="hatching" width="6" height="6"'
    ' patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch-ground" width="6" height="6"/>'
    '<rect class="hatch-line" width="2.5" height="6"/></pattern></defs></svg>'
)
"""The pattern of protected pods."""
