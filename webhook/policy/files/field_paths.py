"""The fields at the places of a file: findings name `spec.rules[0].reserve` beside line and column.

A policy that came as an object has no lines that its author knows, and a generated file has none that matter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from webhook.policy.shapes.yaml_nodes import YamlMap, YamlNode, YamlScalar, YamlSequence

Place = tuple[int, int]
_LONGEST = 200
"""Characters of a path that is shown."""


class FieldPaths:
    """The fields of the documents of a file, by where they begin. What aliases repeat counts where it is written.

    Nothing is looked at until somebody asks, which is when the file has been read.
    """

    def __init__(self, roots: Sequence[YamlNode]) -> None:
        self._roots = roots
        self._paths: dict[Place, str] = {}
        self._of_nodes: dict[int, str] = {}
        self._places: list[Place] = []

    def _look(self) -> None:
        waiting = deque((root, "") for root in self._roots)
        while waiting:
            node, path = waiting.popleft()
            self._paths.setdefault((node.line, node.column), path)
            if id(node) in self._of_nodes:
                continue
            self._of_nodes[id(node)] = path
            if isinstance(node, YamlSequence):
                waiting += [(item, f"{path}[{number}]"[:_LONGEST]) for number, item in enumerate(node.items)]
            elif isinstance(node, YamlMap):
                for key, value in node.pairs:
                    name = key.text if isinstance(key, YamlScalar) else "?"
                    below = f"{path}.{name}" if path else name
                    self._of_nodes[id(key)] = below[:_LONGEST]
                    self._paths.setdefault((key.line, key.column), below[:_LONGEST])
                    waiting.append((value, below[:_LONGEST]))
        self._places = sorted(self._paths)

    def at(self, node: int, line: int, column: int) -> str:
        """The field of a node by its id, else the one at a place, or the nearest that begins before it; else empty.

        In a block a mapping begins where its first field does: a place is that of the mapping, so fields have ids.
        """
        if not self._places:
            self._look()
        if node in self._of_nodes:
            return self._of_nodes[node]
        number = bisect_right(self._places, (line, column))
        return self._paths[self._places[number - 1]] if number else ""
