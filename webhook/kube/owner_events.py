"""Events on the workload that a pod belongs to, so that `kubectl describe deployment` tells what became of its pods.

`kubectl describe` finds Events by uid. A pod names its ReplicaSet, and only that names the Deployment: it is read once,
and remembered. What cannot be read is told of the ReplicaSet.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from webhook.kube.bounded import Newest
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.events import Occurrence, Recorder, Reference
from webhook.kube.objects.meta import ObjectMeta, OwnerReference
from webhook.kube.pods import controller_of
from webhook.kube.resources import REPLICA_SET

log = logging.getLogger(__name__)

_REMEMBERED = 4096
_AT_ONCE = 50
"""ReplicaSets that are read at a time; the Events of further ones go to the ReplicaSet itself."""


class OwnerEvents:
    """Records Events on workloads. `close()` it before the recorder."""

    def __init__(self, client: Client, recorder: Recorder) -> None:
        self._client, self._recorder = client, recorder
        self._tops: Newest[str, Reference] = Newest(_REMEMBERED)
        """uid of a ReplicaSet to what to tell of."""
        self._asking: set[asyncio.Task[None]] = set()

    def event(self, pod: ObjectMeta, reason: str, action: str, note: str) -> None:
        """Note that something happened to a pod of a workload, and return at once. Repetitions are counted."""
        owner = controller_of(pod)
        if owner is None or not owner.uid or not owner.kind or owner.kind == "Node":
            return
        of = _reference(owner, pod.namespace)
        known = self._tops.get(owner.uid)
        if known is not None or owner.kind != REPLICA_SET.kind or len(self._asking) >= _AT_ONCE:
            self._tell(known or of, reason, action, note)
            return
        task = asyncio.get_running_loop().create_task(self._ask(of, reason, action, note), name="owner of a victim")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def close(self) -> None:
        """Give up on what is being read."""
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _ask(self, of: Reference, reason: str, action: str, note: str) -> None:
        top = of
        try:
            replica_set: Any = await self._client.get(REPLICA_SET.path(of["namespace"], of["name"]))
            metadata = replica_set["metadata"]
            owners = metadata.get("ownerReferences") or () if metadata.get("uid") == of["uid"] else ()
            controller = next((owner for owner in owners if owner.get("controller")), None)
            if controller is not None:
                top = _reference(msgspec.convert(controller, OwnerReference), of["namespace"])
            self._tops[of["uid"]] = top
        except ApiError as error:
            log.debug("the owner of ReplicaSet %s/%s is not known: %s", of["namespace"], of["name"], error)
        self._tell(top, reason, action, note)

    def _tell(self, of: Reference, reason: str, action: str, note: str) -> None:
        self._recorder.event(Occurrence(of, None, "Normal", reason, action, note))


def _reference(owner: OwnerReference, namespace: str) -> Reference:
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "namespace": namespace,
        "name": owner.name,
        "uid": owner.uid,
    }
