"""The policy set in force, kept in a ConfigMap: what a restarted pod falls back to, and what both halves follow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath

import msgspec

from webhook.admission.configmaps import ALLOW_REMOVAL, POLICIES
from webhook.kube.client import ApiError, Client
from webhook.kube.objects import ObjectMeta
from webhook.kube.resources import CONFIG_MAP

__all__ = ["KeptPolicies", "files_by_key"]

_NO_KEY = re.compile(r"[^-._a-zA-Z0-9]")
_ATTEMPTS = 5


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: ObjectMeta
    data: dict[str, str] | None = None


class KeptPolicies:
    """The ConfigMap `namespace/name`, which this class makes if it is missing, and the one it was applied as."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self.namespace, self.name = namespace, name
        self._version = ""
        self.is_there = False
        """Whether `read` last found files."""

    def __str__(self) -> str:
        return f"ConfigMap {self.namespace}/{self.name}"

    async def read(self) -> dict[str, str] | None:
        """The files of the set in force, by name; None if none was kept yet. Raises ApiError."""
        found = await self._get(self.name)
        self._version = found.metadata.resource_version if found else ""
        self.is_there = bool(found and found.data)
        return dict(found.data or {}) if found else None

    async def write(self, files: Mapping[str, str]) -> bool:
        """Keep these files instead of what `read` last showed; False if somebody else was faster. Raises ApiError."""
        metadata = {
            "name": self.name,
            "namespace": self.namespace,
            "labels": {"app.kubernetes.io/name": "giveway"},
            "annotations": {"giveway.dev/written-by": "giveway; change the ConfigMap giveway-policies instead"},
        }
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(files)}
        try:
            if self._version:
                metadata["resourceVersion"] = self._version
                await self._client.replace(CONFIG_MAP.path(self.namespace, self.name), body)
            else:
                await self._client.create(CONFIG_MAP.path(self.namespace), body)
        except ApiError as error:
            if error.status == 409:
                return False
            raise
        return True

    async def allowed_removals(self) -> list[str]:
        """What the ConfigMap that people apply says may be given up: ids, as names or globs. Raises ApiError."""
        found = await self._get(POLICIES)
        annotations = (found.metadata.annotations if found else None) or {}
        return annotations.get(ALLOW_REMOVAL, "").replace(",", " ").split()

    async def _get(self, name: str) -> _ConfigMap | None:
        try:
            return await self._client.get(CONFIG_MAP.path(self.namespace, name), _ConfigMap)
        except ApiError as error:
            if error.status == 404:
                return None
            raise


def files_by_key(files: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Files, as pairs of path and text, as the data of a ConfigMap: every name a key, and each key once."""
    data: dict[str, str] = {}
    for path, text in files:
        key = _NO_KEY.sub("_", PurePath(path).name)
        while key in data:
            key = f"{PurePath(key).stem}_{PurePath(key).suffix}"
        data[key] = text
    return data
