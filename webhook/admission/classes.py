"""Validation of PriorityClasses, in the API server's words if it has any (docs/kubernetes-behaviour.md K4)."""

from __future__ import annotations

from webhook.admission.decode import Review
from webhook.admission.judging import judge, request_for
from webhook.admission.lookup import CLASSES, SYSTEM_CLASSES, Context
from webhook.admission.resolving import NEVER, policy_of
from webhook.admission.respond import Answer
from webhook.kube.objects import PriorityClass

__all__ = ["validate_class"]

_HIGHEST_USER_VALUE = 1_000_000_000
_INT32 = range(-(2**31), 2**31)
_SYSTEM_PREFIX = "system-"


def validate_class(context: Context, review: Review, answer: Answer) -> None:
    """Judge a PriorityClass as it would be stored."""
    found = review.priority_class()
    if found.metadata.deletion_timestamp:
        return
    _check_value(found, answer)
    if review.operation == "UPDATE" and review.has_old:
        old = review.old_priority_class()
        changes = ("value", found.value, old.value), ("preemptionPolicy", policy_of(found), policy_of(old))
        for field, value, was in changes:
            if value != was:
                answer.deny(
                    "class-immutable",
                    f"{field} may not be changed in an update (now {was}, requested {value}); make a new PriorityClass",
                )
    elif policy_of(found) != NEVER and context.is_managed(found.metadata.name):
        answer.warnings.append(
            f"PriorityClass {found.metadata.name} is managed but not {NEVER}: kube-scheduler preempts for its pods,"
            f' giveway does not. Delete it and make it again with "preemptionPolicy: {NEVER}"'
        )
    _check_default(context, found, answer)
    request = request_for(context, review, review.object, review.old_object)
    request.priority_class, request.priority = found, found.value
    judge(context, request, answer)


def _check_value(found: PriorityClass, answer: Answer) -> None:
    """Refuse a value that the API server refuses: too large, or below a reserved name prefix."""
    name, value = found.metadata.name, found.value
    if value not in _INT32:
        answer.deny("int32", f"value {value} does not fit an int32 ({_INT32.start} to {_INT32.stop - 1})")
    elif name.startswith(_SYSTEM_PREFIX):
        if SYSTEM_CLASSES.get(name) != value or found.global_default:
            answer.deny(
                "system-prefix",
                "priority class names with 'system-' prefix are reserved for system use only;"
                f" choose another name than {name}",
            )
    elif value > _HIGHEST_USER_VALUE:
        answer.deny(
            "highest-value",
            f"maximum allowed value of a user defined priority is {_HIGHEST_USER_VALUE}; {name} asks for {value}",
        )


def _check_default(context: Context, found: PriorityClass, answer: Answer) -> None:
    if not found.global_default:
        return
    for other in context.lookup.default_priority_classes():
        name = other.metadata.name
        if name != found.metadata.name:
            answer.unsure.add((CLASSES, name))
            answer.deny(
                "one-default",
                f"PriorityClass {name} is already marked as default. Only one default can exist",
            )
            return
