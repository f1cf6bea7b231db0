"""Rights that giveway's own service accounts need and do not have, by the cluster's RBAC objects.

Only accounts whose Deployment is there are looked at: a process outside the cluster may act as somebody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from webhook.inspection.checks.rights import BoundRole, grants
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, names
from webhook.inspection.observed import CONFIGURATIONS, Observed

_READ, _FOLLOW = ("list", "watch"), ("get", "list", "watch")
_ADMISSION = "admissionregistration.k8s.io"


class Needed(NamedTuple):
    """Verbs on resources of one group; `own` if they are needed in giveway's own namespace only."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    own: bool = False


NEEDED: dict[str, tuple[Needed, ...]] = {
    "giveway-webhook": (
        Needed("scheduling.k8s.io", ("priorityclasses",), _FOLLOW),
        Needed("scheduling.k8s.io", ("podgroups",), _FOLLOW),
        Needed("", ("namespaces",), _FOLLOW),
        Needed(_ADMISSION, CONFIGURATIONS, ("get", "update")),
        Needed("", ("secrets",), ("get", "update"), own=True),
        Needed("", ("configmaps",), ("create", "get", "update"), own=True),
        Needed("", ("configmaps",), ("patch",), own=True),
        Needed("apps", ("deployments",), ("get",), own=True),
    ),
    "giveway-reconciler": (
        Needed("", ("pods",), _FOLLOW),
        Needed("", ("pods/status",), ("patch",)),
        Needed("", ("pods/eviction",), ("create",)),
        Needed("", ("nodes", "namespaces", "persistentvolumes", "persistentvolumeclaims"), _READ),
        Needed("storage.k8s.io", ("storageclasses", "csinodes"), _READ),
        Needed("resource.k8s.io", ("deviceclasses", "resourceslices", "resourceclaims"), _READ),
        Needed("scheduling.k8s.io", ("priorityclasses", "podgroups"), _READ),
        Needed("scheduling.x-k8s.io", ("podgroups",), _READ),
        Needed("scheduling.volcano.sh", ("podgroups",), _READ),
        Needed("policy", ("poddisruptionbudgets",), _READ),
        Needed("events.k8s.io", ("events",), ("create", "patch")),
        Needed("apps", ("replicasets",), ("get",)),
        Needed("coordination.k8s.io", ("leases",), ("create", "get", "update"), own=True),
        Needed("", ("configmaps",), ("get",), own=True),
    ),
}
"""What each service account of manifests/base needs; a test compares it with the manifests."""


def missing(observed: Observed) -> Iterator[ClusterFinding]:
    """Each service account that lacks a right, and which."""
    known, static = list(grants(observed)), observed.own_state.static_entries
    for account, needs in NEEDED.items():
        deployment = observed.own_state.deployments.get(account)
        if deployment is None:
            continue
        # What it needs only to keep the entries of its configurations, it does not if an administrator applies them
        keeps = not (static and account == "giveway-webhook")
        needed = [row for row in needs if keeps or row.resources != CONFIGURATIONS]
        held = [grant for grant in known if f"ServiceAccount {observed.own}/{account}" in grant.subjects]
        lacking = [
            f"{verb} {resource}" + (f" in {observed.own}" if row.own else "")
            for row in needed
            for resource in row.resources
            for verb in row.verbs
            if not any(_has(grant, row, resource, verb, observed.own) for grant in held)
        ]
        if lacking:
            yield ClusterFinding(
                FindingSeverity.ERROR,
                f"Service account {observed.own}/{account} may not {names(lacking)}.",
                "What it needs the right for fails with 403, and it tries again and again.",
                "giveway install applies the roles and bindings again, as does kubectl apply -k; see who changed them.",
            )
        rows = [] if keeps else [Needed(_ADMISSION, (resource,), ("update",)) for resource in CONFIGURATIONS]
        may = [
            row.resources[0]
            for row in rows
            for grant in held
            if _has(grant, row, row.resources[0], "update", observed.own)
        ]
        if may:
            yield ClusterFinding(
                FindingSeverity.WARNING,
                f"Service account {observed.own}/{account} may still update {names(may)}.",
                "It has --entries=static so that its token cannot change what the API server asks whom.",
                "Apply the component static-entries, whose ClusterRole is without these rights.",
            )


def _has(grant: BoundRole, row: Needed, resource: str, verb: str, own: str) -> bool:
    """Whether a grant allows it, on some objects at least: most rights are for objects of one name."""
    if grant.namespace and not (row.own and grant.namespace == own):
        return False
    return any(
        {"*", row.group} & set(rule.get("apiGroups") or ())
        and {"*", resource} & set(rule.get("resources") or ())
        and {"*", verb} & set(rule.get("verbs") or ())
        for rule in grant.rules
    )
