"""The kinds of documents that a policy file may hold, their JSON schema (draft 7), and that as a page for people."""

import json
from typing import Annotated, Any

import msgspec

from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.values import Name
from webhook.policy.shapes.object_shape import ObjectShape, Property, Values, mapping, shape_of
from webhook.policy.shapes.shapes import ListOf, MapOf, Scalar, Shape, one_of, string
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
        known = msgspec.structs.asdict(values["spec"])
        return type(values["spec"])(**known | {"name": values["metadata"].name, "source": source})

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
    """The JSON schema (draft 7) of a shape; those of mappings go to the `definitions`."""
    match shape:
        case Scalar():
            return dict(shape.json_schema)
        case ListOf():
            item, least = described(shape.of, definitions), {"minItems": shape.least} if shape.least else {}
            several = {"type": "array", "items": item} | least
            return {"anyOf": [item, several]} if shape.or_one else several
        case MapOf():
            return {"type": "object", "additionalProperties": described(shape.of, definitions)}
        case ObjectShape():
            name = _name(shape)
            if name not in definitions:
                made = definitions[name] = {"description": shape.doc, "type": "object", "additionalProperties": False}
                properties = made["properties"] = {}
                for field in shape.fields:
                    # Beside a `$ref` draft 7 ignores a description, so that goes into `allOf`
                    schema, default = described(field.shape, definitions), _default(field)
                    row = properties[field.name] = {"allOf": [schema]} if "$ref" in schema else schema
                    row["description"] = field.doc
                    if "markdownDescription" in row:
                        row["markdownDescription"] = f"{field.doc}\n\n{row['markdownDescription']}"
                    row |= {} if default is None else {"default": default}
                required = [field.name for field in shape.fields if field.required]
                made |= {"required": required} if required else {}
                made |= {"oneOf": [{"required": [name]} for name in shape.alternatives]} if shape.alternatives else {}
            return {"$ref": f"#/definitions/{name}"}
    raise TypeError(f"{shape} is no shape")


def _name(shape: ObjectShape) -> str:
    """The name by which a mapping is referred to."""
    return "".join(word[:1].upper() + word[1:] for word in shape.title.split())


def _default(field: Property) -> Any:
    """What holds if the field is absent, as written; None if nothing does."""
    if field.default in (None, msgspec.NODEFAULT, (), "") or isinstance(field.default, msgspec.Struct):
        return None
    return field.shape.shown(field.default) if isinstance(field.shape, Scalar) else list(field.default)


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
whole seconds. In names, `*` stands for any run of characters if the column *value* says so.
"""


def markdown() -> str:
    """The page: the kinds first, then what they use, in order of use."""
    page, shapes = _HEAD, list(DOCUMENTS.values())
    for shape in shapes:
        page += f"\n## {_name(shape)}\n\n{shape.doc}\n\n"
        page += "| field | value | when absent | what it is |\n|---|---|---|---|\n"
        for field in shape.fields:
            used = field.shape.of if isinstance(field.shape, ListOf) else field.shape
            if isinstance(used, ObjectShape) and used not in shapes:
                shapes.append(used)
            label = f"**`{field.name}`**" if field.required else f"`{field.name}`"
            default = _default(field)
            shown = f"`{json.dumps(default).strip(chr(34))}`" if default is not None else ""
            page += f"| {label} | {_value(field.shape)} | {shown} | {field.doc} |\n"
    return page


def _value(shape: Shape) -> str:
    """What may stand in a field, in a few words, with links to the tables of mappings."""
    match shape:
        case Scalar(what, {"enum": options}):
            return ", ".join(f"`{option}`" for option in options)
        case Scalar(what, {"type": "integer", "minimum": least, "maximum": most}):
            return f"{what}, {least} to {most}"
        case Scalar(what):
            return what
        case ListOf():
            return f"{_value(shape.of)} or a list of such" if shape.or_one else f"list: {_value(shape.of)}"
        case MapOf():
            return f"mapping to {_value(shape.of)}"
        case ObjectShape():
            return f"[{_name(shape)}](#{_name(shape).lower()})"
    raise TypeError(f"{shape} is no shape")
