"""A control plane in this process and reconcilers at work on it, for what needs faults or a look inside."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.reconciler.builders import policy
from tests.workloads import Json, eventually, is_there, priority_class
from tests.workloads import pod as pod_body
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube.client import Client
from webhook.kube.errors import unless_absent
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import NAMESPACE, POD, PRIORITY_CLASS
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import Preemptors
from webhook.policy.model.values import CAN_BE_PREEMPTED, MANAGED, MARK, PLAN
from webhook.reconciler.service import ReconcilerOptions, ReconcilerService

PODS = POD.path("default")
CLASSES = {"high": 100, "higher": 200}
"""The classes that are managed, beside the class `low`, whose pods may be evicted."""
SHORT = {"lease_duration": 1.5, "renew_deadline": 1.0, "retry_period": 0.2}


def managing(**fields: Any) -> Policies:
    """One policy that manages these classes."""
    return Policies(preemption=(policy(preemptors=Preemptors(priority_classes=tuple(CLASSES)), **fields),))


class Play:
    """A cluster, a client, and what the tests do with them."""

    def __init__(self, cluster: EmbeddedCluster, client: Client) -> None:
        self.cluster, self.client = cluster, client
        self.told: list[dict[str, Any]] = []

    async def victim(self, name: str, node: str, cpu: str = "2", **fields: Any) -> None:
        """A running pod of class low."""
        await self.client.create(PODS, pod_body(name, cpu=cpu, node=node, priorityClassName="low", **fields))
        await self.runs(name)

    async def runs(self, name: str) -> None:
        """Wait until a pod runs."""

        async def check() -> bool:
            return (await self.client.get(f"{PODS}/{name}", Pod)).status.phase == "Running"

        await eventually(check)

    async def preemptor(self, name: str, cpu: str = "3", class_name: str = "high", **fields: Any) -> Json:
        """A marked pod of a managed class."""
        body = pod_body(name, cpu=cpu, labels={MARK: MANAGED}, priorityClassName=class_name, **fields)
        return await self.client.create(PODS, body)

    async def get(self, name: str) -> Pod | None:
        """The pod, None where it is gone."""
        return await unless_absent(self.client.get(f"{PODS}/{name}", Pod))

    async def bound(self, name: str, seconds: float = 15.0) -> str:
        """The node a pod gets bound to."""

        async def check() -> str:
            pod = await self.get(name)
            return pod.spec.node_name if pod else ""

        return str(await eventually(check, seconds, f"{name} is bound"))

    async def nominated(self, name: str, node: str, seconds: float = 10.0) -> None:
        """Wait until a pod is nominated to a node (none: an empty name) and carries a plan (or none) accordingly."""

        async def check() -> bool:
            pod = await self.get(name)
            planned = pod is not None and PLAN in (pod.metadata.annotations or {})
            return pod is not None and pod.status.nominated_node_name == node and planned == bool(node)

        await eventually(check, seconds, f"{name} is nominated to {node or 'no node'}")

    async def here(self) -> set[str]:
        """The pods that are neither gone nor leaving."""
        pods, _ = await self.client.list(PODS, Pod)
        return {pod.metadata.name for pod in pods if not pod.metadata.deletion_timestamp}

    def lines(self, message: str) -> list[dict[str, Any]]:
        """What the reconcilers said under that message."""
        return [line for line in self.told if line["message"] == message]

    @asynccontextmanager
    async def reconciling(self, policies: Policies | None = None, **options: Any) -> AsyncIterator[ReconcilerService]:
        """A reconciler at work; ready when this is entered."""
        client: Client = options.pop("client", None) or self.cluster.client()
        settings = ReconcilerOptions(lease_namespace="kube-system", **{**SHORT, **options})
        tell = lambda message, **line: self.told.append({"message": message, **line})  # noqa: E731
        async with client:
            service = ReconcilerService(client, policies or managing(), settings, tell=tell)
            work = asyncio.create_task(service.run())
            try:
                await asyncio.wait_for(service.state.wait_for_sync(), 10)
                yield service
                assert not work.done(), work.exception()
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)


@asynccontextmanager
async def playing(nodes: int = 1, **settings: Any) -> AsyncIterator[Play]:
    """A cluster with so many nodes of 8 CPU."""
    async with EmbeddedCluster(nodes=nodes, **settings) as cluster, cluster.client() as client:
        await eventually(lambda: is_there(client, NAMESPACE.path(name="default")))
        low = priority_class("low", 80)
        low["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "true"}
        managed = [priority_class(name, value, preemptionPolicy="Never") for name, value in CLASSES.items()]
        for body in (low, *managed):
            await client.create(PRIORITY_CLASS.path(), body)
        play = Play(cluster, client)
        yield play
        assert cluster.failures() == []
