"""The fields that an expression reads and no object has, such as `object.spec.priorty`.

CEL itself takes every field of the objects for possible, so a misspelt one is found when it is too late: by an error on
every request, or by `has(…)` that is never true. The fields of objects are in `object_fields.json`, which
`make schema` writes from the official client's models. A newer API server may have more of them, so what is found is a
warning.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

from webhook.policy.cel.ast import Comprehension, Constant, FunctionCall, Identifier, ListOrMap, Select, Tree

__all__ = ["UnknownField", "unknown_fields"]

_KINDS = {"pods": "Pod", "priorityclasses": "PriorityClass"}
_INDEXES = frozenset(("_[_]", "_[?_]", "_?._"))
_UNWRAPPING = frozenset(("orValue", "value", "optional.of"))

_OWN = {
    "AdmissionRequest": {
        **dict.fromkeys(("dryRun", "name", "namespace", "operation", "requestSubResource", "subResource", "uid"), ""),
        **dict.fromkeys(("kind", "options", "requestKind", "requestResource", "resource"), "*"),
        "userInfo": "UserInfo",
    },
    "UserInfo": {"username": "", "uid": "", "groups": "[]", "extra": "*"},
    "Namespace": {"metadata": "Metadata"},
    "PriorityClassVariable": {
        "metadata": "Metadata",
        **dict.fromkeys(("description", "globalDefault", "preemptionPolicy", "value"), ""),
    },
    "Metadata": {"name": "", "labels": "{}", "annotations": "{}"},
}
"""What the variables beside the objects hold, as `RequestAttributes` makes them."""

Types = frozenset[str]
"""What a value may be: the name of a struct, `[X]` for a list and `{X}` for a map of it, `*`; else it has no fields."""
_ANYTHING: Types = frozenset(("*",))
Scope = Mapping[str, Types]


class UnknownField(NamedTuple):
    """A field that is read and does not exist: its name, the struct that lacks it, the names that there are.

    `offset` is where it stands in the expression, in characters.
    """

    name: str
    struct: str
    known: Collection[str]
    offset: int

    def __str__(self) -> str:
        """`PodSpec has no field "priorty" in Kubernetes 1.36`."""
        where = f"{self.struct} has" if self.struct not in _OWN else "there is"
        release = f" in Kubernetes {_data().release}" if self.struct not in _OWN else f" in {self.struct}"
        return f'{where} no field "{self.name}"{release}'


class _Fields(msgspec.Struct):
    """The file: the release of Kubernetes, and the fields of each struct with their types."""

    release: str
    structs: dict[str, dict[str, str]]


@cache
def _data() -> _Fields:
    fields = msgspec.json.decode(files("webhook.policy.cel").joinpath("object_fields.json").read_bytes(), type=_Fields)
    return msgspec.structs.replace(fields, structs={**fields.structs, **_OWN})


def unknown_fields(text: str, tree: Tree, about: Collection[str]) -> list[UnknownField]:
    """What the expression reads that does not exist, in the order of the text, each once.

    `about` are the kinds of objects that it judges: `pods`, `priorityclasses` or both. With both, a field of one of
    them is known.
    """
    objects = frozenset(_KINDS[kind] for kind in about)
    scope = {
        "object": objects,
        "oldObject": objects,
        "request": frozenset(("AdmissionRequest",)),
        "namespaceObject": frozenset(("Namespace",)),
        "priorityClass": frozenset(("PriorityClassVariable",)),
    }
    walk = _Walk()
    walk.types(tree, scope)
    unknown = {(name, struct): known for name, struct, known in walk.absent}
    rows = (
        UnknownField(name, struct, known, next(_places(text, name), 0)) for (name, struct), known in unknown.items()
    )
    return sorted(rows, key=lambda row: row.offset)


class _Walk:
    """One walk over the tree; `absent` has the fields that nothing has."""

    def __init__(self) -> None:
        self.absent: list[tuple[str, str, Collection[str]]] = []

    def types(self, tree: Tree, scope: Scope) -> Types:
        """What the tree's value may be."""
        match tree:
            case Identifier(name):
                return scope.get(name, _ANYTHING)
            case Select(operand, field):
                return self._field(self.types(operand, scope), field)
            case FunctionCall(name, (operand, Constant(str(field)))) if name in _INDEXES:
                return self._field(self.types(operand, scope), field)
            case FunctionCall(name, arguments):
                values = [self.types(argument, scope) for argument in arguments]
                if name in _INDEXES:
                    return _elements(values[0])
                return values[0] if name in _UNWRAPPING and values else _ANYTHING
            case ListOrMap(elements):
                for element in elements:
                    self.types(element, scope)
                return _ANYTHING
            case Comprehension():
                return self._comprehension(tree, scope)
        return _ANYTHING

    def _field(self, types: Types, field: str) -> Types:
        """The types of a field. It is noted if it is sure that nothing has it."""
        structs = _data().structs
        known_types: set[str] = set()
        for type_ in types:
            if type_ in structs and field in structs[type_]:
                known_types.add(structs[type_][field])
            elif type_.startswith("{"):
                known_types.add(type_[1:-1])
            elif type_ not in structs:
                return _ANYTHING
        if known_types or not types:
            return frozenset(known_types) or _ANYTHING
        lacking = min(types)
        self.absent.append((field, lacking, {name for type_ in types for name in structs[type_]}))
        return _ANYTHING

    def _comprehension(self, loop: Comprehension, scope: Scope) -> Types:
        """A macro: its variable is an element of the range; `cel.bind` is one whose range is empty."""
        range_ = self.types(loop.range, scope)
        init = self.types(loop.init, scope)
        bound = isinstance(loop.range, ListOrMap) and not loop.range.elements
        inner = {**scope, loop.variable: _elements(range_), loop.accumulator: init if bound else _ANYTHING}
        for part in (loop.condition, loop.step):
            self.types(part, inner)
        return self.types(loop.result, inner)


def _elements(types: Types) -> Types:
    """What a loop over it runs through: the elements of lists; the keys of maps are texts."""
    if all(type_.startswith("[") for type_ in types):
        return frozenset(type_[1:-1] for type_ in types)
    return _ANYTHING


def _places(text: str, field: str) -> Iterator[int]:
    """Where the field stands after a dot or in brackets."""
    for match in re.finditer(rf"""(?:\.\s*\??\s*|\[\s*\??\s*["']){re.escape(field)}\b""", text):
        yield match.end() - len(field)
