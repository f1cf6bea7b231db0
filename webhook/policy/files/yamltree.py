"""YAML text to trees of nodes that know where they stand.

Built from the parser's events without making objects of unknown types, so that size, depth, aliases and tags are
bounded before anything is read into them.
"""

import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

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
MOST_REPEATED = 60_000
"""Nodes of one policy file, with those that aliases repeat."""

_LONGEST_PATH = 200
_STRING_TAG = "tag:yaml.org,2002:str"
_KNOWN_TAGS = frozenset({"None", "!", _STRING_TAG, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})


class YamlError(Exception):
    """Text that is not the YAML of a policy file: `(line, column)` from 1, and why."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(message)
        self.line, self.column, self.message = line, column, message


def documents(text: str) -> Iterator[YamlNode]:
    """The documents of a text, those before a mistake included. Raises YamlError at the first one."""
    try:
        yield from _Composer(YAML(typ="safe", pure=True).parse(text)).documents()
    except MarkedYAMLError as error:
        raise YamlError(*problem_of(error)) from error
    except YAMLError as error:  # from the reader, which knows no marks
        before = text[: getattr(error, "position", 0) or 0]
        character = re.search(r"#x[0-9a-fA-F]+", str(error))
        problem = f"control character {character[0] if character else ''} in the text; take it out"
        raise YamlError(before.count("\n") + 1, len(before) - before.rfind("\n"), problem) from error


class _Composer:
    """Turns events into nodes, one document after the other."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, tuple[YamlNode, int]] = {}
        """What an anchor names, and how many nodes that are, with those that aliases repeat."""
        self._nodes = self._repeated = 0

    def documents(self) -> Iterator[YamlNode]:
        """The root of each document."""
        starts = (event for event in self._events if isinstance(event, DocumentStartEvent))
        for number, event in enumerate(starts):
            line = event.start_mark.line
            if number >= MOST_DOCUMENTS:
                raise YamlError(line + 1, 1, f"more than {MOST_DOCUMENTS} documents; split the file")
            if event.version or event.tags:
                raise YamlError(line, 1, "directives are not read, policy files are YAML 1.2; leave this line out")
            self._anchors = {}
            yield self._node(next(self._events), "", 0)

    def _node(self, event: Any, path: str, depth: int) -> YamlNode:
        """The node that begins with an event, of so many levels above it."""
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        tag = str(getattr(event, "tag", None))
        before = self._repeated
        self._nodes, self._repeated = self._nodes + 1, before + 1
        if self._nodes > MOST_NODES:
            raise YamlError(line, column, f"more than {MOST_NODES} values in one file; split it")
        if tag not in _KNOWN_TAGS:
            raise YamlError(line, column, f"tags such as {tag[:40]} are not read; leave it out")
        if isinstance(event, AliasEvent):
            if event.anchor not in self._anchors:
                text = f"alias *{event.anchor} refers to no anchor &{event.anchor} above it; write the value out"
                raise YamlError(line, column, text)
            node, repeated = self._anchors[event.anchor]
            self._repeated += repeated
            if self._repeated > MOST_REPEATED:
                raise YamlError(line, column, "the aliases of this file make too much of it; write the values out")
            return node
        if isinstance(event, ScalarEvent):
            plain = not event.style and tag != _STRING_TAG
            node = YamlScalar(line, column, path, event.value, plain, event.style or "")
        elif depth >= DEEPEST:
            raise YamlError(line, column, f"nested more than {DEEPEST} levels deep; no policy needs that")
        else:
            node = (YamlSequence if isinstance(event, SequenceStartEvent) else YamlMap)(line, column, path)
            self._fill(node, depth + 1)
        if event.anchor:  # an alias may mean it from here on, so that nothing holds itself
            self._anchors[event.anchor] = (node, self._repeated - before)
        return node

    def _fill(self, node: YamlSequence | YamlMap, depth: int) -> None:
        """Read what is in a list or mapping."""
        while not isinstance(event := next(self._events), SequenceEndEvent | MappingEndEvent):
            if isinstance(node, YamlSequence):
                node.items.append(self._node(event, f"{node.path}[{len(node.items)}]"[:_LONGEST_PATH], depth))
                continue
            key = self._node(event, "", depth)
            name = key.text if isinstance(key, YamlScalar) else "?"
            path = (f"{node.path}.{name}" if node.path else name)[:_LONGEST_PATH]
            key.path = key.path or path
            node.pairs.append((key, self._node(next(self._events), path, depth)))
