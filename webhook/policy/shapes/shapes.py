"""Shapes: what may stand in a field. Each reads a node (`webhook.policy.files.schema` makes a JSON schema of them).

A shape that finds something wrong notes it and returns INVALID; the rest of the file is read all the same.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import msgspec

from webhook.kube.instants import LAST_SECOND, InstantError, epoch
from webhook.policy.shapes.findings import INVALID, Reader
from webhook.policy.shapes.yaml_nodes import WHOLE, YamlMap, YamlNode, YamlScalar, YamlSequence, duration, kind, seconds


class ShapeError(ValueError):
    """A value that may not stand in its field; the message says what would be right."""


class Shape(Protocol):
    """What may stand in a field."""

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The value, or INVALID with findings."""


@dataclass(frozen=True, eq=False)
class Scalar:
    """One value: `what` it is, and its JSON schema, of which a default is written by `shown`.

    `convert` gives what is made of it. It raises ShapeError for what is wrong, and may note more.
    """

    what: str
    json_schema: Mapping[str, Any]
    convert: Callable[[YamlScalar, Reader], Any]
    shown: Callable[[Any], Any] = msgspec.to_builtins

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """What is made of the value."""
        if not isinstance(node, YamlScalar):
            return reader.error(node, f"expected {self.what}, found {kind(node)}")
        if node.meaning == "null":
            text = f"expected {self.what}, found nothing; give a value, or leave the field out"
            return reader.error(node, text)
        try:
            return self.convert(node, reader)
        except ShapeError as error:
            return reader.error(node, str(error))


def string(
    what: str = "text",
    pattern: str = "",
    *,
    longest: int = 1024,
    may_be_empty: bool = False,
    check: Callable[[str, YamlScalar, Reader], object] | None = None,
    **described: Any,
) -> Scalar:
    """A text; numbers and the like must be quoted, so that every reader agrees.

    `check` looks at one that is right otherwise. `described` is more for the schema.
    """

    def convert(scalar: YamlScalar, reader: Reader) -> str:
        text, means, other = scalar.text, scalar.meaning, scalar.yaml11
        if means != "text":
            raise ShapeError(f'expected {what}, found the {means} {text}; write "{text}"')
        if other:
            reader.warn(scalar, f'YAML 1.1 readers such as kubectl take {text} for {other}; write "{text}"')
        if not text.strip() and not may_be_empty:
            raise ShapeError(f"expected {what}, found an empty text")
        if len(text) > longest:
            raise ShapeError(f"{what} of {len(text)} characters; at most {longest}")
        if pattern and not re.fullmatch(pattern.removeprefix("^").removesuffix("$"), text, re.ASCII):
            raise ShapeError(f'"{text[:80]}" is not {what}')
        if check is not None:
            check(text, scalar, reader)
        return text

    schema: dict[str, Any] = {"type": "string"}
    if not may_be_empty:
        schema["minLength"] = 1
    if pattern:
        schema["pattern"] = pattern
    return Scalar(what, schema | described, convert)


def one_of(what: str, options: Mapping[str, str], build: Callable[[str], Any] = str) -> Scalar:
    """One of these values, with their meanings; `build` makes a member of it."""

    def convert(scalar: YamlScalar, reader: Reader) -> Any:
        if scalar.text not in options:
            near = reader.nearest(scalar.text, options)
            raise ShapeError(f'"{scalar.text[:80]}" is not {what}{near}')
        return build(scalar.text)

    described = "\n".join(f"- `{name}`: {text}" for name, text in options.items())
    return Scalar(what, {"type": "string", "enum": list(options), "markdownDescription": described}, convert)


def integer(what: str, least: int, most: int, why: str = "") -> Scalar:
    """A whole number as all readers spell it; `why` is what is wrong with others."""

    def convert(scalar: YamlScalar, _: Reader) -> int:
        text, whole = scalar.text[:40], WHOLE.fullmatch(scalar.text[:40])
        if whole and not scalar.plain:
            raise ShapeError(f"expected {what}, found text; write {text} without quotes")
        if not whole:
            raise ShapeError(f'expected {what} in plain digits, found "{text}"')
        if not least <= int(text) <= most:
            raise ShapeError(f"{text} is outside {least} to {most}" + (f": {why}" if why else ""))
        return int(text)

    return Scalar(what, {"type": "integer", "minimum": least, "maximum": most}, convert)


