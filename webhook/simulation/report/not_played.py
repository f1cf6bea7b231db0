"""What the objects of a cluster ask for and a simulation does not do: by kind and field, with who asks for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from webhook.clusters.simulated.tracker import ObjectTracker

_MOST = 3
"""How many objects are named for a field."""
_CAPITAL = re.compile("([A-Z])")
_ROLLED_OUT = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet")


class _Field(NamedTuple):
    """A field of objects of these kinds, what happens instead, and the value that asks for nothing else."""

    kinds: tuple[str, ...]
    field: str
    instead: str
    harmless: Any = None


_FIELDS = (
    *(
        _Field(("LimitRange",), f"spec.limits[].{field}", "no pod is refused by it")
        for field in ("min", "max", "maxLimitRequestRatio")
    ),
    _Field(("ResourceQuota",), "spec.hard", "no pod is refused by it"),
    _Field(("CronJob",), "spec.schedule", "no Job is made"),
    _Field(_ROLLED_OUT, "spec.minReadySeconds", "a ready pod is available", 0),
    _Field((*_ROLLED_OUT, "Job"), "spec.template.spec.resourceClaims", "no device is allocated"),
    _Field(("Job",), "spec.podFailurePolicy.rules[].onExitCodes", "no exit code is known"),
    _Field(("Job",), "spec.successPolicy", "all completions are needed"),
    _Field(("Job",), "spec.activeDeadlineSeconds", "it has no deadline"),
    _Field(("Job",), "spec.ttlSecondsAfterFinished", "it stays"),
    _Field(("Job",), "spec.managedBy", "Kubernetes' own controller makes its pods", "kubernetes.io/job-controller"),
    _Field(("StatefulSet",), "spec.updateStrategy.rollingUpdate.maxUnavailable", "one pod at a time is replaced", 1),
    _Field(("StatefulSet",), "spec.volumeClaimTemplates", "no claim is made"),
    _Field(("StatefulSet",), "spec.persistentVolumeClaimRetentionPolicy.whenScaled", "claims stay", "Retain"),
)


def not_played(tracker: ObjectTracker) -> dict[str, str]:
    """What happens instead, and the first objects that ask for it, by `Kind field`."""
    said: dict[str, str] = {}
    for row in _FIELDS:
        steps = row.field.split(".")
        for kind in row.kinds:
            keys = [
                key
                for key, item in tracker.all(kind).items()
                if any(value not in (None, [], row.harmless) for value in _values(item, steps))
            ]
            if keys:
                more = f" and {len(keys) - _MOST} more" if len(keys) > _MOST else ""
                said[f"{kind} {row.field}"] = f"{row.instead} ({', '.join(sorted(keys)[:_MOST])}{more})"
    return said


def _values(value: Any, steps: list[str]) -> Iterator[Any]:
    """What an object has in a field; `[]` stands for every item of a list."""
    for at, step in enumerate(steps):
        name = step.removesuffix("[]")
        value = value.get(name) if isinstance(value, dict) else getattr(value, _snake(name), None)
        if name != step:
            for item in value or ():
                yield from _values(item, steps[at + 1 :])
            return
    yield value


def _snake(name: str) -> str:
    return _CAPITAL.sub(r"_\1", name).lower()
