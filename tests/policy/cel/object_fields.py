"""`python -m tests.policy.cel.object_fields`: the fields of pods and PriorityClasses, for `object_fields.json`.

A field is `string`, `integer`, `boolean` or `quantity` for a single value, the name of a struct, `[X]` for a list and
`{X}` for a map of it, `*` for anything.
"""

import sys
from importlib.metadata import version

import msgspec

from webhook.clusters.embedded.object_types.schemas import Schema, of_model

_SINGLE = {"any": "*", "intstr": "*", "int64": "integer", "number": "integer", "bytes": "string", "time": "string"}


def document() -> str:
    """The file as it must be."""
    structs: dict[str, dict[str, str]] = {}
    for root in ("V1Pod", "V1PriorityClass"):
        _add(of_model(root), structs)
    release = f"1.{version('kubernetes').partition('.')[0]}"
    body = msgspec.json.encode({"release": release, "structs": dict(sorted(structs.items()))})
    return msgspec.json.format(body, indent=1).decode() + "\n"


def _add(schema: Schema, structs: dict[str, dict[str, str]]) -> None:
    name = _name(schema)
    if name in structs:
        return
    structs[name] = {}
    for field, shape in sorted(schema.fields.items()):
        structs[name][field] = _type(shape)
        while shape.item is not None:
            shape = shape.item  # noqa: PLW2901 - what a list of lists holds
        if shape.kind == "struct":
            _add(shape, structs)


def _type(shape: Schema) -> str:
    match shape.kind:
        case "struct":
            return _name(shape)
        case "list":
            return f"[{_type(shape.item)}]"
        case "map":
            return f"{{{_type(shape.item)}}}"
    return _SINGLE.get(shape.kind, shape.kind)


def _name(schema: Schema) -> str:
    return schema.model.removeprefix("V1")


if __name__ == "__main__":
    sys.stdout.write(document())
