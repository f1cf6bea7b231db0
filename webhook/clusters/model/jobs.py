"""How many pods a Job makes, and when it has ended (`pkg/controller/job`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from webhook.clusters.model.pods import is_active
from webhook.kube.objects import Pod
from webhook.kube.pods import is_terminal

__all__ = ["JobLimits", "JobStep", "has_ended", "is_failed", "job_step"]

_BACKOFF_LIMIT = 6


class JobLimits(NamedTuple):
    """What a Job's spec asks for; without `completions` it is done once one pod has succeeded and all have ended."""

    parallelism: int
    completions: int | None
    backoff_limit: int
    suspended: bool

    @classmethod
    def of(
        cls,
        parallelism: int | None = None,
        completions: int | None = None,
        backoff_limit: int | None = None,
        suspended: bool = False,
    ) -> JobLimits:
        """The limits with Kubernetes' defaults: one pod, one completion if neither is named, six failures."""
        if parallelism is None and completions is None:
            completions = 1
        return cls(
            1 if parallelism is None else parallelism,
            completions,
            _BACKOFF_LIMIT if backoff_limit is None else backoff_limit,
            suspended,
        )


class JobStep(NamedTuple):
    """The next step of a Job: how many pods it makes, which it deletes, and `Complete` or `Failed` if it has ended."""

    create: int
    delete: list[Pod]
    ended: str


def job_step(limits: JobLimits, pods: Iterable[Pod], succeeded: int, failed: int) -> JobStep:
    """What a Job does about its `pods`, if so many have `succeeded` and `failed` so far, those that are gone included.

    A pod is replaced as soon as it is leaving (`podReplacementPolicy: TerminatingOrFailed`).
    """
    active = [pod for pod in pods if is_active(pod)]
    left = limits.parallelism if limits.completions is None else limits.completions - succeeded
    ended = ""
    if failed > limits.backoff_limit:
        ended = "Failed"
    elif left <= 0 if limits.completions is not None else succeeded and not active:
        ended = "Complete"
    wanted = 0 if ended or limits.suspended else min(limits.parallelism, left)
    if limits.completions is None and succeeded:
        wanted = min(wanted, len(active))
    return JobStep(max(0, wanted - len(active)), active[wanted:], ended)


def is_failed(pod: Pod) -> bool:
    """Whether a Job counts a pod as failed: it failed, or it was asked to leave before it had ended (`isPodFailed`)."""
    return pod.status.phase == "Failed" or (bool(pod.metadata.deletion_timestamp) and not is_terminal(pod))


def has_ended(conditions: Sequence[Mapping[str, Any]] | None) -> bool:
    """Whether a Job with these conditions makes no more pods."""
    return any(
        condition.get("type") in {"Complete", "Failed"} and condition.get("status") == "True"
        for condition in conditions or ()
    )
