"""YAML and JSON as kubectl reads manifests: YAML 1.1, of which the API server gets JSON.

kubectl reads them by `NewYAMLOrJSONDecoder` of apimachinery and by `sigs.k8s.io/yaml`. Its parser is a port of libyaml,
and `resolve` of go.yaml.in/yaml/v2 says what a text without quotes means: `=` is text, `y` and `on` are true, `0777` is
511, and `1e+06` is 1000000. Policy files are read strictly (`webhook.policy.files.yamltree`).
"""

import codecs
import json
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, TextIO

import yaml
from yaml import events
from yaml.error import MarkedYAMLError, YAMLError

from webhook.policy.files.yamltree import problem_of
from webhook.policy.shapes.yaml_nodes import FALSE11, NULL, TRUE11

MOST_VALUES = 2_000_000
"""Values of a document, each as often as aliases name it."""
_MARK = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_WORD = re.compile(r"\S")
_WORDS = {
    **dict.fromkeys(TRUE11 | {"true", "True", "TRUE"}, True),
    **dict.fromkeys(FALSE11 | {"false", "False", "FALSE"}, False),
    **dict.fromkeys(NULL),
}
_NUMBER = re.compile(
    r"([-+]?)(?:0x([0-9a-f]+)|0b([01]+)|0o?([0-7]+)|([0-9]+)|((?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:e[-+]?[0-9]+)?))",
    re.IGNORECASE,
)
_BASES = (16, 2, 8, 10)
_TYPES = {f"tag:yaml.org,2002:{name}" for name in ("bool", "float", "int", "null")}
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Remark(NamedTuple):
    """What is to be said of a place in a file; line and column count from 1."""

    line: int
    column: int
    text: str

    def __str__(self) -> str:
        """`LINE:COLUMN: TEXT`."""
        return f"{self.line}:{self.column}: {self.text}"


class YamlDocument(NamedTuple):
    """A document as JSON data, where it begins, and what ends its reading; `source` is a text and its first line."""

    line: int
    value: Any = None
    warnings: tuple[Remark, ...] = ()
    problem: Remark | None = None
    source: tuple[str, int] = ("", 1)

    def place(self, *path: str | int) -> tuple[int, int]:
        """Line and column of the nearest part of a path that is there; of the beginning for JSON that is no YAML."""
        text, line = self.source
        node = _nodes(text)
        if node is None:
            return line, 1
        mark = node.start_mark
        for step in path:
            if isinstance(step, int):
                key = node = node.value[step]
            else:
                key, node = next((pair for pair in node.value if pair[0].value == step), (None, None))
            if key is None:
                break
            mark = key.start_mark
        return line + mark.line, mark.column + 1


def read_yaml(content: bytes) -> Iterator[YamlDocument]:
    """The documents that are not empty, in order; what is wrong with one does not touch the others."""
    utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = content.decode("utf-16" if utf16 else "utf-8", "replace").replace("\ufeff", "")
    line, begin = 1, 0
    # First the JSON objects that it begins with; the rest is for the YAML reader
    with suppress(ValueError, RecursionError):
        while (word := _WORD.search(text, begin)) and word[0] == "{":
            value, end = _JSON.raw_decode(text, word.start())
            yield YamlDocument(line, value, source=(text[begin:end], line))
            line, begin = line + text.count("\n", begin, end), end
    marks = [mark.start() for mark in _MARK.finditer(text, begin)]
    for start, end in pairwise([begin, *marks, len(text)]):
        part = text[start:end]
        document = _Reader(part, line).document()
        if document.value is not None or document.problem is not None:
            yield document._replace(source=(part, line))
        line += text.count("\n", start, end)


@lru_cache(1)
def _nodes(text: str) -> Any:
    """What a document is made of, with its places; None if no YAML parser reads it."""
    with suppress(YAMLError, RecursionError):
        return yaml.compose(text, _Loader)
    return None


