"""Mappings with known fields, read off the structs of the model: both the loader and the JSON schema come from them.

A struct with `@mapping` is a mapping of the policy files, and each field annotated with `Field` is one of its fields:

    @mapping("rate")
    class Rate(msgspec.Struct, frozen=True):
        "At most so many evictions within a window."

        evictions: Annotated[int, Field("How many.", Whole("a number of evictions", 1, 1000))]
        window: Annotated[float, Field("Within which time.", Duration())] = 60.0

A field without a default is required. A field without `Field` does not stand in the file. What must hold between the
fields says `check`, if the struct is `Checked`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from webhook.policy.shapes.findings import Reader
from webhook.policy.shapes.shapes import INVALID, Definitions, Duration, Flag, ListOf, Shape
from webhook.policy.shapes.yaml_nodes import SourcePosition, YamlMap, YamlNode, YamlScalar, duration, kind, yaml11

Values = dict[str, Any]
"""What a mapping's fields hold, by the names of the model, absent ones left out."""

Nodes = dict[str, YamlNode]
"""Where a mapping's fields stand, by the names of the model, absent ones left out."""

Build = Callable[[Values, SourcePosition], Any]

Model = TypeVar("Model", bound=msgspec.Struct)


class Checked(msgspec.Struct, frozen=True):
    """A struct of the model between whose fields something must hold."""

    @staticmethod
    def check(values: Values, nodes: Nodes, reader: Reader) -> None:
        """Note what is wrong between the fields. Those that were found wrong by themselves are not among `values`."""


@dataclass(frozen=True)
class Field:
    """What the annotation of a field in the model says: what it is for, and what may stand in it.

    `shape` may be left out if the type says it: for a mapping of the model, a list of such, and true or false. `name`
    is the name in YAML if it is not the attribute in camel case. `required` is given if it does not follow from the
    default. Exactly one of the fields that are an `alternative` must be there.
    """

    doc: str
    shape: Shape | None = None
    name: str = ""
    required: bool | None = None
    alternative: bool = False


@dataclass(frozen=True)
class Property:
    """One field of a mapping: its name in YAML, its name and default in the model, its shape, and what it is for."""

    name: str
    attribute: str
    shape: Shape
    doc: str
    required: bool = False
    alternative: bool = False
    default: Any = None

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """The field's shape with its description; beside a `$ref` draft 7 ignores it, so that goes into `allOf`."""
        shape = self.shape.schema(definitions)
        described: dict[str, Any] = {"allOf": [shape]} if "$ref" in shape else dict(shape)
        described["description"] = self.doc
        if "markdownDescription" in described:
            described["markdownDescription"] = f"{self.doc}\n\n{described['markdownDescription']}"
        default = self.default
        if default not in (None, msgspec.NODEFAULT, (), "") and not isinstance(default, msgspec.Struct):
            value = list(default) if isinstance(default, tuple) else msgspec.to_builtins(default)
            described["default"] = duration(default) if isinstance(self.shape, Duration) else value
        return described


