"""What expressions must know of the cluster's PriorityClasses: a table, written into them as literals.

A pod's priority, its preemption policy and who may preempt stand in the pod itself, because the Priority plugin has
filled them in. A class that a pod is given is a parameter of the policy, which the API server reads from the same
cache as its plugin. The table is needed for what the pod's class says in annotations.

An entry is found by the class as the plugin resolved it for the pod at hand: by name, value and preemption policy, of
which the last two never change while a class lives. So an entry of a class that was deleted, or made again with other
numbers, is never found. The API server turns a literal map into a map once, when it takes a policy into use, and
looking a name up costs the same for 5 classes and for 1000. As parameters (`paramKind`) each class would be an
evaluation of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from webhook.kube.instants import epoch_or
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.native.expressions import mapping, quote

LONGEST_EXPRESSION = 100_000
"""Characters of an expression that the API server's parser takes (cel-go, `ExpressionSizeCodePointLimit`)."""
NEVER, PREEMPT = "Never", "PreemptLowerPriority"
NOT_IN_TABLE = f"it has quotes, is too long, or finds no room among {LONGEST_EXPRESSION} characters"
_IF_NEVER = "/Never"
_RECORDABLE = re.compile(r"[ !#-\[\]-~]{0,64}")
"""Values that stand in the record `giveway.dev/given` as they are: neither escaped nor shortened."""


class ClassTable:
    """The cluster's PriorityClasses, by name. Who may define a class in one of the `bands` is for policies to say."""

    def __init__(self, classes: Iterable[PriorityClass], bands: Iterable[tuple[int, int]] = ()) -> None:
        self._classes: Mapping[str, PriorityClass] = {
            class_.metadata.name: class_ for class_ in sorted(classes, key=lambda class_: class_.metadata.name)
        }
        self._bands = list(bands)

    def __contains__(self, name: str) -> bool:
        return name in self._classes

    @property
    def global_defaults(self) -> list[str]:
        """The classes with `globalDefault: true`; the Priority plugin fills one of them in."""
        return [name for name, class_ in self._classes.items() if class_.global_default]

    def annotation(self, key: str) -> str:
        """The literal of what each class says for an annotation; classes that do not say it are left out.

        So are those that `left_out` names.
        """
        return mapping((_entry(class_), quote(value)) for class_, value in self._told(key))

    def left_out(self, key: str) -> list[str]:
        """The classes whose annotation is not in the table: it cannot be recorded, or there is no room for it."""
        told = {class_.metadata.name for class_, _ in self._told(key)}
        return [class_.metadata.name for class_, _ in self._said(key) if class_.metadata.name not in told]

    def _told(self, key: str) -> list[tuple[PriorityClass, str]]:
        """The classes whose annotation is in the table, with its value: as many as have room, by importance.

        Classes in a band come first, which not everybody may define, and then the older ones: nobody makes those of
        others go by making more.
        """

        def importance(row: tuple[PriorityClass, str]) -> tuple[bool, float, str]:
            class_, metadata = row[0], row[0].metadata
            reserved = any(start <= class_.value <= end for start, end in self._bands)
            return not reserved, epoch_or(metadata.creation_timestamp, 0.0), metadata.name

        room, rows = LONGEST_EXPRESSION, list[tuple[PriorityClass, str]]()
        for class_, value in sorted(self._said(key), key=importance):
            room -= len(mapping([(_entry(class_), quote(value))])) if _RECORDABLE.fullmatch(value) else 0
            if room < 0:
                break
            if _RECORDABLE.fullmatch(value):
                rows.append((class_, value))
        return sorted(rows, key=lambda row: row[0].metadata.name)

    def _said(self, key: str) -> list[tuple[PriorityClass, str]]:
        rows = ((class_, (class_.metadata.annotations or {}).get(key)) for class_ in self._classes.values())
        return [(class_, value) for class_, value in rows if value is not None]


def resolved(name: str, priority: str, preemption_policy: str) -> str:
    """The key of an entry, as an expression of these: what the Priority plugin resolved a class to."""
    return f"{name} + '/' + string({priority}) + ({preemption_policy} == {quote(NEVER)} ? {quote(_IF_NEVER)} : '')"


def _entry(priority_class: PriorityClass) -> str:
    never = _IF_NEVER if priority_class.preemption_policy == NEVER else ""
    return f"{priority_class.metadata.name}/{priority_class.value}{never}"


def value_variable(key: str, keys: Sequence[str]) -> str:
    """The variable with what each class says for an annotation; numbered if several of the keys would give one name."""
    name = _camel_case(key)
    same = [other for other in keys if _camel_case(other) == name]
    return f"{name}_{same.index(key) + 1}" if len(same) > 1 or name == "className" else name


def _camel_case(key: str) -> str:
    """The end of an annotation's key as a name: `classMayGo` for `example.com/may-go`."""
    return "class" + "".join(word.capitalize() for word in re.split(r"[-._]", key.rpartition("/")[2]))
