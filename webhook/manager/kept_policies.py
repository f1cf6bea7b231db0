"""The policy set in force, kept in a ConfigMap: what a restarted pod falls back to, and what both halves follow."""

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath

from webhook.admission.configmaps import ALLOW_REMOVAL, POLICIES
from webhook.component_base.own_names import IN_FORCE
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.objects.meta import KubeObject
from webhook.kube.resources import CONFIG_MAP
from webhook.policy.files.loading import SUFFIXES

log = logging.getLogger(__name__)

_LONGEST = 200
"""Characters of a name that a key has; the API server allows keys of 253, and so long may the name of an object be."""
_NO_KEY = re.compile(r"[^-._a-zA-Z0-9]")
_NOT_FOUND, _CONFLICT, _INVALID = 404, 409, 422
_GIVEN_UP = "giveway.dev/given-up"


class _ConfigMap(KubeObject):
    data: dict[str, str] | None = None


class KeptPolicies:
    """The ConfigMap of a namespace, which this class makes if it is missing, and the one it was applied as."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self.namespace = client, namespace
        self._version = ""
        self.is_there = False
        """Whether `read` last found files."""
        self.given_up: list[str] = []
        """The ids of what the last change gave up because somebody had said that it may go, as `read` found them."""
        self._allowing = ""
        """The annotation that allows removals, as it was read since the last `read`."""
        self._served = ""
        """The annotation that served a change and is still to be taken off."""
        self._told = ""
        """Why it stays, as it was logged."""

    def __str__(self) -> str:
        return f"ConfigMap {self.namespace}/{IN_FORCE}"

    async def read(self) -> dict[str, str]:
        """The files of the set in force, by name; none if none was kept yet. Raises ApiError."""
        kept, self._allowing = await self._get(IN_FORCE), ""
        self._version = kept.metadata.resource_version
        self.given_up = (kept.metadata.annotations or {}).get(_GIVEN_UP, "").split()
        self.is_there = bool(kept.data)
        return kept.data or {}

    async def write(self, files: Mapping[str, str], given_up: Iterable[str] = ()) -> bool:
        """Keep these files, which give up these ids, instead of what `read` last showed. Raises ApiError.

        False if somebody else was faster. Other replicas know by the ids that it is meant.
        """
        annotations = {"giveway.dev/written-by": "giveway; change the ConfigMap giveway-policies instead"}
        if ids := " ".join(dict.fromkeys(given_up)):
            annotations[_GIVEN_UP] = ids
        metadata = {
            "name": IN_FORCE,
            "namespace": self.namespace,
            "labels": {"app.kubernetes.io/name": "giveway"},
            "annotations": annotations,
            "resourceVersion": self._version,
        }
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(files)}
        name, write = (IN_FORCE, self._client.replace) if self._version else ("", self._client.create)
        if await unless_absent(write(CONFIG_MAP.path(self.namespace, name), body), _CONFLICT) is None:
            return False
        if ids:
            self._served = self._allowing
        return True

    async def allowed_removals(self) -> list[str]:
        """What may be given up by the ConfigMap that people apply: ids or globs. Raises ApiError."""
        applied = await self._get(POLICIES)
        self._allowing = (applied.metadata.annotations or {}).get(ALLOW_REMOVAL, "")
        return self._allowing.replace(",", " ").split()

    async def end_allowance(self) -> None:
        """Take off the annotation that served a change; one that has changed stays. No ApiError, but a log line."""
        if not self._served:
            return
        path = f"/metadata/annotations/{ALLOW_REMOVAL.replace('/', '~1')}"
        patch = [
            {"op": "test", "path": path, "value": self._served},
            {"op": "remove", "path": path},
        ]
        patched = self._client.patch(CONFIG_MAP.path(self.namespace, POLICIES), patch, kind="json")
        try:
            if await unless_absent(patched, _NOT_FOUND, _INVALID) is not None:
                log.info(
                    'taken off ConfigMap %s/%s: %s: "%s"; it served one change',
                    *(self.namespace, POLICIES, ALLOW_REMOVAL, self._served),
                )
            self._served = self._told = ""
        except ApiError as error:
            if str(error) != self._told:
                log.warning("%s stays on ConfigMap %s and allows more: %s", ALLOW_REMOVAL, POLICIES, error)
            self._told = str(error)

    async def _get(self, name: str) -> _ConfigMap:
        read = self._client.get(CONFIG_MAP.path(self.namespace, name), _ConfigMap)
        return await unless_absent(read) or _ConfigMap()


def files_by_key(files: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Policies, as pairs of name and text, as the data of a ConfigMap, of which `texts_of` gives them back.

    Every name is a key, each key is there once, and each is that of a
    policy file: names of objects end in no suffix.
    """
    data: dict[str, str] = {}
    for path, text in files:
        name = _NO_KEY.sub("_", PurePath(path).name)
        suffix = next(filter(name.endswith, SUFFIXES), SUFFIXES[0])
        stem = name.removesuffix(suffix)[:_LONGEST]
        while (key := stem + suffix) in data:
            stem += "_"
        data[key] = text
    return data
