"""Faults on demand: what a test lets the embedded API server do wrong."""

from __future__ import annotations

from fnmatch import fnmatchcase

from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.protocol.calls import Right
from webhook.clusters.embedded.protocol.statuses import internal_error


def fail(cluster: EmbeddedCluster, times: float, resource: str, *, verb: str = "*", name: str = "*") -> None:
    """Answer the next matching requests with 500; all but `times` are patterns with `*`, such as `pods/eviction`."""
    left = [times]

    def check(right: Right) -> None:
        asked = (right.full_resource, right.verb, right.name)
        if left[0] > 0 and all(map(fnmatchcase, asked, (resource, verb, name))):
            left[0] -= 1
            raise internal_error("fault on demand")

    cluster.api.checks.append(check)
