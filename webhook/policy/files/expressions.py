"""CEL in a policy file: compiled where it stands, so that its mistakes have a line and a column of the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webhook.policy.cel.program import CelError, CelProblem
from webhook.policy.files.findings import Severity
from webhook.policy.files.reader import Reader
from webhook.policy.files.shapes import INVALID, Definitions, Text
from webhook.policy.files.yamltree import YamlNode, YamlScalar

__all__ = ["Expression"]

_TEXT = Text("a CEL expression", longest=100_000)


@dataclass(frozen=True)
class Expression:
    """A CEL expression that `compile` accepts."""

    compile: Callable[[str], Any]

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The expression's text."""
        if isinstance(node, YamlScalar) and node.plain and node.text in ("true", "false"):
            reader.count()
            return node.text
        text = _TEXT.read(node, reader)
        if text is INVALID:
            return INVALID
        try:
            self.compile(text)
        except CelError as error:
            assert isinstance(node, YamlScalar)
            for problem in error.problems:
                line, column = _place(node, problem, reader)
                reader.at(Severity.ERROR, line, column, f"CEL: {problem.message}")
            return INVALID
        return text

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """A string."""
        del definitions
        return {"type": "string", "minLength": 1, "maxLength": 4096}


def _place(node: YamlScalar, problem: CelProblem, reader: Reader) -> tuple[int, int]:
    """Where a place in the expression stands in the file; its beginning, where YAML folded or escaped the text."""
    if node.style == "|":
        line = node.line + problem.line
        rows = node.text.split("\n")
        row = rows[problem.line - 1] if problem.line <= len(rows) else ""
        return line, len(reader.line(line)) - len(row) + problem.column
    quote = 1 if node.style in ("'", '"') else 0
    written = reader.line(node.line)[node.column - 1 + quote :]
    if problem.line == 1 and written.startswith(node.text[: problem.column]):
        return node.line, node.column + quote + problem.column - 1
    return node.line, node.column
