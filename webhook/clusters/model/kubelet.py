"""What a kubelet says of its pods: that they run, end and are gone. Nothing is run."""

from __future__ import annotations

from webhook.kube.instants import epoch
from webhook.kube.objects.pod import Pod
from webhook.policy.model.values import NOTICE_CONDITION, READY

RUN_SECONDS = "embedded.giveway.dev/run-seconds"
"""Annotation of a pod that ends by itself: after so many seconds its phase is Succeeded."""

READY_SECONDS = "embedded.giveway.dev/ready-seconds"
"""Annotation of a pod that answers a notice: so many seconds after it was told it says that it is ready to leave."""


def is_starting(pod: Pod) -> bool:
    """Whether a pod is on a node and does not run yet; it runs and is ready at once."""
    return bool(pod.spec.node_name) and not pod.metadata.deletion_timestamp and pod.status.phase in ("", "Pending")


def seconds_to_end(pod: Pod, now: float) -> float | None:
    """In how many seconds a running pod ends by itself; None if it does not. `now` is in seconds since the epoch."""
    text, started = (pod.metadata.annotations or {}).get(RUN_SECONDS), pod.status.start_time
    if text is None or pod.status.phase != "Running" or not started:
        return None
    try:
        return max(0.0, epoch(started) + float(text) - now)
    except ValueError:
        return None


def seconds_to_ready(pod: Pod, now: float) -> float | None:
    """In how many seconds a pod that was told says that it is ready to leave; None if it does not, or has done so.

    `now` is in seconds since the epoch.
    """
    annotations = pod.metadata.annotations or {}
    if READY_SECONDS not in annotations or annotations.get(READY) == "true":
        return None
    told = next((condition for condition in pod.status.conditions or () if condition.type == NOTICE_CONDITION), None)
    if told is None or told.status != "True":
        return None
    try:
        return max(0.0, epoch(told.last_transition_time or "") + float(annotations[READY_SECONDS]) - now)
    except ValueError:
        return None


def seconds_to_removal(grace: float | None, longest: float | None) -> float:
    """How long a pod stays that was asked to leave: its grace period, or `longest` if that is less."""
    given = [float(seconds) for seconds in (grace, longest) if seconds is not None]
    return min(given, default=0.0)