def duration_that(fits: Callable[[float], bool], otherwise: str) -> Scalar:
    """A length of time in seconds that `fits`; `otherwise` says why a {text} or {amount} does not."""

    def convert(scalar: YamlScalar, _: Reader) -> float:
        amount = None if scalar.plain and scalar.yaml11 else seconds(scalar.text)
        if amount is None:
            text = "is not a duration; write 30s, 1h, 1h30m or whole seconds such as 90"
            raise ShapeError(f'"{scalar.text[:40]}" {text}')
        if not fits(amount):
            raise ShapeError(otherwise.format(text=scalar.text[:40], amount=duration(amount)))
        return amount

    text = {"type": "string", "pattern": "^(?=.)([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$|^[0-9]+$"}
    return Scalar("a duration", {"anyOf": [{"type": "integer", "minimum": 0}, text]}, convert, duration)


def duration_up_to(longest: float) -> Scalar:
    """A length of time in seconds, up to the `longest`."""
    return duration_that(longest.__ge__, f'"{{text}}" is longer than {duration(longest)}')


Duration = Annotated[float, duration_that(lambda _: True, "")]
"""In seconds."""


def _boolean(scalar: YamlScalar, _: Reader) -> bool:
    if scalar.plain and scalar.text in ("true", "false"):
        return scalar.text == "true"
    raise ShapeError(f'expected true or false, found "{scalar.text[:40]}"')


BOOLEAN = Scalar("true or false", {"type": "boolean"}, _boolean)
"""In the one spelling that all readers agree on."""
_INSTANT = "a date such as 2026-12-31, or an instant such as 2026-12-31T18:00:00Z"


def _instant(scalar: YamlScalar, _: Reader) -> float:
    try:
        if len(scalar.text) == len("2026-12-31"):
            return min(epoch(f"{scalar.text}T00:00:00Z") + 24 * 3600, LAST_SECOND)
        return epoch(scalar.text)
    except InstantError as error:
        raise ShapeError(f"expected {_INSTANT}: {error}") from error


INSTANT = Scalar(
    _INSTANT,
    {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2}))?$"},
    _instant,
)
"""A point in time, in seconds since the epoch: an RFC 3339 text, or a date, which means the end of that day in UTC."""


@dataclass(frozen=True)
class ListOf:
    """A list, of which `least` entries must be there; with `or_one`, a mapping stands for a list of it alone."""

    of: Shape
    least: int = 0
    or_one: bool = False

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The entries as a tuple; those found wrong are left out."""
        if self.or_one and not isinstance(node, YamlSequence):
            return self.read(YamlSequence(node.line, node.column, node.path, [node]), reader)
        if not isinstance(node, YamlSequence):
            hint = f"; write [{node.text[:40]}]" if isinstance(node, YamlScalar) and node.meaning == "text" else ""
            return reader.error(node, f"expected a list, found {kind(node)}{hint}")
        if len(node.items) < self.least:
            return reader.error(node, "the list is empty; name something, or leave the field out")
        return tuple(value for item in node.items if (value := self.of.read(item, reader)) is not INVALID)


@dataclass(frozen=True)
class MapOf:
    """A mapping of free keys."""

    of: Shape
    key: Shape

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """The mapping as a dictionary; pairs found wrong are left out."""
        if not isinstance(node, YamlMap):
            return reader.error(node, f"expected a mapping, found {kind(node)}")
        fields: dict[str, Any] = {}
        for key_node, value_node in node.pairs:
            key, value = self.key.read(key_node, reader), self.of.read(value_node, reader)
            if key is not INVALID and key in fields:
                reader.error(key_node, f'"{key}" is there twice')
            elif key is not INVALID and value is not INVALID:
                fields[key] = value
        return fields
