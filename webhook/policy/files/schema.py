"""The JSON schema (draft 7) of policy files, made of the tables the loader reads by."""

from __future__ import annotations

from typing import Any

from webhook.policy.files.shapes import Definitions
from webhook.policy.files.table import DOCUMENTS

__all__ = ["json_schema"]


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
