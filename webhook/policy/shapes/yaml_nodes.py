"""The values of a YAML file, each with the place where it stands, and what an unquoted one means.

What it means here (YAML 1.2) may differ from what it means to readers of YAML 1.1, as kubectl and many tools still are.
"""

import re
from dataclasses import dataclass, field

import msgspec

WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})", re.ASCII)
"""The one spelling of a whole number that every reader takes alike."""

TRUE11 = frozenset(["y", "Y", "yes", "Yes", "YES", "on", "On", "ON"])
FALSE11 = frozenset(["n", "N", "no", "No", "NO", "off", "Off", "OFF"])
NULL = frozenset(["", "~", "null", "Null", "NULL"])
_BOOL = frozenset(["true", "True", "TRUE", "false", "False", "FALSE"])
_NUMBER = re.compile(
    r"[-+]?(?:[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+|(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN",
    re.ASCII,
)
_NUMBER11 = re.compile(
    r"[-+]?(?:0[0-7_]+|0b[01_]+|[1-9][0-9]*_[0-9_]*|0x[0-9a-fA-F]*_[0-9a-fA-F_]*|[0-9]+\.[0-9]*_[0-9_]*)", re.ASCII
)
"""Numbers in base 8 and 2, and with groups of digits."""
_DURATION = re.compile(r"(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?(?:([0-9]+)ms)?", re.ASCII)
_LONGEST = 32
_FOREVER = 10 * 365 * 24 * 3600


class SourcePosition(msgspec.Struct, frozen=True):
    """Where something stands in a policy file: lines and columns from 1, and a field such as `spec.rules[0]`."""

    file: str = ""
    line: int = 0
    column: int = 0
    field: str = ""

    def __str__(self) -> str:
        """`file:line:column`, or the file alone if it is meant as a whole."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(slots=True)
class YamlNode:
    """A place in a file: line and column from 1, and the path of the field, for an alias as it is written first."""

    line: int
    column: int
    path: str = ""


@dataclass(slots=True)
class YamlScalar(YamlNode):
    """A text. `plain` is written without quotes, and only then may it mean something else than text."""

    text: str = ""
    plain: bool = False
    style: str = ""

    @property
    def meaning(self) -> str:
        """`text`, `null`, `bool` or `number`: what YAML 1.2 takes it for."""
        if not self.plain:
            return "text"
        if self.text in NULL:
            return "null"
        if self.text in _BOOL:
            return "bool"
        return "number" if len(self.text) <= _LONGEST and _NUMBER.fullmatch(self.text) else "text"

    @property
    def yaml11(self) -> str:
        """What a YAML 1.1 reader such as kubectl takes it for, if that differs."""
        if not self.plain or len(self.text) > _LONGEST:
            return ""
        if self.text in TRUE11:
            return "true"
        if self.text in FALSE11:
            return "false"
        return "a number" if _NUMBER11.fullmatch(self.text) else ""


@dataclass(slots=True)
class YamlSequence(YamlNode):
    """A list."""

    items: list[YamlNode] = field(default_factory=list)


@dataclass(slots=True)
class YamlMap(YamlNode):
    """A mapping, with keys as written: none is dropped for being there twice."""

    pairs: list[tuple[YamlNode, YamlNode]] = field(default_factory=list)


def kind(node: YamlNode) -> str:
    """What a node is, in words."""
    if isinstance(node, YamlScalar):
        return {"text": "text", "null": "nothing", "bool": "true or false", "number": "a number"}[node.meaning]
    return "a mapping" if isinstance(node, YamlMap) else "a list"


def seconds(text: str) -> float | None:
    """Seconds of `30s`, `1h30m`, `500ms` or whole seconds; None for others or above ten years."""
    if len(text) > _LONGEST:
        return None
    if text.isascii() and text.isdigit():
        amount = float(int(text))
    else:
        match = _DURATION.fullmatch(text)
        if not text or match is None:
            return None
        hours, minutes, whole, thousandths = (int(group or 0) for group in match.groups())
        amount = hours * 3600 + minutes * 60 + whole + thousandths / 1000
    return amount if amount <= _FOREVER else None


def duration(amount: float) -> str:
    """Seconds as `seconds` reads them, in the largest units: `0s`, `1m30s`, `5m`, `500ms`."""
    thousandths = round(amount * 1000)
    parts = []
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, thousandths = divmod(thousandths, size)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"
