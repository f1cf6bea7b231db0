"""Expressions of policy files as the API server must be given them.

giveway fills in labels and annotations, so that `'a' in object.metadata.labels` needs no guard, and leaves out what
nobody's policy is; the API server passes objects and requests as they are, without empty fields. So paths to what may
be absent become optionals. What giveway's CEL has and the API server's has not is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from webhook.native.expressions import TRUE
from webhook.policy.cel.program import compile_bool, is_certain

__all__ = ["InexpressibleError", "condition", "text"]


class InexpressibleError(Exception):
    """Why the API server cannot be given a rule, or a part of one."""


_TOKEN = re.compile(
    r"""//[^\n]*
    |[rRbB]{0,2}(?:\"{3}.*?\"{3}|'{3}.*?'{3})
    |[rR][bB]?(?:"[^"\n]*"|'[^'\n]*')
    |[bB]?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |[A-Za-z_]\w*|\d[\w.]*|\s+|&&|\|\||[=!<>]=|\.\?|\[\?|.""",
    re.VERBOSE | re.DOTALL,
)
_EMPTY = {"labels": "orValue({})", "annotations": "orValue({})"}
_REQUEST = {"name": 'orValue("")', "namespace": 'orValue("")', "dryRun": "orValue(false)", "subResource": 'orValue("")'}
"""Fields of `request` that giveway fills in and the API server leaves out if they are empty."""
_REQUEST_KNOWN = frozenset(
    ("kind", "resource", "requestKind", "requestResource", "requestSubResource", "operation", "userInfo", "options")
)
_OBJECTS = ("object", "oldObject", "namespaceObject")


class _Token(NamedTuple):
    text: str
    space: str
    """What stands before it, comments included."""


def condition(expression: str) -> str:
    """A rule's or condition's expression, of type bool. Raises InexpressibleError."""
    rewritten = _rewrite(expression)
    # The API server takes an expression only if it is known to be a bool; here a value of unknown type is enough.
    return rewritten if is_certain(compile_bool(expression)) else f"({rewritten}) == {TRUE}"


def text(expression: str) -> str:
    """A messageExpression. Raises InexpressibleError."""
    return _rewrite(expression)


def _rewrite(expression: str) -> str:
    tokens = list(_tokens(expression.strip()))
    words = [token.text for token in tokens]
    written: list[str] = []
    place = 0
    while place < len(tokens):
        step, new = _at(words, place)
        written.append(_line(tokens[place].space) + new)
        place += step
    return "".join(written).strip()


def _tokens(expression: str) -> Iterator[_Token]:
    space = ""
    for found in _TOKEN.finditer(expression):
        word = found[0]
        if word.isspace() or word.startswith("//"):
            space += word
        else:
            yield _Token(word, space)
            space = ""


def _line(space: str) -> str:
    """White space without comments, which are for readers of the policy file."""
    return re.sub(r"//[^\n]*", "", space)


def _at(words: list[str], place: int) -> tuple[int, str]:
    """How many tokens are taken from here, and what is written for them."""
    word = words[place]
    before, after = words[place - 1] if place else "", words[place + 1 : place + 6]
    if before in (".", ".?"):
        if word == "reverse":
            raise InexpressibleError("uses reverse(), which the API server's CEL does not have")
        return 1, word
    if word == "priorityClass":
        raise InexpressibleError(
            "reads priorityClass: the API server gives an expression no object but the one it is about"
        )
    if [word, *after[:2]] == ["cel", ".", "bind"]:
        raise InexpressibleError("uses cel.bind, which the API server's CEL does not have")
    if word == "has" and (always := _always_there(after, words, place)):
        return always, TRUE
    if word in (*_OBJECTS, "request") and before == "(" and after[:1] == [","]:
        raise InexpressibleError(f"names a variable of its own {word}")
    if word in _OBJECTS:
        return _object(word, after)
    if word == "request":
        return _request(after)
    return 1, word


def _always_there(after: list[str], words: list[str], place: int) -> int:
    """The length of `has(object.metadata.labels)`, which always holds in a policy file; 0 for anything else."""
    inside = words[place + 2 : place + 7]
    if after[:1] != ["("] or len(words) <= place + 7 or words[place + 7] != ")":
        return 0
    known = inside[0] in _OBJECTS and inside[1:4] == [".", "metadata", "."] and inside[4] in _EMPTY
    return 8 if known else 0


def _object(word: str, after: list[str]) -> tuple[int, str]:
    if after[:1] in (["=="], ["!="]) and after[1:2] == ["null"]:
        return 1, word
    if after[:1] not in (["."], [".?"]):
        raise InexpressibleError(f"uses {word} as a whole, in which giveway fills in labels and annotations")
    if after[1] != "metadata":
        return 2, word + after[0]
    if after[0] == ".?" or after[2:3] not in (["."], [".?"]):
        raise InexpressibleError(f"uses {word}.metadata as a whole, in which giveway fills in labels and annotations")
    if after[3] == "managedFields":
        raise InexpressibleError("reads managedFields, which giveway leaves out")
    if after[3] not in _EMPTY:
        return 4, f"{word}.metadata{after[2]}"
    if after[2] == ".":
        return 5, f"{word}.metadata.?{after[3]}.{_EMPTY[after[3]]}"
    if after[4:5] not in (["[?"], [".?"]):
        raise InexpressibleError(f"tests whether {word}.metadata has {after[3]}, which giveway fills in")
    return 5, f"{word}.metadata.?{after[3]}"


def _request(after: list[str]) -> tuple[int, str]:
    if after[:1] != ["."] or after[1] not in (*_REQUEST, *_REQUEST_KNOWN):
        what = f"request.{after[1]}" if after[:1] == ["."] else "request as a whole"
        raise InexpressibleError(f"reads {what}, which the API server does not give to an expression")
    if after[1] in _REQUEST:
        return 3, f"request.?{after[1]}.{_REQUEST[after[1]]}"
    return 3, f"request.{after[1]}"
