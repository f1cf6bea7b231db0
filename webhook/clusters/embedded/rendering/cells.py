"""What stands in the cells of `kubectl get`: functions of an object and the time in seconds since the epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.kube.instants import InstantError, epoch

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_YEAR = 365 * _DAY
_STEPS = (
    # below this many seconds: the unit shown, and the smaller one shown beside it
    (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
    (3 * _HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (48 * _HOUR, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
)


def human(seconds: float) -> str:
    """A duration in its two largest sensible units."""
    whole = int(seconds)
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    for bound, (size, letter), smaller in _STEPS:
        if whole < bound:
            rest = whole % size // smaller[0] if smaller else 0
            return f"{whole // size}{letter}{rest}{smaller[1]}" if smaller and rest else f"{whole // size}{letter}"
    return f"{whole // _YEAR}y"


def age(instant: str | None, now: float) -> str:
    """The time since an RFC 3339 instant; `now` in seconds since the epoch."""
    if not instant:
        return "<unknown>"
    try:
        return human(now - epoch(instant))
    except InstantError:
        return "<unknown>"


NONE = "<none>"


def at(path: str, default: Any = "") -> Callable[[Object, float], Any]:
    """The value at a path, or a default."""
    parts = path.split(".")

    def cell(obj: Object, _now: float) -> Any:
        value: Any = obj
        for part in parts:
            value = value.get(part) if isinstance(value, dict) else None
        return default if value is None else value

    return cell


def text(path: str, default: str = NONE) -> Callable[[Object, float], str]:
    """The value at a path as text."""
    value = at(path, default)
    return lambda obj, now: str(value(obj, now)) or default


def age_of(path: str = "metadata.creationTimestamp") -> Callable[[Object, float], str]:
    """The time since an instant at a path."""
    value = at(path, None)
    return lambda obj, now: age(value(obj, now), now)


def count(path: str) -> Callable[[Object, float], int]:
    """The length of a list or map at a path."""
    value = at(path, ())
    return lambda obj, now: len(value(obj, now))


def fraction(done: str, of_: str, wanted: Any = 0) -> Callable[[Object, float], str]:
    """How many are done, of how many."""
    left, right = at(done, 0), at(of_, wanted)
    return lambda obj, now: f"{left(obj, now)}/{right(obj, now)}"


def pairs(labels: Object) -> str:
    """Labels in one line."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NONE


def selector(obj: Object, _now: float) -> str:
    """A workload's or service's selector in one line."""
    selector = (obj.get("spec") or {}).get("selector")
    if not selector:
        return NONE
    if not {"matchLabels", "matchExpressions"} & set(selector):
        return pairs(selector)
    parts = [pairs(selector["matchLabels"])] if selector.get("matchLabels") else []
    for row in selector.get("matchExpressions") or ():
        values = ",".join(sorted(row.get("values") or ()))
        match row["operator"]:
            case "In" | "NotIn":
                parts.append(f"{row['key']} {row['operator'].lower()} ({values})")
            case "Exists":
                parts.append(row["key"])
            case _:
                parts.append(f"!{row['key']}")
    return ",".join(parts) or NONE


def containers(field: str) -> Callable[[Object, float], str]:
    """A field of every container in the workload's template."""

    def cell(obj: Object, _now: float) -> str:
        spec = obj["spec"]
        template = spec["jobTemplate"]["spec"]["template"] if "jobTemplate" in spec else spec.get("template") or {}
        return ",".join(str(row.get(field, "")) for row in (template.get("spec") or {}).get("containers") or ())

    return cell


def condition_of(obj: Object, kind: str) -> Object | None:
    """A condition of an object, or None."""
    return next((row for row in (obj.get("status") or {}).get("conditions") or () if row["type"] == kind), None)


def node_status(obj: Object, _now: float) -> str:
    """Whether a node is ready and may be scheduled on."""
    ready = condition_of(obj, "Ready")
    text = "Unknown" if ready is None else "Ready" if ready["status"] == "True" else "NotReady"
    return f"{text},SchedulingDisabled" if obj["spec"].get("unschedulable") else text


def node_roles(obj: Object, _now: float) -> str:
    """A node's roles, which are labels."""
    prefix = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)}
    roles |= {labels["kubernetes.io/role"]} if labels.get("kubernetes.io/role") else set()
    return ",".join(sorted(roles)) or NONE


def node_address(kind: str) -> Callable[[Object, float], str]:
    """A node's address of a kind."""

    def cell(obj: Object, _now: float) -> str:
        rows = (obj.get("status") or {}).get("addresses") or ()
        return next((row["address"] for row in rows if row["type"] == kind), NONE)

    return cell


