"""Which groups, versions and resources there are, and OpenAPI v3 as far as kubectl reads it."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import msgspec

from webhook.clusters.embedded.protocol import statuses
from webhook.clusters.embedded.protocol.api_resources import GROUPS, RESOURCES, Object

VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.0+giveway",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
"""The Kubernetes version whose behaviour is shown."""

_FOREIGN_KINDS = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}
_SUB_VERBS = {"binding": ["create"], "eviction": ["create"], "token": ["create"], "finalize": ["update"]}
_READ_WRITE = ["get", "patch", "update"]


def legacy_versions(address: str) -> Object:
    """`/api`."""
    clients = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": clients}


def groups() -> Object:
    """`/apis`."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(name) for name in GROUPS]}


def group(name: str) -> Object:
    """`/apis/GROUP`."""
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def resource_list(root: str) -> Object:
    """`/api/v1` or `/apis/GROUP/VERSION`."""
    listed: list[Object] = []
    for row in RESOURCES:
        if row.root != root:
            continue
        names = {"shortNames": list(row.short), "categories": list(row.categories)}
        entry: Object = {
            "name": row.plural,
            "singularName": row.singular,
            "namespaced": row.namespaced,
            "kind": row.kind,
            "verbs": list(row.verbs),
            **{key: value for key, value in names.items() if value},
        }
        if row.hash:
            entry["storageVersionHash"] = row.hash
        listed.append(entry)
        for sub in row.sub:
            named = {"name": f"{row.plural}/{sub}", "singularName": "", "namespaced": row.namespaced}
            group, version, kind = _FOREIGN_KINDS.get(sub, (row.group, row.version, row.kind))
            foreign = {"group": group, "version": version} if (group, version) != (row.group, row.version) else {}
            listed.append({**named, **foreign, "kind": kind, "verbs": _SUB_VERBS.get(sub, _READ_WRITE)})
    document: Object = {"kind": "APIResourceList", "groupVersion": root.removeprefix("/apis/").removeprefix("/api/")}
    if root != "/api/v1":
        document["apiVersion"] = "v1"
    return {**document, "resources": sorted(listed, key=lambda entry: str(entry["name"]))}


_ROOTS = {row.root.lstrip("/"): row.root for row in RESOURCES}
_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


@lru_cache(maxsize=1 + len(_ROOTS))
def openapi(path: str) -> bytes:
    """A document below `/openapi/v3`: the index, or that of one group and version. Raises StatusError (404).

    It has what kubectl reads before `apply`, `create` and `diff`: the parameters of patches. There are no schemas:
    kubectl makes its patches of the kinds it knows itself, and `kubectl explain` explains nothing.
    """
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
