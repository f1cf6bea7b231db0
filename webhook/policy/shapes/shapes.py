"""Shapes: what may stand in a field. Each reads a node, and describes itself as JSON schema (draft 7).

A shape that finds something wrong notes it and returns INVALID; the rest of the file is read all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from webhook.kube.instants import LAST_SECOND, InstantError, epoch
from webhook.policy.shapes.findings import Reader
from webhook.policy.shapes.yaml_nodes import (
    WHOLE,
    YamlMap,
    YamlNode,
    YamlScalar,
    YamlSequence,
    duration,
    kind,
    meaning,
    seconds,
    yaml11,
)

INVALID: Any = object()
"""Returned for a node that was found wrong."""

Definitions = dict[str, dict[str, Any]]
"""The named parts of a schema, collected while shapes describe themselves."""


class Shape(Protocol):
    """What may stand in a field."""

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The value, or INVALID with findings."""

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """The JSON schema of the value."""


@dataclass(frozen=True)
class Text:
    """A text. `check` returns what is wrong with it, or nothing."""

    what: str = "text"
    pattern: str = ""
    check: Callable[[str], str] | None = None
    longest: int = 1024
    may_be_empty: bool = False

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The text; numbers and the like must be quoted, so that every reader takes them for text."""
        scalar = _scalar(node, reader, self.what)
        if scalar is INVALID:
            return INVALID
        if meaning(scalar) != "text":
            reader.error(
                node, f'expected {self.what}, found the {meaning(scalar)} {scalar.text}; write "{scalar.text}"'
            )
            return INVALID
        other = yaml11(scalar)
        if other:
            reader.warn(node, f'YAML 1.1 readers such as kubectl take {scalar.text} for {other}; write "{scalar.text}"')
        wrong = self._wrong(scalar.text)
        if wrong:
            reader.error(node, wrong)
            return INVALID
        return scalar.text

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """A string, with the pattern if there is one."""
        del definitions
        least = {} if self.may_be_empty else {"minLength": 1}
        return {"type": "string", **least} | ({"pattern": self.pattern} if self.pattern else {})

    def _wrong(self, text: str) -> str:
        if not text.strip() and not self.may_be_empty:
            return f"expected {self.what}, found an empty text"
        if len(text) > self.longest:
            return f"{self.what} of {len(text)} characters; at most {self.longest}"
        if self.pattern and not re.fullmatch(self.pattern.removeprefix("^").removesuffix("$"), text, re.ASCII):
            return f'"{text[:80]}" is not {self.what}'
        return self.check(text) if self.check else ""


@dataclass(frozen=True)
class Choice:
    """One of the values of an enumeration, given with what each means."""

    what: str
    options: Mapping[str, str]
    build: Callable[[str], Any] = str

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The member of that value."""
        scalar = _scalar(node, reader, self.what)
        if scalar is INVALID:
            return INVALID
        if scalar.text in self.options:
            return self.build(scalar.text)
        reader.error(node, f'"{scalar.text[:80]}" is not {self.what}{reader.nearest(scalar.text, self.options)}')
        return INVALID

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """An enum, its values described for editors."""
        del definitions
        return {
            "type": "string",
            "enum": list(self.options),
            "markdownDescription": "\n".join(f"- `{name}`: {text}" for name, text in self.options.items()),
        }


