"""Mappings with known fields, read off the structs of the model: both the loader and the JSON schema come from them.

A struct with `@mapping` is a mapping of the policy files, and each field whose annotation has a text is one of its
fields. Its shape follows from the type, unless the annotation names one:

    @mapping("rate")
    class Rate(msgspec.Struct, frozen=True):
        "At most so many evictions within a window."

        evictions: Annotated[int, integer("a number of evictions", 1, 1000), "How many."]
        window: Annotated[Duration, "Within which time."] = 60.0
        schedule: Annotated[Schedule | None, "When it holds; always if absent."] = None

A field without a default is required. What must hold between the fields says a static method of the struct,
`check(values, nodes, reader)`. Those that were found wrong by themselves are not among the values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import msgspec

from webhook.policy.shapes.findings import INVALID, Reader
from webhook.policy.shapes.shapes import BOOLEAN, ListOf, Shape, one_of
from webhook.policy.shapes.yaml_nodes import SourcePosition, YamlMap, YamlNode, YamlScalar, kind

Values = dict[str, Any]
"""What a mapping's fields hold, by the names of the model, absent ones left out."""

Nodes = dict[str, YamlNode]
"""Where a mapping's fields stand, by the names of the model, absent ones left out."""

Build = Callable[[Values, SourcePosition], Any]

Model = TypeVar("Model", bound=msgspec.Struct)

FILLED: Final = object()
"""In the annotation of a list: it has an entry at least."""
REQUIRED: Final = object()
"""In the annotation of a field with a default: it must be there all the same."""
MAY_BE_ABSENT: Final = object()
"""In the annotation of a field without a default: whoever makes the struct knows one."""

_SHAPES: dict[Any, Shape] = {bool: BOOLEAN}


class Choice(StrEnum):
    """An enumeration as the values of a field, whose members say what they mean.

    class BudgetMode(Choice, what="a way with budgets"):
        STRICT = "strict", "a used-up budget excludes the pod"
    """

    _value_: str
    meaning: str

    def __new__(cls, value: str, meaning: str) -> "Choice":  # noqa: PYI034 - what follows is of this class
        """A member."""
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    def __init_subclass__(cls, what: str) -> None:
        """The shape of the enumeration."""
        _SHAPES[cls] = one_of(what, {member.value: member.meaning for member in cls}, cls)


@dataclass(frozen=True)
class Property:
    """One field of a mapping: its name in YAML, its name and default in the model, its shape, and what it is for."""

    name: str
    attribute: str
    shape: Shape
    doc: str
    required: bool = False
    default: Any = None


