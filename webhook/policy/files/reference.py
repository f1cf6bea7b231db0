"""The JSON schema of policy files as a page for people: one table for each kind of mapping. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["markdown"]

_HEAD = """# Policy reference

Every field of a policy file. `giveway schema --format markdown` prints this page from the same table that the loader
reads by; a test holds it up to date. What the fields are for, with examples, is in [policies.md](policies.md).

`apiVersion` is `giveway.dev/v1alpha1`. A field in **bold** is required. Durations are `30s`, `1h`, `1h30m`, `500ms` or
whole seconds. In names, `*` stands for any run of characters if the column *value* says "name or glob".
"""
_DURATION = "ms)?"
_GLOB = ".*]"

Schema = Mapping[str, Any]


def markdown(schema: Schema) -> str:
    """The page for a schema as `json_schema` makes it: the kinds first, then what they use, in order of use."""
    definitions = schema["definitions"]
    names = list(schema["properties"]["kind"]["enum"])
    for name in names:
        names.extend(used for used in _used(definitions[name]) if used not in names)
    return _HEAD + "".join(_section(name, definitions[name]) for name in names)


def _section(name: str, definition: Schema) -> str:
    required = definition.get("required", ())
    rows = []
    for field, shape in definition.get("properties", {}).items():
        label = f"**`{field}`**" if field in required else f"`{field}`"
        default = f"`{json.dumps(shape['default']).strip(chr(34))}`" if "default" in shape else ""
        text = shape.get("description", "").replace("|", "\\|").replace("\n", " ")
        rows.append(f"| {label} | {_value(shape)} | {default} | {text} |\n")
    table = "| field | value | when absent | what it is |\n|---|---|---|---|\n" + "".join(rows) if rows else ""
    return f"\n## {name}\n\n{definition.get('description', '')}\n\n{table}"


def _value(shape: Schema) -> str:
    """What may stand in a field, in a few words, with links to the tables of mappings."""
    if "$ref" in shape:
        name = shape["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "allOf" in shape:
        return _value(shape["allOf"][0])
    if "anyOf" in shape:
        kinds = [_value(one) for one in shape["anyOf"]]
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


def _used(node: Any) -> Iterator[str]:
    """The names of the definitions that a schema refers to, in order."""
    if isinstance(node, Mapping):
        if "$ref" in node:
            yield node["$ref"].rsplit("/", 1)[1]
        for value in node.values():
            yield from _used(value)
    elif isinstance(node, list):
        for value in node:
            yield from _used(value)