@dataclass(frozen=True)
class ObjectShape:
    """A mapping with known fields. Exactly one of those that are an `alternative` must be there, if there are any.

    The fields are those of `model`, which is made of their values unless `build` makes something else; without either
    the values are left as they are.
    """

    title: str
    doc: str
    fields: tuple[Property, ...]
    model: type[msgspec.Struct] | None = None
    build: Build | None = None

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """What is made of the fields; INVALID if that is impossible."""
        reader.count()
        if not isinstance(node, YamlMap):
            reader.error(node, f"expected {self.title} (a mapping), found {kind(node)}")
            return INVALID
        keys = self._keys(node, reader)
        values: Values = {}
        for field in self.fields:
            if field.name in keys and not _absent(keys[field.name][1]):
                value = field.shape.read(keys[field.name][1], reader)
                if value is not INVALID:
                    values[field.attribute] = value
        for field in self.fields:
            if field.required and field.name not in keys:
                reader.error(node, f'{self.title} needs "{field.name}": {field.doc}')
        alternatives = self.one_of
        there = [name for name in alternatives if name in keys]
        if alternatives and not there:
            reader.error(node, f"{self.title} says nothing; it needs one of {', '.join(alternatives)}")
        for name in there[1:]:
            reader.error(keys[name][0], f'{self.title} has both "{there[0]}" and "{name}"; make two of it')
        errors = reader.errors
        if self.model is not None and issubclass(self.model, Checked):
            nodes = {field.attribute: keys[field.name][1] for field in self.fields if field.name in keys}
            self.model.check(values, nodes, reader)
        required = all(field.attribute in values for field in self.fields if field.required)
        complete = not alternatives or len(there) == 1
        sound = reader.errors == errors
        return self.made(values, reader.source(node)) if complete and required and sound else INVALID

    @property
    def one_of(self) -> list[str]:
        """The names of the alternatives."""
        return [field.name for field in self.fields if field.alternative]

    def made(self, values: Values, source: SourcePosition) -> Any:
        """What the file says in this mapping, which stands at `source`."""
        if self.build is not None:
            return self.build(values, source)
        if self.model is None:
            return values
        place = {"source": source} if "source" in self.model.__struct_fields__ else {}
        return self.model(**values, **place)

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """A reference to the record's own definition."""
        name = "".join(word[:1].upper() + word[1:] for word in self.title.split())
        if name not in definitions:
            shape: dict[str, Any] = {"description": self.doc, "type": "object", "additionalProperties": False}
            definitions[name] = shape
            shape["properties"] = {field.name: field.schema(definitions) for field in self.fields}
            required = [field.name for field in self.fields if field.required]
            if required:
                shape["required"] = required
            if self.one_of:
                shape["oneOf"] = [{"required": [alternative]} for alternative in self.one_of]
        return {"$ref": f"#/definitions/{name}"}

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
            elif key.text in names and _absent(value):
                reader.error(key, f'"{key.text}" has no value; give one, or leave the field out')
                keys[key.text] = (key, value)
            elif key.text in names:
                keys[key.text] = (key, value)
            elif key.text == "<<":
                reader.error(key, "merge keys (<<) are not read; write the fields out")
            else:
                other = yaml11(key)
                also = f" (and YAML 1.1 readers take {key.text} for {other})" if other else ""
                near = reader.nearest(key.text, names)
                reader.error(key, f'unknown field "{key.text[:80]}" in {self.title}{also}{near}')
        return keys


def mapping(title: str, doc: str = "", *, build: Build | None = None) -> Callable[[type[Model]], type[Model]]:
    """A struct of the model as a mapping of the policy files. `doc` is the first line of its docstring if absent."""

    def derive(model: type[Model]) -> type[Model]:
        hints = get_type_hints(model, include_extras=True)
        fields = [
            Property(
                annotation.name or yaml_name(field.name),
                field.name,
                annotation.shape or _by_type(get_args(hints[field.name])[0]),
                annotation.doc,
                required=field.required if annotation.required is None else annotation.required,
                alternative=annotation.alternative,
                default=field.default,
            )
            for field in msgspec.structs.fields(model)
            for annotation in get_args(hints[field.name])[1:]
            if isinstance(annotation, Field)
        ]
        text = doc or (model.__doc__ or "").partition("\n")[0]
        _SHAPES[model] = ObjectShape(title, text, tuple(fields), model=model, build=build)
        return model

    return derive


_SHAPES: dict[type, ObjectShape] = {}


def shape_of(model: type) -> ObjectShape:
    """The mapping that a struct of the model is made of."""
    return _SHAPES[model]


def yaml_name(attribute: str) -> str:
    """The name in YAML of a field of the model: `per_owner` is perOwner, `from_` is from."""
    first, *rest = attribute.rstrip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


def _by_type(hint: Any) -> Shape:
    """The shape that a type says by itself: of a mapping of the model, a list of them, or true or false."""
    if isinstance(hint, UnionType):
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
    if hint is bool:
        return Flag()
    if get_origin(hint) is tuple:
        return ListOf(_by_type(get_args(hint)[0]))
    if hint not in _SHAPES:
        raise TypeError(f"{hint} does not say what may stand in the field: name a shape in its Field")
    return _SHAPES[hint]


def _absent(value: YamlNode) -> bool:
    return isinstance(value, YamlScalar) and value.plain and not value.text
