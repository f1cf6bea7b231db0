"""What the CEL library says of an expression that does not compile, in words for its author."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection

_WORDS = {"and": "&&", "or": "||", "not": "!", "AND": "&&", "OR": "||", "NOT": "!"}
_TOKENS = {
    "&": 'a single "&" is no operator; write "&&"',
    "|": 'a single "|" is no operator; write "||"',
    "=": 'a single "=" is no operator; write "==" to compare',
    "'": "the text that begins here has no quote at its end",
    '"': "the text that begins here has no quote at its end",
}
Words = Callable[[re.Match[str]], str]


def _token(match: re.Match[str]) -> str:
    return _TOKENS.get(match[1][0], f'"{match[1].strip()}" means nothing in an expression')


def _misplaced(match: re.Match[str]) -> str:
    word = match[1]
    if word == "<EOF>":
        return "the expression ends too early: something is missing after its last part"
    if word in _WORDS:
        return f'there is no operator "{word}"; write "{_WORDS[word]}"'
    return f'"{word}" cannot stand here; perhaps an operator such as && is missing before it'


def _missing(match: re.Match[str]) -> str:
    return f'"{match[1]}" is missing ' + ("at the end" if match[2] == "<EOF>" else f'before "{match[2]}"')


def _overload(match: re.Match[str]) -> str:
    name = match[1].strip("_").replace("_", " ").strip() or match[1]
    return f'"{name}" does not take {match[2].removeprefix("(").removesuffix(")")}'


_PATTERNS: tuple[tuple[re.Pattern[str], Words], ...] = tuple(
    (re.compile(pattern, re.DOTALL), words)
    for pattern, words in (
        (r"Syntax error: token recognition error at: '(.+)'", _token),
        (r"Syntax error: (?:mismatched|extraneous) input '(.+?)' expecting .*", _misplaced),
        (r"Syntax error: missing '(.+?)' at '(.+?)'", _missing),
        (r"Syntax error: no viable alternative at input '(.+)'", lambda match: f'"{match[1]}" cannot stand here'),
        (r"found no matching overload for '(.+?)' applied to '(.+?)'", _overload),
    )
)
_UNDECLARED = re.compile(r"undeclared reference to '(.+)'")


def plain_words(message: str, known: Collection[str]) -> str:
    """The library's message for people; as it is, if it is none of those that are known.

    `known` are the names of variables, one of which may have been meant.
    """
    if undeclared := _UNDECLARED.fullmatch(message):
        near = difflib.get_close_matches(undeclared[1].partition(".")[0][:64], known, n=1)
        return f'there is no variable or function "{undeclared[1]}"' + (f'; did you mean "{near[0]}"?' if near else "")
    for pattern, words in _PATTERNS:
        if match := pattern.fullmatch(message):
            return words(match)
    return message
