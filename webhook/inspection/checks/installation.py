"""giveway's own parts: whether it is installed at all, whether its Deployments run, and whether somebody leads."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.component_base.own_names import RECONCILER, WEBHOOK
from webhook.inspection.checks.native import who_enforces
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, counted
from webhook.inspection.observed import CONFIGURATIONS, Observed
from webhook.inspection.own_state import renewed
from webhook.kube.instants import time_span
from webhook.kube.rollouts import unready
from webhook.native.drift import Mode
from webhook.policy.evaluation.engine import Engine

_NOBODY_PREEMPTS = (
    "Pods of managed classes that find no room wait: kube-scheduler leaves preemption for them to giveway. Nothing else"
    " is affected."
)


def there(observed: Observed) -> bool:
    """Whether anything of giveway is in the cluster: a webhook configuration, a native policy or a Deployment."""
    configured = any(map(observed.own_configuration, CONFIGURATIONS))
    return configured or bool(observed.own_state.deployments) or who_enforces(observed) is not Mode.NONE


def present(observed: Observed) -> Iterator[ClusterFinding]:
    """That giveway is not installed."""
    if there(observed):
        return
    yield ClusterFinding(
        FindingSeverity.ERROR,
        "giveway is not installed in this cluster: there is no webhook configuration giveway, no native policy, and no"
        f" Deployment in namespace {observed.own}.",
        "No policy is enforced, and nobody preempts by them.",
        "giveway install (docs/install.md). If giveway runs in another namespace: --system-namespace NAME.",
    )


def deployed(observed: Observed) -> Iterator[ClusterFinding]:
    """Deployments that are missing, scaled to nothing, or whose pods are not ready."""
    own = observed.own_state
    to_service = any((entry.get("clientConfig") or {}).get("service") for entry in observed.own_entries())
    if WEBHOOK not in own.deployments and to_service:
        yield ClusterFinding(
            FindingSeverity.ERROR,
            f"There is no Deployment {observed.own}/{WEBHOOK}, and the webhook configurations lead to its Service.",
            "Nobody can answer: what the entries fail closed for is refused.",
            "giveway install brings it back; giveway uninstall takes the entries away.",
        )
    for name, deployment in sorted(own.deployments.items()):
        see = f"kubectl -n {observed.own} describe deployment {name}, and kubectl -n {observed.own} logs deploy/{name}"
        if deployment["spec"].get("replicas") == 0:
            yield ClusterFinding(
                FindingSeverity.WARNING,
                f"Deployment {name} is scaled to 0 replicas.",
                _NOBODY_PREEMPTS if name == RECONCILER else "Nobody does its work.",
                f"kubectl -n {observed.own} scale deployment {name} --replicas=2, if it is to run.",
            )
            continue
        labels = (deployment["spec"]["selector"].get("matchLabels") or {}).items()
        pods = [pod for pod in own.pods if labels <= (pod["metadata"].get("labels") or {}).items()]
        if text := unready(deployment, pods):
            works = (deployment.get("status") or {}).get("availableReplicas", 0) > 0
            yield ClusterFinding(
                FindingSeverity.WARNING if works else FindingSeverity.ERROR,
                f"Deployment {text}.",
                "The others do its work as long as they are there." if works else _without(name),
                f"{see}, say why.",
            )


def led(observed: Observed) -> Iterator[ClusterFinding]:
    """That no reconciler leads: the lease is missing, not held, or not renewed any more."""
    own, name = observed.own_state, f"{observed.own}/{RECONCILER}"
    runs = RECONCILER in own.deployments
    logs = (
        f"Look at the reconcilers: kubectl -n {observed.own} get pods -l app.kubernetes.io/component=reconciler, and"
        f" kubectl -n {observed.own} logs deploy/{RECONCILER}."
        if runs
        else "Start giveway reconcile or giveway run, and look at its log."
    )
    if own.lease is not None:
        holder = own.lease.spec.holder_identity
        if not holder:
            yield ClusterFinding(
                FindingSeverity.ERROR, f"No reconciler leads: nobody holds Lease {name}.", _NOBODY_PREEMPTS, logs
            )
        elif own.lease_unchanged:
            ago = time_span(observed.now - renewed(own.lease))
            yield ClusterFinding(
                FindingSeverity.ERROR,
                f"No reconciler leads: {holder} renewed Lease {name} for the last time {ago} ago.",
                _NOBODY_PREEMPTS,
                logs,
            )
    elif runs:
        yield ClusterFinding(
            FindingSeverity.ERROR, f"No reconciler has led yet: there is no Lease {name}.", _NOBODY_PREEMPTS, logs
        )
    elif there(observed) and (managed := _managed(observed)):
        yield ClusterFinding(
            FindingSeverity.WARNING,
            f"No reconciler has ever run here, and the policies manage {counted(managed, 'PriorityClass')}.",
            _NOBODY_PREEMPTS,
            logs,
        )


def _managed(observed: Observed) -> int:
    engine = Engine(observed.policies)
    return sum(engine.managed(name) is not None for name in observed.classes)


def _without(name: str) -> str:
    return {
        WEBHOOK: "Without it the API server gets no answer: what its entries fail closed for is refused.",
        RECONCILER: _NOBODY_PREEMPTS,
    }.get(name, "Nobody does its work.")
