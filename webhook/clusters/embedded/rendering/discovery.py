"""Which groups, versions and resources there are, and OpenAPI v3 as far as kubectl reads it."""

from __future__ import annotations

from webhook.clusters.embedded.protocol.api_resources import RESOURCES, VERBS, ApiResource, Object

VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0+giveway", "platform": "linux/amd64"}
"""The Kubernetes version whose behaviour is shown."""
_VERSIONS = tuple(dict.fromkeys(row.api_version for row in RESOURCES))
"""The groups and versions in the order in which `/apis` lists them, which is the table's."""
ROOTS = {f"apis/{version}" if "/" in version else f"api/{version}": version for version in _VERSIONS}
"""The path below which each version's resources are, without a slash before it."""
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
    name = path.strip("/")
    match name:
        case "version":
            return dict(VERSION)
        case "api":
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": _CLIENTS}
        case "apis":
            groups = [_group(version) for version in _VERSIONS if "/" in version]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case "openapi/v3":
            return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in ROOTS}}
    if name in ROOTS:
        return _resource_list(ROOTS[name])
    root = name.removeprefix("openapi/v3/")
    return _openapi(root) if root in ROOTS else None


def _group(api_version: str) -> Object:
    name, _, version = api_version.partition("/")
    served = {"groupVersion": api_version, "version": version}
    return {"name": name, "versions": [served], "preferredVersion": served}


def _resource_list(api_version: str) -> Object:
    """The resources and sub-resources of one group and version."""
    listed: list[Object] = []
    for row in RESOURCES:
        if row.api_version != api_version:
            continue
        categories = [word for word in _CATEGORIES if word in row.traits]
        names = {"singularName": row.kind.lower(), "shortNames": list(row.short), "categories": categories}
        entry = _entry(row, row.plural, row.kind, list(VERBS) if row.stored else ["create"])
        listed.append(entry | {key: value for key, value in names.items() if value})
        for sub in row.sub:
            group, kind = _FOREIGN_KINDS.get(sub, (row.group, row.kind))
            entry = _entry(row, f"{row.plural}/{sub}", kind, _SUB_VERBS.get(sub, _READ_WRITE))
            if group != row.group:
                entry |= {"group": group, "version": "v1"}
            listed.append(entry)
    document: Object = {"kind": "APIResourceList", "groupVersion": api_version}
    if api_version != "v1":
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
        if row.api_version == ROOTS[root] and row.stored:
            kind = {"group": row.group, "version": row.version, "kind": row.kind}
            patch = {
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": kind,
                "parameters": _PARAMETERS,
            }
            paths[f"/{root}/{'namespaces/{namespace}/' if row.namespaced else ''}{row.plural}/{{name}}"] = {
                "patch": patch
            }
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.0"}, "paths": paths}