@dataclass(frozen=True)
class ObjectShape:
    """A mapping with known fields. Exactly one of the `alternatives`, which are names of fields, must be there.

    The fields are those of `model`, if it is that of a struct. `build` makes what is read of their values.
    """

    title: str
    doc: str
    fields: tuple[Property, ...]
    build: Build | None
    alternatives: tuple[str, ...] = ()
    model: type[msgspec.Struct] | None = None

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """What is made of the fields; INVALID if that is impossible."""
        if not isinstance(node, YamlMap):
            return reader.error(node, f"expected {self.title} (a mapping), found {kind(node)}")
        keys = self._keys(node, reader)
        values: Values = {}
        nodes = {field.attribute: keys[field.name][1] for field in self.fields if field.name in keys}
        for field in self.fields:
            if field.attribute not in nodes:
                if field.required:
                    reader.error(node, f'{self.title} needs "{field.name}": {field.doc}')
            elif not _absent(nodes[field.attribute]):
                value = field.shape.read(nodes[field.attribute], reader)
                if value is not INVALID:
                    values[field.attribute] = value
        errors = reader.errors
        there = [name for name in self.alternatives if name in keys]
        if self.alternatives and not there:
            reader.error(node, f"{self.title} says nothing; it needs one of {', '.join(self.alternatives)}")
        for name in there[1:]:
            reader.error(keys[name][0], f'{self.title} has both "{there[0]}" and "{name}"; make two of it')
        if check := getattr(self.model, "check", None):
            check(values, nodes, reader)
        complete = all(field.attribute in values for field in self.fields if field.required)
        if not complete or reader.errors != errors:
            return INVALID
        source = reader.source(node)
        if self.build is not None:
            return self.build(values, source)
        assert self.model is not None
        place = {"source": source} if "source" in self.model.__struct_fields__ else {}
        return self.model(**values, **place)

    def _keys(self, node: YamlMap, reader: Reader) -> dict[str, tuple[YamlNode, YamlNode]]:
        """The known fields that are there; the first of two of one name counts."""
        names = [field.name for field in self.fields]
        keys: dict[str, tuple[YamlNode, YamlNode]] = {}
        for key, value in node.pairs:
            if not isinstance(key, YamlScalar):
                reader.error(key, f"expected a field name, found {kind(key)}")
            elif key.text in keys:
                first = keys[key.text][0]
                reader.error(key, f'"{key.text}" is there twice; the first one is on line {first.line}')
            elif key.text in names:
                keys[key.text] = (key, value)
                if _absent(value):
                    reader.error(key, f'"{key.text}" has no value; give one, or leave the field out')
            elif key.text == "<<":
                reader.error(key, "merge keys (<<) are not read; write the fields out")
            else:
                other = key.yaml11
                also = f" (and YAML 1.1 readers take {key.text} for {other})" if other else ""
                near = reader.nearest(key.text, names)
                reader.error(key, f'unknown field "{key.text[:80]}" in {self.title}{also}{near}')
        return keys


def mapping(
    title: str, doc: str = "", *, build: Build | None = None, alternatives: bool = False
) -> Callable[[type[Model]], type[Model]]:
    """A struct as a mapping of policy files; `doc` is else its docstring's first line.

    With `alternatives`, exactly one of the fields that may be None must be there.
    """

    def derive(model: type[Model]) -> type[Model]:
        fields, others = [], []
        for field in msgspec.structs.fields(model):
            marks = getattr(field.type, "__metadata__", ())
            about = next((mark for mark in marks if isinstance(mark, str)), None)
            if about is not None:
                required = (field.required or REQUIRED in marks) and MAY_BE_ABSENT not in marks
                name, shape = yaml_name(field.name), _shape(field.type)
                fields.append(Property(name, field.name, shape, about, required, field.default))
                if alternatives and NoneType in get_args(field.type.__origin__):
                    others.append(name)
        text = doc or (model.__doc__ or "").partition("\n")[0]
        _SHAPES[model] = ObjectShape(title, text, tuple(fields), build, tuple(others), model)
        return model

    return derive


def shape_of(model: type) -> ObjectShape:
    """The mapping that a struct of the model is made of."""
    shape = _SHAPES[model]
    assert isinstance(shape, ObjectShape)
    return shape


def yaml_name(attribute: str) -> str:
    """The name in YAML of a field of the model: `per_owner` is perOwner, `from_` is from."""
    first, *rest = attribute.rstrip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


def _shape(hint: Any, marks: tuple[Any, ...] = ()) -> Shape:
    """The shape that an annotation names, else the one that its type says by itself."""
    if get_origin(hint) is Annotated:
        marks += hint.__metadata__
        named: list[Shape] = [mark for mark in marks if hasattr(mark, "read")]
        return named[0] if named else _shape(hint.__origin__, marks)
    if get_origin(hint) in (UnionType, Union):
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
        return _shape(hint, marks)
    if get_origin(hint) is tuple:
        return ListOf(_shape(get_args(hint)[0]), least=int(FILLED in marks))
    if hint not in _SHAPES:
        raise TypeError(f"{hint} does not say what may stand in the field: name a shape in its annotation")
    return _SHAPES[hint]


def _absent(value: YamlNode) -> bool:
    return isinstance(value, YamlScalar) and value.plain and not value.text
