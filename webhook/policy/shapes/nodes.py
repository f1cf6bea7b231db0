"""The values of a YAML file, each with the place where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

__all__ = ["SourcePosition", "YamlMap", "YamlNode", "YamlScalar", "YamlSequence"]


class SourcePosition(msgspec.Struct, frozen=True):
    """Where something stands in a policy file; lines and columns count from 1."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """`file:line:column`, as compilers write it; the file alone if it is meant as a whole."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(slots=True)
class YamlNode:
    """A place in a file: line and column count from 1, `width` is the length of the text on its first line."""

    line: int
    column: int
    width: int


@dataclass(slots=True)
class YamlScalar(YamlNode):
    """A text. `plain` is written without quotes, and only then may it mean something else than text."""

    text: str = ""
    plain: bool = False
    style: str = ""


@dataclass(slots=True)
class YamlSequence(YamlNode):
    """A list."""

    items: list[YamlNode] = field(default_factory=list)


@dataclass(slots=True)
class YamlMap(YamlNode):
    """A mapping, with keys as written: none is dropped for being there twice."""

    pairs: list[tuple[YamlNode, YamlNode]] = field(default_factory=list)
