"""Mappings with known fields, told by one table that both the loader and the JSON schema read.

What holds if a field is absent is the default of the model's own field, so it stands in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from webhook.policy.files.findings import nearest
from webhook.policy.files.reader import Reader
from webhook.policy.files.scalars import duration, yaml11
from webhook.policy.files.shapes import INVALID, Definitions, Duration, Shape, kind
from webhook.policy.files.yamltree import YamlMap, YamlNode, YamlScalar
from webhook.policy.model import SourcePosition

__all__ = ["Build", "Field", "ObjectShape", "Values"]

Values = dict[str, Any]
"""What a mapping's fields hold, by the names of the model, absent ones left out."""

Build = Callable[[Values, SourcePosition], Any]


@dataclass(frozen=True)
class Field:
    """One field: its name in YAML, its name in the model, its shape, and what it is for."""

    name: str
    attribute: str
    shape: Shape
    doc: str
    required: bool = False


@dataclass(frozen=True)
class ObjectShape:
    """A mapping with known fields. `one_of` names fields of which exactly one must be there.

    The fields are those of `model`, which is made of their values unless `build` makes something else. `check` sees
    the values and the node of each field, and notes what is wrong between them.
    """

    title: str
    doc: str
    fields: tuple[Field, ...]
    model: type[msgspec.Struct] | None = None
    build: Build | None = None
    one_of: tuple[str, ...] = ()
    check: Callable[[Values, dict[str, YamlNode], Reader], None] | None = None

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
        complete = self._complete(node, keys, reader)
        if self.check is not None:
            self.check(
                values, {field.attribute: keys[field.name][1] for field in self.fields if field.name in keys}, reader
            )
        required = all(field.attribute in values for field in self.fields if field.required)
        return self.made(values, reader.source(node)) if complete and required else INVALID

    def made(self, values: Values, source: SourcePosition) -> Any:
        """What the file says in this mapping, which stands at `source`."""
        if self.build is not None:
            return self.build(values, source)
        assert self.model is not None
        place = {"source": source} if "source" in self.model.__struct_fields__ else {}
        return self.model(**values, **place)

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """A reference to the record's own definition."""
        name = "".join(word[:1].upper() + word[1:] for word in self.title.split())
        if name not in definitions:
            definitions[name] = {}
            definitions[name].update(self._definition(definitions))
        return {"$ref": f"#/definitions/{name}"}

    def _definition(self, definitions: Definitions) -> dict[str, Any]:
        """The JSON schema of the mapping itself, which `schema` refers to."""
        known = {one.name: one.default for one in msgspec.structs.fields(self.model)} if self.model else {}
        properties = {field.name: _described(field, known.get(field.attribute), definitions) for field in self.fields}
        shape: dict[str, Any] = {
            "description": self.doc,
            "type": "object",
            "additionalProperties": False,
            "properties": properties,
        }
        required = [field.name for field in self.fields if field.required]
        if required:
            shape["required"] = required
        if self.one_of:
            shape["oneOf"] = [{"required": [name]} for name in self.one_of]
        return shape

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
            else:
                reader.error(key, self._unknown(key, names))
        return keys

    def _unknown(self, key: YamlScalar, names: list[str]) -> str:
        if key.text == "<<":
            return "merge keys (<<) are not read; write the fields out"
        other = yaml11(key)
        also = f" (and YAML 1.1 readers take {key.text} for {other})" if other else ""
        return f'unknown field "{key.text[:80]}" in {self.title}{also}{nearest(key.text, names)}'

    def _complete(self, node: YamlMap, keys: dict[str, tuple[YamlNode, YamlNode]], reader: Reader) -> bool:
        """Note what is missing or there twice; whether exactly one of `one_of` is there."""
        for field in self.fields:
            if field.required and field.name not in keys:
                reader.error(node, f'{self.title} needs "{field.name}": {field.doc}')
        there = [name for name in self.one_of if name in keys]
        if self.one_of and not there:
            reader.error(node, f"{self.title} says nothing; it needs one of {', '.join(self.one_of)}")
        for name in there[1:]:
            reader.error(keys[name][0], f'{self.title} has both "{there[0]}" and "{name}"; make two of it')
        return not self.one_of or len(there) == 1


def _absent(value: YamlNode) -> bool:
    return isinstance(value, YamlScalar) and value.plain and not value.text


def _described(field: Field, default: Any, definitions: Definitions) -> dict[str, Any]:
    """The field's shape with its description; beside a `$ref` draft 7 ignores it, so that goes into `allOf`."""
    shape = field.shape.schema(definitions)
    described: dict[str, Any] = {"allOf": [shape]} if "$ref" in shape else dict(shape)
    described["description"] = field.doc
    if "markdownDescription" in described:
        described["markdownDescription"] = f"{field.doc}\n\n{described['markdownDescription']}"
    if default not in (None, msgspec.NODEFAULT, (), "") and not isinstance(default, msgspec.Struct):
        value = list(default) if isinstance(default, tuple) else msgspec.to_builtins(default)
        described["default"] = duration(default) if isinstance(field.shape, Duration) else value
    return described
