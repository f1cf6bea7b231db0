"""Which PriorityClasses are managed, as CEL (docs/semantics.md A)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from webhook.native.expressions import FALSE, TRUE, all_of, any_of, name_is, quote
from webhook.policy.evaluation.globs import WILDCARD, intersect, literal_prefix
from webhook.policy.model import PreemptionPolicy

__all__ = ["managed", "managed_if_generated", "twins_of"]


def twins_of(policies: Iterable[PreemptionPolicy]) -> dict[str, str]:
    """Every class with its twin; the first policy counts. Kubernetes' own classes have none."""
    found: dict[str, str] = {}
    for policy in policies:
        for name, twin in policy.preemptors.twins.items():
            if not name.startswith("system-"):
                found.setdefault(name, twin)
    return found


def managed(policies: Iterable[PreemptionPolicy], name: str) -> str:
    """The class of this name (an expression) is managed; Kubernetes' own never are."""
    patterns = list(_patterns(policies))
    if not patterns:
        return FALSE
    may_be_system = any(intersect(pattern, f"system-{WILDCARD}") for pattern in patterns)
    own = f"!{name}.startsWith('system-')" if may_be_system else TRUE
    return all_of([own, name_is(name, patterns)])


def managed_if_generated(policies: Iterable[PreemptionPolicy], prefix: str) -> str:
    """A class whose name the API server makes of this `generateName` (an expression) may be managed.

    A glob matches some name with the prefix if the prefix begins with what stands before the first `*`, or the reverse.
    """
    globs = [one for policy in policies for one in policy.preemptors.priority_classes if WILDCARD in one]
    tests = []
    for literal in dict.fromkeys(map(literal_prefix, globs)):
        begins = any_of([f"{prefix}.startsWith({quote(literal)})", f"{quote(literal)}.startsWith({prefix})"])
        tests.append(begins if literal else TRUE)
    may_be = any_of(tests)
    return FALSE if may_be == FALSE else all_of([f"{prefix} != ''", f"!{prefix}.startsWith('system-')", may_be])


def _patterns(policies: Iterable[PreemptionPolicy]) -> Iterator[str]:
    for policy in policies:
        yield from policy.preemptors.priority_classes
        yield from policy.preemptors.twins
        yield from policy.preemptors.twins.values()
