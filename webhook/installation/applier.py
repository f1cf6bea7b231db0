"""Objects of any kind in a cluster: where they live by discovery, server-side apply, and what was applied so far."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from webhook.component_base.own_names import SYSTEM_NAMESPACE
from webhook.kube.client import Client
from webhook.kube.errors import unless_absent
from webhook.kube.resources import CONFIG_MAP, OLDEST, OLDEST_NATIVE, POD, Resource, minor_of
from webhook.native.objects import API_VERSION, COMPONENT, MUTATING, VALIDATING

Json = dict[str, Any]
MANAGER = "giveway-install"
"""The field manager of what is applied; an object that has it is giveway's to remove."""
INVENTORY = "giveway-install"
"""The ConfigMap in giveway's namespace that lists what was applied."""

_ORDER = (
    "Namespace",
    "ResourceQuota",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ConfigMap",
    "Service",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "PodDisruptionBudget",
)
"""What others need comes first; kinds that are not named follow, and what runs is last."""
RUNNING = ("Deployment", "CronJob")
_POLL = 0.3
_HELPS = {
    "cert-manager.io": "install cert-manager first, or leave the component out",
    "monitoring.coreos.com": "install the Prometheus operator first, or leave the component out",
    API_VERSION.partition("/")[0]: "use --mode webhook, which needs no admission policies",
}
"""What helps, by the group of kinds that a cluster does not have."""


