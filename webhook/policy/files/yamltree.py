"""YAML text to trees of nodes that know where they stand.

Built from the parser's events without recursion and without making objects of unknown types, so that size, depth,
aliases and tags are bounded before anything is read into them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from webhook.policy.files.yaml_messages import problem_of
from webhook.policy.shapes.yaml_nodes import YamlMap, YamlNode, YamlScalar, YamlSequence

LARGEST_FILE = 128 * 1024
"""Bytes of one policy file."""
LARGEST_SET = 1024 * 1024
"""Bytes of all policy files of a set, their names included: what is in force is kept in one ConfigMap."""
MOST_FILES = 1000
"""Policy files of a set."""
MOST_NODES = 10_000
"""Nodes of one policy file, aliases counted once."""
MOST_DOCUMENTS = 1000
"""Documents of one policy file."""
DEEPEST = 32
"""Levels of lists and mappings."""
MOST_ALIASES = 200
"""Aliases of one policy file."""

_STRING_TAG = "tag:yaml.org,2002:str"
_KNOWN_TAGS = frozenset({None, "!", _STRING_TAG, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})


class YamlError(Exception):
    """Text that is not the YAML of a policy file: `(line, column)` from 1, and why."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(message)
        self.line, self.column, self.message = line, column, message


def documents(text: str) -> Iterator[YamlNode]:
    """The documents of a text, those before a mistake included. Raises YamlError at the first one."""
    builder = _Builder()
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            root = builder.take(event)
            if root is not None:
                yield root
    except MarkedYAMLError as error:
        raise YamlError(*problem_of(error)) from error
    except YAMLError as error:  # from the reader, which knows no marks
        before = text[: getattr(error, "position", 0) or 0]
        character = re.search(r"#x[0-9a-fA-F]+", str(error))
        problem = f"control character {character[0] if character else ''} in the text; take it out"
        raise YamlError(before.count("\n") + 1, len(before) - before.rfind("\n"), problem) from error


class _Builder:
    """Turns events into nodes, one document after the other."""

    def __init__(self) -> None:
        self._stack: list[YamlSequence | YamlMap] = []
        self._keys: list[YamlNode | None] = []
        self._open_anchors: list[str | None] = []
        self._anchors: dict[str, YamlNode] = {}
        self._nodes = self._aliases = self._documents = 0

    def take(self, event: Any) -> YamlNode | None:
        """Add one event; returns the root of a document that is complete."""
        match type(event).__name__:
            case "DocumentStartEvent":
                self._anchors = {}
                self._documents += 1
                if self._documents > MOST_DOCUMENTS:
                    raise YamlError(
                        event.start_mark.line + 1, 1, f"more than {MOST_DOCUMENTS} documents; split the file"
                    )
                if event.version or event.tags:
                    raise YamlError(
                        event.start_mark.line,
                        1,
                        "directives are not read, policy files are YAML 1.2; leave this line out",
                    )
            case "ScalarEvent":
                plain = event.style in (None, "") and _tag(event) != _STRING_TAG
                scalar = YamlScalar(*self._place(event), event.value, plain, event.style or "")
                if event.anchor:
                    self._anchors[event.anchor] = scalar
                return self._attach(scalar)
            case "AliasEvent":
                line, column, _ = self._place(event)
                self._aliases += 1
                if self._aliases > MOST_ALIASES:
                    raise YamlError(line, column, f"more than {MOST_ALIASES} aliases; write the values out")
                if event.anchor not in self._anchors:
                    text = f"alias *{event.anchor} refers to no anchor &{event.anchor} above it; write the value out"
                    raise YamlError(line, column, text)
                return self._attach(self._anchors[event.anchor])
            case "SequenceStartEvent":
                self._open(YamlSequence(*self._place(event)), event)
            case "MappingStartEvent":
                self._open(YamlMap(*self._place(event)), event)
            case "SequenceEndEvent" | "MappingEndEvent":
                return self._close(event)
        return None

    def _place(self, event: Any) -> tuple[int, int, int]:
        start, end = event.start_mark, event.end_mark
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise YamlError(start.line + 1, start.column + 1, f"more than {MOST_NODES} values in one file; split it")
        if _tag(event) not in _KNOWN_TAGS:
            raise YamlError(
                start.line + 1, start.column + 1, f"tags such as {str(_tag(event))[:40]} are not read; leave it out"
            )
        return start.line + 1, start.column + 1, end.column - start.column if end.line == start.line else 1

    def _open(self, node: YamlSequence | YamlMap, event: Any) -> None:
        if len(self._stack) >= DEEPEST:
            raise YamlError(node.line, node.column, f"nested more than {DEEPEST} levels deep; no policy needs that")
        self._stack.append(node)
        self._keys.append(None)
        self._open_anchors.append(event.anchor)

    def _close(self, event: Any) -> YamlNode | None:
        """Finish a list or mapping; only now may an alias mean it, so that nothing holds itself."""
        node, anchor = self._stack.pop(), self._open_anchors.pop()
        if event.end_mark.line + 1 == node.line:
            node.width = event.end_mark.column + 1 - node.column
        self._keys.pop()
        if anchor:
            self._anchors[anchor] = node
        return self._attach(node)

    def _attach(self, node: YamlNode) -> YamlNode | None:
        if not self._stack:
            return node
        parent = self._stack[-1]
        if isinstance(parent, YamlSequence):
            parent.items.append(node)
            return None
        key, self._keys[-1] = self._keys[-1], None
        if key is None:
            self._keys[-1] = node
        else:
            parent.pairs.append((key, node))
        return None


def _tag(event: Any) -> str | None:
    tag = getattr(event, "tag", None)
    return None if tag is None else str(tag)
