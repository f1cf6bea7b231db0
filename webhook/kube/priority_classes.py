"""Whether the PriorityClass that a pod or PodGroup names speaks for it (docs/semantics.md C7).

The name alone says nothing: a class can be deleted and made again with another value and other annotations, while its
pods keep their priority.
"""

from webhook.kube.objects.cluster_scoped import PriorityClass


def speaking(named: PriorityClass | None, priority: int | None) -> PriorityClass | None:
    """The class of that name if it speaks for an object of this `spec.priority` (absent: 0), which is its value."""
    return named if named is not None and named.value == (priority or 0) else None


def silence(name: str, named: PriorityClass | None, priority: int | None) -> str:
    """Why the class of this name, which is not `speaking`, says nothing of an object of this priority."""
    if named is None:
        return f"PriorityClass {name} does not exist"
    return f"PriorityClass {name} was made again: its value is {named.value}, and the priority is {priority or 0}"
