"""How controllers make and delete the pods of their workloads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from webhook.clusters.acting.controller import CONFLICT, NOT_FOUND, ControllerContext, Json, tolerating
from webhook.clusters.model.workloads import Workload
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import POD, Resource


class PodControl:
    """The pods of the workloads of one resource.

    What it did itself and has not yet seen in the cache is remembered: `settled(owner)` is false until the cache has
    caught up, so that nothing is created or deleted twice.
    """

    def __init__(self, context: ControllerContext, client: Client, owner: Resource) -> None:
        self._context = context
        self._client = client
        self._owner = owner
        self._pods = context.pods.cache
        self._unseen: dict[str, set[tuple[str, str]]] = {}
        """Owner uid to (pod key, uid of a pod whose deletion was asked for, or "" for a creation)."""

    def pods(self, owner: Workload) -> list[Pod]:
        """The pods that the owner controls, as far as the cache knows."""
        return list(self._context.pods.of(owner.metadata.uid))

    def settled(self, owner: Workload) -> bool:
        """Whether the cache shows everything that was done here."""
        unseen = self._unseen.get(owner.metadata.uid)
        if not unseen:
            return True
        unseen -= {(key, uid) for key, uid in unseen if self._is_seen(key, uid)}
        return not unseen

    def forget_made(self, owner: str, key: str) -> None:
        """A pod of the owner of that uid is gone: nobody waits to see it."""
        self._unseen.get(owner, set()).discard((key, ""))

    def template_of(self, owner: Workload) -> Json | None:
        """What the owner's pods are made of; None if that is not known."""
        return self._context.template_of(self._owner.kind, owner)

    async def create(self, owner: Workload, wanted: Iterable[tuple[Json | None, Json]]) -> ApiError | None:
        """Create a pod of each template, which is used up; with it comes `metadata`: its name and more labels, if any.

        Nothing is made without a template. The first refusal ends it, and is returned.
        """
        for template, metadata in wanted:
            if template is None:
                return None
            given = template.get("metadata") or {}
            labels = {**(given.get("labels") or {}), **metadata.pop("labels", {})}
            kept = {key: given[key] for key in ("annotations", "finalizers") if given.get(key)}
            references = [owner_reference(self._owner, owner)]
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**kept, **metadata, "labels": labels, "ownerReferences": references},
                "spec": template["spec"],
            }
            try:
                made = await self._client.create(POD.path(owner.metadata.namespace), body, Pod)
            except ApiError as error:
                return error
            self._remember(owner, f"{made.metadata.namespace}/{made.metadata.name}", "")
        return None

    async def delete(self, owner: Workload, pods: Iterable[Pod]) -> None:
        """Delete pods, but those that are gone already or whose name another one has."""
        for pod in pods:
            metadata = pod.metadata
            path, body = POD.path(metadata.namespace, metadata.name), {"preconditions": {"uid": metadata.uid}}
            with tolerating(NOT_FOUND, CONFLICT):
                await self._client.delete(path, body)
            self._remember(owner, f"{metadata.namespace}/{metadata.name}", metadata.uid)

    def _remember(self, owner: Workload, key: str, uid: str) -> None:
        if not self._is_seen(key, uid):
            self._unseen.setdefault(owner.metadata.uid, set()).add((key, uid))

    def _is_seen(self, key: str, uid: str) -> bool:
        pod = self._pods.get(key)
        if not uid:
            return pod is not None
        return pod is None or pod.metadata.uid != uid or bool(pod.metadata.deletion_timestamp)


def owner_reference(resource: Resource, owner: Workload) -> dict[str, Any]:
    """The reference by which a controller marks what it made."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


async def put_status(client: Client, resource: Resource, workload: Workload, status: Json) -> None:
    """Write a workload's status where it changed; a workload that is gone or changed meanwhile is left alone."""
    if status == workload.told:
        return
    metadata = workload.metadata
    cleared = {key: None for key in workload.told if key not in status}
    body = {"metadata": {"resourceVersion": metadata.resource_version}, "status": {**cleared, **status}}
    with tolerating(NOT_FOUND, CONFLICT):
        await client.patch(resource.path(metadata.namespace, metadata.name, "status"), body, kind="merge")
