"""The fields that an expression reads, and those of them that no object has, such as `object.spec.priorty`.

CEL itself takes every field of the objects for possible, so a misspelt one is found when it is too late: by an error on
every request, or by `has(…)` that is never true. The fields of objects are in `object_fields.json`, which
`make schema` writes from the official client's models. A newer API server may have more of them, so what is found is a
warning.
"""

import re
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

from webhook.policy.cel.ast import EMPTY, Comprehension, Constant, FunctionCall, Identifier, Select, Tree

_KINDS = {"pods": "Pod", "priorityclasses": "PriorityClass"}
_INDEXES = frozenset(("_[_]", "_[?_]", "_?._"))
_UNWRAPPING = frozenset(("orValue", "value", "optional.of"))
_COMPARING, _NULL = frozenset(("_==_", "_!=_")), Constant(None, 8)
ELEMENT = "[]"
"""The step of a path to an element of a list."""

_OWN = {
    "AdmissionRequest": {
        **dict.fromkeys(("name", "namespace", "operation", "requestSubResource", "subResource", "uid"), "string"),
        "dryRun": "boolean",
        **dict.fromkeys(("kind", "options", "requestKind", "requestResource", "resource"), "*"),
        "userInfo": "UserInfo",
    },
    "UserInfo": {"username": "string", "uid": "string", "groups": "[string]", "extra": "*"},
    "Namespace": {"metadata": "Metadata"},
    "PriorityClassVariable": {
        "metadata": "Metadata",
        **dict.fromkeys(("description", "preemptionPolicy"), "string"),
        "globalDefault": "boolean",
        "value": "integer",
    },
    "Metadata": {"name": "string", "labels": "{string}", "annotations": "{string}"},
}
"""What the variables beside the objects hold, as `RequestAttributes` makes them."""

Types = frozenset[str]
"""What a value may be: the name of a struct, `[X]` for a list and `{X}` for a map of it, `*`; else it has no fields."""
_ANYTHING: Types = frozenset(("*",))
Path = tuple[str, ...]
"""A variable, and the fields and keys below it."""


class _Value(NamedTuple):
    """What a part of an expression may be, and the field that it is."""

    types: Types = _ANYTHING
    path: Path = ()


Scope = Mapping[str, _Value]


class _Fields(msgspec.Struct):
    """The file: the release of Kubernetes, and the fields of each struct with their types."""

    release: str
    structs: dict[str, dict[str, str]]


@cache
def _data() -> _Fields:
    fields = msgspec.json.decode(files("webhook.policy.cel").joinpath("object_fields.json").read_bytes(), type=_Fields)
    return msgspec.structs.replace(fields, structs={**fields.structs, **_OWN})


Unknown = tuple[int, str, str, Collection[str]]
"""Where in the text, in characters, a field stands; its name, which struct lacks it, and the names that there are."""


def unknown_fields(text: str, tree: Tree, about: Collection[str]) -> list[Unknown]:
    """What the expression reads that does not exist, in the order of the text, each once.

    It judges objects of the kinds `about`: `pods`, `priorityclasses` or both.
    """
    unknown: dict[tuple[str, str], Unknown] = {}
    for name, struct, known in _Walk(tree, about).absent:
        # It stands first after a dot or in brackets
        match = re.search(rf"""(?:\.\s*\??\s*|\[\s*\??\s*["']){re.escape(name)}\b""", text)
        offset = match.end() - len(name) if match else 0
        lacks = f'{struct} has no field "{name}" in Kubernetes {_data().release}'
        if struct in _OWN:
            lacks = f'there is no field "{name}" in {struct}'
        unknown[name, struct] = offset, name, lacks, known
    return sorted(unknown.values(), key=lambda row: row[0])


def fields_read(tree: Tree, about: Collection[str]) -> dict[Path, str]:
    """The variables that an expression reads as a whole, and fields below, with their types."""
    return {path: min(types) for types, path in reversed(_Walk(tree, about).read) if path}


def literals(tree: Tree) -> list[str | int]:
    """The texts and numbers in the expression, but for those that are keys."""
    return list(dict.fromkeys(_Walk(tree, _KINDS).literals))


