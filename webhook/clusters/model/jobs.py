"""How many pods a Job makes, for which indexes, and when it has ended (`pkg/controller/job`).

Exit codes of containers are not known, so rules about them (`onExitCodes`) match nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from webhook.clusters.model.pods import by_deletion_order, is_active
from webhook.clusters.model.workloads import WorkloadSpec
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal

INDEX = "batch.kubernetes.io/job-completion-index"
"""The label and annotation of a pod that works on one index of a Job."""
_BACKOFF_LIMIT = 6
_ENDINGS = {
    "CompletionsReached": "Reached expected number of succeeded pods",
    "BackoffLimitExceeded": "Job has reached the specified backoff limit",
    "PodFailurePolicy": "A pod matches a FailJob rule",
}
"""How a Job may end: reasons of its conditions with their messages."""
Json = dict[str, Any]


class JobStep(NamedTuple):
    """The next step of a Job: the pods it makes, by index (None without), those it deletes, and how it has ended.

    `ended` is the reason, empty if it goes on.
    """

    create: Sequence[int | None]
    delete: list[Pod]
    ended: str


@dataclass
class JobProgress:
    """What has become of one Job's pods, those that are gone included."""

    succeeded: int = 0
    failed: int = 0
    completed: set[int] = field(default_factory=set)
    """The indexes whose pods have succeeded."""
    withdrawn: set[str] = field(default_factory=set)
    """uids of pods that were too many: they have not failed."""
    ended_by_rule: bool = False
    """Whether a rule of `podFailurePolicy` says that the Job has failed."""
    _counted: set[str] = field(default_factory=set)
    _there: dict[str, Pod] = field(default_factory=dict)

    def note(self, pod: Pod) -> None:
        """Keep what a pod says before it is gone."""
        self._there[pod.metadata.uid] = pod

    def look(self, spec: WorkloadSpec, pods: Iterable[Pod], status: Mapping[str, Any]) -> None:
        """Count the pods that have ended since the last look; one that is gone without having ended has failed.

        What the Job's `status` counts was counted by somebody before the first look.
        """
        known, self._there = self._there, {pod.metadata.uid: pod for pod in pods}
        gone = {uid: pod for uid, pod in known.items() if uid not in self._there}
        for uid, pod in (self._there | gone).items():
            if uid in self._counted or uid in self.withdrawn:
                continue
            has_succeeded = pod.status.phase == "Succeeded"
            if has_succeeded or uid in gone or _is_failed(pod, spec):
                self._counted.add(uid)
                index, action = _index_of(pod), "" if has_succeeded else _action(spec, pod)
                self.succeeded += has_succeeded and spec.completion_mode != "Indexed"
                self.completed.update([index] if has_succeeded and index is not None else ())
                self.failed += action not in ("", "Ignore")
                self.ended_by_rule = self.ended_by_rule or action == "FailJob"
        self.completed.update(_indexes_in(status.get("completedIndexes") or ""))
        self.succeeded = max(self.succeeded, status.get("succeeded") or 0, len(self.completed))
        self.failed = max(self.failed, status.get("failed") or 0)

    def step(self, spec: WorkloadSpec, pods: Collection[Pod]) -> JobStep:
        """What the Job does about its pods.

        A pod is replaced as soon as it is leaving, or once it has ended (`podReplacementPolicy: Failed`).
        """
        parallelism, completions = 1 if spec.parallelism is None else spec.parallelism, spec.completions
        if spec.parallelism is None and completions is None:
            completions = 1  # else one that succeeds ends it
        active = [pod for pod in pods if is_active(pod)]
        left = parallelism if completions is None else completions - self.succeeded
        ended = "PodFailurePolicy" if self.ended_by_rule else ""
        if self.failed > (_BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit):
            ended = ended or "BackoffLimitExceeded"
        if not ended and (left <= 0 if completions is not None else self.succeeded and not active):
            ended = "CompletionsReached"
        wanted = 0 if ended or spec.suspend else min(parallelism, left)
        if completions is None and self.succeeded:
            wanted = min(wanted, len(active))
        held = [pod for pod in pods if not is_terminal(pod)] if _replaces_ended(spec) else active
        create: Sequence[int | None] = [None] * max(0, wanted - len(held))
        most = completions or 0
        if spec.completion_mode == "Indexed":
            taken = self.completed | {_index_of(pod) for pod in held}
            create = [index for index in range(most) if index not in taken][: len(create)]
        ordered = sorted(by_deletion_order(active), key=lambda pod: _index_of(pod) in range(most))
        return JobStep(create, ordered[: max(0, len(active) - wanted)], ended)