def write_yaml(objects: Iterable[Any], to: TextIO) -> None:
    """Write plain data as documents that mean the same to kubectl; texts keep their lines."""
    yaml.dump_all(objects, to, Dumper=_Dumper, explicit_start=True, sort_keys=False, allow_unicode=True, width=math.inf)


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Quotes what is no text to kubectl, and writes twice what stands twice."""

    def ignore_aliases(self, _data: Any) -> bool:
        """No anchors."""
        return True

    def represent_str(self, data: str) -> Any:
        """A text."""
        style = "|" if "\n" in data else None
        if not style and (_meaning(data) != data or not data.isprintable()):
            style = '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object's members. Raises ValueError if one stands twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError(pairs)
    return made


class _Reader:
    """Makes plain data of what the parser finds in one document that begins on this line of a file."""

    def __init__(self, text: str, line: int) -> None:
        self._events, self._line = yaml.parse(text, _Loader), line
        self._warnings: list[Remark] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        """What an anchor names, and how many values that are."""
        self._values = 0

    def document(self) -> YamlDocument:
        """The document; without a value if the text has none."""
        line, value = self._line, None
        try:
            next(self._events)
            if not isinstance(next(self._events), events.StreamEndEvent):
                first = next(self._events)
                line += first.start_mark.line
                value = self._value(first)
                # The end of the document, and of the text
                next(self._events), next(self._events)
            problem = None
        except MarkedYAMLError as error:
            at, column, said = problem_of(error)
            problem = Remark(self._line + at - 1, column, said)
        except RecursionError:
            problem = Remark(line, 1, "nested too deeply")
        except YAMLError as error:
            problem = Remark(line, 1, error.reason)
        return YamlDocument(line, value, tuple(self._warnings), problem)

    def _value(self, event: Any) -> Any:
        """What begins with this event."""
        if isinstance(event, events.AliasEvent):
            if event.anchor not in self._anchors:
                raise _error(event, f"alias *{event.anchor} refers to no anchor &{event.anchor} above it")
            value, count = self._anchors[event.anchor]
            self._count(event, count)
            return value
        before = self._values
        self._count(event, 1)
        if isinstance(event, events.ScalarEvent):
            value = _meaning(event.value) if event.implicit[0] or event.tag in _TYPES else event.value
        elif isinstance(event, events.MappingStartEvent):
            value = self._mapping()
        else:
            value = []
            while not isinstance(item := next(self._events), events.SequenceEndEvent):
                value.append(self._value(item))
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._values - before)
        return value

    def _count(self, event: Any, values: int) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            raise _error(event, f"more than {MOST_VALUES} values, each as often as aliases name it")

    def _mapping(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        merged: set[str] = set()
        while not isinstance(key := next(self._events), events.MappingEndEvent):
            name, value = self._value(key), self._value(after := next(self._events))
            if name == "<<" and key.implicit[0]:
                parts = value[::-1] if isinstance(after, events.SequenceStartEvent) else [value]
                if not all(isinstance(part, dict) for part in parts):
                    raise _error(key, "`<<` takes a mapping, or a list of mappings")
                for part in parts:
                    made.update(part)
                    merged.update(part)
                continue
            if isinstance(name, bool):
                name = str(name).lower()
            elif isinstance(name, int | float):
                name = str(name) if isinstance(name, int) else f"{name:g}"
            elif not isinstance(name, str):
                raise _error(key, "the name of a field is text, a number, or true or false")
            if name in made and name not in merged:
                mark = key.start_mark
                said = f"`{name}` stands twice in one mapping; the last one holds, as for kubectl"
                self._warnings.append(Remark(self._line + mark.line, mark.column + 1, said))
            merged.discard(name)
            made[name] = value
        return made


def _error(event: Any, problem: str) -> MarkedYAMLError:
    return MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


@lru_cache(1 << 14)
def _meaning(text: str) -> Any:
    """What a text without quotes means to kubectl; a date is a text."""
    if text in _WORDS:
        return _WORDS[text]
    # Underscores may stand anywhere in a number but in front, and not in one that begins with a point
    match = _NUMBER.fullmatch(text if text[0] in "._" else text.replace("_", ""))
    if match is None:
        return text
    sign, *whole, fraction = match.groups()
    try:
        digits = next((int(digits, base) for digits, base in zip(whole, _BASES, strict=True) if digits), 0)
        number = float(fraction) if fraction else digits
        return text if math.isinf(number) else _integral(-number if sign == "-" else number)
    except (OverflowError, ValueError):  # beyond all that Go has
        return text


def _integral(number: float) -> float:
    """A number as JSON has it: without a point if it is whole, with one beyond 64 bits."""
    whole = -(1 << 63) <= number < 1 << 63 and number == int(number)
    return int(number) if whole else float(number)


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_float=lambda number: _integral(float(number)))
