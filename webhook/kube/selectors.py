"""Label and node selectors, compiled once and matched against label dictionaries.

Meanings follow `k8s.io/apimachinery/pkg/labels` and `component-helpers/scheduling/corev1/nodeaffinity`:
`NotIn` and `DoesNotExist` hold if the key is absent; `Gt` and `Lt` need integers on both sides;
a node selector term without any requirement selects nothing.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from webhook.kube.objects.meta import LabelSelector, Requirement
from webhook.kube.objects.placement import NodeSelector, NodeSelectorTerm, Taint, Toleration

Labels = Mapping[str, str]
Matcher = Callable[[Labels], bool]

_VALUE = re.compile(r"(?=.{0,63}\Z)([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", re.ASCII)
"""A label's value has at most 63 characters."""
_PART = re.compile(
    r"(?P<absent>!\s*)?(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)\s*"
    r"(?:(?P<op>==|=|!=|>|<)\s*(?P<value>[-A-Za-z0-9_.]*)|(?P<set>\bin\b|\bnotin\b)\s*\((?P<values>[^()]*)\))?",
    re.ASCII,
)
_INTEGER = re.compile(r"[+-]?\d{1,63}", re.ASCII)
_COMMA = re.compile(r",(?![^(]*\))")
"""A comma outside parentheses."""
_OPERATORS = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}


class SelectorError(ValueError):
    """A selector the API server would refuse."""


def _always(answer: bool) -> Matcher:
    return lambda _labels: answer


everything, nothing = _always(True), _always(False)
"""Matchers of any labels, and of none."""


def is_label_value(text: str) -> bool:
    """Whether a label can have this value (`IsValidLabelValue`); a requirement of others is none."""
    return _VALUE.fullmatch(text) is not None


def label_matcher(selector: LabelSelector | None) -> Matcher:
    """Compile a label selector: None matches nothing, an empty one everything. Raises SelectorError."""
    if selector is None:
        return nothing
    labels = selector.match_labels or {}
    rows = [Requirement(key=key, operator="In", values=[value]) for key, value in labels.items()]
    for row in selector.match_expressions or ():
        if row.operator in ("Gt", "Lt"):
            raise SelectorError(f"operator {row.operator!r} of key {row.key!r} is for node selectors only")
        rows.append(row)
    return _all_of([_check(row) for row in rows])


def node_matcher(selector: NodeSelector | None) -> Callable[[str, Labels], bool]:
    """Compile a node selector; None matches all nodes, a term that is empty or does not parse none."""
    if selector is None:
        return lambda _name, _labels: True
    terms = [_term(term) for term in selector.node_selector_terms or ()]
    return lambda name, labels: any(term(name, labels) for term in terms)


def parse_selector(text: str) -> Matcher:
    """Compile the text form of queries, `a=b,c!=d,e in (f,g),!h,i,j>5`. Raises SelectorError with what is bad."""
    checks: list[Matcher] = []
    for part in filter(None, map(str.strip, _COMMA.split(text))):
        match = _PART.fullmatch(part)
        if match is None or (match["absent"] and (match["op"] or match["set"])):
            raise SelectorError(f"unable to parse requirement: {part!r}")
        values: list[str] = []
        if match["op"]:
            operator, values = _OPERATORS[match["op"]], [match["value"]]
        elif match["set"]:
            operator = "In" if match["set"] == "in" else "NotIn"
            values = [value.strip() for value in match["values"].split(",")]
        else:
            operator = "DoesNotExist" if match["absent"] else "Exists"
        checks.append(_check(Requirement(key=match["key"], operator=operator, values=values)))
    return _all_of(checks)


def _all_of(checks: list[Matcher]) -> Matcher:
    if not checks:
        return everything
    if len(checks) == 1:
        return checks[0]
    return lambda labels: all(check(labels) for check in checks)


def _check(row: Requirement) -> Matcher:
    """The matcher of a requirement. Raises SelectorError for values that its operator does not take."""
    key, values, operator = row.key, frozenset(row.values or ()), row.operator
    if operator in ("In", "NotIn") and not values:
        raise SelectorError(f"operator {operator} of key {key!r} needs at least one value")
    if operator in ("Exists", "DoesNotExist") and values:
        raise SelectorError(f"operator {operator} of key {key!r} takes no values")
    match operator:
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":
            return lambda labels: labels.get(key) not in values
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
        case "Gt" | "Lt":
            bound = integer(row.values[0]) if row.values and len(row.values) == 1 else None
            if bound is None:
                raise SelectorError(f"operator {operator} of key {key!r} needs exactly one integer")
            sign = 1 if operator == "Gt" else -1

            def beyond(labels: Labels) -> bool:
                number = integer(labels.get(key, ""))
                return number is not None and sign * (number - bound) > 0

            return beyond
    raise SelectorError(f"operator {operator!r} of key {key!r} is not In, NotIn, Exists, DoesNotExist, Gt or Lt")


def _term(term: NodeSelectorTerm) -> Callable[[str, Labels], bool]:
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    parses = bool(expressions or fields)
    for row in fields:
        of_name = row.key == "metadata.name" and row.operator in ("In", "NotIn")
        parses = parses and of_name and len(row.values or ()) == 1
    for row in expressions:
        parses = parses and all(map(is_label_value, row.values or ()))
    try:
        by_labels, by_fields = (_all_of([_check(row) for row in rows]) for rows in (expressions, fields))
    except SelectorError:
        parses = False
    if not parses:
        return lambda _name, _labels: False
    return lambda name, labels: by_labels(labels) and by_fields({"metadata.name": name})


def tolerates(tolerations: Iterable[Toleration] | None, taint: Taint) -> bool:
    """Whether a toleration puts up with the taint of a node or a device (`ToleratesTaint`)."""
    return any(
        toleration.effect in ("", taint.effect)
        and toleration.key in ("", taint.key)
        and toleration.operator in ("Exists", "", "Equal")
        and (toleration.operator == "Exists" or toleration.value == taint.value)
        for toleration in tolerations or ()
    )


def keep_off(taints: Iterable[Taint] | None, tolerations: Iterable[Toleration] | None) -> bool:
    """Whether one of the taints keeps off who has these tolerations."""
    for taint in taints or ():
        if taint.effect in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint):
            return True
    return False


def integer(text: str, bits: int = 64) -> int | None:
    """The number as `strconv.ParseInt(text, 10, bits)` reads it; None for what it does not read."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None
