"""Which groups, versions and resources there are."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from webhook.clusters.embedded.protocol.api_resources import GROUPS, RESOURCES, ApiResource, Object

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
    listed: list[Object] = []
    for row in RESOURCES:
        if row.root != root or not (row.stored or (row.plural, "") in hooks):
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
        for sub, (group, version, kind), verbs in _subresources(row, hooks):
            foreign = {"group": group, "version": version} if (group, version) != (row.group, row.version) else {}
            named = {"name": f"{row.plural}/{sub}", "singularName": "", "namespaced": row.namespaced}
            listed.append({**named, **foreign, "kind": kind, "verbs": verbs})
    document: Object = {"kind": "APIResourceList", "groupVersion": root.removeprefix("/apis/").removeprefix("/api/")}
    if root != "/api/v1":
        document["apiVersion"] = "v1"
    return {**document, "resources": sorted(listed, key=lambda entry: str(entry["name"]))}


def _subresources(row: ApiResource, hooks: Hooks) -> Iterator[tuple[str, tuple[str, str, str], list[str]]]:
    """Yield each sub-resource: its name; group, version and kind of what it takes; its verbs."""
    for sub in row.sub:
        if sub in _BUILT_IN or (row.plural, sub) in hooks:
            yield sub, _FOREIGN_KINDS.get(sub, (row.group, row.version, row.kind)), _SUB_VERBS.get(sub, _READ_WRITE)
