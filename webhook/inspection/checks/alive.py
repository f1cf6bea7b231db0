"""giveway itself: installed, answering, running, led, what it leaves behind on pods, and the version it runs on."""

from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from webhook.component_base.own_names import RECONCILER, WEBHOOK
from webhook.inspection.checks.native import who_enforces
from webhook.inspection.cluster_findings import ClusterFinding, FindingSeverity, finding, sentence
from webhook.inspection.observed import CONFIGURATIONS, Nominated, Observed
from webhook.kube.instants import epoch_or, time_span
from webhook.kube.objects.meta import key_of
from webhook.kube.resources import OLDEST, TESTED, minor_of
from webhook.kube.rollouts import unready
from webhook.native.drift import Mode
from webhook.policy.evaluation.engine import Engine
from webhook.policy.model.values import PLAN
from webhook.reconciler.state.annotations import UnreadableError, notice_of, plan_of
from webhook.registration.entries import PROBES

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
    closed = any(entry.get("failurePolicy", "Fail") == "Fail" for entry in judging)
    said = probe.failure or "it does not say why, because no entry fails closed that was asked"
    which = f" ({probe.entry})" if probe.entry else ""
    fix = _fix(observed, probe.failure, judging[0].get("clientConfig") or {})
    yield finding(f"answers.{'closed' if closed else 'open'}", which=which, said=said.rstrip("."), fix=fix)


def _fix(observed: Observed, failure: str, client: dict[str, Any]) -> str:
    """What to do about a failure, as the API server words it; `client` says where the webhook is."""
    url, deployment = client.get("url"), observed.own_state.deployments.get(WEBHOOK)
    waits = unready(deployment, ()) if deployment else f"there is no Deployment {WEBHOOK}"
    where = "url" if url else "service"
    if "x509" in failure and ("expired" in failure or "not yet valid" in failure):
        fix = f"certificate-at-{where}"
    elif "x509" in failure or "root certificates" in failure:
        fix = f"trust-at-{where}"
    elif url:
        fix = "not-started"
    elif "not found" in failure:
        fix = "no-service"
    elif waits or "no endpoints" in failure:
        fix = "not-ready"
    else:
        fix = "way-closed" if any(text in failure for text in _NO_CONNECTION) else "unknown"
    base = url.rpartition("/")[0] if url else ""
    return sentence(f"answers-{fix}", own=observed.own, base=base, waits=waits or "none is ready")


def there(observed: Observed) -> bool:
    """Whether anything of giveway is in the cluster: a webhook configuration, a native policy or a Deployment."""
    configured = any(map(observed.own_configuration, CONFIGURATIONS))
    return configured or bool(observed.own_state.deployments) or who_enforces(observed) is not Mode.NONE


def present(observed: Observed) -> Iterator[ClusterFinding]:
    """That giveway is not installed."""
    if not there(observed):
        yield finding("installed.nothing", own=observed.own)


def deployed(observed: Observed) -> Iterator[ClusterFinding]:
    """Deployments that are missing, scaled to nothing, or whose pods are not ready."""
    own = observed.own_state
    to_service = any((entry.get("clientConfig") or {}).get("service") for entry in observed.own_entries())
    if WEBHOOK not in own.deployments and to_service:
        yield finding("deployments.gone", own=observed.own)
    for name, deployment in sorted(own.deployments.items()):
        without = sentence("nobody_preempts" if name == RECONCILER else "nobody_works")
        if deployment["spec"].get("replicas") == 0:
            yield finding("deployments.scaled", own=observed.own, name=name, without=without)
            continue
        labels = (deployment["spec"]["selector"].get("matchLabels") or {}).items()
        pods = [pod for pod in own.pods if labels <= (pod["metadata"].get("labels") or {}).items()]
        if text := unready(deployment, pods):
            severity = FindingSeverity.ERROR
            if (deployment.get("status") or {}).get("availableReplicas", 0) > 0:
                severity, without = FindingSeverity.WARNING, sentence("others_work")
            elif name == WEBHOOK:
                without = sentence("nobody_answers")
            told = {"own": observed.own, "name": name, "text": text, "without": without}
            yield finding("deployments.unready", severity=severity, **told)


