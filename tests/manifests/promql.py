"""Enough of PromQL to tell which metrics and labels an expression names."""

import re

_WORDS = {"and", "or", "unless", "bool", "offset"}
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')


def selectors(expression):
    """Every metric that is named, with its matchers: label, operator and value."""
    plain = _GROUPING.sub(" ", expression)
    for found in re.finditer(r"([A-Za-z_:][\w:]*)\s*(\(|\{[^}]*\})?", re.sub(r"\[[^]]*\]", "", plain)):
        name, rest = found[1], found[2] or ""
        if rest == "(" or name in _WORDS:
            continue
        yield name, _MATCHER.findall(rest)


def grouped(expression):
    """The labels by which the expression groups or matches."""
    return {label.strip() for part in _GROUPING.findall(expression) for label in part.split(",") if label.strip()}
