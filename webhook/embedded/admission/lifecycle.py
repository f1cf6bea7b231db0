"""The in-tree `NamespaceLifecycle` and `DefaultTolerationSeconds` plugins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webhook.embedded.admission.naming import denied
from webhook.embedded.protocol.calls import Attributes, Object
from webhook.embedded.protocol.statuses import failure

__all__ = ["add_default_tolerations", "admit_namespace"]

IMMORTAL = ("default", "kube-system", "kube-public")
TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
TOLERATION_SECONDS = 300


def admit_namespace(attributes: Attributes, find: Callable[[str], Object | None]) -> None:
    """Refuse to create in a namespace that is missing (404) or ending (403), or to delete an immortal one (403).

    `find` returns the stored Namespace of a name.
    """
    if attributes.resource.plural == "namespaces":
        if attributes.operation == "DELETE" and attributes.name in IMMORTAL:
            raise denied(attributes, "this namespace may not be deleted")
        return
    if attributes.operation != "CREATE" or not attributes.namespace:
        return
    name = attributes.namespace
    namespace = find(name)
    if namespace is None:
        details = {"name": name, "kind": "namespaces"}
        raise failure(404, "NotFound", f'namespaces "{name}" not found', details)
    if namespace["metadata"].get("deletionTimestamp") and not attributes.subresource:
        error = denied(attributes, f"unable to create new content in namespace {name} because it is being terminated")
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {name} is being terminated",
            "field": "metadata.namespace",
        }
        error.status["details"]["causes"] = [cause]
        raise error


def add_default_tolerations(attributes: Attributes) -> None:
    """Let a new pod tolerate a node that is not ready or unreachable for 300 s, unless it says otherwise."""
    resource = attributes.resource
    pod = attributes.object
    if resource.group or resource.plural != "pods" or attributes.subresource or pod is None:
        return
    if attributes.operation != "CREATE":
        return
    spec: dict[str, Any] = pod.setdefault("spec", {})
    present = list(spec.get("tolerations") or ())
    keys = [one.get("key") for one in present if one.get("effect") in ("NoExecute", None, "")]
    missing = [key for key in TOLERATED if not any(tolerated in (key, None, "") for tolerated in keys)]
    if missing:
        spec["tolerations"] = present + [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}
            for key in missing
        ]
