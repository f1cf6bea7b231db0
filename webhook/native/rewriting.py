"""Expressions of policy files as the API server must be given them.

giveway fills in labels and annotations, so that `'a' in object.metadata.labels` needs no guard, and leaves out what
nobody's policy is; the API server passes objects and requests as they are, without empty fields. So paths to what may
be absent become optionals. What giveway's CEL has and the API server's has not is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from webhook.native.expressions import TRUE
from webhook.policy.cel.program import compile_bool, is_certain
from webhook.policy.cel.string_functions import TOKEN


class InexpressibleError(Exception):
    """Why the API server cannot be given a rule, or a part of one."""


_EMPTY = {"labels": "orValue({})", "annotations": "orValue({})"}
_REQUEST = {"name": 'orValue("")', "namespace": 'orValue("")', "dryRun": "orValue(false)", "subResource": 'orValue("")'}
"""Fields of `request` that giveway fills in and the API server leaves out if they are empty."""
_REQUEST_KNOWN = frozenset(
    ("kind", "resource", "requestKind", "requestResource", "requestSubResource", "operation", "userInfo", "options")
)
_OBJECTS = ("object", "oldObject", "namespaceObject")
_NAMESPACE_KNOWN = ("name", "labels", "annotations")
"""What giveway knows of a namespace, below `metadata`; the API server gives more."""


def condition(expression: str, instead: Mapping[str, str] = MappingProxyType({})) -> str:
    """A rule's or condition's expression, of type bool. Raises InexpressibleError.

    `instead` are expressions that stand for objects by their names.
    """
    rewritten = text(expression, instead)
    # The API server takes an expression only if it is known to be a bool; here a value of unknown type is enough.
    return rewritten if is_certain(compile_bool(expression)) else f"({rewritten}) == {TRUE}"


def text(expression: str, instead: Mapping[str, str] = MappingProxyType({})) -> str:
    """A messageExpression. Raises InexpressibleError."""
    words, spaces = list[str](), [""]
    for token in TOKEN.finditer(expression.strip()):
        if token[0].startswith("//"):
            continue  # comments are for readers of the policy file
        if token[0].isspace():
            spaces[-1] += token[0]
        else:
            words.append(token[0])
            spaces.append("")
    written: list[str] = []
    place = 0
    while place < len(words):
        taken, new = _at(words, place)
        if words[place] in instead and new.startswith(words[place]):
            new = instead[words[place]] + new.removeprefix(words[place])
        written += [spaces[place], new]
        place += taken
    return "".join(written).strip()


def _at(words: list[str], place: int) -> tuple[int, str]:
    """How many words are taken from here, and what is written for them."""
    before = words[place - 1] if place else ""
    if before in (".", ".?"):
        if words[place] == "reverse":
            raise InexpressibleError("uses reverse(), which the API server's CEL does not have")
        return 1, words[place]
    match words[place : place + 8]:
        case ["priorityClass", *_]:
            raise InexpressibleError(
                "reads priorityClass: the API server gives an expression no object but the one it is about"
            )
        case ["cel", ".", "bind", *_]:
            raise InexpressibleError("uses cel.bind, which the API server's CEL does not have")
        case ["has", "(", word, ".", "metadata", ".", field, ")"] if word in _OBJECTS and field in _EMPTY:
            return 8, TRUE  # it always holds in a policy file
        case [word, ",", *_] if before == "(" and word in (*_OBJECTS, "request"):
            raise InexpressibleError(f"names a variable of its own {word}")
        case [word, *after] if word in _OBJECTS:
            return _object(word, after)
        case ["request", ".", field, *_] if field in _REQUEST:
            return 3, f"request.?{field}.{_REQUEST[field]}"
        case ["request", ".", field, *_] if field in _REQUEST_KNOWN:
            return 3, f"request.{field}"
        case ["request", *after]:
            what = f"request.{after[1]}" if after[:1] == ["."] else "request as a whole"
            raise InexpressibleError(f"reads {what}, which the API server does not give to an expression")
    return 1, words[place]


def _object(word: str, after: list[str]) -> tuple[int, str]:
    """The same for an object: its labels and annotations may be absent, and what giveway fills in is not there."""
    match after:
        case ["==" | "!=", "null", *_]:
            return 1, word
        case ["." | ".?", field, *_] if word == "namespaceObject" and field != "metadata":
            raise InexpressibleError(f"reads namespaceObject.{field}, which giveway does not have")
        case [".", "metadata", "." | ".?", field, *_] if word == "namespaceObject" and field not in _NAMESPACE_KNOWN:
            raise InexpressibleError(f"reads namespaceObject.metadata.{field}, which giveway does not have")
        case ["." | ".?" as dot, field, *_] if field != "metadata":
            return 2, word + dot
        case [".", "metadata", "." | ".?", "managedFields", *_]:
            raise InexpressibleError("reads managedFields, which giveway leaves out")
        case [".", "metadata", "." | ".?" as dot, field, *_] if field not in _EMPTY:
            return 4, f"{word}.metadata{dot}"
        case [".", "metadata", ".", field, *_]:
            return 5, f"{word}.metadata.?{field}.{_EMPTY[field]}"
        case [".", "metadata", ".?", field, "[?" | ".?", *_]:
            return 5, f"{word}.metadata.?{field}"
        case [".", "metadata", ".?", field, *_]:
            raise InexpressibleError(f"tests whether {word}.metadata has {field}, which giveway fills in")
    whole = f"{word}.metadata" if after[1:2] == ["metadata"] else word
    raise InexpressibleError(f"uses {whole} as a whole, in which giveway fills in labels and annotations")
