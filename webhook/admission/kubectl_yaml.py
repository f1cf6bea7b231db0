"""YAML and JSON as kubectl reads manifests: YAML 1.1, of which the API server gets JSON.

kubectl reads them by `NewYAMLOrJSONDecoder` of apimachinery and by `sigs.k8s.io/yaml`. Its parser is a port of libyaml,
and `resolve` of go.yaml.in/yaml/v2 says what a text without quotes means: `=` is text, `y` and `on` are true, `0777` is
511, and `1e+06` is 1000000. Policy files are read strictly (`webhook.policy.files.yamltree`).
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import yaml
from yaml import events
from yaml.error import MarkedYAMLError
from yaml.reader import ReaderError

from webhook.policy.files.yaml_messages import problem_of
from webhook.policy.shapes.yaml_nodes import FALSE11, NULL, TRUE11

__all__ = ["Remark", "YamlDocument", "read_yaml"]

MOST_ALIASED = 400_000
"""Values that the aliases of a document may stand for; kubectl refuses about as many."""
_LONGEST = 400
"""Digits of a number; more are beyond all fractions."""
_INT64 = range(-(1 << 63), 1 << 63)
_WORDS: dict[str, Any] = {
    **dict.fromkeys(TRUE11 | {"true", "True", "TRUE"}, True),
    **dict.fromkeys(FALSE11 | {"false", "False", "FALSE"}, False),
    **dict.fromkeys(NULL),
    **{f"{sign}{word}": float(f"{sign}inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys([".nan", ".NaN", ".NAN"], math.nan),
}
_NUMBER = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<binary>[01]+)|0[oO]?(?P<octal>[0-7]+)|(?P<decimal>[0-9]+)"
    r"|(?P<fraction>(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?))"
)
_BASES = {"hex": 16, "binary": 2, "octal": 8}
_SEPARATOR = re.compile(r"^---(.*)\n?", re.MULTILINE)
_BLANK = re.compile(r"\s*")
_TAG, _MERGE = "tag:yaml.org,2002:", "tag:yaml.org,2002:merge"
_TYPES = {"bool": (bool,), "int": (int,), "float": (int, float), "null": (type(None),)}
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Remark(NamedTuple):
    """What is to be said of a place in a file; line and column count from 1."""

    line: int
    column: int
    text: str


class YamlDocument(NamedTuple):
    """A document, and the line on which it begins: plain JSON data, or a problem that keeps it from being read."""

    line: int
    value: Any = None
    warnings: tuple[Remark, ...] = ()
    problem: Remark | None = None


def read_yaml(content: bytes) -> Iterator[YamlDocument]:
    """The documents that are not empty, in their order; what is wrong with one of them does not touch the others.

    Of a key that stands twice the last one holds, and a warning says so.
    """
    utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = content.decode("utf-16" if utf16 else "utf-8", "replace").removeprefix("\ufeff")
    documents, begin, line = _json_documents(text)
    yield from documents
    for match in [*_SEPARATOR.finditer(text, begin), None]:
        end = match.start() if match else len(text)
        yield from _yaml_document(text[begin:end].removeprefix("\ufeff"), line)
        if match is None:
            return
        line += text.count("\n", begin, end)
        if (after := match[1].strip()) and not after.startswith("#"):
            said = "only a comment may follow `---` on its line, as for kubectl: put the rest on a line of its own"
            yield YamlDocument(line, problem=Remark(line, 4, said))
        line += match[0].count("\n")
        begin = match.end()


def _json_documents(text: str) -> tuple[list[YamlDocument], int, int]:
    """The JSON objects with which a text begins, where they end, and on which line; the rest is read as YAML."""
    documents: list[YamlDocument] = []
    remarks: list[Remark] = []
    begin, line = 0, 1

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            names = [name for name, _ in pairs]
            remarks.extend(Remark(line, 1, _twice(name)) for name in made if names.count(name) > 1)
        return made

    # NaN and Infinity are no JSON, and `int` does not read them
    decoder = json.JSONDecoder(
        object_pairs_hook=mapping,
        parse_int=_whole,
        parse_float=lambda text: _integral(_fraction(text)),
        parse_constant=int,
    )
    while True:
        start = begin + len(_BLANK.match(text, begin)[0])  # type: ignore[index]  # it matches everywhere
        if not text.startswith("{", start):
            return documents, begin, line
        line += text.count("\n", begin, start)
        try:
            value, begin = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            return documents, start, line
        documents.append(YamlDocument(line, value, tuple(remarks)))
        remarks.clear()
        line += text.count("\n", start, begin)


def _yaml_document(text: str, line: int) -> Iterator[YamlDocument]:
    """The document of a text that begins on this line of a file; none if it is empty."""
    reader = _Reader(text, line)
    try:
        document = reader.document()
    except RecursionError:
        yield YamlDocument(line, problem=Remark(line, 1, "nested too deeply"))
    except ReaderError as error:
        at = len(text.encode()[: error.position].decode(errors="ignore").splitlines()) - 1
        yield YamlDocument(line, problem=Remark(line + max(at, 0), 1, error.reason))
    except MarkedYAMLError as error:
        at, column, said = problem_of(error)
        yield YamlDocument(line, problem=Remark(line + at - 1, column, said))
    else:
        if document is not None and document.value is not None:
            yield document


class _Reader:
    """Makes plain data of what the parser finds in one document."""

    def __init__(self, text: str, line: int) -> None:
        self._loader, self._line = _Loader(text), line
        self._warnings: list[Remark] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        """What an anchor names, and how many values that are."""
        self._values = self._aliased = 0

    def document(self) -> YamlDocument | None:
        """The document; None if the text has none. Raises MarkedYAMLError, ReaderError or RecursionError."""
        event = self._next()
        while not isinstance(event, events.DocumentStartEvent):
            if isinstance(event, events.StreamEndEvent):
                return None
            event = self._next()
        event = self._next()
        line = self._line + event.start_mark.line
        value = self._value(event)
        end = self._next()
        try:
            more = not isinstance(self._next(), events.StreamEndEvent)
        except MarkedYAMLError:
            more = True
        if more:
            self._warn(end, "kubectl does not read what follows the end of a document: put `---` between them")
        return YamlDocument(line, value, tuple(self._warnings))

    def _next(self) -> Any:
        return self._loader.get_event()

    def _warn(self, event: Any, text: str) -> None:
        mark = event.start_mark
        self._warnings.append(Remark(self._line + mark.line, mark.column + 1, text))

    def _value(self, event: Any, *, as_key: bool = False) -> Any:
        """What begins with this event, as JSON has it; a key may be a number that JSON does not have."""
        self._values += 1
        before = self._values
        value: Any
        match event:
            case events.ScalarEvent(implicit=(plain, quoted)):
                value = _meaning(event.value) if plain else event.value if quoted else _tagged(event)
                if type(value) is float and not as_key:
                    if not math.isfinite(value):
                        raise _error(event, f"`{event.value}` is no number that JSON has")
                    value = _integral(value)
            case events.MappingStartEvent():
                value = self._mapping()
            case events.SequenceStartEvent():
                value = []
                while not isinstance(item := self._next(), events.SequenceEndEvent):
                    value.append(self._value(item))
            case _:
                return self._alias(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._values - before + 1)
        return value

    def _mapping(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        merged: set[str] = set()
        while not isinstance(key := self._next(), events.MappingEndEvent):
            if isinstance(key, events.ScalarEvent) and key.value == "<<" and (key.implicit[0] or key.tag == _MERGE):
                for part in self._merged(self._next()):
                    made.update(part)
                    merged.update(part)
                continue
            name = _name(self._value(key, as_key=True), key)
            if name in made and name not in merged:
                self._warn(key, _twice(name))
            merged.discard(name)
            made[name] = self._value(self._next())
        return made

    def _merged(self, event: Any) -> list[dict[str, Any]]:
        """The mappings that `<<` names, those that count last at the end."""
        value = self._value(event)
        parts = value[::-1] if isinstance(event, events.SequenceStartEvent) else [value]
        if not all(isinstance(part, dict) for part in parts):
            raise _error(event, "`<<` takes a mapping, or a list of mappings")
        return parts

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            raise _error(event, f"alias *{event.anchor} refers to no anchor &{event.anchor} above it")
        value, count = self._anchors[event.anchor]
        self._values += count
        self._aliased += count
        if self._aliased > MOST_ALIASED:
            raise _error(event, f"aliases stand for more than {MOST_ALIASED} values; write them out")
        return value


def _error(event: Any, problem: str) -> MarkedYAMLError:
    return MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def _twice(name: str) -> str:
    return f"`{name}` stands twice in one mapping; the last one holds, as for kubectl"


@lru_cache(1 << 14)
def _meaning(text: str) -> Any:
    """What a text without quotes means to kubectl; a date is a text."""
    if text in _WORDS:
        return _WORDS[text]
    # Nowhere but after a point in front does a number read on over underscores
    match = _NUMBER.fullmatch(text if text[0] == "." else text[0] + text[1:].replace("_", ""))
    if match is None:
        return text
    form = match.lastgroup or ""
    try:
        number = _fraction(match[form]) if form == "fraction" else _whole(match[form], _BASES.get(form, 10))
    except ValueError:
        return text
    return -number if match["sign"] == "-" else number


def _tagged(event: Any) -> Any:
    """A scalar with a tag; a tag that nobody knows changes nothing."""
    tag, text = event.tag.removeprefix(_TAG), event.value
    if tag == "binary":
        try:
            return base64.b64decode("".join(text.split()), validate=True).decode(errors="replace")
        except binascii.Error as error:
            raise _error(event, f"`!!binary` takes base64: {error}") from error
    if tag not in _TYPES:
        return text
    value = _meaning(text)
    if type(value) not in _TYPES[tag]:
        raise _error(event, f"`{text}` is no {tag}, as its tag says")
    return value


def _name(key: Any, event: Any) -> str:
    """The name of a field, which JSON wants as text."""
    match key:
        case str():
            return key
        case bool():
            return str(key).lower()
        case int():
            return str(key)
        case float():
            return f"{key:g}".replace("inf", ".inf").replace("nan", ".nan")
    raise _error(event, "the name of a field is text, a number, or true or false")


def _whole(digits: str, base: int = 10) -> int | float:
    """A whole number; beyond 64 bits it is a fraction, as in Go. Raises ValueError beyond all fractions."""
    number = int(digits, base) if len(digits) <= _LONGEST else math.inf
    return number if number in _INT64 else _fraction(str(number))


def _fraction(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(text)
    return number


def _integral(number: float) -> int | float:
    """A fraction as JSON has it: without a point if it is whole."""
    return int(number) if number.is_integer() and int(number) in _INT64 else number
