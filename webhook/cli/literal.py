"""Texts of a cluster on a terminal: annotations, names of users and messages are written by anybody."""

from __future__ import annotations

import re

from rich.markup import escape

from webhook.component_base.logs import visible

__all__ = ["literal"]

_LINE_END = re.compile(r"\s*\n\s*")
_LONGEST = 1000


def literal(text: str, most: int = _LONGEST) -> str:
    """A text for a rich console, on one line: nothing in it is markup or moves the cursor, and it is not too long."""
    line = _LINE_END.sub(" ", text.strip())
    cut = line if len(line) <= most else f"{line[:most]}… ({len(line)} characters)"
    return escape(visible(cut))
