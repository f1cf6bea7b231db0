"""Whether the API server gets an answer from the webhook now, by a probe through both, and why not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from webhook.component_base.own_names import WEBHOOK
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity
from webhook.inspection.observed import Observed
from webhook.kube.rollouts import unready
from webhook.registration.entries import EXEMPT, PROBES

_MEANWHILE = f" To let new pods in meanwhile: kubectl label namespace NAME {EXEMPT}= (docs/how-to/break-glass.md)."
_NO_CONNECTION = (
    "connection refused",
    "i/o timeout",
    "deadline exceeded",
    "Client.Timeout",
    "no route to host",
    "network is unreachable",
    "connection reset",
)


def silent(observed: Observed) -> Iterator[ClusterFinding]:
    """That the webhook does not answer although it is registered; the API server's own words say why."""
    probe, judging = observed.own_state.probe, [row for row in observed.own_entries() if row["name"] not in PROBES]
    if probe is None or not probe.silent or not judging:
        return
    closed = [entry for entry in judging if entry.get("failurePolicy", "Fail") == "Fail"]
    said = probe.failure or "it does not say why, because no entry fails closed that was asked"
    which = f" ({probe.entry})" if probe.entry else ""
    refused = (
        "Every new pod is refused until it answers, and every change of a pod or PriorityClass that a policy reads."
        " Not asked about are kube-system, giveway's own namespace, and namespaces with the label giveway.dev/exempt."
    )
    yield ClusterFinding(
        FindingSeverity.ERROR,
        f"The API server gets no answer from giveway's webhook{which}: {said.rstrip('.')}.",
        refused if closed else "Pods and PriorityClasses are made unjudged until it answers (failurePolicy Ignore).",
        _fix(observed, probe.failure, judging[0].get("clientConfig") or {}) + (_MEANWHILE if closed else ""),
    )


def _fix(observed: Observed, failure: str, client: dict[str, Any]) -> str:
    """What to do about a failure, as the API server words it; `client` says where the webhook is."""
    url, restart = client.get("url"), f"kubectl -n {observed.own} rollout restart deployment {WEBHOOK}"
    if "x509" in failure and ("expired" in failure or "not yet valid" in failure):
        new = f"{restart} has a new one issued." if not url else "giveway certs issue makes a new one in its directory."
        return f"The webhook's certificate is out of its time. {new}"
    if "x509" in failure or "root certificates" in failure:
        again = (
            f"{restart} writes it again."
            if not url
            else "Start the webhook with --ca-file and the authority that signed its certificate: it writes caBundle."
        )
        return f"The caBundle of the entries does not trust the certificate that the webhook serves. {again}"
    if url:
        return (
            f"Start the webhook that {url.rpartition('/')[0]} leads to (giveway serve or giveway run), and open its"
            " port to the control plane."
        )
    if "not found" in failure:
        return "The Service is gone: giveway install brings it back."
    deployment = observed.own_state.deployments.get(WEBHOOK)
    waits = unready(deployment, ()) if deployment else f"there is no Deployment {WEBHOOK}"
    if waits or "no endpoints" in failure:
        pods = f"kubectl -n {observed.own} get pods -l app.kubernetes.io/component=webhook"
        return f"No pod of the webhook answers ({waits or 'none is ready'}): {pods}, and describe what is not ready."
    if any(text in failure for text in _NO_CONNECTION):
        return (
            "The pods are ready, so the way is closed: let the control plane reach TCP port 9443 of the webhook's pods"
            " (firewall rule, security group, NetworkPolicy; docs/install.md)."
        )
    return f"kubectl -n {observed.own} logs deploy/{WEBHOOK} says more."