class _Walk:
    """One walk over the tree; `absent` has the fields that nothing has."""

    def __init__(self, tree: Tree, about: Collection[str]) -> None:
        self.absent: list[tuple[str, str, Collection[str]]] = []
        self.read: list[_Value] = []
        self.literals: list[str | int] = []
        types = {
            **dict.fromkeys(("object", "oldObject"), frozenset(_KINDS[kind] for kind in about)),
            "request": frozenset(("AdmissionRequest",)),
            "namespaceObject": frozenset(("Namespace",)),
            "priorityClass": frozenset(("PriorityClassVariable",)),
        }
        self._whole(tree, {name: _Value(known, (name,)) for name, known in types.items()})

    def _whole(self, tree: Tree, scope: Scope) -> _Value:
        """The value of a tree of which no single field is read."""
        value = self._value(tree, scope)
        self.read.append(value)
        return value

    def _value(self, tree: Tree, scope: Scope) -> _Value:
        """What the tree's value may be."""
        match tree:
            case Constant(literal) if isinstance(literal, str) or type(literal) is int:
                self.literals.append(literal)
            case Identifier(name):
                return scope.get(name, _Value())
            case Select(operand, field, is_test):
                value = self._field(self._value(operand, scope), field)
                if not is_test:
                    return value
                # Neither is ever absent, so that somebody asks for them tells nothing
                if field not in ("annotations", "labels"):
                    self.read.append(value)
            case FunctionCall(name, (operand, Constant(str(field)))) if name in _INDEXES:
                return self._field(self._value(operand, scope), field)
            case FunctionCall("@in", (Constant(str(field)), container)):
                value = self._value(container, scope)
                if any(type_.startswith("{") for type_ in value.types):
                    return self._field(value, field)
                self.literals.append(field)
                if not any(type_.startswith("[") for type_ in value.types):
                    self.read.append(value)
                return _elements(value)
            case FunctionCall(name, parts):
                return self._call(name, parts, scope)
            case Comprehension():
                return self._comprehension(tree, scope)
        return _Value()

    def _call(self, name: str, parts: tuple[Tree, ...], scope: Scope) -> _Value:
        """What a function gives: what it takes out of an optional; else nobody knows."""
        if name in _UNWRAPPING and parts:
            values = [self._value(parts[0], scope), *(self._whole(part, scope) for part in parts[1:])]
        elif name in _COMPARING and _NULL in parts:
            # Of a variable that is compared with null nothing is read
            others = [part for part in parts if not isinstance(part, Identifier)]
            values = [self._whole(part, scope) for part in others]
        else:
            values = [self._whole(part, scope) for part in parts]
        if name in _INDEXES:
            return _elements(values[0])
        return values[0] if name in _UNWRAPPING and values else _Value()

    def _field(self, value: _Value, field: str) -> _Value:
        """A field of a value. It is noted if it is sure that nothing has it."""
        structs, path = _data().structs, (*value.path, field) if value.path else ()
        types: set[str] = set()
        for type_ in value.types:
            if type_ in structs and field in structs[type_]:
                types.add(structs[type_][field])
            elif type_.startswith("{"):
                types.add(type_[1:-1])
            elif type_ not in structs:
                return _Value(path=path)
        if value.types and not types:
            known = set[str]().union(*(structs[type_] for type_ in value.types))
            self.absent.append((field, min(value.types), known))
        return _Value(frozenset(types) or _ANYTHING, path)

    def _comprehension(self, loop: Comprehension, scope: Scope) -> _Value:
        """A macro: its variable is an element of the range; that of `cel.bind` is empty."""
        range_ = self._whole(loop.range, scope)
        init = self._value(loop.init, scope)
        bound = loop.range == EMPTY
        inner = {**scope, loop.variable: _elements(range_), loop.accumulator: init if bound else _Value()}
        for part in () if bound else (loop.condition, loop.step):
            self._whole(part, inner)
        return self._value(loop.result, inner)


def _elements(value: _Value) -> _Value:
    """What a loop over it runs through: elements of lists; keys of maps are texts."""
    if not all(type_.startswith("[") for type_ in value.types):
        return _Value()
    types = frozenset(type_[1:-1] for type_ in value.types)
    return _Value(types, (*value.path, ELEMENT) if value.path else ())
