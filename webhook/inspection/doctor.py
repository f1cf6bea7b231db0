"""The table of checks of `giveway doctor`, run over one read of the cluster. Adding a check is a function and a row."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.inspection.checks import (
    alive,
    budgets,
    certificates,
    classes,
    groups,
    native,
    policies,
    registration,
    rights,
    webhooks,
)
from webhook.inspection.cluster_findings import Check, ClusterFinding, finding
from webhook.inspection.observed import CONFIGURATIONS, Observed

_RBAC = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")

CHECKS = (
    Check("installed", CONFIGURATIONS, alive.present),
    Check("answers", ("giveway-probe", *CONFIGURATIONS), alive.silent),
    Check("deployments", ("deployments", *CONFIGURATIONS), alive.deployed),
    Check("leader", ("leases", "deployments", "priorityclasses"), alive.led),
    Check("policies-in-force", ("configmaps", *CONFIGURATIONS), policies.differing),
    Check("own-rights", ("deployments", *_RBAC), rights.missing),
    Check("registered", CONFIGURATIONS, registration.registered),
    Check("entries", CONFIGURATIONS, registration.old, by_policies=True),
    Check("preempting-classes", ("priorityclasses", "pods"), classes.preempting, by_policies=True),
    Check("reserved-ranges", ("priorityclasses", "namespaces", "pods"), classes.reserved, by_policies=True),
    Check("silent-classes", ("priorityclasses", "pods"), classes.silent),
    Check("drifted-annotations", ("priorityclasses", "namespaces", "pods"), classes.drifted, by_policies=True),
    Check("twins", ("priorityclasses",), classes.twins, by_policies=True),
    Check("expendable-pods", ("priorityclasses", "namespaces", "pods"), classes.expendable, by_policies=True),
    Check("budgets-covering-nothing", ("poddisruptionbudgets", "pods"), budgets.covering_nothing),
    Check("budgets-covering-twice", ("poddisruptionbudgets", "pods"), budgets.covering_twice),
    Check(
        "budgets-never-allowing",
        ("poddisruptionbudgets", "pods", "priorityclasses"),
        budgets.never_allowing,
        by_policies=True,
    ),
    Check("stuck-nominations", ("pods",), alive.stuck),
    Check("overdue-notices", ("pods",), alive.overdue_notices),
    Check("groups-too-small", ("podgroups", "pods"), groups.too_small),
    Check("groups-without-room", ("podgroups", "pods", "nodes", "deviceclasses"), groups.without_room),
    Check("groups-beyond-quota", ("podgroups", "pods", "resourcequotas"), groups.too_tight),
    Check("quotas-by-class", ("resourcequotas", "namespaces"), groups.by_class, by_policies=True),
    Check("exemptions", ("namespaces", "pods", *CONFIGURATIONS), webhooks.exempting),
    Check("lock-out", ("namespaces", "daemonsets", *CONFIGURATIONS), webhooks.locking_out),
    Check("later-webhooks", ("namespaces", "pods", *CONFIGURATIONS), webhooks.changing_classes),
    Check("rights", _RBAC, rights.around_the_shield),
    Check("not-recorded", ("pods", "priorityclasses", *_RBAC), rights.unrecorded, by_policies=True),
    Check("certificates", ("secrets", *CONFIGURATIONS), certificates.expiring),
    Check("policies", ("namespaces", "priorityclasses"), policies.matching_nothing, by_policies=True),
    Check("exceptions", (), policies.listed, by_policies=True),
    Check(
        "native-policies",
        ("priorityclasses", *native.PLURALS, *CONFIGURATIONS),
        native.in_step,
        by_policies=True,
    ),
    Check("unjudged-priorities", (), native.unjudged),
    Check("resizes", (), alive.without_resizes, by_policies=True),
    Check("versions", (), alive.untested),
)
"""Every check: its name, what must be readable, and the function. docs/operations.md explains each by its name."""


def left_out(observed: Observed) -> frozenset[str]:
    """The checks that are not made because no policies are known."""
    return frozenset(check.name for check in CHECKS if check.by_policies) if observed.no_policies else frozenset()


def examine(observed: Observed) -> Iterator[ClusterFinding]:
    """What all checks find; a check that lacks something it needs says so instead."""
    skipped = left_out(observed)
    if skipped:
        yield finding("policies.unknown", checks=", ".join(sorted(skipped)))
    for check in CHECKS:
        if check.name in skipped:
            continue
        lacking = [observed.missing[plural] for plural in check.needs if plural in observed.missing]
        if lacking:
            yield finding("checks.lacking", check=check.name, lacking="; ".join(lacking))
        else:
            yield from check.run(observed)
