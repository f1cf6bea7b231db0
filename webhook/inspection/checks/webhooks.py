"""Webhook configurations, giveway's and everybody's: what they leave out, whom they could lock out, what runs after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from webhook.admission.mutating import given_earlier
from webhook.component_base.own_names import WEBHOOK
from webhook.inspection.checks.installation import there
from webhook.inspection.checks.native import who_enforces
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, counted, names
from webhook.inspection.observed import CONFIGURATIONS, Observed
from webhook.inspection.scope import namespace_labels
from webhook.kube.objects.meta import LabelSelector
from webhook.kube.rollouts import unready
from webhook.kube.selectors import SelectorError, everything, label_matcher
from webhook.native.drift import Mode
from webhook.registration.entries import EXEMPT, PROBES

Json = dict[str, Any]

_OURS = "giveway"
_MUTATING, _VALIDATING = CONFIGURATIONS
_KINDS = {_MUTATING: "MutatingWebhookConfiguration", _VALIDATING: "ValidatingWebhookConfiguration"}
_MOST_EXEMPT = 0.5


def registered(observed: Observed) -> Iterator[ClusterFinding]:
    """Whether the API server asks giveway about pods at all, and what happens if nobody answers.

    Without a webhook, the API server's own policies may enforce everything.
    """
    mode = who_enforces(observed)
    if mode is Mode.NATIVE or not there(observed):
        return
    for plural, kind in _KINDS.items():
        configuration = observed.own_configuration(plural)
        rules = [entry for entry in _entries(configuration) if entry["name"] not in PROBES]
        if not configuration:
            yield ClusterFinding(
                FindingSeverity.ERROR,
                f"There is no {kind} {_OURS}: the API server asks giveway about nothing.",
                "No policy is enforced. Pods that are made meanwhile are never judged again.",
                "If giveway is to be installed: giveway install. After a break-glass: apply the manifests again, then"
                " run giveway scan.",
            )
        elif not rules:
            yield ClusterFinding(
                FindingSeverity.ERROR,
                f"{kind} {_OURS} has no entries that judge anything.",
                "Until they are there no policy is enforced.",
                _never_came_up(observed),
            )
        elif mode is not Mode.BACKSTOP and any(
            entry.get("failurePolicy") == "Ignore" for entry in rules if entry["name"].startswith("pods.")
        ):
            yield ClusterFinding(
                FindingSeverity.INFO,
                f"{kind} {_OURS} has failurePolicy Ignore for pods.",
                "Pods that are made while no replica answers are not judged, then or later.",
                "Run giveway scan after every outage; or start the webhook with --failure-policy=Fail.",
            )


def _never_came_up(observed: Observed) -> str:
    """What to look at when the entries were never written."""
    deployment = observed.own_state.deployments.get(WEBHOOK)
    if observed.own_state.static_entries:
        return "Apply what giveway compile --webhook prints for these policies (docs/install.md#static-entries)."
    if deployment and (waits := unready(deployment, ())):
        return f"The webhook does not run yet ({waits}): see the finding about its Deployment."
    where = f"kubectl -n {observed.own} logs deploy/{WEBHOOK}" if deployment else "the webhook's log"
    return (
        f"The webhook writes them once the API server has reached it. {where}, and /readyz?verbose on its port 8081,"
        " say what it waits for; most often TCP port 9443 is closed to the API server (docs/install.md)."
    )


def exempting(observed: Observed) -> Iterator[ClusterFinding]:
    """Namespaces that giveway is not asked about, and other webhooks from which a pod can take itself out."""
    labelled = [name for name, namespace in observed.namespaces.items() if EXEMPT in (namespace.metadata.labels or {})]
    pods = Counter(pod.namespace for pod in observed.pods)
    exempt = {name: pods[name] for name in sorted(labelled)}
    if labelled:
        share = sum(exempt.values()) / max(1, len(observed.pods))
        yield ClusterFinding(
            FindingSeverity.WARNING if share > _MOST_EXEMPT else FindingSeverity.INFO,
            f"{counted(len(labelled), 'namespace')} with the label {EXEMPT}, and how many pods there: {names(exempt)}.",
            "Nothing there is changed or judged, whatever the policies say.",
            f"Take the label off where it is not needed to get the cluster up: kubectl label namespace NAME {EXEMPT}-",
        )
    for where, entry in _on_new_pods(observed, _VALIDATING):
        if entry.get("objectSelector") and _fails_closed(entry) and not where.endswith(f" {_OURS}"):
            yield ClusterFinding(
                FindingSeverity.INFO,
                f"{where} judges pods by their labels (objectSelector of {entry['name']}).",
                "Whoever makes a pod chooses its labels, and can leave the pod out of this webhook.",
                "If it is to hold for everybody, select by namespace.",
            )


def locking_out(observed: Observed) -> Iterator[ClusterFinding]:
    """Webhooks that refuse pods if nobody answers, and whose own pods or the cluster's basis depend on them."""
    services = {(row["metadata"]["namespace"], row["metadata"]["name"]) for row in observed.objects["services"]}
    basis = ["kube-system", *(row["metadata"]["namespace"] for row in observed.objects["daemonsets"] if _of_nodes(row))]
    for plural in _KINDS:
        for where, entry in _on_new_pods(observed, plural):
            if not _fails_closed(entry):
                continue
            service = (entry.get("clientConfig") or {}).get("service") or {}
            own = service.get("namespace", "")
            if service and "services" not in observed.missing and (own, service.get("name")) not in services:
                yield ClusterFinding(
                    FindingSeverity.ERROR,
                    f"{where} sends pods to Service {own}/{service.get('name')}, which does not exist"
                    f" ({entry['name']}).",
                    "With failurePolicy Fail no pod that it selects can be made.",
                    "Install its server again, or delete the configuration if it was left behind.",
                )
                continue
            try:
                selects = label_matcher(msgspec.convert(entry.get("namespaceSelector") or {}, LabelSelector))
            except (msgspec.ValidationError, SelectorError):
                selects = everything
            selected = [
                name
                for name in dict.fromkeys((*basis, own))
                if name and selects(namespace_labels(name, observed.namespaces.get(name)))
            ]
            if selected and not entry.get("objectSelector"):
                unless = " (unless its matchConditions leave them out)" if entry.get("matchConditions") else ""
                yield ClusterFinding(
                    FindingSeverity.WARNING,
                    f"{where} refuses pods in {names(selected)} when nobody answers ({entry['name']}){unless}.",
                    "After an outage its own pods, or DNS, the network and what else nodes need (DaemonSets of the"
                    " host's network, or that tolerate every taint) wait for it, and it waits for them.",
                    "Leave these namespaces out with namespaceSelector (for giveway, the label giveway.dev/exempt), or"
                    " set failurePolicy to Ignore.",
                )


