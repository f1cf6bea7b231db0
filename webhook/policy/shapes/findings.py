"""Findings: what is wrong in a policy file, where, why, and what would be right; and the bounds on reading one."""

import difflib
from bisect import bisect
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from webhook.policy.shapes.yaml_nodes import SourcePosition, YamlNode

INVALID: Any = object()
"""What is read of a node that was found wrong."""
_MOST_FINDINGS = 200
"""Findings shown for one file."""
_MOST_COMPARED = 200
"""Names that a wrong one is compared with, to tell which was meant."""
_MOST_MOMENTS = 10_000
"""Moments of a file's schedules that are looked at: two that never hold together take some 800."""

_WIDEST = 100
"""Columns of a line that an excerpt shows."""
_LEAD = 40
"""Columns before the place, if the line is longer than that."""


class Severity(StrEnum):
    """An error keeps a policy set from being used; a warning does not. A notice is about what no policy says."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


class Finding(msgspec.Struct, frozen=True):
    """One thing found in a file. `excerpt` shows the line and, below it, a caret."""

    severity: Severity
    source: SourcePosition
    message: str
    excerpt: str = ""
    related: "tuple[Finding, ...]" = ()
    """Other places that belong to it, such as the range another one overlaps."""

    @property
    def place(self) -> str:
        """`file:line:column (field)`, for where one line has to do and its end may be cut."""
        return f"{self.source} ({self.source.field})" if self.source.field else str(self.source)

    def __str__(self) -> str:
        """`file:line:column: severity: message (field)`, an excerpt, and related places."""
        lines: list[str] = []
        for finding in (self, *self.related):
            severity = self.severity.value if finding is self else "note"
            where = f" ({finding.source.field})" if finding.source.field else ""
            lines.append(f"{finding.source}: {severity}: {finding.message}{where}")
            lines += [finding.excerpt] if finding.excerpt else []
        return "\n".join(lines)


class PolicyError(Exception):
    """A policy set with errors; `findings` has them all, warnings included."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = list(findings)
        super().__init__("\n".join(map(str, self.findings)))


class Reader:
    """Collects the findings of one file. `path` is how messages name the file."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.errors = 0
        self.annotations: list[tuple[str, YamlNode, bool]] = []
        """The annotation keys that are named, and where; whether naming them makes them known."""
        self.classes: list[tuple[str, YamlNode]] = []
        """The PriorityClasses that are named, by name or glob, and where."""
        self.moments = iter(range(_MOST_MOMENTS))
        """Whoever compares schedules takes one for each moment, and says nothing when none is left."""
        self._findings: dict[Finding, None] = {}
        self._left_out = 0
        self._lines = text.splitlines()

    @property
    def findings(self) -> list[Finding]:
        """Everything found, each once, in the order of lines."""
        in_order = sorted(self._findings, key=lambda row: (row.source.line, row.source.column))
        if self._left_out:
            more = f"{self._left_out} more findings in this file are not shown"
            in_order.append(Finding(Severity.ERROR, in_order[-1].source, more))
        return in_order

    def source(self, node: YamlNode) -> SourcePosition:
        """Where a node stands."""
        return SourcePosition(self.path, node.line, node.column, node.path)

    def error(self, node: YamlNode, message: str) -> Any:
        """Note what keeps the file from being used. What is read of the node is INVALID."""
        self.at(Severity.ERROR, self.source(node), message)
        return INVALID

    def warn(self, node: YamlNode, message: str) -> None:
        """Note what is probably not meant."""
        self.at(Severity.WARNING, self.source(node), message)

    def at(self, severity: Severity, source: SourcePosition, message: str, related: tuple[Finding, ...] = ()) -> None:
        """Note something at a place of this file."""
        self.errors += severity is Severity.ERROR
        if len(self._findings) >= _MOST_FINDINGS:
            self._left_out += 1
            return
        self._findings[Finding(severity, source, message, self.excerpt(source), related)] = None

    def nearest(self, word: str, options: Iterable[str]) -> str:
        """`; did you mean "x"?` if an option is near; else the options if they are few.

        Of many options only neighbours in the alphabet are looked at, and none for a finding that is not shown.
        """
        if len(self._findings) >= _MOST_FINDINGS:
            return ""
        options = sorted(options)
        by_fold = {option.casefold(): option for option in options}
        folded, sorted_folds = word[:64].casefold(), sorted(by_fold)
        place = bisect(sorted_folds, folded)
        start, end = max(0, place - _MOST_COMPARED // 2), place + _MOST_COMPARED // 2
        neighbours = sorted_folds[start:end]
        close = difflib.get_close_matches(folded, neighbours, n=1, cutoff=0.6)
        if close:
            return f'; did you mean "{by_fold[close[0]]}"?'
        if len(options) == 1:
            return f'; there is only "{options[0]}"'
        return f"; there are {', '.join(options)}" if 1 < len(options) <= 12 else ""

    def excerpt(self, source: SourcePosition) -> str:
        """The line of a place in this file, numbered, and a caret below the place.

        A long line is cut around it, and a blank stands for what terminals may not show, such as a tab.
        """
        text = self.line(source.line)
        column = min(source.column, len(text) + 1)
        start = max(0, column - 1 - _LEAD) if len(text) > _WIDEST else 0
        cut = text[start : start + _WIDEST]
        shown = "".join(character if character.isprintable() else " " for character in cut)
        return f"{source.line:>5} | {shown.rstrip()}\n{'':>5} | {' ' * (column - 1 - start)}^"

    def line(self, number: int) -> str:
        """A line of the file, from 1; empty past the end."""
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""
