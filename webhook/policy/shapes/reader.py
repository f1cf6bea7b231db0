"""Reading one file: the place of every finding, and a bound on the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from webhook.policy.shapes.findings import Finding, Severity, excerpt
from webhook.policy.shapes.nodes import SourcePosition, YamlNode

__all__ = ["MOST_FINDINGS", "MOST_READS", "Check", "Checks", "Mention", "Reader", "TooMuchError"]

MOST_READS = 60_000
"""Nodes read from one file, aliases counted each time."""
MOST_FINDINGS = 200
"""Findings shown for one file."""


Check = Callable[[dict[str, Any], dict[str, YamlNode], "Reader"], None]
"""Sees the values and nodes of a mapping, by the names of the model, and notes what is wrong between them."""

Checks = Mapping[type, Check]


class Mention(NamedTuple):
    """An annotation key named in a file; `recognises` if naming it makes it known."""

    key: str
    node: YamlNode
    recognises: bool


class TooMuchError(Exception):
    """The aliases of a file make far more of it than stands in it."""


class Reader:
    """Collects the findings of one file. `path` is how messages name the file.

    `checks` say what must hold between the fields of a mapping, by the type of the model that it makes.
    """

    def __init__(self, path: str, text: str, checks: Checks) -> None:
        self.path = path
        self.checks = checks
        self.errors = 0
        self.annotations: list[Mention] = []
        self._findings: dict[Finding, None] = {}
        self._left_out = 0
        self._lines = text.splitlines()
        self._reads = 0

    @property
    def findings(self) -> list[Finding]:
        """Everything found, each once, in the order of lines."""
        found = sorted(self._findings, key=lambda one: (one.source.line, one.source.column))
        if self._left_out:
            more = f"{self._left_out} more findings in this file are not shown"
            found.append(Finding(severity=Severity.ERROR, source=found[-1].source, message=more))
        return found

    def count(self) -> None:
        """Account for a node read. Raises TooMuchError past MOST_READS."""
        self._reads += 1
        if self._reads > MOST_READS:
            raise TooMuchError

    def source(self, node: YamlNode) -> SourcePosition:
        """Where a node stands."""
        return SourcePosition(self.path, node.line, node.column)

    def error(self, node: YamlNode, message: str) -> None:
        """Note what keeps the file from being used."""
        self.at(Severity.ERROR, node.line, node.column, message, width=node.width)

    def warn(self, node: YamlNode, message: str) -> None:
        """Note what is probably not meant."""
        self.at(Severity.WARNING, node.line, node.column, message, width=node.width)

    def at(
        self,
        severity: Severity,
        line: int,
        column: int,
        message: str,
        *,
        width: int = 1,
        related: tuple[Finding, ...] = (),
    ) -> None:
        """Note something at a place."""
        self.errors += severity is Severity.ERROR
        if len(self._findings) >= MOST_FINDINGS:
            self._left_out += 1
            return
        source = SourcePosition(self.path, line, column)
        shown = self.excerpt(source, width)
        finding = Finding(severity=severity, source=source, message=message, excerpt=shown, related=related)
        self._findings[finding] = None

    def excerpt(self, source: SourcePosition, width: int = 1) -> str:
        """The line of a place in this file, with carets."""
        text = self.line(source.line)
        return excerpt(text, source.line, min(source.column, len(text) + 1), width)

    def line(self, number: int) -> str:
        """A line of the file, from 1; empty past the end."""
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""
