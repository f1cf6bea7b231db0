"""What a DELETE does: preconditions, grace periods, finalizers, propagation (`registry/rest/delete.go`)."""

from __future__ import annotations

from enum import Enum, auto

from webhook.embedded.protocol import statuses
from webhook.embedded.protocol.api_resources import ApiResource
from webhook.embedded.protocol.calls import Object
from webhook.kube.instants import epoch, rfc3339

__all__ = ["DeletionStep", "check_preconditions", "is_finished", "plan"]

_DEFAULT_GRACE = 30
_ORPHAN = "orphan"
_FOREGROUND = "foregroundDeletion"
_PROPAGATION = {"Orphan": _ORPHAN, "Foreground": _FOREGROUND}


class DeletionStep(Enum):
    """How far a DELETE gets."""

    NOTHING = auto()
    """The object is being deleted already."""
    MARK = auto()
    """A deletionTimestamp is set; somebody has to finish."""
    MARK_AND_REMOVE = auto()
    """Both, as two changes."""
    REMOVE = auto()


def check_preconditions(resource: ApiResource, obj: Object, options: Object) -> None:
    """Refuse (409) where uid or resourceVersion are not those the caller knows."""
    wanted, metadata = options.get("preconditions") or {}, obj["metadata"]
    for field, text, hint in (
        ("uid", "UID", "The object might have been deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "The object might have been modified"),
    ):
        value = wanted.get(field)
        if value is not None and value != metadata.get(field):
            why = (
                f"the {text} in the precondition ({value}) does not match the {text} in record "
                f"({metadata.get(field)}). {hint}"
            )
            message = f'Operation cannot be fulfilled on {resource.kind} "{metadata["name"]}": {why}'
            raise statuses.failure(409, "Conflict", message, {"name": metadata["name"], "kind": resource.kind})


def plan(resource: ApiResource, obj: Object, options: Object, now: float) -> DeletionStep:
    """Mark the object as the options ask, and tell what is to be done with it. `now` is seconds since the epoch."""
    metadata = obj["metadata"]
    marked = bool(metadata.get("deletionTimestamp"))
    before = list(metadata.get("finalizers") or ())
    metadata["finalizers"] = _finalizers(before, options)
    if not metadata["finalizers"]:
        del metadata["finalizers"]
    pending = bool(metadata.get("finalizers")) or bool(_spec_finalizers(resource, obj))
    if resource.graceful:
        return _plan_graceful(obj, options, now, pending=pending)
    if not pending:
        return DeletionStep.REMOVE
    if marked and before == list(metadata.get("finalizers") or ()):
        return DeletionStep.NOTHING
    if not marked:
        _mark(obj, 0, now)
        if resource.kind == "Namespace":
            obj.setdefault("status", {})["phase"] = "Terminating"
            del metadata["deletionGracePeriodSeconds"]
    return DeletionStep.MARK


def is_finished(resource: ApiResource, obj: Object) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    metadata = obj["metadata"]
    return (
        bool(metadata.get("deletionTimestamp"))
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not _spec_finalizers(resource, obj)
    )


def _spec_finalizers(resource: ApiResource, obj: Object) -> list[str]:
    return (obj.get("spec") or {}).get("finalizers") or [] if resource.kind == "Namespace" else []


def _plan_graceful(obj: Object, options: Object, now: float, *, pending: bool) -> DeletionStep:
    """Give a pod its grace period, or shorten the one it has."""
    metadata, wanted = obj["metadata"], options.get("gracePeriodSeconds")
    if metadata.get("deletionTimestamp"):
        current = metadata.get("deletionGracePeriodSeconds") or 0
        if wanted is None or wanted >= current:
            return DeletionStep.NOTHING
        asked_at = epoch(metadata["deletionTimestamp"]) - current
        metadata["deletionTimestamp"] = rfc3339(asked_at + wanted)
        metadata["deletionGracePeriodSeconds"] = wanted
        grace = wanted
    else:
        spec = obj.get("spec") or {}
        grace = int(spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE) if wanted is None else wanted)
        if grace < 0:
            grace = 1
        if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            grace = 0  # no kubelet has anything to stop
        _mark(obj, grace, now)
    return DeletionStep.MARK if grace or pending else DeletionStep.MARK_AND_REMOVE


def _mark(obj: Object, grace: int, now: float) -> None:
    metadata = obj["metadata"]
    metadata["deletionTimestamp"] = rfc3339(now + grace)
    metadata["deletionGracePeriodSeconds"] = grace
    if metadata.get("generation"):
        metadata["generation"] += 1


def _finalizers(current: list[str], options: Object) -> list[str]:
    """Finalizers as the propagation asks for; none asked for leaves them."""
    policy = options.get("propagationPolicy")
    if policy is None and options.get("orphanDependents") is not None:
        policy = "Orphan" if options["orphanDependents"] else "Background"
    if policy is None:
        return current
    others = [name for name in current if name not in (_ORPHAN, _FOREGROUND)]
    return [*others, _PROPAGATION[policy]] if policy in _PROPAGATION else others
