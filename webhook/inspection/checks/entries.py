"""Whether webhook configurations that an administrator applied are those that the policies in force need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from webhook.inspection.checks.installation import there
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, names
from webhook.inspection.observed import CONFIGURATIONS, Observed
from webhook.registration import stored
from webhook.registration.applied import applied_entries, is_applied
from webhook.registration.entries import MUTATING, PROBES, VALIDATING, WebhookTarget, entries

Json = dict[str, Any]

_PLURALS = dict(zip((MUTATING, VALIDATING), CONFIGURATIONS, strict=True))
_RECONCILER = re.compile(r"request\.userInfo\.username != '((?:[^'\\]|\\.)*)'")


def old(observed: Observed) -> Iterator[ClusterFinding]:
    """Entries that no replica keeps and that differ from what `giveway compile --webhook` prints for these policies.

    Those that a replica keeps are its own to renew; another version may write others. Where they send reviews, and what
    happens without an answer, is taken from the entries themselves.
    """
    if not there(observed):
        return
    target = _target(observed)
    to_apply, to_keep = applied_entries(observed.policies, target), entries(observed.policies, target)
    for kind, plural in _PLURALS.items():
        configuration = observed.own_configuration(plural)
        webhooks = configuration.get("webhooks") or []
        static = observed.own_state.static_entries or is_applied(webhooks)
        if all(entry["name"] in PROBES for entry in webhooks) or (stored.is_ours(configuration) and not static):
            continue
        wanted = (to_apply if static else to_keep)[kind]
        if stored.digest(webhooks) == stored.digest(wanted):
            continue
        meant = {entry["name"]: stored.digest([entry]) for entry in wanted}
        are = {entry["name"]: stored.digest([entry]) for entry in webhooks}
        differ = [name for name in {**meant, **are} if meant.get(name) != are.get(name)]
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"{kind} giveway is not what the policies in force need: {names(differ) if differ else 'another order'}.",
            "No replica writes it. What its matchConditions leave out is not judged.",
            "Make it again with giveway compile --webhook and the same options, and apply it."
            if static
            else "If it comes from a file: make the file again with giveway compile --webhook, and apply it. If the"
            " webhook keeps it, it is put back within seconds.",
        )


def _target(observed: Observed) -> WebhookTarget:
    """Where the stored entries send reviews, as the options of `giveway compile --webhook` would say it."""
    reconciler = f"system:serviceaccount:{observed.own}:giveway-reconciler"
    by_name = {entry["name"]: entry for entry in observed.own_entries()}
    pods = by_name.get("pods.validate.giveway.dev") or {}
    client = pods.get("clientConfig") or {}
    service = client.get("service") or {}
    for condition in (by_name.get("pods-status.validate.giveway.dev") or {}).get("matchConditions") or ():
        if said := _RECONCILER.fullmatch(condition.get("expression", "")):
            reconciler = re.sub(r"\\(.)", r"\1", said[1])
    return WebhookTarget(
        namespace=observed.own,
        service=service.get("name", WebhookTarget().service),
        port=service.get("port", WebhookTarget().port),
        url=client["url"].rpartition("/")[0] if client.get("url") else None,
        failure_policy=pods.get("failurePolicy", "Fail"),
        reconciler=reconciler,
        priority_plugin="pods-system.mutate.giveway.dev" not in by_name,
    )
