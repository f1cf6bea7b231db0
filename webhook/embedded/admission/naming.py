"""How admission names what it judges: the name a refusal shows and the versioned kind."""

from __future__ import annotations

from webhook.embedded.protocol.calls import Attributes
from webhook.embedded.protocol.statuses import StatusError, forbidden

__all__ = ["denied", "kind_of", "shown_name"]


def denied(attributes: Attributes, why: str) -> StatusError:
    """403 in the words of an admission plugin."""
    return forbidden(attributes.resource, shown_name(attributes), why)


def shown_name(attributes: Attributes) -> str:
    """The object's name; before one is generated, `generateName` or `Unknown`."""
    metadata = (attributes.object or {}).get("metadata") or {}
    return attributes.name or metadata.get("name") or metadata.get("generateName") or "Unknown"


def kind_of(attributes: Attributes) -> tuple[str, str, str]:
    """Group, version and kind of the object in the request; a sub-resource may carry its own, such as Eviction."""
    judged = attributes.object or attributes.old_object or {}
    group, _, version = str(judged.get("apiVersion") or "").rpartition("/")
    kind = str(judged.get("kind") or "")
    if not kind or not version:
        return attributes.resource.group, attributes.resource.version, attributes.resource.kind
    return group, version, kind
