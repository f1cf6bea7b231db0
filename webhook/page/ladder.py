"""The ladder of priorities as a picture: the highest on top, reserved ranges as bands, pods as bars. Pure.

The distance between two rungs says nothing: priorities run from -2147483648 to 2147483647 and lie close together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from webhook.page.markup import Html, clipped, joined, number, text
from webhook.page.model import Band, Ladder, Rung

WIDE, NARROW = 1040, 340
"""Widths that the picture is drawn for, in pixels; the style sheet shows the one that suits the screen."""
_BAND, _EMPTY, _GAP = 30, 30, 10
_IN_LINE = 2
"""Counts in a line of the narrow picture."""
_KINDS = ("preemptible", "protected", "kept", "pending")
_MINIMUM = 3.0
"""Pixels of the smallest bar that stands for any pod."""


class _Row(NamedTuple):
    """A rung, or the band that begins here; a rung knows whether it lies in a band."""

    rung: Rung | None
    band: Band | None


def picture(ladder: Ladder, width: int) -> Html:
    """The ladder as inline SVG of this width."""
    most = max((rung.running + rung.pending for rung in ladder.rungs), default=0)
    parts: list[str] = []
    y = 0.0
    for band, rungs in _grouped(ladder):
        top, inner = y, list[str]()
        y += _BAND if band else 0
        for rung in rungs:
            inner.append(_rung(rung, most, width, y))
            # In the narrow picture the counts of a rung take a second line if there are many
            y += 36 if width == WIDE else 66 if len(_counts(rung)) <= _IN_LINE else 83
        if band:
            y += 0 if rungs else _EMPTY
            parts.append(_band(band, width, top, y - top, empty=not rungs))
        parts.extend(inner)
        y += _GAP
    height = max(y - _GAP, 1)
    rail = f'<line class="rail" x1="{_rail(width)}" y1="4" x2="{_rail(width)}" y2="{height - 4:g}"/>'
    return Html(
        f'<svg class="ladder" viewBox="0 0 {width} {height:g}" width="{width}" height="{height:g}" role="img"'
        f' aria-label="The ladder of priorities; the table below says the same">{_patterns(width)}'
        f"{rail if width == WIDE else ''}{joined(parts)}</svg>"
    )


def counted(rung: Rung) -> Html:
    """The rung's pods in words."""
    return joined(_counts(rung), " · ")


def _counts(rung: Rung) -> list[str]:
    """How many pods of each kind there are, the kinds that are there."""
    counts = {kind: getattr(rung, kind) for kind in _KINDS}
    return [f"{number(count)} {kind}" for kind, count in counts.items() if count] or ["no pods"]


def _grouped(ladder: Ladder) -> Iterator[tuple[Band | None, list[Rung]]]:
    """Bands and the rungs in them, and the rungs between them, from the highest down. The narrowest band has a rung."""
    groups: dict[Band | None, list[Rung]] = {band: [] for band in ladder.bands}
    order: list[tuple[int, Band | None, list[Rung]]] = []
    for rung in ladder.rungs:
        holding = [band for band in ladder.bands if band.first <= rung.value <= band.last]
        if holding:
            groups[min(holding, key=lambda band: band.last - band.first)].append(rung)
            continue
        _, before, rungs = order[-1] if order else (0, None, [])
        # A band whose upper end lies between two rungs parts them
        if rungs and before is None and not any(rung.value < band.last < rungs[-1].value for band in ladder.bands):
            rungs.append(rung)
        else:
            order.append((rung.value, None, [rung]))
    order += [(band.last, band, groups[band]) for band in ladder.bands]
    for _, band, rungs in sorted(order, key=lambda group: -group[0]):
        yield band, rungs


def _rail(width: int) -> int:
    return 132 if width == WIDE else 0


def _band(band: Band, width: int, y: float, height: float, *, empty: bool) -> str:
    """A reserved range as a field behind its rungs, with its name and its ends."""
    ends = f"{number(band.first)} to {number(band.last)}"
    name = text(clipped(band.name, 60 if width == WIDE else 22))
    x = _rail(width) + 16 if width == WIDE else 10
    shown = f'<text class="band-name" x="{x}" y="{y + 20:g}">{name}</text>'
    if width == WIDE:
        shown += f'<text class="band-ends" x="{width - 14}" y="{y + 20:g}" text-anchor="end">reserved, {ends}</text>'
    else:
        shown += f'<text class="band-ends" x="{width - 10}" y="{y + 20:g}" text-anchor="end">reserved</text>'
    if empty:
        note = "no class in it" if width == WIDE else ends
        shown += f'<text class="band-ends" x="{x}" y="{y + _BAND + 12:g}">{note}</text>'
    return (
        f"<g><title>{text(band.name)}: reserved, {ends}</title>"
        f'<rect class="band" x="0.5" y="{y + 0.5:g}" width="{width - 1}" height="{height - 1:g}" rx="8"/>{shown}</g>'
    )


