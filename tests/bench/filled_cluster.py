"""An API server with many PriorityClasses and Namespaces, in a process of its own: prints where its kubeconfig is."""

from __future__ import annotations

import asyncio
import sys

from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.standins.controller_manager import STAND_INS
from webhook.kube.resources import NAMESPACE, PRIORITY_CLASS

LOW = {
    "godel.bytedance.com/can-be-preempted": "true",
    "godel.bytedance.com/protection-duration-from-preemption": "30",
}


async def _serve(classes: int, namespaces: int) -> None:
    async with EmbeddedCluster(nodes=0, without=STAND_INS) as cluster:
        client = cluster.api.local()
        for number in range(classes):
            name, annotations = (f"class-{number}", {}) if number else ("low-priority", LOW)
            meta = {"name": name, "annotations": annotations}
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": 80}
            await client.create(PRIORITY_CLASS.path(), body)
        for number in range(namespaces):
            name = f"tenant-{number}" if number else "team-a"
            labels = {"team": f"t{number % 97}", "env": "prod" if number % 3 else "dev"}
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            await client.create(NAMESPACE.path(), body)
        print(f"kubeconfig {cluster.kubeconfig}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
