"""What the YAML parsers, ruamel's and libyaml, say of a text that they cannot read, in words for its author."""

from __future__ import annotations

import re
from collections.abc import Callable

from ruamel.yaml.error import MarkedYAMLError

_INDENTED = (
    "this line does not begin in the column that it should: fields of one mapping begin in the same column, and so do"
    " entries of one list"
)
_OPEN = {"mapping": ("{", "}"), "sequence": ("[", "]")}
Words = Callable[[re.Match[str]], str]


def _unclosed(match: re.Match[str]) -> str:
    opening, closing = _OPEN[match[2]]
    before = "the end of the file" if match[1] == "<stream end>" else "this"
    return f'"," or "{closing}" is missing before {before}, for a "{opening}" further up'


_PATTERNS: tuple[tuple[re.Pattern[str], Words], ...] = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"expected <block end>, but found .*|did not find expected (?:key|'-' indicator).*", lambda _: _INDENTED),
        (r"mapping values are not allowed (?:here|in this context).*", lambda _: _COLON),
        (r"expected ',' or '[}\]]', but got '(.+)' \(while parsing a flow (mapping|sequence)\)", _unclosed),
        (r"(did not find) expected ',' or '[}\]]' \(while parsing a flow (mapping|sequence)\)", _unclosed),
        (
            r"expected the node content, but found '(.+)' .*",
            lambda match: f"a value is missing before {'the end of the file' if 'end>' in match[1] else match[1]}",
        ),
        (r"found unexpected end of stream \(while scanning a quoted scalar\)", lambda _: "a quote is not closed"),
        (
            r"found character '(.+)' that cannot start any token.*",
            lambda match: f'a text that begins with "{match[1]}" needs quotes',
        ),
        (r"could not find expected ':'.*", lambda _: 'a ":" is missing after the name of a field, here or just above'),
        (r"did not find expected <document start>.*", lambda _: "a document has ended: `---` is missing before this"),
        (r"found character that cannot start any token.*", lambda _: "a text that begins with this needs quotes"),
        (
            r"(?:did not find )?expected alphabetic or numeric character.*",
            lambda _: 'a text that begins with "*" or "&" needs quotes',
        ),
    )
)
_COLON = 'a ":" cannot stand here: the line is indented too far, or a text that holds ": " needs quotes'


def problem_of(error: MarkedYAMLError) -> tuple[int, int, str]:
    """Line and column, from 1, where the parser gave up, and why, in words for people."""
    mark = error.problem_mark or error.context_mark
    problem = " ".join(str(error.problem or error.context or "not YAML").split())
    if error.context and error.context != problem:
        problem = f"{problem} ({error.context})"
    return (1, 1, _plain(problem)) if mark is None else (mark.line + 1, mark.column + 1, _plain(problem))


def _plain(message: str) -> str:
    """The parser's message for people; as it is, if it is none of those that are known."""
    if "\\t" in message or "found a tab" in message:
        return "a tab where YAML wants spaces"
    for pattern, words in _PATTERNS:
        if match := pattern.fullmatch(message):
            return words(match)
    return message
