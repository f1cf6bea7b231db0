"""CEL for the API server, as text: literals, connectives, names, labels.

The expressions fail on no object: what may be absent is selected as an optional. Constants are folded.
"""

import re
from collections.abc import Iterable

from webhook.kube.objects.meta import LabelSelector
from webhook.policy.model.globs import WILDCARD

TRUE, FALSE = "true", "false"

_ABSENT = "'-'"
"""What stands for a label that is not there: no label's value is that, and many are empty."""
_BIND_LESS = {"&&": r"\|\||\?\s", "||": r"\?\s", "?": r"\?\s"}
"""By operator, what needs brackets as its operand. They are a few too many if that stands in a literal or deeper."""


def quote(text: str) -> str:
    """A string literal."""
    escapes: dict[str, str | int | None] = {
        "\\": "\\\\",
        "'": "\\'",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
    }
    return f"'{text.translate(str.maketrans(escapes))}'"


def all_of(tests: Iterable[str]) -> str:
    """All of the tests hold."""
    return _join(tests, "&&", empty=TRUE, decides=FALSE)


def any_of(tests: Iterable[str]) -> str:
    """At least one of the tests holds."""
    return _join(tests, "||", empty=FALSE, decides=TRUE)


def negate(test: str) -> str:
    """The test does not hold."""
    if test in (TRUE, FALSE):
        return FALSE if test == TRUE else TRUE
    if " " in test:
        return f"!({test})"
    return test[1:] if test.startswith("!") else f"!{test}"


def if_else(condition: str, then: str, otherwise: str) -> str:
    """One of two expressions of one type."""
    if then == otherwise or condition == TRUE:
        return then
    if condition == FALSE:
        return otherwise
    return f"{_operand(condition, '?')} ? {_operand(then, '?')} : {otherwise}"


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
            pieces = [re.escape(piece).replace(r"\-", "-") for piece in (first, *middle, last)]
            body = ".*".join(pieces)
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
    tests = []
    for key, value in (selector.match_labels or {}).items():
        tests.append(f"{labels}[?{quote(key)}].orValue({_ABSENT}) == {quote(value)}")
    for row in selector.match_expressions or ():
        looked_up = f"{labels}[?{quote(row.key)}]"
        if row.operator in ("In", "NotIn"):
            holds = f"{looked_up}.orValue({_ABSENT}) in {listing(row.values or ())}"
        else:
            holds = f"{looked_up}.hasValue()"
        tests.append(holds if row.operator in ("In", "Exists") else negate(holds))
    return all_of(tests)


def listing(texts: Iterable[str]) -> str:
    """A list of string literals."""
    return f"[{', '.join(map(quote, texts))}]"


def mapping(rows: Iterable[tuple[str, str]]) -> str:
    """A map of literals: the keys are quoted, the values are expressions."""
    return f"{{{', '.join(f'{quote(key)}: {value}' for key, value in rows)}}}"


def _join(tests: Iterable[str], operator: str, *, empty: str, decides: str) -> str:
    distinct = list(dict.fromkeys(test for test in tests if test != empty))
    if not distinct:
        return empty
    if decides in distinct:
        return decides
    if len(distinct) == 1:
        return distinct[0]
    return f" {operator} ".join(_operand(test, operator) for test in distinct)


def _operand(text: str, operator: str) -> str:
    return f"({text})" if re.search(_BIND_LESS[operator], text) else text
