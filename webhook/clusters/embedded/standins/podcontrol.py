"""What the workload controllers share: which pods an owner has, creating them from a template, deleting them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from webhook.clusters.embedded.standins.controller import (
    CONFLICT,
    NOT_FOUND,
    StandInInformers,
    Unstructured,
    tolerating,
)
from webhook.kube.client import Client
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import OwnerReference
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import controller_of
from webhook.kube.resources import POD, Resource


class PodControl:
    """The pods of the owners of one resource; `add(key)` is told which owner's pods changed.

    What it did itself and has not yet seen in the cache is remembered: `settled(owner)` is false until the
    cache has caught up, so that nothing is created or deleted twice.
    """

    def __init__(
        self, informers: StandInInformers, client: Client, owner: Resource, add: Callable[[str], None]
    ) -> None:
        self._client = client
        self._owner = owner
        self._add = add
        self._pods = informers.cache(POD, Pod)
        self._pods.handlers.append(self._notice)
        self._of_owner: dict[str, dict[str, Pod]] = {}
        self._unseen: dict[str, set[tuple[str, str]]] = {}
        """Owner uid to (pod key, uid of a pod whose deletion was asked for, or "" for a creation)."""

    def pods(self, owner: Unstructured) -> list[Pod]:
        """The pods that the owner controls, as far as the cache knows."""
        return list(self._of_owner.get(owner.metadata.uid, {}).values())

    def settled(self, owner: Unstructured) -> bool:
        """Whether the cache shows everything that was done here."""
        unseen = self._unseen.get(owner.metadata.uid)
        if not unseen:
            return True
        unseen -= {(key, uid) for key, uid in unseen if self._is_seen(key, uid)}
        return not unseen

    async def create(self, owner: Unstructured, template: dict[str, Any], metadata: dict[str, Any]) -> None:
        """Create a pod of the template; `metadata` holds `name` or `generateName` and more labels, if any."""
        pod = copy.deepcopy(template)
        given = pod.get("metadata") or {}
        labels = {**(given.get("labels") or {}), **metadata.pop("labels", {})}
        pod["metadata"] = {key: given[key] for key in ("annotations", "finalizers") if given.get(key)} | metadata
        pod["metadata"] |= {"labels": labels, "ownerReferences": [owner_reference(self._owner, owner)]}
        body = {"apiVersion": "v1", "kind": "Pod", **pod}
        made = await self._client.create(POD.path(owner.metadata.namespace), body, Pod)
        self._remember(owner, f"{made.metadata.namespace}/{made.metadata.name}", "")

    async def delete(self, owner: Unstructured, pod: Pod) -> None:
        """Delete a pod, unless it is gone already or another one has its name."""
        metadata = pod.metadata
        path, body = POD.path(metadata.namespace, metadata.name), {"preconditions": {"uid": metadata.uid}}
        with tolerating(NOT_FOUND, CONFLICT):
            await self._client.delete(path, body)
        self._remember(owner, f"{metadata.namespace}/{metadata.name}", metadata.uid)

    def _remember(self, owner: Unstructured, key: str, uid: str) -> None:
        if not self._is_seen(key, uid):
            self._unseen.setdefault(owner.metadata.uid, set()).add((key, uid))

    def _is_seen(self, key: str, uid: str) -> bool:
        pod = self._pods.get(key)
        if not uid:
            return pod is not None
        return pod is None or pod.metadata.uid != uid or bool(pod.metadata.deletion_timestamp)

    def _notice(self, change: Change[Pod]) -> None:
        if change.old is not None and (owner := self._controller(change.old)) is not None:
            rows = self._of_owner.get(owner.uid, {})
            rows.pop(change.key, None)
            if not rows:
                self._of_owner.pop(owner.uid, None)
            if change.new is None:
                self._unseen.get(owner.uid, set()).discard((change.key, ""))
                self._add(f"{change.old.metadata.namespace}/{owner.name}")
        if change.new is not None and (owner := self._controller(change.new)) is not None:
            self._of_owner.setdefault(owner.uid, {})[change.key] = change.new
            self._add(f"{change.new.metadata.namespace}/{owner.name}")

    def _controller(self, pod: Pod) -> OwnerReference | None:
        """The controller of a pod, if it is of the resource looked after here."""
        owner, mine = controller_of(pod.metadata), (self._owner.kind, self._owner.api_version)
        return owner if owner is not None and (owner.kind, owner.api_version) == mine else None


def owner_reference(resource: Resource, owner: Unstructured) -> dict[str, Any]:
    """The reference by which a controller marks what it made."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


async def put_status(client: Client, resource: Resource, workload: Unstructured, status: dict[str, Any]) -> None:
    """Write a workload's status where it changed; a workload that is gone or changed meanwhile is left alone."""
    if status == workload.status:
        return
    metadata = workload.metadata
    cleared = {key: None for key in workload.status if key not in status}
    body = {"metadata": {"resourceVersion": metadata.resource_version}, "status": {**cleared, **status}}
    with tolerating(NOT_FOUND, CONFLICT):
        await client.patch(resource.path(metadata.namespace, metadata.name, "status"), body, kind="merge")
