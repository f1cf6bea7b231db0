"""What admission knows of the cluster: PriorityClasses and Namespaces, from whatever source, by name."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

from webhook.kube.objects import Namespace, PriorityClass
from webhook.policy.evaluation.engine import Engine, RuleTrace
from webhook.policy.model import PriorityPolicy

__all__ = ["CLASSES", "NAMESPACES", "RECONCILER", "SYSTEM_CLASSES", "Context", "Lookup", "Objects", "Overlay"]

CLASSES, NAMESPACES = "priorityclasses", "namespaces"
"""The two resources an answer can hinge on."""

RECONCILER = "system:serviceaccount:giveway-system:giveway-reconciler"
"""The user name of the reconciler as manifests/base installs it."""

SYSTEM_CLASSES = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}
"""The classes every Kubernetes has, with their values."""


class Lookup(Protocol):
    """Objects by name, as last heard of; None if there is no such object."""

    def priority_class(self, name: str) -> PriorityClass | None:
        """The PriorityClass of that name."""
        ...

    def default_priority_classes(self) -> Sequence[PriorityClass]:
        """All classes with `globalDefault: true`."""
        ...

    def namespace(self, name: str) -> Namespace | None:
        """The Namespace of that name."""
        ...


class Objects:
    """A Lookup over given objects; the two system classes are there unless given otherwise."""

    def __init__(self, classes: Iterable[PriorityClass] = (), namespaces: Iterable[Namespace] = ()) -> None:
        system = {name: _system_class(name, value) for name, value in SYSTEM_CLASSES.items()}
        self._classes = system | {item.metadata.name: item for item in classes}
        self._namespaces = {item.metadata.name: item for item in namespaces}
        self._defaults = [item for item in self._classes.values() if item.global_default]

    def priority_class(self, name: str) -> PriorityClass | None:
        """The PriorityClass of that name."""
        return self._classes.get(name)

    def priority_classes(self) -> Iterable[PriorityClass]:
        """All classes."""
        return self._classes.values()

    def default_priority_classes(self) -> Sequence[PriorityClass]:
        """All classes with `globalDefault: true`."""
        return self._defaults

    def namespace(self, name: str) -> Namespace | None:
        """The Namespace of that name."""
        return self._namespaces.get(name)


class Overlay:
    """A Lookup corrected by what was just read live; None says that the object is not there."""

    def __init__(
        self, below: Lookup, classes: Mapping[str, PriorityClass | None], namespaces: Mapping[str, Namespace | None]
    ) -> None:
        self._below, self._classes, self._namespaces = below, classes, namespaces

    def priority_class(self, name: str) -> PriorityClass | None:
        """The PriorityClass of that name."""
        return self._classes[name] if name in self._classes else self._below.priority_class(name)

    def default_priority_classes(self) -> Sequence[PriorityClass]:
        """All classes with `globalDefault: true`."""
        cached = [item for item in self._below.default_priority_classes() if item.metadata.name not in self._classes]
        return cached + [item for item in self._classes.values() if item is not None and item.global_default]

    def namespace(self, name: str) -> Namespace | None:
        """The Namespace of that name."""
        return self._namespaces[name] if name in self._namespaces else self._below.namespace(name)


class Context:
    """What a review is judged by: the compiled policies, the cluster's objects, and where to say why, if anywhere.

    `reconciler` is the user name under which the reconciler writes giveway's own annotations. `allowance` is how many
    nanoseconds the expressions may take by their estimates before the review is given up with AllowanceError; None
    for any number. `clock` gives the time of a request, by which exceptions end, in seconds since the epoch.
    """

    def __init__(
        self,
        engine: Engine,
        lookup: Lookup,
        trace: list[RuleTrace] | None = None,
        *,
        reconciler: str = RECONCILER,
        allowance: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.engine, self.lookup, self.trace, self.reconciler = engine, lookup, trace, reconciler
        self.allowance, self.clock = allowance, clock
        self.reads_everything = trace is not None or any(map(_has_expressions, engine.policies.priority))
        """Whether a rule may read any field of an object, so that objects are decoded in full."""
        self.managed = lru_cache(4096)(engine.managed)
        """The policy and twin of a managed class, by its name."""

    def with_lookup(self, lookup: Lookup) -> Context:
        """The same policies over other objects."""
        changed = copy.copy(self)
        changed.lookup = lookup
        return changed

    def is_managed(self, name: str) -> bool:
        """Whether pods of this class are the reconciler's to preempt for."""
        return self.managed(name) is not None


def _has_expressions(policy: PriorityPolicy) -> bool:
    return bool(policy.conditions) or any(rule.validate is not None for rule in policy.rules)


def _system_class(name: str, value: int) -> PriorityClass:
    found = PriorityClass(value=value, preemption_policy="PreemptLowerPriority")
    found.metadata.name = name
    return found
