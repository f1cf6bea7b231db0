"""What every object carries, and how its label selectors look."""

from typing import Any

import msgspec

Quantity = str | int | float
"""A resource quantity as JSON carries it; the API server always sends the string."""


class KubeStruct(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True, gc=False):
    """Base of every object and part of one: camelCase in JSON, unknown fields ignored.

    Objects hold data and never each other in a circle, so the garbage collector need not walk them.
    """


class OwnerReference(KubeStruct):
    """Who made an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None


class ObjectMeta(KubeStruct):
    """What every object carries."""

    name: str = ""
    namespace: str = ""
    generate_name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None


class KubeObject(KubeStruct):
    """Base of every object, which has a key by its metadata."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class Requirement(KubeStruct):
    """One row of `matchExpressions` or `matchFields`."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(KubeStruct):
    """A label selector; what an absent or empty one means depends on who asks."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


class Condition(KubeStruct):
    """A condition of a pod or a node."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ObjectReference(KubeStruct):
    """A reference from one object to another."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


def key_of(obj: Any) -> str:
    """`namespace/name` of a namespaced object, `name` of a cluster-wide one."""
    meta: ObjectMeta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