def ports(obj: Object, _now: float) -> str:
    """A service's ports."""
    shown = []
    for row in obj["spec"].get("ports") or ():
        number = f"{row['port']}:{row['nodePort']}" if row.get("nodePort") else str(row["port"])
        shown.append(f"{number}/{row.get('protocol', 'TCP')}")
    return ",".join(shown) or NONE


def access_modes(path: str) -> Callable[[Object, float], str]:
    """Access modes by their initials."""
    letters = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    modes = at(path, ())
    return lambda obj, now: ",".join(letters.get(mode, mode) for mode in modes(obj, now))


def claim(obj: Object, _now: float) -> str:
    """The claim a volume is bound to."""
    reference = obj["spec"].get("claimRef")
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else ""


def duration(obj: Object, now: float) -> str:
    """How long a job has run."""
    status = obj.get("status") or {}
    if not status.get("startTime"):
        return ""
    end = epoch(status["completionTime"]) if status.get("completionTime") else now
    return human(end - epoch(status["startTime"]))


def job_status(obj: Object, _now: float) -> str:
    """How a job stands."""
    for kind, text in (("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended")):
        condition = condition_of(obj, kind)
        if condition and condition["status"] == "True":
            return text
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else "Running"


def completions(obj: Object, _now: float) -> str:
    """How many runs of a job have succeeded."""
    spec, done = obj["spec"], (obj.get("status") or {}).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallel = spec.get("parallelism", 1)
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


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
    """The reason that says most: of a container that waits or has ended, else the pod's own, else its phase."""
    status = pod.get("status") or {}
    own = str(status.get("reason") or status.get("phase") or "")
    conditions = status.get("conditions") or ()
    if any(row.get("type") == "PodScheduled" and row.get("reason") == "SchedulingGated" for row in conditions):
        own = "SchedulingGated"
    running, of_containers = False, ""
    for row in reversed(status.get("containerStatuses") or ()):
        state = row.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            of_containers = str(state["waiting"]["reason"])
        elif state.get("terminated") is not None:
            of_containers = _ended(state["terminated"])
        elif row.get("ready") and state.get("running") is not None:
            running = True
    shown = "Running" if of_containers == "Completed" and running else of_containers or own
    for index, row in enumerate(status.get("initContainerStatuses") or ()):
        state = row.get("state") or {}
        terminated, waiting = state.get("terminated"), (state.get("waiting") or {}).get("reason")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        reason = f"{index}/{len(pod['spec'].get('initContainers') or ())}"
        if terminated is not None:
            reason = _ended(terminated)
        elif waiting and waiting != "PodInitializing":
            reason = waiting
        shown = f"Init:{reason}"
        break
    if pod["metadata"].get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return shown


def _ended(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def readiness_gates(obj: Object, _now: float) -> str:
    """How many of a pod's gates are open."""
    gates = obj["spec"].get("readinessGates") or ()
    if not gates:
        return NONE
    met = [gate for gate in gates if (condition_of(obj, gate["conditionType"]) or {}).get("status") == "True"]
    return f"{len(met)}/{len(gates)}"


def involved(obj: Object, _now: float) -> str:
    """What an event is about."""
    target = obj.get("involvedObject") or {}
    return f"{target.get('kind', '').lower()}/{target.get('name', '')}"


def last_seen(obj: Object, now: float) -> str:
    """When an event happened last."""
    series = obj.get("series") or {}
    return age(series.get("lastObservedTime") or obj.get("lastTimestamp") or first(obj), now)


def first(obj: Object) -> Any:
    """When an event happened first."""
    return obj.get("firstTimestamp") or obj.get("eventTime") or obj["metadata"]["creationTimestamp"]


def times(obj: Object, _now: float) -> int:
    """How often an event happened."""
    return int((obj.get("series") or {}).get("count") or obj.get("count") or 1)


def source(obj: Object, _now: float) -> str:
    """Who reported an event."""
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {host}" if host else component


def subjects(kind: str) -> Callable[[Object, float], str]:
    """The subjects of a kind in a role binding."""

    def cell(obj: Object, _now: float) -> str:
        rows = [row for row in obj.get("subjects") or () if row["kind"] == kind]
        return ", ".join(f"{row['namespace']}/{row['name']}" if row.get("namespace") else row["name"] for row in rows)

    return cell


def role(obj: Object, _now: float) -> str:
    """The role of a role binding."""
    return f"{obj['roleRef']['kind']}/{obj['roleRef']['name']}"


def class_name(obj: Object, _now: float) -> str:
    """The name of a storage class, and whether it is the default."""
    annotations = obj["metadata"].get("annotations") or {}
    default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return f"{obj['metadata']['name']} (default)" if default else str(obj["metadata"]["name"])
