"""OpenAPI v3 as far as kubectl reads it before `apply`, `create` and `diff`: the parameters of patches.

There are no schemas: kubectl makes its patches of the kinds it knows itself, and `kubectl explain` explains nothing.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import msgspec

from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import RESOURCES, Object

_ROOTS = {row.root.lstrip("/"): row.root for row in RESOURCES}
_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


@lru_cache(maxsize=1 + len(_ROOTS))
def document(path: str) -> bytes:
    """A document below `/openapi/v3`: the index, or that of one group and version. Raises StatusError (404)."""
    name = path.removeprefix("/openapi/v3").lstrip("/")
    if path == "/openapi/v3":
        # A document may be cached for good, for its address changes with what it is made of.
        digest = hashlib.sha256(repr(RESOURCES).encode()).hexdigest().upper()
        index = {root: {"serverRelativeURL": f"/openapi/v3/{root}?hash={digest}"} for root in _ROOTS}
        return msgspec.json.encode({"paths": index})
    if not path.startswith("/openapi/v3/") or name not in _ROOTS:
        raise statuses.path_not_found()
    paths: Object = {}
    for row in RESOURCES:
        if row.root == _ROOTS[name] and row.stored:
            path = f"{row.root}/{'namespaces/{namespace}/' if row.namespaced else ''}{row.plural}/{{name}}"
            paths[path] = {
                "patch": {
                    "x-kubernetes-action": "patch",
                    "x-kubernetes-group-version-kind": {"group": row.group, "version": row.version, "kind": row.kind},
                    "parameters": _PARAMETERS,
                }
            }
    info = {"title": "Kubernetes", "version": "v1.36.0"}
    return msgspec.json.encode({"openapi": "3.0.0", "info": info, "paths": paths})