class Key(NamedTuple):
    """An object by what identifies it; `namespace` is empty for cluster-wide ones."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{self.name}"


Told = Callable[[Key, str], None]
"""Hears what became of an object: "created", "changed", "unchanged", "removed" or "kept as it is"."""


class UnfitClusterError(Exception):
    """An API server that is too old, or lacks kinds; the text says what it needs. Nothing was applied."""


def key_of(obj: Json) -> Key:
    """The key of an object."""
    metadata = obj["metadata"]
    return Key(obj["apiVersion"], obj["kind"], metadata.get("namespace", ""), metadata["name"])


def refuses(kind: str) -> bool:
    """Whether the API server refuses requests because of objects of a kind."""
    return kind.endswith(("WebhookConfiguration", "PolicyBinding"))


def ordered(objects: Iterable[Json]) -> list[Json]:
    """The objects in the order in which they are applied; removal goes the other way."""
    places = {kind: at for at, kind in enumerate(_ORDER)} | dict.fromkeys(RUNNING, len(_ORDER) + 1)
    return sorted(objects, key=lambda obj: places.get(obj["kind"], len(_ORDER)))


async def within(seconds: float, check: Callable[[], Awaitable[bool]]) -> bool:
    """Whether it becomes true within so many seconds; it is looked at once at least."""
    end = time.monotonic() + seconds
    while not await check():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(_POLL)
    return True


class ObjectApplier:
    """The objects of one cluster; `namespace` is giveway's own. Every method raises ApiError."""

    def __init__(self, client: Client, namespace: str = SYSTEM_NAMESPACE) -> None:
        self.client, self.namespace = client, namespace
        self._kinds: dict[str, dict[str, Resource]] = {}

    async def resource(self, api_version: str, kind: str) -> Resource | None:
        """Where a kind lives; None if the cluster does not have it."""
        if api_version not in self._kinds:
            group, _, version = api_version.rpartition("/")
            path = f"/apis/{api_version}" if group else f"/api/{version}"
            served = await unless_absent(self.client.get(path)) or {}
            self._kinds[api_version] = {
                row["kind"]: Resource(group, version, row["name"], row["kind"], namespaced=row["namespaced"])
                for row in served.get("resources") or ()
                if "/" not in row["name"]
            }
        return self._kinds[api_version].get(kind)

    async def require(self, objects: Sequence[Json]) -> None:
        """Raise UnfitClusterError for kinds that the cluster does not have, before anything is applied."""
        missing = {
            f"{obj['kind']} ({obj['apiVersion']})": obj["apiVersion"].partition("/")[0]
            for obj in objects
            if await self.resource(obj["apiVersion"], obj["kind"]) is None
        }
        if missing:
            helps = {_HELPS[group] for group in missing.values() if group in _HELPS}
            what = " and ".join(sorted(helps)) or "leave the component out"
            raise UnfitClusterError(f"the cluster does not have {', '.join(missing)}: {what}. Nothing was applied")

    async def require_version(self, *, native: bool = False) -> None:
        """Raise UnfitClusterError if giveway, or with `native` native policies, do not work with this API server."""
        version = await self.client.get("/version")
        minor = minor_of(version)
        needs, oldest = ("native policies need", OLDEST_NATIVE) if native else ("giveway needs", OLDEST)
        if minor is not None and minor < oldest:
            raise UnfitClusterError(
                f"the API server is {version.get('gitVersion', '')}; {needs} Kubernetes 1.{oldest} or newer."
                " Nothing was applied"
            )

    async def get(self, key: Key) -> Json | None:
        """An object; None if there is none, or the cluster does not know its kind."""
        path = await self._path(key)
        return None if path is None else await unless_absent(self.client.get(path))

    async def apply(self, obj: Json, told: Told) -> None:
        """Server-side apply; fields that others set and this object does not have stay as they are."""
        key = key_of(obj)
        path = await self._path(key)
        assert path is not None
        before = await self.get(key)
        after = await self.client.patch(path, obj, kind="apply", fieldManager=MANAGER, force=True)
        versions = {obj["metadata"]["resourceVersion"] for obj in (before or after, after)}
        told(key, "created" if before is None else "unchanged" if len(versions) == 1 else "changed")

    async def delete(self, keys: Iterable[Key], told: Told) -> None:
        """Delete objects, one after the other, with what they own; those that are not there are passed over."""
        for key in keys:
            path = await self._path(key)
            body = {"propagationPolicy": "Background"}
            if path is not None and await unless_absent(self.client.delete(path, body)) is not None:
                told(key, "removed")

    async def native_policies(self) -> list[Key]:
        """What `giveway compile` made, whatever the policies are called: bindings first, then policies."""
        labels, keys = ",".join(f"{label}={value}" for label, value in COMPONENT.items()), list[Key]()
        for kind in [f"{kind}{part}" for part in ("Binding", "") for kind in (MUTATING, VALIDATING)]:
            if (resource := await self.resource(API_VERSION, kind)) is not None:
                objects, _ = await self.client.list(resource.path(), labelSelector=labels)
                keys += [Key(API_VERSION, kind, "", obj["metadata"]["name"]) for obj in objects]
        return keys

    async def has_no_pods(self, selector: str) -> bool:
        """Whether giveway's namespace has no pods with these labels."""
        pods, _ = await self.client.list(POD.path(self.namespace), labelSelector=selector)
        return not pods

    async def inventory(self) -> list[Key]:
        """What earlier installations applied, in the order of applying."""
        config_map = await self.get(Key("v1", "ConfigMap", self.namespace, INVENTORY))
        text = ((config_map or {}).get("data") or {}).get("objects", "[]")
        try:
            return [Key(*map(str, row)) for row in json.loads(text)]
        except (ValueError, TypeError):
            return []

    async def write_inventory(self, keys: Iterable[Key]) -> None:
        """Note what is applied."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": INVENTORY, "labels": {"app.kubernetes.io/name": "giveway"}},
            "data": {"objects": json.dumps([list(key) for key in dict.fromkeys(keys)])},
        }
        path = CONFIG_MAP.path(self.namespace, INVENTORY)
        await self.client.patch(path, body, kind="apply", fieldManager=MANAGER, force=True)

    async def is_ours(self, key: Key) -> bool:
        """Whether an object was applied by an installation, and not made by somebody else under its name."""
        stored = await self.get(key)
        managers = ((stored or {}).get("metadata") or {}).get("managedFields") or ()
        return any(manager.get("manager") == MANAGER for manager in managers)

    async def _path(self, key: Key) -> str | None:
        resource = await self.resource(key.api_version, key.kind)
        if resource is None or not key.name or (resource.namespaced and not key.namespace):
            return None
        return resource.path(key.namespace if resource.namespaced else None, key.name)
