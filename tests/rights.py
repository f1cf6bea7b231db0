"""Which rights were exercised, and which were granted for nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.protocol.calls import Right


def used_rights(cluster: EmbeddedCluster, user: str, *, allowed: bool = True) -> frozenset[Right]:
    """What the user did, without names, or was not allowed to do."""
    return frozenset(right for name, right, was in cluster.authorizer.used if name == user and was is allowed)


def unused(rules: Iterable[Mapping[str, Any]], used: Iterable[Right]) -> list[str]:
    """Each `verb resource.group` that the PolicyRules grant and nobody used, in the rules' order."""
    exercised = {(right.verb, right.group, right.full_resource) for right in used if right.resource}
    paths = {(right.verb, right.path) for right in used if right.path}
    lines = []
    for rule in rules:
        granted = product(rule.get("verbs") or (), rule.get("apiGroups") or (), rule.get("resources") or ())
        left = [right for right in granted if right not in exercised]
        lines += [f"{verb} {resource}.{group}" if group else f"{verb} {resource}" for verb, group, resource in left]
        urls = product(rule.get("verbs") or (), rule.get("nonResourceURLs") or ())
        lines += [f"{verb} {path}" for verb, path in urls if (verb, path) not in paths]
    return lines
