"""Webhook configurations of everybody: what they leave out, and whom they could lock out."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, finding
from webhook.inspection.observed import CONFIGURATIONS, Observed
from webhook.inspection.reading import namespace_labels
from webhook.kube.objects.meta import LabelSelector
from webhook.kube.selectors import SelectorError, everything, label_matcher
from webhook.registration.entries import EXEMPT

Json = dict[str, Any]

_MOST_EXEMPT = 0.5


def exempting(observed: Observed) -> Iterator[ClusterFinding]:
    """Namespaces that giveway is not asked about."""
    pods, spaces = Counter(pod.metadata.namespace for pod in observed.pods), sorted(observed.namespaces.items())
    exempt = {name: pods[name] for name, namespace in spaces if EXEMPT in (namespace.metadata.labels or {})}
    if exempt:
        share = sum(exempt.values()) / max(1, len(observed.pods))
        severity = FindingSeverity.WARNING if share > _MOST_EXEMPT else FindingSeverity.INFO
        yield finding("exemptions.labelled", severity=severity, exempt=exempt, labelled=list(exempt))


def locking_out(observed: Observed) -> Iterator[ClusterFinding]:
    """Webhooks that refuse pods if nobody answers, and whose own pods or the cluster's basis depend on them."""
    services = {(row["metadata"]["namespace"], row["metadata"]["name"]) for row in observed.objects["services"]}
    basis = ["kube-system", *(row["metadata"]["namespace"] for row in observed.objects["daemonsets"] if _of_nodes(row))]
    for where, entry in _closed_to_new_pods(observed):
        service = (entry.get("clientConfig") or {}).get("service") or {}
        own = service.get("namespace", "")
        if service and "services" not in observed.missing and (own, service.get("name")) not in services:
            yield finding("lock-out.no-service", where=where, own=own, service=service.get("name"), entry=entry)
            continue
        try:
            selects = label_matcher(msgspec.convert(entry.get("namespaceSelector") or {}, LabelSelector))
        except (msgspec.ValidationError, SelectorError):
            selects = everything
        needed = filter(None, dict.fromkeys((*basis, own)))
        selected = [name for name in needed if selects(namespace_labels(name, observed.namespaces.get(name)))]
        if selected and not entry.get("objectSelector"):
            unless = " (unless its matchConditions leave them out)" if entry.get("matchConditions") else ""
            yield finding("lock-out.basis", where=where, selected=selected, entry=entry, unless=unless)


def _of_nodes(daemon_set: dict[str, Any]) -> bool:
    """Whether nodes may need the DaemonSet: it is of the host's network, or tolerates every taint."""
    spec = daemon_set["spec"]["template"].get("spec") or {}
    tolerations = spec.get("tolerations") or ()
    return bool(spec.get("hostNetwork")) or any(
        not row.get("key") and row.get("operator") == "Exists" for row in tolerations
    )


def _closed_to_new_pods(observed: Observed) -> Iterator[tuple[str, Json]]:
    """Every entry that is asked about new pods and fails closed, with the words that name its configuration."""
    for plural, kind in CONFIGURATIONS.items():
        for configuration in observed.objects[plural]:
            for entry in configuration.get("webhooks") or ():
                if entry.get("failurePolicy", "Fail") == "Fail" and any(
                    {"", "*"} & set(rule.get("apiGroups") or ())
                    and {"pods", "*", "*/*"} & set(rule.get("resources") or ())
                    and {"CREATE", "*"} & set(rule.get("operations") or ())
                    for rule in entry.get("rules") or ()
                ):
                    yield f"{kind} {configuration['metadata']['name']}", entry