def _rung(rung: Rung, most: int, width: int, y: float) -> str:
    """One class: value, name, a bar of its pods, and the same in numbers."""
    title = f"<title>{text(rung.name)}, priority {number(rung.value)}: {counted(rung)}</title>"
    if width == WIDE:
        middle, x, length = y + 18, 332.0, 290.0
        rail, line = _rail(width), f"{middle + 4:g}"
        shown = (
            f'<text class="value" x="{rail - 16}" y="{line}" text-anchor="end">{number(rung.value)}</text>'
            f'<circle class="{"dot acts" if rung.policy else "dot"}" cx="{rail}" cy="{middle:g}" r="4.5"/>'
            f'<text class="name" x="{rail + 16}" y="{line}">{text(clipped(rung.name, 25))}</text>'
            f'<text class="count" x="{x + length + 14:g}" y="{line}">{counted(rung)}</text>'
        )
        return f"<g>{title}{shown}{_bars(rung, most, (x, middle - 7), length, width)}</g>"
    x, length, counts = 10.0, width - 20.0, _counts(rung)
    shown = (
        f'<circle class="{"dot acts" if rung.policy else "dot"}" cx="{x + 5:g}" cy="{y + 14:g}" r="4.5"/>'
        f'<text class="name" x="{x + 17:g}" y="{y + 18:g}">{text(clipped(rung.name, 25))}</text>'
        f'<text class="value" x="{width - 10}" y="{y + 18:g}" text-anchor="end">{number(rung.value)}</text>'
        f'<text class="count" x="{x:g}" y="{y + 56:g}">{joined(counts[:_IN_LINE], " · ")}</text>'
        f'<text class="count" x="{x:g}" y="{y + 73:g}">{joined(counts[_IN_LINE:], " · ")}</text>'
    )
    return f"<g>{title}{shown}{_bars(rung, most, (x, y + 26), length, width)}</g>"


def _bars(rung: Rung, most: int, corner: tuple[float, float], length: float, width: int) -> str:
    """The pods as parts of one bar; each part has a pattern of its own beside its colour."""
    x, y = corner
    parts = [f'<rect class="track" x="{x:g}" y="{y:g}" width="{length:g}" height="14" rx="3"/>']
    at = x
    for kind in _KINDS:
        count = getattr(rung, kind)
        if not count or not most:
            continue
        size = max(_MINIMUM, (length - 4 * _MINIMUM) * count / most)
        parts.append(
            f'<rect class="{kind}"{_fill(kind, width)} x="{at:.1f}" y="{y:g}" width="{size:.1f}" height="14" rx="2"/>'
        )
        at += size
    return "".join(parts)


def _hatching(width: int) -> str:
    """The id of the picture's hatching: the two pictures must not share one, since one of them is not shown."""
    return f"hatch-{width}"


def _patterns(width: int) -> str:
    """The hatching of protected pods."""
    return (
        f'<defs><pattern id="{_hatching(width)}" width="6" height="6" patternUnits="userSpaceOnUse"'
        ' patternTransform="rotate(45)"><rect class="hatch-ground" width="6" height="6"/>'
        '<rect class="hatch-line" width="2.5" height="6"/></pattern></defs>'
    )


def legend() -> Html:
    """What the parts of a bar mean, each with a sample of its pattern."""
    rows = (
        ("preemptible", "preemptible now"),
        ("protected", "protected until its window ends"),
        ("kept", "kept: no victim by any policy"),
        ("pending", "pending"),
    )
    samples = (
        f'<li><svg width="22" height="14" aria-hidden="true">{_patterns(0) if kind == "protected" else ""}'
        f'<rect class="{kind}"{_fill(kind)} width="22" height="14" rx="2"/></svg> {label}</li>'
        for kind, label in rows
    )
    return Html(f'<ul class="legend">{"".join(samples)}</ul>')


def _fill(kind: str, width: int = 0) -> str:
    return f' fill="url(#{_hatching(width)})"' if kind == "protected" else ""
