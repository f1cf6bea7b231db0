"""Which policies and reserved ranges a request could concern, found by look-up rather than by trying each."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from msgspec.structs import replace

from webhook.kube.objects.meta import LabelSelector
from webhook.policy.evaluation.request import PODS, RequestAttributes
from webhook.policy.model.globs import WILDCARD, literal_prefix
from webhook.policy.model.match import RequestMatch

T = TypeVar("T")


class MatchIndex(Generic[T]):
    """Entries by the most telling part of their `match`; what has none is a candidate always.

    A candidate may still not match; an entry that is no candidate cannot match. Of pods that service accounts make
    `subjects` say nothing, so for them the entries are kept a second time, by the other parts.
    """

    def __init__(self) -> None:
        self._for_people, self._for_service_accounts = _Table[T](), _Table[T]()

    def add(self, match: RequestMatch, entry: T) -> None:
        """Add an entry; candidates come in the order of adding."""
        self._for_people.add(match, entry)
        self._for_service_accounts.add(replace(match, subjects=None), entry)

    def candidates(self, attributes: RequestAttributes) -> Iterable[T]:
        """The entries that could match, in the order of adding, each once."""
        table = self._for_service_accounts if attributes.by_service_account else self._for_people
        return table.candidates(attributes)


class _Table(Generic[T]):
    """The entries of an index, by one part of their `match` each."""

    def __init__(self) -> None:
        self._always: list[tuple[int, T]] = []
        self._entries: list[T] = []
        self._namespaces = _Prefixes[T]()
        self._users: dict[str, list[tuple[int, T]]] = defaultdict(list)
        self._groups: dict[str, list[tuple[int, T]]] = defaultdict(list)
        self._labels = _Labels[T]()
        self._namespace_labels = _Labels[T]()
        self._count = 0

    def add(self, match: RequestMatch, entry: T) -> None:
        row = (self._count, entry)
        self._count += 1
        if match.namespaces is not None and all(map(literal_prefix, match.namespaces)):
            self._namespaces.add(match.namespaces, row)
        elif match.subjects is not None and not any(
            WILDCARD in subject.name + subject.namespace for subject in match.subjects
        ):
            for subject in match.subjects:
                user = subject.user_pattern
                (self._groups[subject.name] if user is None else self._users[user]).append(row)
        elif pairs := _telling(match.object_selector):
            self._labels.add(pairs, row)
        elif pairs := _telling(match.namespace_selector):
            self._namespace_labels.add(pairs, row)
        else:
            self._always.append(row)
            self._entries.append(entry)

    def candidates(self, attributes: RequestAttributes) -> Iterable[T]:
        if len(self._always) == self._count:
            return self._entries  # all of them: the ordinary case of a small set costs no sorting
        by_place = dict(self._always)
        if attributes.kind == PODS:
            by_place.update(self._namespaces.find(attributes.request.namespace))
            by_place.update(self._namespace_labels.find(attributes.namespace_labels) if self._namespace_labels else ())
        else:
            by_place.update(self._namespaces.everything)
            by_place.update(self._namespace_labels.everything)
        user = attributes.request.user
        by_place.update(self._users.get(user.username, ()))
        for group in user.groups if self._groups else ():
            by_place.update(self._groups.get(group, ()))
        if self._labels and not attributes.request.labels_known:
            by_place.update(self._labels.everything)
        elif self._labels:
            by_place.update(self._labels.find(attributes.labels))
            by_place.update(self._labels.find(attributes.old_labels or {}))
        return [by_place[place] for place in sorted(by_place)]


def _telling(selector: LabelSelector | None) -> list[tuple[str, str]]:
    """Labels of which whatever the selector selects has one: those of a `matchLabels`, or the values of an `In`."""
    if selector is None:
        return []
    if selector.match_labels:
        return list(selector.match_labels.items())[:1]
    wanted = next((row for row in selector.match_expressions or () if row.operator == "In"), None)
    return [(wanted.key, value) for value in wanted.values or ()] if wanted else []


class _Prefixes(Generic[T]):
    """Entries by literal name, and by what their globs begin with."""

    def __init__(self) -> None:
        self.everything: list[tuple[int, T]] = []
        self._names: dict[str, list[tuple[int, T]]] = defaultdict(list)
        self._prefixes: dict[int, dict[str, list[tuple[int, T]]]] = defaultdict(lambda: defaultdict(list))

    def add(self, patterns: Iterable[str], row: tuple[int, T]) -> None:
        self.everything.append(row)
        for pattern in patterns:
            if WILDCARD in pattern:
                prefix = literal_prefix(pattern)
                self._prefixes[len(prefix)][prefix].append(row)
            else:
                self._names[pattern].append(row)

    def find(self, name: str) -> Iterable[tuple[int, T]]:
        yield from self._names.get(name, ())
        for length, rows in self._prefixes.items():
            yield from rows.get(name[:length], ())


class _Labels(Generic[T]):
    """Entries by the labels of which they ask for one."""

    def __init__(self) -> None:
        self.everything: list[tuple[int, T]] = []
        self._rows: dict[str, dict[str, list[tuple[int, T]]]] = defaultdict(lambda: defaultdict(list))

    def __bool__(self) -> bool:
        return bool(self.everything)

    def add(self, pairs: Iterable[tuple[str, str]], row: tuple[int, T]) -> None:
        self.everything.append(row)
        for key, value in pairs:
            self._rows[key][value].append(row)

    def find(self, labels: Mapping[str, str]) -> Iterable[tuple[int, T]]:
        few, many = (self._rows, labels) if len(self._rows) < len(labels) else (labels, self._rows)
        for key in few:
            if key in many:
                yield from self._rows[key].get(labels[key], ())


class RangeIndex(Generic[T]):
    """Entries by closed ranges of integers, sorted. Overlaps are legal here, and linted elsewhere."""

    def __init__(self, rows: Iterable[tuple[int, int, T]]) -> None:
        self._rows = sorted(rows, key=lambda row: row[:2])
        self._starts = [row[0] for row in self._rows]
        self._reach: list[int] = []
        for _, end, _ in self._rows:
            self._reach.append(max(end, self._reach[-1]) if self._reach else end)

    def holding(self, value: int) -> list[T]:
        """The entries whose range holds the value; for ranges that do not overlap, one step after the search."""
        rows = []
        place = bisect_right(self._starts, value) - 1
        while place >= 0 and self._reach[place] >= value:
            if self._rows[place][1] >= value:
                rows.append(self._rows[place][2])
            place -= 1
        return rows[::-1]
