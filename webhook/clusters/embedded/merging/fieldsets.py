"""Sets of fields as managedFields write them, and what differs between two objects (structured-merge-diff).

A path is a tuple of elements: `f:NAME`, `k:{"KEY":VALUE}` for an item of a list that is a map, `v:VALUE` for one of
a set. A set of paths is a frozenset of such tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from webhook.clusters.embedded.object_types.schemas import Schema
from webhook.clusters.embedded.protocol.api_resources import Object

Path = tuple[str, ...]
Paths = frozenset[Path]

_DEFAULT_KEYS = {"protocol": "TCP"}
"""What a key of a list's items is where it is not given."""

_json = msgspec.json.Encoder(order="sorted").encode


def encode(paths: Iterable[Path]) -> Object:
    """A set as FieldsV1."""
    root: Object = {}
    for path in sorted(paths):  # so that a path comes before what is below it
        node = root
        for element in path[:-1]:
            below = node.get(element)
            if below is None:
                below = node[element] = {}
            elif not below:
                below["."] = {}  # it is in the set itself
            node = below
        node[path[-1]] = {}
    return root


def decode(fields: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of FieldsV1, without what is none."""
    for element, below in fields.items() if isinstance(fields, dict) else ():
        if element == ".":
            yield path
        elif not below:
            yield (*path, element)
        else:
            yield from decode(below, (*path, element))


def shown(path: Path) -> str:
    """A path as conflicts name it: `.spec.containers[name="c"].image`."""
    return "".join(f".{element[2:]}" if element[0] == "f" else f"[{_item(element)}]" for element in path)


def _item(element: str) -> str:
    """An item of a list as conflicts name it: by its keys, or by itself."""
    value = msgspec.json.decode(element[2:])
    if element[0] == "v":
        return f"={element[2:]}"
    return ",".join(f"{key}={_json(part).decode()}" for key, part in value.items())


def child(schema: Schema | None, key: str) -> Schema | None:
    """The schema of a struct's field or a map's value."""
    if schema is None:
        return None
    return schema.fields.get(key) if schema.kind == "struct" else schema.item


def items_of(schema: Schema | None, value: Any) -> dict[str, tuple[Schema | None, Any]] | None:
    """What a value consists of, by path element; None for a leaf: a scalar, or what is replaced as a whole."""
    if isinstance(value, dict):
        if schema is None or schema.atomic or schema.kind not in ("struct", "map"):
            return None
        if schema.kind == "map":
            return {f"f:{key}": (schema.item, part) for key, part in value.items()}
        fields = schema.fields
        return {f"f:{key}": (fields.get(key), part) for key, part in value.items()}
    if isinstance(value, list) and schema is not None and schema.kind == "list":
        if schema.lists.keys:
            rows = {}
            for item in value:
                if isinstance(item, dict):
                    keys = {key: item.get(key, _DEFAULT_KEYS.get(key)) for key in schema.lists.keys}
                    given = {key: value for key, value in keys.items() if value is not None}
                    rows[f"k:{_json(given).decode()}"] = (schema.item, item)
            return rows
        if schema.lists.is_set:
            return {f"v:{_json(item).decode()}": (None, item) for item in value}
    return None


def applied(schema: Schema | None, value: Any, path: Path = ()) -> set[Path]:
    """The fields that a configuration names."""
    items = items_of(schema, value)
    if items is None:
        return {path}
    paths: set[Path] = set()
    named = schema is not None and schema.kind == "struct"
    for element, (below, part) in items.items():
        at = (*path, element)
        paths |= applied(below, part, at)
        if not named or part is None or part == {}:
            paths.add(at)
    return paths


def differences(schema: Schema | None, old: Any, new: Any) -> tuple[set[Path], set[Path]]:
    """Paths that `new` adds or changes, and paths that it removes with all that is below them."""
    changed: set[Path] = set()
    removed: set[Path] = set()

    def differ(schema: Schema | None, old: Any, new: Any, path: Path) -> None:
        """Add the paths at and below `path` at which the two values differ."""
        before, after = items_of(schema, old), items_of(schema, new)
        if after is None or (old is not None and before is None) or not (before or after):
            changed.add(path)
            return
        before = before or {}
        for element, (below, now) in after.items():
            was = before[element][1] if element in before else None
            at = (*path, element)
            if element not in before:
                changed.add(at)
            if was != now and isinstance(now, (dict, list)):
                differ(below, was, now, at)
            elif was != now:
                changed.add(at)
        removed.update((*path, element) for element in before if element not in after)

    if old != new:
        differ(schema, old, new, ())
    return changed, removed
