"""Which served resources have a `priorityClassName` that no rule judges, by the API server's OpenAPI documents.

Schedulers and queues have kinds of their own with priorities: whoever may make such an object may have a priority that
no rule of giveway looks at. Where `priorityClassName` stands beside other fields of a pod's spec, it is for pods, which
are judged when they are made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from webhook.admission.webhook import HANDLED
from webhook.kube.client import Client
from webhook.kube.errors import ApiError

_INDEX = "/openapi/v3"
_MOST_DOCUMENTS, _LONGEST_DOCUMENT = 500, 64 * 2**20
"""Documents, one for each group and version, and bytes of one; the largest of Kubernetes itself has 2 MB."""
_FIELD = "priorityClassName"
_OF_PODS = frozenset({"containers", "nodeSelector", "tolerations", "affinity", "serviceAccountName"})
"""Any of these beside it: what is made of this are pods."""
_JUDGED = frozenset(f"{resource}.{group}".removesuffix(".") for group, resource in HANDLED)
_COLLECTION = re.compile(r"/apis?/(?:[^/]+/){1,2}(?:namespaces/\{namespace\}/)?([a-z0-9-]+)")

Json = dict[str, Any]


class ServedPriorities(msgspec.Struct, frozen=True):
    """`fields` has the paths of the field by resource, such as `podgroups.example.com`, `unread` why by document."""

    fields: dict[str, tuple[str, ...]] = {}
    unread: dict[str, str] = {}


async def read_served_priorities(client: Client) -> ServedPriorities:
    """Read the OpenAPI documents, one after the other. What cannot be read is noted.

    Raises ApiError if the cluster does not answer at all, or does not know who asks.
    """
    fields: dict[str, set[str]] = {}
    unread: dict[str, str] = {}
    try:
        index = await client.get(_INDEX)
    except ApiError as error:
        if error.status in (0, 401):
            raise
        return ServedPriorities(unread={_INDEX: str(error)})
    documents: dict[str, Json] = index.get("paths") or {}
    for place, (name, document) in enumerate(sorted(documents.items())):
        if place >= _MOST_DOCUMENTS:
            unread[_INDEX] = f"it names {len(documents)} documents, and {_MOST_DOCUMENTS} were read"
            break
        path, _, query = document["serverRelativeURL"].partition("?")
        try:
            text = bytes(await client.get(path, msgspec.Raw, **dict(re.findall(r"([^&=]+)=([^&]*)", query))))
            if len(text) > _LONGEST_DOCUMENT:
                unread[name] = f"it has {len(text)} bytes"
            elif _FIELD.encode() in text:
                for resource, paths in priority_fields(msgspec.json.decode(text)).items():
                    fields.setdefault(resource, set()).update(paths)
        except ApiError as error:
            unread[name] = str(error)
        except (msgspec.DecodeError, RecursionError, AttributeError, TypeError) as error:
            unread[name] = f"it is no OpenAPI document: {error}"
    return ServedPriorities({resource: tuple(sorted(paths)) for resource, paths in sorted(fields.items())}, unread)


def priority_fields(document: Mapping[str, Any]) -> dict[str, set[str]]:
    """The paths of `priorityClassName` by resource, of one document; those of pods and what giveway judges left out.

    Only what can be created counts. Raises AttributeError or TypeError for what is no OpenAPI document.
    """
    schemas: Json = (document.get("components") or {}).get("schemas") or {}
    by_kind = {
        _kind(gvk): schema for schema in schemas.values() for gvk in schema.get("x-kubernetes-group-version-kind") or ()
    }
    paths: dict[str, set[str]] = {}
    for path, operations in (document.get("paths") or {}).items():
        collection = _COLLECTION.fullmatch(path)
        kind = _kind((operations.get("post") or {}).get("x-kubernetes-group-version-kind") or {})
        if collection is None or kind not in by_kind:
            continue
        resource = f"{collection[1]}.{kind[0]}" if kind[0] else collection[1]
        fields = set() if resource in _JUDGED else set(_fields(by_kind[kind], schemas))
        if fields:
            paths[resource] = fields
    return paths


def _kind(of: Mapping[str, str]) -> tuple[str, str, str]:
    return of.get("group", ""), of.get("version", ""), of.get("kind", "")


def _fields(root: Json, schemas: Mapping[str, Json]) -> Iterator[str]:
    """Where a schema has the field; what it refers to is looked at once."""
    seen: set[str] = set()
    left: list[tuple[str, Json]] = [("", root)]
    while left:
        path, schema = left.pop()
        name = schema.get("$ref", "").rpartition("/")[2]
        if name and name not in seen:
            seen.add(name)
            left.append((path, schemas.get(name) or {}))
        for word in ("allOf", "anyOf", "oneOf"):
            left += [(path, part) for part in schema.get(word) or ()]
        if isinstance(schema.get("items"), dict):
            left.append((f"{path}[]", schema["items"]))
        if isinstance(schema.get("additionalProperties"), dict):
            left.append((f"{path}[]", schema["additionalProperties"]))
        properties: Json = schema.get("properties") or {}
        if _FIELD in properties and not _OF_PODS & properties.keys():
            yield f"{path}.{_FIELD}".removeprefix(".")
        left += [(f"{path}.{field}".removeprefix("."), part) for field, part in properties.items()]
