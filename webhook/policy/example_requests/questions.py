"""What a rule decides, and requests worth trying: such that each test of the rule and its policy holds, and fails."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations, product
from typing import Any, NamedTuple

from webhook.kube.objects.meta import LabelSelector
from webhook.policy.cel.fields import Path, fields_read, literals
from webhook.policy.cel.program import compile_bool
from webhook.policy.evaluation.request import CLASSES, CONTROLLER, PODS, UserInfo
from webhook.policy.example_requests.example import ANYBODY, CHANGE, NAME, NAMESPACE, OPERATION, USER, VALUE, Settings
from webhook.policy.model.globs import WILDCARD
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.model.rules import DEFINE, Declaration, PriorityRule
from webhook.policy.model.values import CAN_BE_PREEMPTED

Parts = list[list[Settings]]
SYSTEM = {2_000_001_000: "system-node-critical", 2_000_000_000: "system-cluster-critical"}
"""The values above one billion that there are, with their classes (docs/kubernetes-behaviour.md K4)."""
OPENED = ((*CHANGE, CAN_BE_PREEMPTED), "true")
"""The change that opens the pods of a class to eviction."""
UNNAMED = "some-namespace"
"""A namespace without labels that no policy means, unless it means all."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SYNTAX = re.compile(r"(\\.|\[[^\]]*\]|\.)(?:\{(\d{1,2})[^}]*\})?|\{[^}]*\}|[\^$*+?()]|\|.*")
"""What of a regular expression stands for something else than itself: a character, so many times, or nothing."""
_MEMBERS = {r"\d": "0", r"\w": "a", r"\s": " ", r"\b": "", r"\A": "", r"\z": "", ".": "a", "^": "~"}
"""A character of each class, and of whatever is not in brackets."""
_OF_OBJECT = ("metadata", "spec", "description", "globalDefault", "preemptionPolicy")
_OF_REQUEST = ("dryRun", "kind", "subResource")
"""What may differ, and is not given by another part of the request, or by the API server."""
_TYPES = {VALUE: int, NAME: str, NAMESPACE: str, USER: str}
_OWN_NAME = ("object", "metadata", "name")
_ALIASES = {
    ("request", "name"): _OWN_NAME,
    ("object", "spec", "priorityClassName"): NAME,
    ("object", "spec", "priority"): VALUE,
    ("object", "value"): VALUE,
    ("object", "metadata", "namespace"): NAMESPACE,
    ("request", "namespace"): NAMESPACE,
    ("namespaceObject", "metadata", "labels", "kubernetes.io/metadata.name"): NAMESPACE,
    **{(*USER, *field): USER for field in (("username",), ("groups",), ("groups", "[]"))},
}
"""Fields that hold what another part of the request decides."""


class RuleQuestion(NamedTuple):
    """One thing that a rule decides about pods or PriorityClasses (`resource`).

    `fixed` are the parts of a request that its author cannot choose for nothing, `free` the others: for each the
    settings to try. All the first ones together are a plain request by anybody in UNNAMED.
    """

    about: str
    resource: str
    fixed: Parts
    free: Parts


def near(parts: Parts, request: Sequence[Settings]) -> Iterator[list[Settings]]:
    """Requests that differ from one in no part, one part, two parts and so on."""
    others = [[row for row in part if row is not own] for part, own in zip(parts, request, strict=True)]
    for count in range(len(parts) + 1):
        for places in combinations(range(len(parts)), count):
            for values in product(*(others[at] for at in places)):
                changed = [*request]
                for at, settings in zip(places, values, strict=True):
                    changed[at] = settings
                yield changed


def samples(patterns: Iterable[str], *, dots: bool = True) -> list[str]:
    """Names that each glob matches; `dots`: of PriorityClasses, not of namespaces."""
    names: dict[str, None] = {}
    for pattern in patterns:
        fitting = []
        for fill in ("a", "other", "", "1"):
            name = pattern.replace(WILDCARD, fill)
            # The API server keeps "system-" for the classes in SYSTEM
            possible = _NAME.fullmatch(name) and not name.startswith("system-")
            if possible and (dots or "." not in name):
                fitting.append(name)
        names |= dict.fromkeys(fitting[:2])
    return list(names)


def questions(policy: PriorityPolicy, rule: PriorityRule, listed: Iterable[str]) -> Iterator[RuleQuestion]:
    """What a rule decides; `listed` are the classes that rules list."""
    declared = rule.declaration
    if declared.range is not None:
        yield _question(policy, declared, "use", PODS)
        yield _question(policy, declared, DEFINE, CLASSES)
        return
    for resource in declared.about if declared.expressions else (PODS,):
        yield _question(policy, declared, rule.body[0], resource, () if declared.classes is None else listed)


