"""What a policy judges: one admission request, resolved as far as admission can."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from webhook.kube.objects import Namespace, PriorityClass

__all__ = ["PolicyRequest", "UserInfo"]


class UserInfo(msgspec.Struct, frozen=True):
    """Who asks, as the API server authenticated them."""

    username: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = {}


class PolicyRequest(msgspec.Struct, kw_only=True):
    """One CREATE or UPDATE of a pod, a workload with a pod template, or a PriorityClass.

    `object` and `old_object` are the JSON data as sent (`old_object` on UPDATE only). `priority_class` is the
    class that the pod or template names or is given, `priority` the value it has in effect, however it got there
    (docs/semantics.md B). `raw` is the AdmissionRequest, which CEL reads as `request`. `allowance` is how many
    nanoseconds the expressions may take by their estimates before the engine gives up with AllowanceError; None for
    any number. `now` is the time of the request in seconds since the epoch, by which exceptions end; without one they
    have all ended.
    """

    operation: str
    resource: str
    object: dict[str, Any]
    old_object: dict[str, Any] | None = None
    namespace: str = ""
    name: str = ""
    user: UserInfo = UserInfo()
    namespace_object: Namespace | None = None
    priority_class: PriorityClass | None = None
    priority: int | None = None
    raw: dict[str, Any] = {}
    dry_run: bool = False
    labels_known: bool = True
    """Whether the object's labels are there: a Binding changes a pod without carrying it."""
    allowance: float | None = None
    now: float = math.inf