def _of_nodes(daemon_set: dict[str, Any]) -> bool:
    """Whether nodes may need the DaemonSet: it is of the host's network, or tolerates every taint."""
    spec = daemon_set["spec"]["template"].get("spec") or {}
    tolerations = spec.get("tolerations") or ()
    return bool(spec.get("hostNetwork")) or any(
        not row.get("key") and row.get("operator") == "Exists" for row in tolerations
    )


def changing_classes(observed: Observed) -> Iterator[ClusterFinding]:
    """Mutating webhooks that are called after giveway, and pods whose class was changed after it."""
    later = {
        where for where, _ in _on_new_pods(observed, _MUTATING) if where.rpartition(" ")[2] > _OURS
    }  # the API server calls configurations in the order of their names
    ours = observed.own_configuration(_MUTATING)
    asked_again = all(
        entry.get("reinvocationPolicy") == "IfNeeded" for entry in _entries(ours) if entry["name"].startswith("pods.")
    )
    if later and ours and not asked_again:
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"These are called for new pods after giveway, and giveway is not called again: {names(sorted(later))}.",
            "If one of them changes the PriorityClass, annotations and mark stay those of the class before.",
            "The webhook writes reinvocationPolicy IfNeeded by itself: look why it does not (its log, the"
            " finding registered), and whether somebody else keeps the configuration.",
        )
    changed: Counter[str] = Counter()
    for pod in observed.pods:
        given = given_earlier(pod.annotations, dict)
        if given is not None and pod.namespace in observed.reach and given.name != pod.class_name:
            changed[pod.namespace] += 1
    if changed:
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"{counted(changed.total(), 'pod')} of another PriorityClass than giveway gave: {names(changed)}.",
            "Another webhook changed the class afterwards, and giveway was not asked again.",
            f"Called after giveway: {names(sorted(later)) or 'none that is there now'}. Have it leave priorityClassName"
            " alone, or name its configuration so that it comes before giveway.",
        )


def _on_new_pods(observed: Observed, plural: str) -> Iterator[tuple[str, Json]]:
    """Every entry that is asked about new pods, with the words that name its configuration."""
    for configuration in observed.objects[plural]:
        for entry in _entries(configuration):
            if any(
                {"", "*"} & set(rule.get("apiGroups") or ())
                and {"pods", "*", "*/*"} & set(rule.get("resources") or ())
                and {"CREATE", "*"} & set(rule.get("operations") or ())
                for rule in entry.get("rules") or ()
            ):
                yield f"{_KINDS[plural]} {configuration['metadata']['name']}", entry


def _fails_closed(entry: Json) -> bool:
    return bool(entry.get("failurePolicy", "Fail") == "Fail")


def _entries(configuration: Json) -> list[Json]:
    return configuration.get("webhooks") or []
