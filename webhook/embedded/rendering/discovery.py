"""Which groups, versions and resources there are: the older documents and the aggregated one."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from webhook.embedded.protocol.api_resources import GROUPS, RESOURCES, ApiResource
from webhook.embedded.protocol.calls import Object

__all__ = ["VERSION", "aggregated", "group", "groups", "legacy_versions", "resource_list"]

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

Hooks = Collection[tuple[str, str]]
"""(plural, sub-resource) of every hook."""

_FOREIGN_KINDS = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}
_SUB_VERBS = {"binding": ["create"], "eviction": ["create"], "token": ["create"], "finalize": ["update"]}
_READ_WRITE = ["get", "patch", "update"]
_BUILT_IN = ("status", "scale", "finalize")


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


def resource_list(root: str, hooks: Hooks) -> Object:
    """`/api/v1` or `/apis/GROUP/VERSION`."""
    rows = [row for row in RESOURCES if row.root == root]
    listed = [entry for row in rows for entry in _entries(row, hooks)]
    document: Object = {"kind": "APIResourceList", "groupVersion": root.removeprefix("/apis/").removeprefix("/api/")}
    if root != "/api/v1":
        document["apiVersion"] = "v1"
    return {**document, "resources": sorted(listed, key=lambda entry: str(entry["name"]))}


def _is_served(row: ApiResource, hooks: Hooks) -> bool:
    return row.stored or (row.plural, "") in hooks


def _subresources(row: ApiResource, hooks: Hooks) -> Iterable[str]:
    return [sub for sub in row.sub if sub in _BUILT_IN or (row.plural, sub) in hooks]


def _entries(row: ApiResource, hooks: Hooks) -> Iterable[Object]:
    """A resource and its sub-resources, as discovery lists them."""
    if not _is_served(row, hooks):
        return
    entry: Object = {
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": list(row.verbs),
    }
    for key, value in (("shortNames", row.short), ("categories", row.categories)):
        if value:
            entry[key] = list(value)
    if row.hash:
        entry["storageVersionHash"] = row.hash
    yield entry
    for sub in _subresources(row, hooks):
        foreign_group, version, kind = _FOREIGN_KINDS.get(sub, ("", "", row.kind))
        yield {
            "name": f"{row.plural}/{sub}",
            "singularName": "",
            "namespaced": row.namespaced,
            **({"group": foreign_group, "version": version} if foreign_group else {}),
            "kind": kind,
            "verbs": _SUB_VERBS.get(sub, _READ_WRITE),
        }


def aggregated(root: str, version: str, hooks: Hooks) -> Object:
    """`/api` or `/apis` in one document, `apidiscovery.k8s.io/VERSION`."""
    items = []
    for name in [""] if root == "/api" else GROUPS:
        rows = sorted((row for row in RESOURCES if row.group == name), key=lambda row: row.plural)
        served = [_discovered(row, hooks) for row in rows if _is_served(row, hooks)]
        metadata: Object = {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None}
        versions = [{"version": "v1", "resources": served, "freshness": "Current"}]
        items.append({"metadata": metadata, "versions": versions})
    kind, api_version = "APIGroupDiscoveryList", f"apidiscovery.k8s.io/{version}"
    return {"kind": kind, "apiVersion": api_version, "metadata": {}, "items": items}


def _discovered(row: ApiResource, hooks: Hooks) -> Object:
    entry: Object = {
        "resource": row.plural,
        "responseKind": {"group": row.group, "version": row.version, "kind": row.kind},
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "singularResource": row.singular,
        "verbs": list(row.verbs),
    }
    for key, value in (("shortNames", row.short), ("categories", row.categories)):
        if value:
            entry[key] = list(value)
    for sub in _subresources(row, hooks):
        foreign_group, version, kind = _FOREIGN_KINDS.get(sub, (row.group, row.version, row.kind))
        subresource = {
            "subresource": sub,
            "responseKind": {"group": foreign_group, "version": version, "kind": kind},
            "verbs": _SUB_VERBS.get(sub, _READ_WRITE),
        }
        entry.setdefault("subresources", []).append(subresource)
    return entry