@dataclass(frozen=True)
class Flag:
    """True or false."""

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The truth value, in the one spelling that all readers agree on."""
        scalar = _scalar(node, reader, "true or false")
        if scalar is INVALID:
            return INVALID
        if scalar.plain and scalar.text in ("true", "false"):
            return scalar.text == "true"
        reader.error(node, f'expected true or false, found "{scalar.text[:40]}"')
        return INVALID

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """A boolean."""
        del definitions
        return {"type": "boolean"}


@dataclass(frozen=True)
class Instant:
    """A point in time: an RFC 3339 text, or a date, which means the end of that day in UTC."""

    what: str = "a date such as 2026-12-31, or an instant such as 2026-12-31T18:00:00Z"

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """Seconds since the epoch."""
        scalar = _scalar(node, reader, self.what)
        if scalar is INVALID:
            return INVALID
        try:
            if len(scalar.text) == len("2026-12-31"):
                return min(epoch(f"{scalar.text}T00:00:00Z") + 24 * 3600, LAST_SECOND)
            return epoch(scalar.text)
        except InstantError as error:
            reader.error(node, f"expected {self.what}: {error}")
            return INVALID

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """A string of either form."""
        del definitions
        return {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2}))?$"}


@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to `most`; `why` says what is wrong with numbers outside."""

    what: str
    least: int
    most: int
    why: str = ""

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The number, in the one spelling that all readers agree on."""
        scalar = _scalar(node, reader, self.what)
        if scalar is INVALID:
            return INVALID
        wrong = self._wrong(scalar)
        if wrong:
            reader.error(node, wrong)
            return INVALID
        return int(scalar.text)

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """An integer with its bounds."""
        del definitions
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    def _wrong(self, scalar: YamlScalar) -> str:
        text = scalar.text[:40]
        if not scalar.plain and WHOLE.fullmatch(text):
            return f"expected {self.what}, found text; write {text} without quotes"
        other = yaml11(scalar)
        if other.startswith("the "):
            digits = text.replace("_", "").lstrip("+")
            here = digits.lstrip("0") or "0" if digits.isdigit() and "_" not in text else "no number"
            return f"{text} is {here} here and {other} to YAML 1.1 readers; write {self.what} in plain digits"
        if not scalar.plain or not WHOLE.fullmatch(text):
            return f'expected {self.what}, found "{text}"'
        if not self.least <= int(text) <= self.most:
            return f"{text} is outside {self.least} to {self.most}" + (f": {self.why}" if self.why else "")
        return ""


@dataclass(frozen=True)
class Duration:
    """A length of time, in seconds, up to the `longest`, if there is one."""

    longest: float | None = None

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The seconds."""
        scalar = _scalar(node, reader, "a duration")
        if scalar is INVALID:
            return INVALID
        amount = None if scalar.plain and (yaml11(scalar) or meaning(scalar) == "null") else seconds(scalar.text)
        if amount is None:
            reader.error(
                node,
                f'"{scalar.text[:40]}" is not a duration; write 30s, 1h, 1h30m or whole seconds such as 90',
            )
            return INVALID
        if self.longest is not None and amount > self.longest:
            reader.error(node, f'"{scalar.text[:40]}" is longer than {duration(self.longest)}')
            return INVALID
        return amount

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """Whole seconds, or text such as 1h30m."""
        del definitions
        text = {"type": "string", "pattern": "^(?=.)([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$|^[0-9]+$"}
        return {"anyOf": [{"type": "integer", "minimum": 0}, text]}


@dataclass(frozen=True)
class ListOf:
    """A list, of which `least` entries must be there."""

    of: Shape
    least: int = 0

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The entries as a tuple; those found wrong are left out."""
        reader.count()
        if not isinstance(node, YamlSequence):
            hint = f"; write [{node.text[:40]}]" if isinstance(node, YamlScalar) and meaning(node) == "text" else ""
            reader.error(node, f"expected a list, found {kind(node)}{hint}")
            return INVALID
        if len(node.items) < self.least:
            reader.error(node, "the list is empty; name something, or leave the field out")
            return INVALID
        return tuple(value for item in node.items if (value := self.of.read(item, reader)) is not INVALID)

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """An array."""
        shape: dict[str, Any] = {"type": "array", "items": self.of.schema(definitions)}
        return shape | ({"minItems": self.least} if self.least else {})


@dataclass(frozen=True)
class OneOrMore:
    """One mapping, or a list of alternatives."""

    of: Shape

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The alternatives as a tuple."""
        if isinstance(node, YamlSequence):
            return ListOf(self.of).read(node, reader)
        value = self.of.read(node, reader)
        return INVALID if value is INVALID else (value,)

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """Either form."""
        item = self.of.schema(definitions)
        return {"anyOf": [item, {"type": "array", "items": item}]}


@dataclass(frozen=True)
class MapOf:
    """A mapping of free keys."""

    of: Shape
    key: Shape = field(default_factory=Text)

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The mapping as a dictionary; pairs found wrong are left out."""
        reader.count()
        if not isinstance(node, YamlMap):
            reader.error(node, f"expected a mapping, found {kind(node)}")
            return INVALID
        fields: dict[str, Any] = {}
        for key_node, value_node in node.pairs:
            key, value = self.key.read(key_node, reader), self.of.read(value_node, reader)
            if key is not INVALID and key in fields:
                reader.error(key_node, f'"{key}" is there twice')
            elif key is not INVALID and value is not INVALID:
                fields[key] = value
        return fields

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """An object of free keys."""
        return {"type": "object", "additionalProperties": self.of.schema(definitions)}


def _scalar(node: YamlNode, reader: Reader, what: str) -> Any:
    reader.count()
    if not isinstance(node, YamlScalar):
        reader.error(node, f"expected {what}, found {kind(node)}")
        return INVALID
    if meaning(node) == "null":
        reader.error(node, f"expected {what}, found nothing; give a value, or leave the field out")
        return INVALID
    return node
