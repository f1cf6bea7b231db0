"""The in-tree `Priority` admission plugin: what a pod's class says goes into the pod.

It does what docs/kubernetes-behaviour.md K1 to K4 tell: it runs before the mutating webhooks, and once more after
one of them changed the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from webhook.embedded.admission.naming import denied
from webhook.embedded.protocol.calls import Attributes, Object

__all__ = ["PriorityPlugin", "global_default"]

PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"
NOT_IN_SPEC = "must not be provided in pod spec; priority admission controller computed"
FROM_CLASS = "from the given PriorityClass name"


class PriorityPlugin:
    """`classes()` gives the stored PriorityClasses, `find(name)` one of them or None."""

    def __init__(self, classes: Callable[[], Iterable[Object]], find: Callable[[str], Object | None]) -> None:
        self._classes = classes
        self._find = find

    def admit(self, attributes: Attributes) -> None:
        """Fill in a pod's priority. Raises StatusError (403) where the pod disagrees with its class."""
        if attributes.resource.group or attributes.resource.plural != "pods" or attributes.subresource:
            return
        if attributes.operation == "CREATE":
            self._admit_new_pod(attributes)
        elif attributes.operation == "UPDATE":
            _preserve(attributes)

    def validate(self, attributes: Attributes) -> None:
        """Refuse a second global default (403)."""
        if attributes.resource.plural != "priorityclasses" or attributes.operation not in ("CREATE", "UPDATE"):
            return
        judged = attributes.object
        if judged is None or not judged.get("globalDefault"):
            return
        default = global_default(self._classes())
        if default is None:
            return
        name = default["metadata"]["name"]
        if attributes.operation == "CREATE" or name != judged["metadata"]["name"]:
            raise denied(attributes, f"PriorityClass {name} is already marked as default. Only one default can exist")

    def _admit_new_pod(self, attributes: Attributes) -> None:
        """Resolve the class of a new pod, as the Priority plugin does."""
        pod = attributes.object
        assert pod is not None
        spec: dict[str, Any] = pod.setdefault("spec", {})
        name = spec.get("priorityClassName", "")
        found = self._find(name) if name else global_default(self._classes())
        if name and found is None:
            raise denied(attributes, f"no PriorityClass with name {name} was found")
        if found is None:
            priority, policy = 0, PREEMPT_LOWER_PRIORITY
        else:
            spec["priorityClassName"] = found["metadata"]["name"]
            priority, policy = found.get("value", 0), found.get("preemptionPolicy") or PREEMPT_LOWER_PRIORITY
        given = spec.get("priority")
        if given is not None and given != priority:
            raise denied(attributes, f"the integer value of priority ({given}) {NOT_IN_SPEC} {priority} {FROM_CLASS}")
        spec["priority"] = priority
        given = spec.get("preemptionPolicy")
        if given is not None and given != policy:
            text = f"the string value of PreemptionPolicy ({given}) {NOT_IN_SPEC} {policy} {FROM_CLASS}"
            raise denied(attributes, text)
        spec["preemptionPolicy"] = policy


def global_default(classes: Iterable[Object]) -> Object | None:
    """The class that pods without one get: of several global defaults the lowest value."""
    defaults = [one for one in classes if one.get("globalDefault")]
    return min(defaults, key=lambda one: int(one.get("value", 0)), default=None)


def _preserve(attributes: Attributes) -> None:
    if attributes.object is None or attributes.old_object is None:
        return
    new, old = attributes.object.setdefault("spec", {}), attributes.old_object.get("spec") or {}
    for field in ("priority", "preemptionPolicy"):
        if new.get(field) is None and old.get(field) is not None:
            new[field] = old[field]
