"""What stands in the cells of `kubectl get`: functions of an object and the time in seconds since the epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.kube.instants import InstantError, epoch

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))
NONE = "<none>"


def human(seconds: float) -> str:
    """A duration in its largest unit of which there are two."""
    whole = max(int(seconds), 0)
    return next((f"{whole // size}{letter}" for size, letter in _UNITS if whole >= 2 * size), f"{whole}s")


def age(instant: str | None, now: float) -> str:
    """The time since an RFC 3339 instant; `now` in seconds since the epoch."""
    if not instant:
        return "<unknown>"
    try:
        return human(now - epoch(instant))
    except InstantError:
        return "<unknown>"


def at(path: str, default: Any = "") -> Callable[[Object, float], Any]:
    """The value at a path, or a default if it is absent."""
    parts = path.split(".")

    def cell(obj: Object, _now: float) -> Any:
        value: Any = obj
        for part in parts:
            value = value.get(part) if isinstance(value, dict) else None
        return default if value is None else value

    return cell


def text(path: str, default: str = NONE) -> Callable[[Object, float], str]:
    """The value at a path as text, or a default if it is absent or empty."""
    value = at(path, default)
    return lambda obj, now: str(value(obj, now)) or default


def ready_of_wanted(obj: Object, _now: float) -> str:
    """How many pods of a workload are ready, of how many."""
    return f"{(obj.get('status') or {}).get('readyReplicas', 0)}/{obj['spec'].get('replicas', 0)}"


def condition_of(obj: Object, kind: str) -> Object | None:
    """A condition of an object, or None."""
    return next((row for row in (obj.get("status") or {}).get("conditions") or () if row["type"] == kind), None)


def node_status(obj: Object, _now: float) -> str:
    """Whether a node is ready and may be scheduled on."""
    ready = condition_of(obj, "Ready")
    status = "Unknown" if ready is None else "Ready" if ready["status"] == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if obj["spec"].get("unschedulable") else status


def pod_ready(obj: Object, _now: float) -> str:
    """Containers that run and are ready, of all."""
    statuses = (obj.get("status") or {}).get("containerStatuses") or ()
    ready = [row for row in statuses if row.get("ready") and (row.get("state") or {}).get("running") is not None]
    return f"{len(ready)}/{len(obj['spec'].get('containers') or ())}"


def pod_restarts(obj: Object, _now: float) -> str:
    """How often containers were restarted."""
    rows = (obj.get("status") or {}).get("containerStatuses") or ()
    return str(sum(row.get("restartCount", 0) for row in rows))


def pod_status(obj: Object, _now: float) -> str:
    """That a pod leaves, else why its containers have ended, else the pod's own reason, else its phase."""
    status = obj.get("status") or {}
    phase = str(status.get("phase") or "")
    if obj["metadata"].get("deletionTimestamp") and phase not in ("Succeeded", "Failed"):
        return "Terminating"
    scheduled = condition_of(obj, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        return "SchedulingGated"
    ended = [(row.get("state") or {}).get("terminated") or {} for row in status.get("containerStatuses") or ()]
    reasons = [row["reason"] for row in ended if row.get("reason")]
    return str(next(iter(reasons), status.get("reason") or phase))


def involved(obj: Object, _now: float) -> str:
    """What an event is about."""
    target = obj.get("involvedObject") or {}
    return f"{target.get('kind', '').lower()}/{target.get('name', '')}"


def last_seen(obj: Object, now: float) -> str:
    """When an event happened last."""
    last = (obj.get("series") or {}).get("lastObservedTime") or obj.get("lastTimestamp")
    first = obj.get("firstTimestamp") or obj.get("eventTime") or obj["metadata"]["creationTimestamp"]
    return age(last or first, now)


def message(obj: Object, _now: float) -> str:
    """What an event says."""
    return str(obj.get("message") or "").strip()
