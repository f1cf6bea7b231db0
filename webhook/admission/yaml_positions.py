"""Where a field stands in a YAML file that was read as plain data; worked out only if something is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

Path = Sequence[str | int]
_STEP = re.compile(r"\.([^.\[\]`]+)|\[(\d+)\]")


def path_of(error: str) -> list[str | int]:
    """The path that an error of msgspec names, such as `$.spec.cases[0]`; with the unknown field, if it is one."""
    where = re.search(r"`\$([^`]*)`$", error)
    path: list[str | int] = [name or int(number) for name, number in _STEP.findall(where[1] if where else "")]
    unknown = re.match(r"Object contains unknown field `([^`]+)`", error)
    return [*path, unknown[1]] if unknown else path


def place_of(content: bytes, document: int, path: Path) -> tuple[int, int]:
    """Line and column, from 1, of what stands at a path in a document, from 0; of the nearest part that is there."""
    try:
        nodes = list(YAML(typ="safe", pure=True).compose_all(content))
    except YAMLError:
        return 1, 1
    node: Any = nodes[document] if document < len(nodes) else None
    mark = getattr(node, "start_mark", None)
    for step in path:
        children = getattr(node, "value", None)
        if isinstance(step, int) and isinstance(children, list) and step < len(children):
            node = children[step]
            mark = node.start_mark
            continue
        pairs = [pair for pair in children or () if isinstance(pair, tuple) and pair[0].value == step]
        if not pairs:
            break
        key, node = pairs[0]
        mark = key.start_mark
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
