"""The kinds of documents that a policy file may hold, their JSON schema (draft 7), and that as a page for people."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.values import Name
from webhook.policy.shapes.object_shape import ObjectShape, Property, Values, mapping, shape_of
from webhook.policy.shapes.shapes import ListOf, MapOf, OneOrMore, Scalar, Shape, one_of, string
from webhook.policy.shapes.yaml_nodes import SourcePosition

API_VERSION = "giveway.dev/v1alpha1"
TEST_KIND = "PolicyTest"
"""Documents of this kind are run by `giveway test` and lie in sub-folders, not beside the policies."""

Definitions = dict[str, dict[str, Any]]
"""The named parts of a schema."""
_MAP = dict[str, str]
_TEXTS = MapOf(string(), string())


@mapping("metadata")
class _Metadata(msgspec.Struct, frozen=True):
    """The policy's name; labels and annotations are for other tools."""

    name: Annotated[Name, "The policy's name in messages, logs, metrics and tests."]
    labels: Annotated[_MAP, _TEXTS, "For other tools."] = {}
    annotations: Annotated[_MAP, _TEXTS, "For other tools."] = {}


def _document(kind: str, doc: str, spec: ObjectShape) -> ObjectShape:
    """A kind of document: the envelope that all kinds share, around a spec."""

    def build(values: Values, source: SourcePosition) -> Any:
        return msgspec.structs.replace(values["spec"], name=values["metadata"].name, source=source)

    version = one_of("the API version", {API_VERSION: "the only one so far"})
    rows = (
        ("apiVersion", version, f"{API_VERSION}."),
        ("kind", one_of("this kind", {kind: doc}), f"{kind}."),
        ("metadata", shape_of(_Metadata), "The policy's name."),
        ("spec", spec, spec.doc),
    )
    fields = tuple(Property(name, name, shape, text, required=True) for name, shape, text in rows)
    return ObjectShape(kind, doc, fields, build)


DOCUMENTS = {
    "PriorityPolicy": _document("PriorityPolicy", "Who may run and define what priority.", shape_of(PriorityPolicy)),
    "PreemptionPolicy": _document(
        "PreemptionPolicy", "Which pods the reconciler preempts for, and whom it may evict.", shape_of(PreemptionPolicy)
    ),
}
"""Each kind with its fields."""


def described(shape: Shape, definitions: Definitions) -> dict[str, Any]:
    """The JSON schema (draft 7) of what a shape reads; those of mappings go to the `definitions` that it refers to."""
    match shape:
        case Scalar():
            return dict(shape.json_schema)
        case ListOf():
            least = {"minItems": shape.least} if shape.least else {}
            return {"type": "array", "items": described(shape.of, definitions)} | least
        case OneOrMore():
            item = described(shape.of, definitions)
            return {"anyOf": [item, {"type": "array", "items": item}]}
        case MapOf():
            return {"type": "object", "additionalProperties": described(shape.of, definitions)}
        case ObjectShape():
            name = "".join(word[:1].upper() + word[1:] for word in shape.title.split())
            if name not in definitions:
                made = definitions[name] = {"description": shape.doc, "type": "object", "additionalProperties": False}
                made["properties"] = {field.name: _property(field, definitions) for field in shape.fields}
                required = [field.name for field in shape.fields if field.required]
                made |= {"required": required} if required else {}
                made |= {"oneOf": [{"required": [name]} for name in shape.alternatives]} if shape.alternatives else {}
            return {"$ref": f"#/definitions/{name}"}
    raise TypeError(f"{shape} is no shape")


def _property(field: Property, definitions: Definitions) -> dict[str, Any]:
    """The field's shape with its description; beside a `$ref` draft 7 ignores it, so that goes into `allOf`."""
    schema, default = described(field.shape, definitions), field.default
    made: dict[str, Any] = {"allOf": [schema]} if "$ref" in schema else schema
    made["description"] = field.doc
    if "markdownDescription" in made:
        made["markdownDescription"] = f"{field.doc}\n\n{made['markdownDescription']}"
    if default not in (None, msgspec.NODEFAULT, (), "") and not isinstance(default, msgspec.Struct):
        made["default"] = field.shape.shown(default) if isinstance(field.shape, Scalar) else list(default)
    return made


def json_schema() -> dict[str, Any]:
    """One schema for every kind of document, chosen by `kind`; the same at every call."""
    definitions: Definitions = {}
    documents = {kind: described(record, definitions) for kind, record in DOCUMENTS.items()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://giveway.dev/schema/v1alpha1.json",
        "title": "giveway policy files",
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {"kind": {"enum": list(documents)}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}}, "then": reference}
            for kind, reference in documents.items()
        ],
        "definitions": dict(sorted(definitions.items())),
    }


_HEAD = """# Policy reference

Every field of a policy file. `giveway schema --format markdown` prints this page from the same table that the loader
reads by; a test holds it up to date. What the fields are for, with examples, is in [policies.md](policies.md).

`apiVersion` is `giveway.dev/v1alpha1`. A field in **bold** is required. Durations are `30s`, `1h`, `1h30m`, `500ms` or
whole seconds. In names, `*` stands for any run of characters if the column *value* says "name or glob".
"""
_REFERENCE = re.compile(r'"#/definitions/([^"]+)"')
_DURATION = "ms)?"
_GLOB = ".*]"

Schema = Mapping[str, Any]


def markdown(schema: Schema) -> str:
    """The page for a schema as `json_schema` makes it: the kinds first, then what they use, in order of use."""
    definitions = schema["definitions"]
    names = list(schema["properties"]["kind"]["enum"])
    for name in names:
        names.extend(used for used in _REFERENCE.findall(json.dumps(definitions[name])) if used not in names)
    page = _HEAD
    for name in names:
        definition = definitions[name]
        rows = []
        for field, shape in definition.get("properties", {}).items():
            label = f"**`{field}`**" if field in definition.get("required", ()) else f"`{field}`"
            default = f"`{json.dumps(shape['default']).strip(chr(34))}`" if "default" in shape else ""
            text = shape.get("description", "").replace("|", "\\|").replace("\n", " ")
            rows.append(f"| {label} | {_value(shape)} | {default} | {text} |\n")
        table = "| field | value | when absent | what it is |\n|---|---|---|---|\n" + "".join(rows) if rows else ""
        page += f"\n## {name}\n\n{definition.get('description', '')}\n\n{table}"
    return page


def _value(shape: Schema) -> str:
    """What may stand in a field, in a few words, with links to the tables of mappings."""
    if "$ref" in shape:
        name = shape["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "allOf" in shape:
        return _value(shape["allOf"][0])
    if "anyOf" in shape:
        kinds = [_value(part) for part in shape["anyOf"]]
        return "duration" if "duration" in kinds else " or ".join(kinds)
    if "enum" in shape or "const" in shape:
        return ", ".join(f"`{value}`" for value in shape.get("enum", [shape.get("const")]))
    if shape.get("type") == "array":
        return f"list of {_value(shape['items'])}"
    if shape.get("type") == "object":
        more = shape.get("additionalProperties")
        return f"mapping to {_value(more)}" if isinstance(more, Mapping) else "mapping"
    if shape.get("type") == "integer":
        bounds = [f"{word} {shape[key]}" for word, key in (("from", "minimum"), ("to", "maximum")) if key in shape]
        return " ".join(["whole number", *bounds])
    if shape.get("type") == "boolean":
        return "`true`, `false`"
    pattern = shape.get("pattern", "")
    return "duration" if _DURATION in pattern else "name or glob" if _GLOB in pattern else "text"