def _question(
    policy: PriorityPolicy, declared: Declaration, about: str, resource: str, listed: Iterable[str] = ()
) -> RuleQuestion:
    own = _read(declared.expressions, resource)
    read = _read([condition.expression for condition in policy.conditions], resource)
    names = [*own.get(NAMESPACE, ()), *read.get(NAMESPACE, ())]
    called = [(text, text) for text in (*own.get(USER, ()), *read.get(USER, ()))]
    free: Parts = []
    places: Parts = []
    for path, values in {**read, **own}.items():
        may_differ = _OF_REQUEST if path[0] == "request" else _OF_OBJECT
        if path[1] in may_differ and path not in (NAME, VALUE, NAMESPACE):
            part = free if path[0] == "object" and path not in own else places
            part.append([(), *_each(path, values)])
    for match in (*policy.matches, *chain.from_iterable(declared.rights.values())):
        names += match.namespaces or ()
        free += label_settings(match.object_selector, "object")
        places += label_settings(match.namespace_selector, "namespaceObject")
        for subject in match.subjects or ():
            name = (subject.user_pattern or subject.name).replace(WILDCARD, "a")
            called.append((name if subject.user_pattern else f"a member of {name}", name))
    users = [UserInfo(text, ("system:authenticated", name)) for text, name in called]
    asking = _each(USER, [ANYBODY, CONTROLLER, *users])
    spaces: list[Settings] = [()]
    if resource == PODS:
        spaces = _each(NAMESPACE, [UNNAMED, *samples(names, dots=False)])
    known = own | read
    known[NAME] = [*known.get(NAME, ()), *listed]
    decided = [*_decided(declared, about, resource, known)]
    return RuleQuestion(about, resource, [decided, spaces, *places, asking], free)


def _each(path: Path, values: Iterable[Any]) -> list[Settings]:
    """A field with each of these values."""
    return [((path, value),) for value in values]


def label_settings(selector: LabelSelector | None, variable: str) -> Parts:
    """The labels a selector reads: all as it wants them, and each alone with some values."""
    if selector is None:
        return []
    rows = [(key, "In", [value]) for key, value in (selector.match_labels or {}).items()]
    rows += [(row.key, row.operator, list(row.values or ())) for row in selector.match_expressions or ()]
    selected: Settings = ()
    alone: list[Settings] = []
    for key, operator, values in rows:
        path = (variable, "metadata", "labels", key)
        alone += _each(_ALIASES.get(path, path), [*values, "x"])
        if operator in ("In", "Exists"):
            selected += alone[-1 - len(values)]
    return [[(), selected, *alone]] if rows else []


def _read(expressions: Iterable[str], kind: str) -> dict[Path, list[Any]]:
    """The fields that expressions read, with values by type and comparisons."""
    tries: dict[Path, list[Any]] = {}
    for expression in expressions:
        tree = compile_bool(expression).tree
        for path, type_ in fields_read(tree, (kind,)).items():
            if len(path) == 1:
                continue
            values = _values(type_, literals(tree))
            place = _ALIASES.get(path, path)
            if place == _OWN_NAME and kind == CLASSES:
                place = NAME
            wanted = _TYPES.get(place, object)
            fitting = [value for value in values if isinstance(value, wanted) and value != ""]
            tries.setdefault(place, []).extend(fitting)
    return tries


def _values(type_: str, compared: Sequence[str | int]) -> list[Any]:
    texts: list[str] = []
    numbers: list[int] = []
    for value in compared:
        if isinstance(value, str):
            texts.append(f"{value}a" if value.endswith(("-", "/", ".")) else value)
        elif type(value) is int:
            numbers += (value, value - 1, value + 1)
    if type_ == "boolean":
        return [True, False]
    if type_ == "integer":
        return [*numbers, 1]
    if type_.startswith("["):
        sizes = (*sorted({1, 2}.union(size for size in numbers if 0 < size < 40)), 0)
        return [_values(type_[1:-1], compared)[:1] * size for size in sizes]
    if type_.startswith("{"):
        return [dict.fromkeys(texts, "x"), *({key: "x"} for key in (*texts, "x"))]
    if type_ in ("string", "quantity", "*"):
        tries = [*texts, *map(str, numbers)]
        for text in map(str, compared):
            plain = _SYNTAX.sub(_member, text)
            tries += (plain, f"{plain}a") if plain != text else ()
        return list(dict.fromkeys((*tries, "x", "1", "")))
    return [{"name": "a"}]


def _member(syntax: re.Match[str]) -> str:
    """The shortest text, mostly, that a part of a regular expression matches."""
    inside = (syntax[1] or "").strip("[]")
    first = inside[: 2 if inside.startswith("\\") else 1]
    return _MEMBERS.get(first, first[-1:]) * int(syntax[2] or 1)


def _decided(declared: Declaration, about: str, kind: str, read: dict[Path, list[Any]]) -> Iterator[Settings]:
    """What the rule is about: annotations that change, or classes by name and value."""
    made: Settings = ()
    changed: Settings = ((OPERATION, "UPDATE"),)
    operations = [made, changed]
    if declared.keys:
        operations = [row for row in operations if ("UPDATE" if row else "CREATE") in declared.operations]
        yield from ((*row, ((*CHANGE, key), "true")) for key in declared.keys for row in operations)
        return
    values = [1000, *read.get(VALUE, ())]
    names = ["c", *read.get(NAME, ()), *(declared.classes or ())]
    for right in declared.rights.get(about, ()):
        names += right.names or ()
    start, end = declared.range or (-(2**31), 2**31 - 1)
    values += declared.range or ()
    if declared.range is not None or declared.classes is not None:
        values += SYSTEM if kind == PODS else ()
        operations = [made] if kind == PODS else [made, (*changed, OPENED)]
    elif kind == PODS:
        yield from operations
    classes: dict[tuple[str, int], None] = {}
    for value, name in product(values, samples(names)):
        if start <= value <= end and (value <= 10**9 or value in SYSTEM):
            classes[SYSTEM.get(value, name), value] = None
    for (name, value), operation in product(classes, operations):
        yield (*operation, (NAME, name), (VALUE, value))
