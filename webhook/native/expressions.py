"""CEL for the API server, as text: literals, connectives, names, labels.

The expressions fail on no object: what may be absent is selected as an optional. Constants are folded, so that a rule
that never or always holds leaves nothing behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Self

from webhook.kube.bounded import LONGEST_SHOWN
from webhook.kube.objects.meta import LabelSelector
from webhook.policy.model.globs import WILDCARD

TRUE, FALSE = "true", "false"

_WIDTH = 100
"""Characters of an expression before it is broken into lines."""


class Cel(str):
    """A part of a text that an expression gives, beside literal parts; `otherwise` stands for it if it fails."""

    __slots__ = ("otherwise",)
    otherwise: str

    def __new__(cls, text: str, otherwise: str = "…") -> Self:
        """The expression as a str."""
        made = super().__new__(cls, text)
        made.otherwise = otherwise
        return made


def quote(text: str) -> str:
    """A string literal."""
    escaped = (
        text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    return f"'{escaped}'"


def all_of(tests: Iterable[str]) -> str:
    """All of the tests hold."""
    distinct = list(dict.fromkeys(test for test in tests if test != TRUE))
    return FALSE if FALSE in distinct else _join(distinct, "&&", empty=TRUE)


def any_of(tests: Iterable[str]) -> str:
    """At least one of the tests holds."""
    distinct = list(dict.fromkeys(test for test in tests if test != FALSE))
    return TRUE if TRUE in distinct else _join(distinct, "||", empty=FALSE)


def negate(test: str) -> str:
    """The test does not hold."""
    constant = {TRUE: FALSE, FALSE: TRUE}.get(test)
    if constant:
        return constant
    if test.startswith("!") and not _operators(test):
        return test[1:]
    simple = not _operators(test) and " " not in _without_literals(test)
    return f"!{test}" if simple else f"!({_indented(test)})"


def if_else(condition: str, then: str, otherwise: str) -> str:
    """One of two expressions of one type."""
    if then == otherwise or condition == TRUE:
        return then
    if condition == FALSE:
        return otherwise
    if then == TRUE:
        return any_of([condition, otherwise])
    if otherwise == FALSE:
        return all_of([condition, then])
    if then == FALSE:
        return all_of([negate(condition), otherwise])
    if otherwise == TRUE:
        return any_of([negate(condition), then])
    text = f"{_operand(condition, '?')} ? {_operand(then, '?')} : {_operand(otherwise, ':')}"
    if len(text) <= _WIDTH and "\n" not in text:
        return text
    return f"{_operand(condition, '?')}\n? {_operand(then, '?')}\n: {_operand(otherwise, ':')}"


def name_is(value: str, patterns: Iterable[str]) -> str:
    """The string is one of these names or matches one of these globs."""
    patterns = list(dict.fromkeys(patterns))
    literals = [pattern for pattern in patterns if WILDCARD not in pattern]
    tests = []
    if len(literals) == 1:
        tests.append(f"{value} == {quote(literals[0])}")
    elif literals:
        tests.append(f"{value} in {listing(literals)}")
    for glob in (pattern for pattern in patterns if WILDCARD in pattern):
        first, *middle, last = glob.split(WILDCARD)
        if any(middle) or (first and last):
            body = ".*".join(re.escape(piece).replace(r"\-", "-") for piece in (first, *middle, last))
            tests.append(f"{value}.matches({quote(f'(?s)^{body}$')})")
        elif first:
            tests.append(f"{value}.startsWith({quote(first)})")
        else:
            tests.append(f"{value}.endsWith({quote(last)})" if last else TRUE)
    return any_of(tests)


def selected(labels: str, selector: LabelSelector | None) -> str:
    """A label selector holds; `labels` is an expression after which `[?'key']` gives an optional."""
    if selector is None:
        return TRUE
    tests = [
        f"{labels}[?{quote(key)}].orValue('') == {quote(value)}" for key, value in (selector.match_labels or {}).items()
    ]
    for row in selector.match_expressions or ():
        looked_up = f"{labels}[?{quote(row.key)}]"
        match row.operator:
            case "In":
                tests.append(f"{looked_up}.orValue('') in {listing(row.values or ())}")
            case "NotIn":
                tests.append(f"!({looked_up}.orValue('') in {listing(row.values or ())})")
            case "Exists":
                tests.append(f"{looked_up}.hasValue()")
            case _:
                tests.append(f"!{looked_up}.hasValue()")
    return all_of(tests)


def listing(texts: Iterable[str]) -> str:
    """A list of string literals."""
    return f"[{', '.join(map(quote, texts))}]"


def mapping(rows: Iterable[tuple[str, str]]) -> str:
    """A map of literals: the keys are quoted, the values are expressions."""
    return f"{{{', '.join(f'{quote(key)}: {value}' for key, value in rows)}}}"


def concatenation(parts: Iterable[str]) -> str:
    """The text of literal parts and parts that are Cel, which must give strings."""
    merged: list[str] = []
    for part in parts:
        if merged and not isinstance(part, Cel) and not isinstance(merged[-1], Cel):
            merged[-1] += part
        elif part:
            merged.append(part)
    terms = [_operand(part, "+") if isinstance(part, Cel) else quote(part) for part in merged]
    one_line = " + ".join(terms)
    return one_line if len(one_line) <= _WIDTH else " +\n".join(terms)


def shown(value: str, most: int = LONGEST_SHOWN) -> str:
    """A string of a request as a refusal shows it (`webhook.policy.evaluation.rules`): bounded, and on one line.

    The API server puts the literal message in place of one with a newline.
    """
    cut = f"{value}.size() > {most} ? {value}.substring(0, {most - 1}) + '…' : {value}"
    return f"({cut}).replace('\\n', '\\\\n')"


def _join(tests: list[str], operator: str, *, empty: str) -> str:
    if len(tests) < 2:
        return tests[0] if tests else empty
    parts = [_operand(test, operator) for test in tests]
    one_line = f" {operator} ".join(parts)
    return one_line if len(one_line) <= _WIDTH and "\n" not in one_line else f" {operator}\n".join(parts)


_BINDS_LESS = {
    "&&": {"||", "?"},
    "||": {"?"},
    "?": {"?"},
    ":": set[str](),
    "+": {"||", "&&", "?", "==", "!=", "<", ">", "in"},
}


def _operand(text: str, operator: str) -> str:
    """The text as an operand of the operator, in brackets if it needs them or is easier to read with them."""
    return f"({_indented(text)})" if _operators(text) & _BINDS_LESS[operator] else text


def _indented(text: str) -> str:
    return text.replace("\n", "\n ")


_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)


def _without_literals(text: str) -> str:
    return _LITERAL.sub("''", text)


def _operators(text: str) -> set[str]:
    """The operators outside of brackets and literals."""
    operators, depth = set[str](), 0
    for word in re.findall(r"[()\[\]{}]|&&|\|\||==|!=|\?(?=\s)|\bin\b|[<>]", _without_literals(text)):
        if word in "([{":
            depth += 1
        elif word in ")]}":
            depth -= 1
        elif depth == 0:
            operators.add(word)
    return operators