def job_labels(name: str, uid: str) -> dict[str, str]:
    """The labels by which a Job knows its pods; the API server writes them into its template."""
    labels = {"controller-uid": uid, "job-name": name}
    return {**labels, **{f"batch.kubernetes.io/{key}": text for key, text in labels.items()}}


def identify_job_pod(template: Json, job: str, index: int | None) -> Json:
    """A new pod of a Job, with what tells its index, if it has one."""
    if index is None:
        return template
    metadata = template["metadata"]
    both = {key: {**(metadata.get(key) or {}), INDEX: str(index)} for key in ("labels", "annotations")}
    return {**template, "metadata": {**metadata, **both, "generateName": f"{job}-{index}-"}}


def job_status(progress: JobProgress, step: JobStep, now: str) -> Json:
    """The status of a Job after a step; `now` is RFC 3339."""
    counts = {
        "succeeded": progress.succeeded,
        "failed": progress.failed,
        "completedIndexes": intervals(progress.completed),
    }
    status: Json = {key: count for key, count in counts.items() if count}
    if step.ended:
        is_complete = step.ended == "CompletionsReached"
        types = ("SuccessCriteriaMet", "Complete") if is_complete else ("FailureTarget", "Failed")
        says = {"status": "True", "lastTransitionTime": now, "reason": step.ended, "message": _ENDINGS[step.ended]}
        status["conditions"] = [{"type": type_, **says} for type_ in types]
    return status


def has_ended(conditions: Sequence[Mapping[str, Any]] | None) -> bool:
    """Whether a Job with these conditions makes no more pods."""
    return any(
        condition.get("type") in {"Complete", "Failed"} and condition.get("status") == "True"
        for condition in conditions or ()
    )


def intervals(indexes: Iterable[int]) -> str:
    """Indexes as a Job's status writes them: `0,2-5`; two neighbours are `0,1`."""
    runs = [[index for _, index in run] for _, run in groupby(enumerate(sorted(indexes)), lambda row: row[1] - row[0])]
    return ",".join(f"{run[0]}{',' if len(run) == 2 else '-'}{run[-1]}" if run[1:] else f"{run[0]}" for run in runs)


def _indexes_in(text: str) -> set[int]:
    """The indexes in `0,2-5`; what cannot be read is left out, as in Kubernetes."""
    indexes: set[int] = set()
    for row in text.split(","):
        first, _, last = row.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            indexes.update(range(int(first), int(last or first) + 1))
    return indexes


def _index_of(pod: Pod) -> int | None:
    text = (pod.metadata.labels or {}).get(INDEX) or (pod.metadata.annotations or {}).get(INDEX) or ""
    return int(text) if text.isdecimal() else None


def _replaces_ended(spec: WorkloadSpec) -> bool:
    """Whether a pod that is leaving counts until it has ended (`onlyReplaceFailedPods`)."""
    return spec.pod_replacement_policy == "Failed" or spec.pod_failure_policy is not None


def _is_failed(pod: Pod, spec: WorkloadSpec) -> bool:
    """Whether a Job counts a pod as failed (`isPodFailed`): it failed, or it was asked to leave before it had ended."""
    if pod.status.phase == "Failed" or _replaces_ended(spec):
        return pod.status.phase == "Failed"
    return bool(pod.metadata.deletion_timestamp) and not is_terminal(pod)


def _action(spec: WorkloadSpec, pod: Pod) -> str:
    """What the first rule of `podFailurePolicy` that matches says of a failed pod (`matchPodFailurePolicy`)."""
    says = {(condition.type, condition.status) for condition in pod.status.conditions or ()}
    for rule in (spec.pod_failure_policy or {}).get("rules") or ():
        patterns = rule.get("onPodConditions") or ()
        if any((pattern.get("type"), pattern.get("status") or "True") in says for pattern in patterns):
            return str(rule.get("action"))
    return "Count"
