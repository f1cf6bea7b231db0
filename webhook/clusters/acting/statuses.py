"""What controllers write in the status of workloads; in that of DaemonSets and StatefulSets, nothing."""

from __future__ import annotations

from collections.abc import Collection

from webhook.clusters.acting.controller import Json
from webhook.clusters.model.jobs import JobProgress, JobStep, intervals
from webhook.clusters.model.pods import is_ready
from webhook.clusters.model.workloads import Workload
from webhook.kube.objects.pod import Pod

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


def replica_set_status(owner: Workload, active: Collection[Pod]) -> Json:
    """The status of a ReplicaSet over its active pods."""
    ready = sum(map(is_ready, active))
    counts = _given(readyReplicas=ready, availableReplicas=ready)
    return {"replicas": len(active), **counts, "observedGeneration": owner.metadata.generation or 0}


def job_status(owner: Workload, progress: JobProgress, step: JobStep, now: str) -> Json:
    """The status of a Job after a step; `now` is RFC 3339."""
    status = _given(
        succeeded=progress.succeeded,
        failed=progress.failed,
        completedIndexes=intervals(progress.completed),
        failedIndexes=intervals(progress.failed_indexes(owner.spec)),
    )
    if not step.ended:
        return status
    reason, message, types = COMPLETE
    if step.ended != "Complete":
        reason, message, types = step.reason, FAILED[step.reason], ("FailureTarget", "Failed")
    says = {"status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
    return {**status, "conditions": [{"type": type_, **says} for type_ in types]}


def deployment_status(deployment: Workload, newest: Workload | None, sets: Collection[Workload]) -> Json:
    """The status of a Deployment, from those of its ReplicaSets: what `kubectl rollout status` waits for."""
    counts = {
        key: sum(int(replica_set.told.get(key, 0)) for replica_set in sets)
        for key in ("replicas", "readyReplicas", "availableReplicas")
    }
    updated = int(newest.told.get("replicas", 0)) if newest else 0
    return {"observedGeneration": deployment.metadata.generation or 0, **_given(**counts, updatedReplicas=updated)}
