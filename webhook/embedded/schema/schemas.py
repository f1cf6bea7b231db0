"""The shape of every kind, taken from the official client's models when a kind is first used."""

from __future__ import annotations

import re
from copy import copy
from functools import cache

from kubernetes.client import models

from webhook.embedded.protocol.api_resources import ApiResource
from webhook.embedded.schema.listtypes import ListType, is_atomic, is_int64, is_quantity, list_type

__all__ = ["Schema", "model_of", "of_model", "of_resource"]

_SCALARS = {
    "bytes": "bytes",
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "datetime": "time",
    "object": "any",
}
_INT_OR_STRING = {"maxSurge", "maxUnavailable", "minAvailable", "port", "targetPort"}
_LIST = re.compile(r"List\[(.*)\]")
_MAP = re.compile(r"Dict\[str, (.*)\]")


class Schema:
    """One node.

    `kind` is struct, map, list, string, bytes, integer, int64, number, boolean, time, quantity, intstr or any.
    """

    __slots__ = ("atomic", "description", "fields", "item", "kind", "lists", "model", "required")

    def __init__(self, kind: str, description: str = "") -> None:
        self.kind = kind
        self.description = description
        self.model = ""
        """The model of a struct, such as V1PodSpec."""
        self.fields: dict[str, Schema] = {}
        """Fields of a struct."""
        self.required: frozenset[str] = frozenset()
        self.item: Schema | None = None
        """Values of a map, items of a list."""
        self.lists = ListType()
        """How a list merges."""
        self.atomic = False
        """Whether a struct or map is replaced as a whole."""


def of_resource(resource: ApiResource) -> Schema:
    """The schema of a resource's objects."""
    return of_model(model_of(resource))


def model_of(resource: ApiResource) -> str:
    """The name of the client's model for a resource."""
    if resource.kind == "Event":
        return "EventsV1Event" if resource.group else "CoreV1Event"
    return f"V1{resource.kind}"


@cache
def of_model(name: str) -> Schema:
    """The schema of a model such as V1Pod."""
    schema = Schema("struct")
    schema.model = name
    model = getattr(models, name)
    described = model.model_fields
    schema.description = ((model.__doc__ or "").strip().splitlines() or [""])[0]
    for attribute, type_name in model.openapi_types.items():
        field = model.attribute_map[attribute]
        info = described.get(attribute)
        schema.fields[field] = _field(name, field, type_name, (info and info.description) or "")
    required = [attribute for attribute, info in described.items() if info.is_required()]
    schema.required = frozenset(model.attribute_map[attribute] for attribute in required)
    schema.atomic = is_atomic("", "", name)
    return schema


def _field(model: str, field: str, type_name: str, description: str) -> Schema:
    """The schema of a model's field, under the description of that field if it has one."""
    schema = _typed(model, field, type_name)
    if schema.kind == "struct":
        if not description:
            return schema
        schema = copy(schema)  # every field of that type holds the same one
    schema.description = description
    return schema


def _typed(model: str, field: str, type_name: str) -> Schema:
    if match := _LIST.fullmatch(type_name):
        schema = Schema("list")
        schema.item = _typed(model, field, match[1])
        schema.lists = list_type(model, field)
        return schema
    if match := _MAP.fullmatch(type_name):
        schema = Schema("map")
        schema.item = _typed(model, field, match[1])
        schema.atomic = is_atomic(model, field, "")
        return schema
    if type_name in _SCALARS:
        return Schema(_scalar(field, _SCALARS[type_name]))
    return of_model(type_name)


def _scalar(field: str, kind: str) -> str:
    if kind == "string" and is_quantity(field):
        return "quantity"
    if kind == "integer" and is_int64(field):
        return "int64"
    if kind == "any" and field in _INT_OR_STRING:
        return "intstr"
    return kind
