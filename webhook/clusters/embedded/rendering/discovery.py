"""Which groups, versions and resources there are, and OpenAPI v3 as far as kubectl reads it."""

from __future__ import annotations

import hashlib

from webhook.clusters.embedded.protocol.api_resources import GROUPS, RESOURCES, ApiResource, Object

VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0+giveway", "platform": "linux/amd64"}
"""The Kubernetes version whose behaviour is shown."""
_CLIENTS = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}]
_CATEGORIES = ("all", "api-extensions")
_FOREIGN_KINDS = {
    "binding": ("", "Binding"),
    "eviction": ("policy", "Eviction"),
    "scale": ("autoscaling", "Scale"),
    "token": ("authentication.k8s.io", "TokenRequest"),
}
_SUB_VERBS = {"binding": ["create"], "eviction": ["create"], "token": ["create"], "finalize": ["update"]}
_READ_WRITE = ["get", "patch", "update"]
_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def document(path: str) -> Object | None:
    """What is served at a path that is no resource's; None if there is nothing."""
    roots = {row.root.lstrip("/"): row.root for row in RESOURCES}
    name = path.strip("/")
    match name:
        case "version":
            return dict(VERSION)
        case "api":
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": _CLIENTS}
        case "apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(group) for group in GROUPS]}
        case "openapi/v3":
            # A document may be cached for good, for its address changes with what it is made of.
            digest = hashlib.sha256(repr(RESOURCES).encode()).hexdigest().upper()
            return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}?hash={digest}"} for root in roots}}
    if name in roots:
        return _resource_list(roots[name])
    root = roots.get(name.removeprefix("openapi/v3/"))
    return _openapi(root) if root else None


def _group(name: str) -> Object:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resource_list(root: str) -> Object:
    """The resources and sub-resources of one group and version."""
    listed: list[Object] = []
    for row in RESOURCES:
        if row.root != root:
            continue
        categories = [word for word in _CATEGORIES if word in row.traits]
        names = {"singularName": row.kind.lower(), "shortNames": list(row.short), "categories": categories}
        listed.append(
            {
                **_entry(row, row.plural, row.kind, list(row.verbs)),
                **{key: value for key, value in names.items() if value},
            }
        )
        for sub in row.sub:
            group, kind = _FOREIGN_KINDS.get(sub, (row.group, row.kind))
            entry = _entry(row, f"{row.plural}/{sub}", kind, _SUB_VERBS.get(sub, _READ_WRITE))
            if group != row.group:
                entry |= {"group": group, "version": "v1"}
            listed.append(entry)
    document: Object = {"kind": "APIResourceList", "groupVersion": root.removeprefix("/apis/").removeprefix("/api/")}
    if root != "/api/v1":
        document["apiVersion"] = "v1"
    return {**document, "resources": sorted(listed, key=lambda entry: str(entry["name"]))}


def _entry(row: ApiResource, name: str, kind: str, verbs: list[str]) -> Object:
    return {"name": name, "singularName": "", "namespaced": row.namespaced, "kind": kind, "verbs": verbs}


def _openapi(root: str) -> Object:
    """OpenAPI v3 of one group and version, with what kubectl reads before `apply`, `create` and `diff`.

    That is the parameters of patches. There are no schemas: kubectl makes its patches of the kinds it knows itself, and
    `kubectl explain` explains nothing.
    """
    paths: Object = {}
    for row in RESOURCES:
        if row.root == root and row.stored:
            path = f"{row.root}/{'namespaces/{namespace}/' if row.namespaced else ''}{row.plural}/{{name}}"
            kind = {"group": row.group, "version": row.version, "kind": row.kind}
            patch = {
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": kind,
                "parameters": _PARAMETERS,
            }
            paths[path] = {"patch": patch}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.0"}, "paths": paths}
