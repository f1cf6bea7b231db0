"""What the objects of a cluster ask for and a simulation does not do: by kind and field, with who asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from webhook.clusters.simulated.tracker import ObjectTracker

__all__ = ["not_played"]

_MOST = 3
"""How many objects are named for a field."""
_ROLLED_OUT = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet")


class _Field(NamedTuple):
    """A field of objects of these kinds; `is_set` asks the object's spec, `instead` says what happens."""

    kinds: tuple[str, ...]
    field: str
    is_set: Callable[[Any], Any]
    instead: str


def _reads_exit_codes(spec: Any) -> bool:
    return any(rule.get("onExitCodes") for rule in (spec.pod_failure_policy or {}).get("rules") or ())


def _limited(spec: Any) -> bool:
    rows = (spec or {}).get("limits") or ()
    return any(row.get(field) for row in rows for field in ("min", "max", "maxLimitRequestRatio"))


_FIELDS = (
    _Field(("LimitRange",), "spec.limits[] (min, max, maxLimitRequestRatio)", _limited, "no pod is refused by it"),
    _Field(("ResourceQuota",), "spec.hard", lambda spec: (spec or {}).get("hard"), "no pod is refused by it"),
    _Field(("CronJob",), "spec.schedule", lambda _: True, "no Job is made"),
    _Field(_ROLLED_OUT, "spec.minReadySeconds", lambda spec: spec.min_ready_seconds, "a ready pod is available"),
    _Field(("Job",), "spec.podFailurePolicy.rules[].onExitCodes", _reads_exit_codes, "no exit code is known"),
    _Field(("Job",), "spec.successPolicy", lambda spec: spec.success_policy, "all completions are needed"),
    _Field(("Job",), "spec.activeDeadlineSeconds", lambda spec: spec.active_deadline_seconds, "it has no deadline"),
    _Field(("Job",), "spec.managedBy", lambda spec: spec.managed_by, "Kubernetes' own controller makes its pods"),
    _Field(
        ("StatefulSet",),
        "spec.updateStrategy.rollingUpdate.maxUnavailable",
        lambda spec: ((spec.update_strategy or {}).get("rollingUpdate") or {}).get("maxUnavailable"),
        "one pod at a time is replaced",
    ),
    _Field(("StatefulSet",), "spec.volumeClaimTemplates", lambda spec: spec.volume_claim_templates, "no claim is made"),
)


def not_played(tracker: ObjectTracker) -> dict[str, str]:
    """What happens instead, and the first objects that ask for it, by `Kind field`."""
    said: dict[str, str] = {}
    for row in _FIELDS:
        for kind in row.kinds:
            objects = tracker.all(kind).items()
            keys = sorted(key for key, item in objects if row.is_set(getattr(item, "spec", None)))
            if keys:
                more = f" and {len(keys) - _MOST} more" if len(keys) > _MOST else ""
                said[f"{kind} {row.field}"] = f"{row.instead} ({', '.join(keys[:_MOST])}{more})"
    return said
