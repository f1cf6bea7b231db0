"""What expressions must know of the cluster's PriorityClasses: a table, written into them as literals.

A pod's priority, its preemption policy and who may preempt stand in the pod itself, because the Priority plugin has
filled them in. The table is needed for what only a class says: the numbers of a class that a pod is given, and the
annotations that are copied. The API server turns a literal map into a map once, when it takes a policy into use, and
looking a name up costs the same for 5 classes and for 1000. As parameters (`paramKind`) each class would be an
evaluation of its own, and one object with all classes would be converted again for every pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from webhook.kube.objects import PriorityClass
from webhook.native.expressions import mapping, quote

__all__ = ["LONGEST_EXPRESSION", "ClassTable"]

LONGEST_EXPRESSION = 100_000
"""Characters of an expression that the API server's parser takes (cel-go, `ExpressionSizeCodePointLimit`)."""
NEVER, PREEMPT = "Never", "PreemptLowerPriority"
_RECORDABLE = re.compile(r"[ !#-\[\]-~]{0,64}")
"""Values that stand in the record `giveway.dev/given` as they are: neither escaped nor shortened."""


class ClassTable:
    """The cluster's PriorityClasses, by name."""

    def __init__(self, classes: Iterable[PriorityClass]) -> None:
        self._classes: Mapping[str, PriorityClass] = {
            one.metadata.name: one for one in sorted(classes, key=lambda one: one.metadata.name)
        }

    def __contains__(self, name: str) -> bool:
        return name in self._classes

    @property
    def global_defaults(self) -> list[str]:
        """The classes with `globalDefault: true`; the Priority plugin fills one of them in."""
        return [name for name, one in self._classes.items() if one.global_default]

    def never(self, name: str) -> bool:
        """Whether the class is there and has `preemptionPolicy: Never`."""
        return name in self._classes and self._classes[name].preemption_policy == NEVER

    def usable_twins(self, twins: Mapping[str, str]) -> dict[str, str]:
        """Of the twins those to which pods can be moved: of the same value, the twin `Never` and the class not."""
        found = {}
        for name, twin in sorted(twins.items()):
            known = name in self._classes and twin in self._classes
            if known and not self.never(name) and self.never(twin) and self.value(name) == self.value(twin):
                found[name] = twin
        return found

    def value(self, name: str) -> int:
        """The value of a class that is there."""
        return self._classes[name].value

    def numbers(self, names: Iterable[str]) -> tuple[str, str]:
        """Two literals for these classes: their values, and their preemption policies."""
        known = sorted(set(names) & self._classes.keys())
        policies = ((name, quote(NEVER if self.never(name) else PREEMPT)) for name in known)
        return mapping((name, str(self.value(name))) for name in known), mapping(policies)

    def annotation(self, key: str) -> str:
        """The literal of what each class says for an annotation; classes that do not say it are left out."""
        return mapping((name, quote(value)) for name, value in self._said(key) if _RECORDABLE.fullmatch(value))

    def unrecordable(self, key: str) -> list[str]:
        """The classes whose value of an annotation cannot be copied, because the record could not tell it."""
        return [name for name, value in self._said(key) if not _RECORDABLE.fullmatch(value)]

    def _said(self, key: str) -> list[tuple[str, str]]:
        rows = ((name, (one.metadata.annotations or {}).get(key)) for name, one in self._classes.items())
        return [(name, value) for name, value in rows if value is not None]
