"""The smallest pieces of HTML: every text from the cluster goes through `text`, and through nothing else."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NewType

Html = NewType("Html", str)
"""Markup that is safe to send: made here, or of pieces that were."""

NONE = Html("&ndash;")
"""What stands for no value."""
_LONGEST = 400
"""Characters of a text that are shown."""
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""Characters that show nothing or turn the direction of what follows: names could pass for others with them."""


def clipped(value: str, longest: int) -> str:
    """The text, shortened to so many characters."""
    return value if len(value) <= longest else value[: longest - 1] + "…"


def text(value: object, longest: int = _LONGEST) -> Html:
    """Any text as HTML, without control characters and not too long."""
    return Html(html.escape(_CONTROLS.sub("\ufffd", clipped(str(value), longest)), quote=True))


def joined(parts: Iterable[str], between: str = "") -> Html:
    """Pieces of markup one after the other."""
    return Html(between.join(parts))


def number(value: int) -> Html:
    """An integer with its digits in groups of three."""
    return Html(f"{value:,}".replace(",", "\u202f").replace("-", "\u2212"))


def plural(count: int, singular: str, many: str = "") -> Html:
    """`1 pod`, `2 pods`."""
    return Html(f"{number(count)} {text(singular if count == 1 else many or singular + 's')}")


def instant(seconds: float | None) -> Html:
    """A moment, to the second in UTC; a dash for none."""
    if seconds is None:
        return NONE
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return Html("never")
    return Html(
        f'<time datetime="{at:%Y-%m-%dT%H:%M:%SZ}"><span class="date">{at:%Y-%m-%d} </span>{at:%H:%M:%S}</time>'
    )


def anchor(prefix: str, name: str) -> str:
    """An id for an element, of the characters that ids may have."""
    return f"{prefix}-{re.sub('[^A-Za-z0-9-]', '-', name)[:100]}"


def table(caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> Html:
    """A table that stacks its cells on narrow screens; roles keep it a table to screen readers all the same.

    The first cell heads its row. The columns in `numbers` are aligned to the right.
    """
    head = joined(
        f'<th role="columnheader" scope="col"{_align(column, numbers)}>{text(heading)}</th>'
        for column, heading in enumerate(headings)
    )
    body: list[str] = []
    for first, *others in rows:
        cells = [f'<th role="rowheader" scope="row">{first}</th>']
        for column, (heading, cell) in enumerate(zip(headings[1:], others, strict=True), start=1):
            label = f'<span class="label" aria-hidden="true">{text(heading)}</span>'
            cells.append(f'<td role="cell"{_align(column, numbers)}>{label}<span class="value">{cell}</span></td>')
        body.append(f'<tr role="row">{joined(cells)}</tr>')
    return Html(
        f'<table role="table"><caption>{text(caption)}</caption>'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{joined(body)}</tbody></table>'
    )


def _align(column: int, numbers: Sequence[int]) -> str:
    return ' class="number"' if column in numbers else ""
