"""Events on the workload that a pod belongs to, so that `kubectl describe deployment` tells what became of its pods.

`kubectl describe` finds Events by uid. A pod names its ReplicaSet, and only that names the Deployment: it is read once,
and remembered. What cannot be read is told of the ReplicaSet.
"""

import asyncio
import logging

import msgspec

from webhook.kube.bounded import Newest
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.events import Occurrence, Recorder
from webhook.kube.objects.meta import KubeObject, ObjectMeta, OwnerReference
from webhook.kube.pods import controller_of
from webhook.kube.resources import REPLICA_SET

log = logging.getLogger(__name__)

_REMEMBERED = 4096
_AT_ONCE = 50
"""ReplicaSets that are read at a time; the Events of further ones go to the ReplicaSet itself."""


class OwnerEvents:
    """Records Events on workloads. `close()` it before the recorder."""

    def __init__(self, client: Client, record: Recorder) -> None:
        self._client, self._record = client, record
        self._tops: Newest[str, OwnerReference] = Newest(_REMEMBERED)
        """uid of a ReplicaSet to what to tell of."""
        self._asking: set[asyncio.Task[None]] = set()

    def event(self, pod: ObjectMeta, reason: str, action: str, note: str) -> None:
        """Note that something happened to a workload's pod, and return at once. Repetitions count."""
        owner = controller_of(pod)
        if owner is None or not owner.uid or not owner.kind or owner.kind == "Node":
            return
        told = (pod.namespace, reason, action, note)
        if owner.kind != REPLICA_SET.kind or owner.uid in self._tops or len(self._asking) >= _AT_ONCE:
            self._tell(self._tops.get(owner.uid, owner), *told)
            return
        task = asyncio.get_running_loop().create_task(
            self._ask(owner, *told),
            name="owner of a victim",
        )
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def close(self) -> None:
        """Give up on what is being read."""
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _ask(self, owner: OwnerReference, namespace: str, *told: str) -> None:
        top = owner
        try:
            read = await self._client.get(REPLICA_SET.path(namespace, owner.name), KubeObject)
            if read.metadata.uid == owner.uid:
                top = controller_of(read.metadata) or owner
            self._tops[owner.uid] = top
        except ApiError as error:
            log.debug("the owner of ReplicaSet %s/%s is not known: %s", namespace, owner.name, error)
        self._tell(top, namespace, *told)

    def _tell(self, of: OwnerReference, namespace: str, reason: str, action: str, note: str) -> None:
        regarding = {
            **msgspec.to_builtins(msgspec.structs.replace(of, controller=None)),
            "namespace": namespace,
        }
        self._record(Occurrence(regarding, None, "Normal", reason, action, note))
