"""Findings: what is wrong in a policy file, where, why, and what would be right."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from webhook.policy.shapes.nodes import SourcePosition

__all__ = ["Finding", "PolicyError", "Severity", "excerpt", "nearest"]

_WIDEST = 100
"""Columns of a line that an excerpt shows."""
_LEAD = 40
"""Columns before the place, if the line is longer than that."""


class Severity(StrEnum):
    """An error keeps a policy set from being used; a warning does not."""

    ERROR = "error"
    WARNING = "warning"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing found in a file. `excerpt` shows the line and, below it, carets under what is meant."""

    severity: Severity
    source: SourcePosition
    message: str
    excerpt: str = ""
    related: tuple[Finding, ...] = ()
    """Other places that belong to it, such as the range another one overlaps."""

    def __str__(self) -> str:
        """`file:line:column: severity: message`, the excerpt, and the related places."""
        head = f"{self.source}: {self.severity.value}: {self.message}"
        lines = [head, self.excerpt] if self.excerpt else [head]
        for other in self.related:
            lines.append(f"{other.source}: note: {other.message}")
            if other.excerpt:
                lines.append(other.excerpt)
        return "\n".join(lines)


class PolicyError(Exception):
    """A policy set with errors; `findings` has them all, warnings included."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = list(findings)
        super().__init__("\n".join(map(str, self.findings)))


def nearest(word: str, options: Iterable[str]) -> str:
    """`; did you mean "x"?` if an option is near, else the options when they are few, else nothing."""
    options = sorted(options)
    by_fold = {option.casefold(): option for option in options}
    close = difflib.get_close_matches(word[:64].casefold(), by_fold, n=1, cutoff=0.6)
    if close:
        return f'; did you mean "{by_fold[close[0]]}"?'
    if 0 < len(options) <= 12:
        return f"; there are {', '.join(options)}" if len(options) > 1 else f'; there is only "{options[0]}"'
    return ""


def excerpt(line_text: str, line: int, column: int, width: int) -> str:
    """The line, numbered, and carets below `width` characters from `column`; long lines are cut around the place."""
    start = max(0, column - 1 - _LEAD) if len(line_text) > _WIDEST else 0
    shown = "".join(map(_visible, line_text[start : start + _WIDEST]))
    if start:
        shown = "…" + shown[1:]
    if start + _WIDEST < len(line_text):
        shown = shown[:-1] + "…"
    before = shown[: column - 1 - start]
    marked = shown[column - 1 - start :][: max(1, width)]
    number = f"{line:>5}"
    return f"{number} | {shown.rstrip()}\n{'':>5} | {' ' * _cells(before)}{'^' * max(1, _cells(marked.rstrip()))}"


def _visible(character: str) -> str:
    """The character as a terminal may show it: no tab, no control, no direction mark."""
    return character if character.isprintable() else " "


def _cells(text: str) -> int:
    """Columns that a text takes in a terminal: wide East Asian characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )
