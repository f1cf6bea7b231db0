"""The kinds of documents that a policy file may hold, and the JSON schema (draft 7) that the model makes."""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.policy.model import PreemptionPolicy, PriorityPolicy
from webhook.policy.model.values import NAME
from webhook.policy.shapes.nodes import SourcePosition
from webhook.policy.shapes.object_shape import ObjectShape, Property, Values, shape_of
from webhook.policy.shapes.shapes import Choice, Definitions, MapOf, Text

__all__ = ["API_VERSION", "DOCUMENTS", "TEST_KIND", "json_schema"]

API_VERSION = "giveway.dev/v1alpha1"
TEST_KIND = "PolicyTest"
"""Documents of this kind are run by `giveway test` and lie in sub-folders, not beside the policies."""


def _metadata(values: Values, source: SourcePosition) -> str:
    del source
    name: str = values["name"]
    return name


_METADATA = ObjectShape(
    "metadata",
    "The policy's name; labels and annotations are for other tools.",
    (
        Property("name", "name", NAME, "The policy's name in messages, logs, metrics and tests.", required=True),
        Property("labels", "labels", MapOf(Text()), "For other tools."),
        Property("annotations", "annotations", MapOf(Text()), "For other tools."),
    ),
    build=_metadata,
)


def _document(kind: str, doc: str, spec: ObjectShape) -> ObjectShape:
    """A kind of document: the envelope that all kinds share, around a spec."""

    def build(values: Values, source: SourcePosition) -> Any:
        return msgspec.structs.replace(values["spec"], name=values["metadata"], source=source)

    return ObjectShape(
        kind,
        doc,
        (
            Property(
                "apiVersion",
                "api_version",
                Choice("the API version", {API_VERSION: "the only one so far"}),
                f"{API_VERSION}.",
                required=True,
            ),
            Property("kind", "kind", Choice("this kind", {kind: doc}), f"{kind}.", required=True),
            Property("metadata", "metadata", _METADATA, "The policy's name.", required=True),
            Property("spec", "spec", spec, spec.doc, required=True),
        ),
        build=build,
    )


DOCUMENTS = {
    "PriorityPolicy": _document("PriorityPolicy", "Who may run and define what priority.", shape_of(PriorityPolicy)),
    "PreemptionPolicy": _document(
        "PreemptionPolicy", "Which pods the reconciler preempts for, and whom it may evict.", shape_of(PreemptionPolicy)
    ),
}
"""Each kind with its fields."""


def json_schema() -> dict[str, Any]:
    """One schema for every kind of document, chosen by `kind`; the same at every call."""
    definitions: Definitions = {}
    documents = {kind: record.schema(definitions) for kind, record in DOCUMENTS.items()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://giveway.dev/schema/v1alpha1.json",
        "title": "giveway policy files",
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {"kind": {"enum": list(documents)}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}}, "then": reference}
            for kind, reference in documents.items()
        ],
        "definitions": dict(sorted(definitions.items())),
    }
