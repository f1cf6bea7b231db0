"""YAML text to trees of nodes that know where they stand.

Built from the parser's events without making objects of unknown types, so that size, depth, aliases and tags are
bounded before anything is read into them.
"""

import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError, YAMLError

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

_MESSAGES = (
    (r".*(?:\\t|found a tab).*", "a tab where YAML wants spaces"),
    (
        r"expected <block end>, but found .*|did not find expected (?:key|'-' indicator).*",
        (
            "this line does not begin in the column that it should: fields of one mapping begin in the same column, and"
            " so do entries of one list"
        ),
    ),
    (
        r"mapping values are not allowed (?:here|in this context).*",
        'a ":" cannot stand here: the line is indented too far, or a text that holds ": " needs quotes',
    ),
    *(
        (
            rf"(?:did not find )?expected ',' or '[}}\]]'{got} \(while parsing a flow {kind}\)",
            f'"," or "{end}" is missing before {where}, for a "{begin}" further up',
        )
        for kind, begin, end in (("mapping", "{", "}"), ("sequence", "[", "]"))
        for got, where in ((", but got '<stream end>'", "the end of the file"), (".*", "this"))
    ),
    (r"expected the node content, but found '<.*end>' .*", "a value is missing before the end of the file"),
    (r"expected the node content, but found '(.+)' .*", r"a value is missing before \1"),
    (r"found unexpected end of stream \(while scanning a quoted scalar\)", "a quote is not closed"),
    (r"found character '(.+)' that cannot start any token.*", r'a text that begins with "\1" needs quotes'),
    (r"could not find expected ':'.*", 'a ":" is missing after the name of a field, here or just above'),
    (r"(?:did not find )?expected '?<document start>.*", "a document has ended: `---` is missing before this"),
    (r"found character that cannot start any token.*", "a text that begins with this needs quotes"),
    (
        r"(?:did not find )?expected alphabetic or numeric character.*",
        'a text that begins with "*" or "&" needs quotes',
    ),
)
"""What the parsers say of a text that they cannot read, and the same in words for its author."""


class YamlError(Exception):
    """Text that is not the YAML of a policy file: `(line, column)` from 1, and why."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(message)
        self.line, self.column, self.message = line, column, message


def documents(text: str) -> Iterator[YamlNode]:
    """The documents of a text, up to the first mistake, at which it raises YamlError."""
    try:
        yield from _Composer(YAML(typ="safe", pure=True).parse(text)).documents()
    except MarkedYAMLError as error:
        raise YamlError(*problem_of(error)) from error
    except YAMLError as error:  # from the reader, which knows no marks
        before = text[: getattr(error, "position", 0) or 0]
        character = re.search(r"#x[0-9a-fA-F]+", str(error))
        problem = f"control character {character[0] if character else ''} in the text; take it out"
        raise YamlError(before.count("\n") + 1, len(before) - before.rfind("\n"), problem) from error


def problem_of(error: MarkedYAMLError) -> tuple[int, int, str]:
    """Line and column, from 1, where a parser (ruamel's or libyaml) gave up, and why, in its author's words."""
    mark = error.problem_mark or error.context_mark
    problem = " ".join(str(error.problem or error.context or "not YAML").split())
    if error.context and error.context != problem:
        problem = f"{problem} ({error.context})"
    for pattern, words in _MESSAGES:
        match = re.fullmatch(pattern, problem)
        if match:
            problem = match.expand(words)
            break
    return (1, 1, problem) if mark is None else (mark.line + 1, mark.column + 1, problem)


class _Composer:
    """Turns events into nodes, one document after the other."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, tuple[YamlNode, int]] = {}
        """What an anchor names, and how many nodes that are, with those that aliases repeat."""
        self._nodes = self._repeated = 0

    def documents(self) -> Iterator[YamlNode]:
        """The root of each document."""
        starts = (event for event in self._events if isinstance(event, events.DocumentStartEvent))
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
        if isinstance(event, events.AliasEvent):
            if event.anchor not in self._anchors:
                text = f"alias *{event.anchor} refers to no anchor &{event.anchor} above it"
                raise YamlError(line, column, f"{text}; write the value out")
            node, repeated = self._anchors[event.anchor]
            self._repeated += repeated
            if self._repeated > MOST_REPEATED:
                raise YamlError(line, column, "the aliases of this file make too much of it; write the values out")
            return node
        if isinstance(event, events.ScalarEvent):
            plain = not event.style and tag != _STRING_TAG
            node = YamlScalar(line, column, path, event.value, plain, event.style or "")
        elif depth >= DEEPEST:
            raise YamlError(line, column, f"nested more than {DEEPEST} levels deep; no policy needs that")
        else:
            made = YamlSequence if isinstance(event, events.SequenceStartEvent) else YamlMap
            node = made(line, column, path)
            self._fill(node, depth + 1)
        if event.anchor:  # an alias may mean it from here on, so that nothing holds itself
            self._anchors[event.anchor] = (node, self._repeated - before)
        return node

    def _fill(self, node: YamlSequence | YamlMap, depth: int) -> None:
        """Read what is in a list or mapping."""
        for event in self._events:
            if isinstance(event, events.SequenceEndEvent | events.MappingEndEvent):
                return
            if isinstance(node, YamlSequence):
                path = f"{node.path}[{len(node.items)}]"[:_LONGEST_PATH]
                node.items.append(self._node(event, path, depth))
                continue
            key = self._node(event, "", depth)
            name = key.text if isinstance(key, YamlScalar) else "?"
            path = (f"{node.path}.{name}" if node.path else name)[:_LONGEST_PATH]
            key.path = key.path or path
            node.pairs.append((key, self._node(next(self._events), path, depth)))
