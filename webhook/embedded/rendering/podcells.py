"""A pod in one line: how many containers are ready, what state it is in, how often it was restarted."""

from __future__ import annotations

from webhook.embedded.protocol.calls import Object
from webhook.embedded.rendering.cells import age

__all__ = ["pod_ready", "pod_restarts", "pod_status"]


def pod_ready(pod: Object) -> str:
    """Containers that run and are ready, of all."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    ready = [row for row in statuses if row.get("ready") and (row.get("state") or {}).get("running") is not None]
    return f"{len(ready)}/{len(pod['spec'].get('containers') or ())}"


def pod_restarts(pod: Object, now: float) -> str:
    """How often containers were restarted, and when last."""
    rows = (pod.get("status") or {}).get("containerStatuses") or ()
    count = sum(row.get("restartCount", 0) for row in rows)
    ends = [((row.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for row in rows]
    last = max((end for end in ends if end), default=None)
    return f"{count} ({age(last, now)} ago)" if count and last else str(count)


def pod_status(pod: Object) -> str:
    """The reason that says most: of a container where one waits or ended, else the pod's own, else its phase."""
    status = pod.get("status") or {}
    shown = str(status.get("reason") or status.get("phase") or "")
    if any(
        row.get("type") == "PodScheduled" and row.get("reason") == "SchedulingGated"
        for row in status.get("conditions") or ()
    ):
        shown = "SchedulingGated"
    shown = _of_init_containers(pod, status) or _of_containers(status) or shown
    if pod["metadata"].get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return shown


def _of_init_containers(pod: Object, status: Object) -> str:
    total = len(pod["spec"].get("initContainers") or ())
    for index, row in enumerate(status.get("initContainerStatuses") or ()):
        state = row.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if terminated is not None:
            return f"Init:{_ended(terminated)}"
        if waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{total}"
    return ""


def _of_containers(status: Object) -> str:
    shown, running = "", False
    for row in reversed(status.get("containerStatuses") or ()):
        state = row.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            shown = str(state["waiting"]["reason"])
        elif state.get("terminated") is not None:
            shown = _ended(state["terminated"])
        elif row.get("ready") and state.get("running") is not None:
            running = True
    if shown == "Completed" and running:
        return "Running"
    return shown


def _ended(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"
