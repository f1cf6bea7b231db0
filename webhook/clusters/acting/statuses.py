"""What controllers write in the status of workloads, as kube-controller-manager does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from webhook.clusters.acting.controller import Json
from webhook.clusters.model.jobs import JobProgress, JobStep, intervals
from webhook.clusters.model.pods import is_active, is_ready
from webhook.clusters.model.workloads import Workload
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal

COMPLETE = (
    "CompletionsReached",
    "Reached expected number of succeeded pods",
    ("SuccessCriteriaMet", "Complete"),
)
FAILED = {
    "BackoffLimitExceeded": "Job has reached the specified backoff limit",
    "FailedIndexes": "Job has failed indexes",
    "MaxFailedIndexesExceeded": "Job has exceeded the specified maximal number of failed indexes",
    "PodFailurePolicy": "A pod matches a FailJob rule",
}
"""How a Job may end: reason, message and, if it is complete, types of its conditions."""


def _given(**counts: object) -> Json:
    """The counts that are not zero."""
    return {key: count for key, count in counts.items() if count}


def replica_set_status(owner: Workload, active: Collection[Pod], template_labels: Mapping[str, str]) -> Json:
    """The status of a ReplicaSet over its active pods."""
    ready = sum(map(is_ready, active))
    labelled = sum(1 for pod in active if template_labels.items() <= (pod.metadata.labels or {}).items())
    counts = _given(fullyLabeledReplicas=labelled, readyReplicas=ready, availableReplicas=ready)
    return {"replicas": len(active), **counts, "observedGeneration": owner.metadata.generation or 0}


def stateful_set_status(
    owner: Workload, pods: Collection[Pod], revisions: Sequence[str], current: str, update: str
) -> Json:
    """The status of a StatefulSet; `revisions` are those of its pods."""
    ready = sum(1 for pod in pods if is_active(pod) and is_ready(pod))
    counts = {"currentReplicas": revisions.count(current), "updatedReplicas": revisions.count(update)}
    return {
        "observedGeneration": owner.metadata.generation or 0,
        "replicas": len(pods),
        **_given(readyReplicas=ready, **counts),
        "currentRevision": current,
        "updateRevision": update,
        "availableReplicas": ready,
        "collisionCount": 0,
    }


def daemon_set_status(owner: Workload, placed: Collection[Pod], wanted: int, updated: int) -> Json:
    """The status of a DaemonSet that wants so many pods, and has so many of its newest template."""
    ready = sum(map(is_ready, placed))
    return {
        "currentNumberScheduled": len(placed),
        "numberMisscheduled": 0,
        "desiredNumberScheduled": wanted,
        "numberReady": ready,
        "observedGeneration": owner.metadata.generation or 0,
        **_given(updatedNumberScheduled=updated, numberAvailable=ready, numberUnavailable=wanted - ready),
    }


def job_status(owner: Workload, pods: Collection[Pod], progress: JobProgress, step: JobStep, now: str) -> Json:
    """The status of a Job after a step; `now` is RFC 3339."""
    active = [pod for pod in pods if is_active(pod)]
    counts = _given(
        active=0 if step.ended else len(active) + len(step.create),
        succeeded=progress.succeeded,
        failed=progress.failed,
        completedIndexes=intervals(progress.completed),
        failedIndexes=intervals(progress.failed_indexes(owner.spec)),
    )
    leaving = sum(bool(pod.metadata.deletion_timestamp) and not is_terminal(pod) for pod in pods)
    status = {"startTime": owner.told.get("startTime") or now, **counts}
    status |= {"ready": sum(map(is_ready, active)), "terminating": leaving, "uncountedTerminatedPods": {}}
    if not step.ended:
        return status
    reason, message, types = COMPLETE
    if step.ended != "Complete":
        reason, message, types = step.reason, FAILED[step.reason], ("FailureTarget", "Failed")
    stamp = {"status": "True", "lastProbeTime": now, "lastTransitionTime": now}
    conditions = [{"type": type_, **stamp, "reason": reason, "message": message} for type_ in types]
    return status | {"ready": 0, "conditions": conditions} | _given(completionTime=step.ended == "Complete" and now)


def deployment_status(
    deployment: Workload, newest: Workload | None, sets: Collection[Workload], least: int, now: str
) -> Json:
    """The status of a Deployment, from those of its ReplicaSets; `least` pods are to be available."""
    wanted = deployment.spec.wanted
    total, ready, available = (
        sum(int(replica_set.told.get(key, 0)) for replica_set in sets)
        for key in ("replicas", "readyReplicas", "availableReplicas")
    )
    updated = int(newest.told.get("replicas", 0)) if newest else 0
    enough = available >= least
    complete = updated == total == available == wanted
    new_set = f'ReplicaSet "{newest.metadata.name}"' if newest else "a new ReplicaSet"
    conditions = (
        (
            "Available",
            "True" if enough else "False",
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        ),
        (
            "Progressing",
            "True",
            "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated",
            f"{new_set} {'has successfully progressed' if complete else 'is progressing'}.",
        ),
    )
    counts = _given(
        replicas=total,
        updatedReplicas=updated,
        readyReplicas=ready,
        availableReplicas=available,
        unavailableReplicas=max(0, total - available, wanted - available),
    )
    names = ("type", "status", "reason", "message")
    shown = [_condition(deployment, now, dict(zip(names, row, strict=True))) for row in conditions]
    return {"observedGeneration": deployment.metadata.generation or 0, **counts, "conditions": shown}


def _condition(deployment: Workload, now: str, says: Json) -> Json:
    """A condition of a Deployment, whose times change with what they are of."""
    known: Json = next((row for row in deployment.told.get("conditions") or () if row["type"] == says["type"]), {})
    changed = known.get("status") != says["status"]
    times = {
        "lastUpdateTime": known["lastUpdateTime"] if says.items() <= known.items() else now,
        "lastTransitionTime": now if changed else known["lastTransitionTime"],
    }
    return says | times
