"""OpenAPI v3, made of the client's models when it is asked for: what `kubectl explain`, `apply` and `diff` read."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import msgspec

from webhook.clusters.embedded.object_types import schemas
from webhook.clusters.embedded.object_types.schemas import Schema
from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import RESOURCES, ApiResource, Object

_ROOTS = {row.root.lstrip("/"): row.root for row in RESOURCES}
_PREFIX = "#/components/schemas/"
_SCALARS: dict[str, Object] = {
    "any": {"type": "object"},
    "boolean": {"type": "boolean"},
    "bytes": {"type": "string", "format": "byte"},
    "int64": {"type": "integer", "format": "int64"},
    "integer": {"type": "integer", "format": "int32"},
    "number": {"type": "number", "format": "double"},
    "string": {"type": "string"},
    "time": {"type": "string", "format": "date-time"},
}
_NAMED: dict[str, tuple[str, Object]] = {
    "intstr": ("IntOrString", {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
    "quantity": ("Quantity", {"oneOf": [{"type": "string"}, {"type": "number"}]}),
}
_PATCHES = ("json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")


@lru_cache(maxsize=1 + len(_ROOTS))
def document(path: str) -> bytes:
    """A document below `/openapi/v3`: the index, or that of one group and version. Raises StatusError (404).

    Of its paths it has the addresses with the verbs and parameters by which kubectl tells what the server can.
    """
    name = path.removeprefix("/openapi/v3").lstrip("/")
    if path == "/openapi/v3":
        # A document may be cached for good, for its address changes with what it is made of.
        digest = hashlib.sha256(repr(RESOURCES).encode()).hexdigest().upper()
        index = {root: {"serverRelativeURL": f"/openapi/v3/{root}?hash={digest}"} for root in _ROOTS}
        return msgspec.json.encode({"paths": index})
    if not path.startswith("/openapi/v3/") or name not in _ROOTS:
        raise statuses.path_not_found()
    components: dict[str, Object] = {}
    paths: Object = {}
    for row in RESOURCES:
        if row.root != _ROOTS[name]:
            continue
        schema = schemas.of_resource(row)
        _add(schema, components)
        kind = {"group": row.group, "version": row.version, "kind": row.kind}
        components[_component(schema.model)]["x-kubernetes-group-version-kind"] = [kind]
        if row.stored:
            collection = f"{row.root}/{'namespaces/{namespace}/' if row.namespaced else ''}{row.plural}"
            paths[collection] = {"get": _operation(row, "list"), "post": _operation(row, "post", "json")}
            paths[f"{collection}/{{name}}"] = {
                "get": _operation(row, "get"),
                "put": _operation(row, "put", "json"),
                "patch": _operation(row, "patch", *_PATCHES),
                "delete": _operation(row, "delete"),
            }
    info = {"title": "Kubernetes", "version": "v1.36.0"}
    body = {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": components}}
    return msgspec.json.encode(body)


def _component(model: str) -> str:
    """`V1PodSpec` as `io.k8s.api.PodSpec`; what stands after the last dot is what people are shown."""
    return f"io.k8s.api.{model.removeprefix('V1')}"


def _add(schema: Schema, components: dict[str, Object]) -> None:
    name = _component(schema.model)
    if name in components:
        return
    component: Object = {"type": "object", "description": schemas.of_model(schema.model).description}
    components[name] = component
    component["properties"] = {field: _shown(field, below, components) for field, below in schema.fields.items()}
    if schema.required:
        component["required"] = sorted(schema.required)
    if schema.atomic:
        component["x-kubernetes-map-type"] = "atomic"


def _shown(field: str, schema: Schema, components: dict[str, Object]) -> Object:
    """A field's schema in OpenAPI; models that it refers to are added to `components`."""
    shown: Object
    if schema.kind == "struct":
        _add(schema, components)
        shown = {"allOf": [{"$ref": _PREFIX + _component(schema.model)}]}
        if field in ("metadata", "spec", "status"):
            shown["default"] = {}
    elif schema.kind == "list":
        assert schema.item is not None
        lists = schema.lists
        shown = {"type": "array", "items": _shown("", schema.item, components)}
        shown["x-kubernetes-list-type"] = "map" if lists.keys else "set" if lists.is_set else "atomic"
        if lists.keys:
            shown["x-kubernetes-list-map-keys"] = list(lists.keys)
        if lists.merge_key:
            shown["x-kubernetes-patch-merge-key"] = lists.merge_key
        if lists.merge_key or lists.is_set:
            shown["x-kubernetes-patch-strategy"] = "merge,retainKeys" if lists.retain_keys else "merge"
    elif schema.kind == "map":
        assert schema.item is not None
        shown = {"type": "object", "additionalProperties": _shown("", schema.item, components)}
        if schema.atomic:
            shown["x-kubernetes-map-type"] = "atomic"
    elif schema.kind in _NAMED:
        name, component = _NAMED[schema.kind]
        components[_component(name)] = component
        shown = {"allOf": [{"$ref": _PREFIX + _component(name)}]}
    else:
        shown = dict(_SCALARS[schema.kind])
    if schema.description and field:
        shown["description"] = schema.description
    return shown


def _operation(row: ApiResource, action: str, *bodies: str) -> Object:
    """What kubectl reads of an operation: its parameters, body and answer."""
    names = ("dryRun", "fieldManager", "fieldValidation") if bodies else ()
    parameters: list[Any] = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for name in names
    ]
    if action == "patch":
        parameters.append({"name": "force", "in": "query", "schema": {"type": "boolean", "uniqueItems": True}})
    reference = {"schema": {"$ref": _PREFIX + _component(schemas.model_of(row))}}
    answer = {"description": "OK", "content": {"application/json": reference}}
    operation: Object = {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": row.group, "version": row.version, "kind": row.kind},
        "parameters": parameters,
        "responses": {"200": answer},
    }
    if bodies:
        operation["requestBody"] = {"content": {f"application/{body}": reference for body in bodies}}
    return operation