def led(observed: Observed) -> Iterator[ClusterFinding]:
    """That no reconciler leads: the lease is missing, not held, or not renewed any more."""
    own, lease = observed.own_state, f"{observed.own}/{RECONCILER}"
    runs = RECONCILER in own.deployments
    logs = sentence(f"leader-{'runs' if runs else 'starts'}", own=observed.own)
    if own.lease is not None:
        holder = own.lease.spec.holder_identity
        if not holder:
            yield finding("leader.free", lease=lease, logs=logs)
        elif own.lease_unchanged:
            ago = time_span(observed.now - epoch_or(own.lease.spec.renew_time, 0.0))
            yield finding("leader.silent", lease=lease, logs=logs, holder=holder, ago=ago)
    elif runs:
        yield finding("leader.none", lease=lease, logs=logs)
    elif there(observed):
        engine = Engine(observed.policies)
        if managed := sum(engine.managed(name) is not None for name in observed.classes):
            yield finding("leader.never", managed=managed, logs=logs)


_LONG = 600.0
"""Seconds after which a nomination is longer than any plan of the default timeout needs."""
_LATE = 60.0
"""Seconds past its deadline by which the reconciler has ended a plan, or past a notice by which it has asked."""


def stuck(observed: Observed) -> Iterator[ClusterFinding]:
    """Pending pods that are nominated to a node that is gone, for a plan that is over, or for very long."""
    nodes = None if "nodes" in observed.missing else {node.metadata.name for node in observed.nodes}
    for pod in observed.pods:
        meta, node, plan = pod.metadata, pod.status.nominated_node_name, None
        with suppress(UnreadableError):
            plan = plan_of(pod)
        said = (meta.annotations or {}).get(PLAN)
        if pod.spec.node_name or not (node or said):
            continue
        body = '{"status":{"nominatedNodeName":null}}'
        clear = f"kubectl patch pod -n {meta.namespace} {meta.name} --subresource=status --type=merge -p '{body}'"
        told: dict[str, Any] = {"pod": key_of(pod), "node": node, "clear": clear}
        nominated = observed.nominated.get(key_of(pod), Nominated())
        if nodes is not None and node and node not in nodes:
            yield finding("stuck-nominations.gone", **told)
        elif plan and (late := observed.now - epoch_or(plan.deadline, observed.now)) > _LATE:
            yield finding("stuck-nominations.late", late=time_span(late), **told)
        elif said is None and (since := observed.now - epoch_or(nominated.at, observed.now)) > _LONG:
            by = f" by {nominated.by}" if nominated.by else ""
            yield finding("stuck-nominations.long", by=by, since=time_span(since), **told)


def overdue_notices(observed: Observed) -> Iterator[ClusterFinding]:
    """Pods whose notice is over, and that neither leave nor were told that they stay."""
    for pod in observed.pods:
        notice = notice_of(pod)
        if notice and (late := observed.now - epoch_or(notice.by, observed.now)) > _LATE:
            yield finding("overdue-notices.late", pod=pod.metadata, late=time_span(late))


def untested(observed: Observed) -> Iterator[ClusterFinding]:
    """A server that is too old, or of a version on which nobody ran the tests; a webhook of another version."""
    probe, this = observed.own_state.probe, version("giveway")
    others = sorted((probe.versions if probe else frozenset()) - {this})
    if others:
        yield finding("versions.others", others=others, this=this)
    minor, shown = minor_of(observed.version), observed.version.get("gitVersion", "of an unknown version")
    tested = " and ".join(f"1.{number}" for number in TESTED)
    if minor is not None and minor < OLDEST:
        yield finding("versions.old", shown=shown, oldest=OLDEST)
    elif minor is None or not min(TESTED) <= minor <= max(TESTED):
        yield finding("versions.untested", shown=shown, tested=tested)
    elif minor not in TESTED:
        yield finding("versions.between", shown=shown, tested=tested)
