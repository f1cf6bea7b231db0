"""What the CEL library says of an expression that does not compile, in words for its author."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

_SYNTAX = "Syntax error: "
_TOKEN, _INPUT = rf"{_SYNTAX}token recognition error at:", rf"{_SYNTAX}(?:mismatched|extraneous) input"
_OPERATORS = {"and": "&&", "or": "||", "not": "!", "AND": "&&", "OR": "||", "NOT": "!"}
_PATTERNS = (
    (rf"{_TOKEN} '([&|]).*'", r'a single "\1" is no operator; write "\1\1"'),
    (rf"{_TOKEN} '=.*'", 'a single "=" is no operator; write "==" to compare'),
    (rf"{_TOKEN} '['\"].*'", "the text that begins here has no quote at its end"),
    (rf"{_TOKEN} '\s*(.+?)\s*'", r'"\1" means nothing in an expression'),
    (rf"{_INPUT} '<EOF>' .*", "the expression ends too early: something is missing after its last part"),
    *(
        (rf"{_INPUT} '{word}' .*", f'there is no operator "{word}"; write "{sign}"')
        for word, sign in _OPERATORS.items()
    ),
    (rf"{_INPUT} '(.+?)' .*", r'"\1" cannot stand here; perhaps an operator such as && is missing before it'),
    (rf"{_SYNTAX}missing '(.+?)' at '.+?'", r'"\1" is missing here'),
    (rf"{_SYNTAX}no viable alternative at input '(.+)'", r'"\1" cannot stand here'),
    (r"found no matching overload for '_*(.+?)_*' applied to '\(?(.+?)\)?'", r'"\1" does not take \2'),
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
        if match := re.fullmatch(pattern, message, re.DOTALL):
            return match.expand(words)
    return message
