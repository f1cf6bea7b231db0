"""Rights: what a request needs, which ones a user exercised, and which granted ones nobody used.

A test runs the shipped manifests' components against the embedded control plane and then asks `UsedRights`
for refused rights (too few were granted) and `unused` for granted ones that were never exercised (too many).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from webhook.embedded.protocol.calls import Right

__all__ = ["UsedRights", "unused"]


class UsedRights:
    """The rights that users exercised, and those they were refused; names of objects are left out of the first."""

    def __init__(self) -> None:
        self._granted: dict[str, set[Right]] = {}
        self._refused: dict[str, set[Right]] = {}

    def record(self, user: str, right: Right, allowed: bool) -> None:
        """Note one decision."""
        if allowed:
            self._granted.setdefault(user, set()).add(replace(right, name=""))
        else:
            self._refused.setdefault(user, set()).add(right)

    def of(self, user: str) -> frozenset[Right]:
        """What the user did."""
        return frozenset(self._granted.get(user, ()))

    def refused(self, user: str) -> frozenset[Right]:
        """What the user was not allowed to do."""
        return frozenset(self._refused.get(user, ()))

    def clear(self) -> None:
        """Forget everything noted so far."""
        self._granted.clear()
        self._refused.clear()


def unused(rules: Iterable[Mapping[str, Any]], used: Iterable[Right]) -> list[str]:
    """Each `verb resource.group` that the PolicyRules grant and nobody used, in the rules' order."""
    exercised = {(right.verb, right.group, right.full_resource) for right in used if right.resource}
    paths = {(right.verb, right.path) for right in used if right.path}
    found = []
    for rule in rules:
        granted = product(rule.get("verbs") or (), rule.get("apiGroups") or (), rule.get("resources") or ())
        left = [one for one in granted if one not in exercised]
        found += [f"{verb} {resource}.{group}" if group else f"{verb} {resource}" for verb, group, resource in left]
        urls = product(rule.get("verbs") or (), rule.get("nonResourceURLs") or ())
        found += [f"{verb} {path}" for verb, path in urls if (verb, path) not in paths]
    return found
