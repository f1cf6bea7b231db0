"""Whether the API server asks giveway, and by the entries that the policies in force need."""

import re
from collections.abc import Iterator
from typing import Any

from webhook.component_base.own_names import WEBHOOK, reconciler_user
from webhook.inspection.checks.alive import there
from webhook.inspection.checks.native import who_enforces
from webhook.inspection.cluster_findings import ClusterFinding, finding, names, sentence
from webhook.inspection.observed import CONFIGURATIONS, Observed
from webhook.kube.rollouts import unready
from webhook.native.drift import Mode
from webhook.registration import stored
from webhook.registration.entries import PROBES, WebhookTarget, entries

Json = dict[str, Any]

_RECONCILER = re.compile(r"request\.userInfo\.username != '((?:[^'\\]|\\.)*)'")


def registered(observed: Observed) -> Iterator[ClusterFinding]:
    """Whether the API server asks giveway about pods at all, and what happens if nobody answers.

    Without a webhook, the API server's own policies may enforce everything.
    """
    mode = who_enforces(observed)
    if mode is Mode.NATIVE or not there(observed):
        return
    for plural, kind in CONFIGURATIONS.items():
        configuration = observed.own_configuration(plural)
        rules = [entry for entry in configuration.get("webhooks") or () if entry["name"] not in PROBES]
        if not configuration:
            yield finding("registered.gone", kind=kind)
        elif not rules:
            yield finding("registered.empty", kind=kind, fix=_never_came_up(observed))
        elif mode is not Mode.BACKSTOP and any(
            entry.get("failurePolicy") == "Ignore" for entry in rules if entry["name"].startswith("pods.")
        ):
            yield finding("registered.open", kind=kind)


def _never_came_up(observed: Observed) -> str:
    """What to look at when the entries were never written."""
    deployment = observed.own_state.deployments.get(WEBHOOK)
    if observed.own_state.static_entries:
        return sentence("empty-static")
    if deployment and (waits := unready(deployment, ())):
        return sentence("empty-unready", waits=waits)
    where = f"kubectl -n {observed.own} logs deploy/{WEBHOOK}" if deployment else "the webhook's log"
    return sentence("empty-unreached", where=where)


def old(observed: Observed) -> Iterator[ClusterFinding]:
    """Entries that no replica keeps and that differ from what `giveway compile --webhook` prints for these policies.

    Those that a replica keeps are its own to renew; another version may write others. Where they send reviews, and what
    happens without an answer, is taken from the entries themselves.
    """
    if not there(observed):
        return
    by_kind, static = entries(observed.policies, _target(observed)), observed.own_state.static_entries
    for plural, kind in CONFIGURATIONS.items():
        configuration = observed.own_configuration(plural)
        webhooks = configuration.get("webhooks") or []
        if all(entry["name"] in PROBES for entry in webhooks) or (stored.is_ours(configuration) and not static):
            continue
        if stored.digest(webhooks) == stored.digest(by_kind[kind]):
            continue
        meant = {entry["name"]: stored.digest([entry]) for entry in by_kind[kind]}
        are = {entry["name"]: stored.digest([entry]) for entry in webhooks}
        differ = [name for name in {**meant, **are} if meant.get(name) != are.get(name)]
        yield finding(f"entries.{'applied' if static else 'kept'}", kind=kind, differ=names(differ) or "another order")


def _target(observed: Observed) -> WebhookTarget:
    """Where the stored entries send reviews, as the options of `giveway compile --webhook` would say it."""
    reconciler = reconciler_user(observed.own)
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
