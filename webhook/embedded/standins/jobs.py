"""The Job controller: pods until enough of them succeeded."""

from __future__ import annotations

import time
from typing import Any

from webhook.embedded.standins.informers import StandInInformers, Workload
from webhook.embedded.standins.podcontrol import PodControl, is_active, is_ready, put_status
from webhook.embedded.standins.workqueue import Controller
from webhook.kube.client import Client
from webhook.kube.instants import rfc3339
from webhook.kube.resources import JOB

__all__ = ["JobController"]

BACKOFF_LIMIT = 6


class JobController(Controller):
    """Makes and replaces the pods of every Job; pods that succeeded or failed are counted while they exist."""

    name = "job"

    def __init__(self, informers: StandInInformers, client: Client) -> None:
        self._client = client
        super().__init__()
        self._jobs = informers.watch_keys(JOB, Workload, self._queue.add)
        self._control = PodControl(informers, client, JOB, self._queue.add)

    async def sync(self, key: str) -> None:
        """Make the pods that a job still needs, and write its status."""
        job = self._jobs.get(key)
        if job is None or job.metadata.deletion_timestamp or not self._control.settled(job) or _is_finished(job):
            return
        pods = self._control.pods(job)
        active = [pod for pod in pods if is_active(pod)]
        succeeded = sum(1 for pod in pods if pod.status.phase == "Succeeded")
        failed = sum(1 for pod in pods if pod.status.phase == "Failed")
        parallelism = int(job.spec.get("parallelism", 1))
        completions = job.spec.get("completions")
        left = parallelism if completions is None else int(completions) - succeeded
        hopeless = failed > int(job.spec.get("backoffLimit", BACKOFF_LIMIT))
        complete = left <= 0 if completions is not None else bool(succeeded) and not active
        wanted = 0 if hopeless or complete or job.spec.get("suspend") else min(parallelism, left)
        if completions is None and succeeded:
            wanted = min(wanted, len(active))
        name, uid = job.metadata.name, job.metadata.uid
        prefixed = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}
        labels = {**prefixed, "controller-uid": uid, "job-name": name}
        for _ in range(wanted - len(active)):
            metadata = {"generateName": f"{name}-", "labels": labels}
            await self._control.create(job, job.spec["template"], metadata)
        for pod in active[wanted:]:
            await self._control.delete(job, pod)
        status = _status(job, max(len(active), wanted), sum(map(is_ready, active)), succeeded, failed)
        if complete or hopeless:
            _finish(status, complete=complete)
        await put_status(self._client, JOB, job, status)


def _is_finished(job: Workload) -> bool:
    conditions = job.status.get("conditions") or ()
    return any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions)


def _status(job: Workload, active: int, ready: int, succeeded: int, failed: int) -> dict[str, Any]:
    status: dict[str, Any] = {"startTime": job.status.get("startTime") or rfc3339(time.time())}
    counts = {"active": active, "succeeded": succeeded, "failed": failed}
    status |= {key: value for key, value in counts.items() if value}
    return status | {"ready": ready, "terminating": 0, "uncountedTerminatedPods": {}}


def _finish(status: dict[str, Any], *, complete: bool) -> None:
    now = rfc3339(time.time())
    reason = "CompletionsReached" if complete else "BackoffLimitExceeded"
    message = "Reached expected number of succeeded pods" if complete else "Job has reached the specified backoff limit"
    stamp = {"status": "True", "lastProbeTime": now, "lastTransitionTime": now, "reason": reason, "message": message}
    status.pop("active", None)
    status["ready"] = 0
    if complete:
        status["completionTime"] = now
        status["conditions"] = [{"type": "SuccessCriteriaMet", **stamp}, {"type": "Complete", **stamp}]
    else:
        status["conditions"] = [{"type": "FailureTarget", **stamp}, {"type": "Failed", **stamp}]
