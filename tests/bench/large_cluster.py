"""An API server with very many objects of ordinary size, in a process of its own: prints its address.

It lists and watches, no more: objects are rendered from templates when they are asked for, so that what is measured
next to it has the machine. What is asked for by its name does not exist. `POST /expire?changed=N&replaced=M` changes
every N-th pod and replaces every M-th by another, keeps silent about it, ends all watches of pods with 410, and
answers when pods are watched again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from aiohttp import web

from tests.token_volumes import token_volume
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION

PODS, NODES, NAMESPACES = "/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
TEAMS = 200
"""Namespaces that have pods."""
REPLICAS = 25
"""Pods of one ReplicaSet."""
_MANAGERS = ("kube-controller-manager", "kube-scheduler", "calico", "kubelet")


class LargeCluster:
    """Objects by number; `version` is the resourceVersion of everything listed now."""

    def __init__(self, pods: int, nodes: int, classes: int = 2, namespaces: int = TEAMS) -> None:
        self.pods, self.nodes = pods, nodes
        self.version = 10_000_000
        self.changed = self.replaced = 0
        self.watches: dict[asyncio.Queue[bytes | None], str] = {}
        self._watched_again = asyncio.Event()
        self._pod = _marked(_pod())
        self._node = _marked(_node())
        self._collections = {
            PODS: (self.pod, pods),
            NODES: (self.node, nodes),
            NAMESPACES: (self.namespace, namespaces),
            CLASSES: (self.priority_class, classes),
        }

    def pod(self, number: int) -> bytes:
        """A pod as the API server sends it."""
        version, name = 1_000_000 + number, f"{number:06x}"
        if self.changed and number % self.changed == 0:
            version = self.version - self.pods + number
        if self.replaced and number % self.replaced == 0:
            version, name = self.version - self.pods + number, f"{number:06x}{self.version % 997:03x}"
        app = number // REPLICAS
        return self._pod % {
            b"n": str(number).encode(),
            b"name": name.encode(),
            b"app": f"service-{app}".encode(),
            b"hash": f"{app * 2654435761 % 2**40:010x}".encode(),
            b"namespace": f"team-{app % TEAMS or 'a'}".encode(),
            b"node": f"node-{number * 7 % self.nodes}".encode(),
            b"uid": f"{number * 2654435761 % 2**32:08x}-6c1f-4d3e-9b7a-{int(name, 16) % 2**48:012x}".encode(),
            b"version": str(version).encode(),
            b"ip": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}".encode(),
            b"time": f"2026-11-{1 + number % 20:02}T{number % 24:02}:{number % 59:02}:{number % 58:02}Z".encode(),
        }

    def node(self, number: int) -> bytes:
        """A node as the API server sends it."""
        return self._node % {
            b"n": str(number).encode(),
            b"node": f"node-{number}".encode(),
            b"zone": f"zone-{number % 3}".encode(),
        }

    @staticmethod
    def namespace(number: int) -> bytes:
        """A namespace as the API server sends it; the first one is that of recorded reviews."""
        labels = {"team": f"t{number % 97}", "env": "prod" if number % 3 else "dev"}
        return _marked({"metadata": {"name": f"team-{number}" if number else "team-a", "labels": labels}})

    @staticmethod
    def priority_class(number: int) -> bytes:
        """A class as the API server sends it; that of the pods, that of recorded reviews, others."""
        name = ("batch", "low-priority")[number] if number < 2 else f"class-{number}"
        annotations = {CAN_BE_PREEMPTED: "true", PROTECTION_DURATION: "30"} if number == 1 else {}
        return _marked({"metadata": {"name": name, "annotations": annotations}, "value": 80 if number else 100})

    async def expire(self, request: web.Request) -> web.Response:
        """Change pods behind the back of those who watch, tell them so, and answer when they watch again."""
        self.changed = int(request.query.get("changed", 0))
        self.replaced = int(request.query.get("replaced", 0))
        self.version += self.pods
        gone = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
        for queue, path in self.watches.items():
            if path == PODS:
                queue.put_nowait(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
                queue.put_nowait(None)
        self._watched_again.clear()
        await self._watched_again.wait()
        return web.Response()

    async def collection(self, request: web.Request) -> web.StreamResponse:
        """List or watch."""
        if request.query.get("watch") == "true":
            return await self._watch(request)
        if request.path.startswith((f"{CLASSES}/", f"{NAMESPACES}/")):
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        render, count = self._collections.get(request.path, (None, 0))
        start = int(request.query.get("continue", 0))
        end = min(count, start + (int(request.query.get("limit", 0)) or count))
        meta = {"resourceVersion": str(self.version)} | ({"continue": str(end)} if end < count else {})
        items = b",".join(render(number) for number in range(start, end)) if render else b""
        body = b'{"kind":"List","metadata":%b,"items":[%b]}' % (json.dumps(meta).encode(), items)
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.watches[queue] = request.path
        if request.path == PODS:
            self._watched_again.set()
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            await stream.prepare(request)
            while (line := await queue.get()) is not None:
                await stream.write(line)
        finally:
            del self.watches[queue]
        return stream


def _marked(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _pod() -> dict[str, Any]:
    """A pod of two containers and a sidecar, as a ReplicaSet makes it and a kubelet reports it."""
    parts = {"name": "%(app)s", "instance": "%(app)s-production", "version": "1.4.2", "managed-by": "Helm"}
    labels = {f"app.kubernetes.io/{key}": value for key, value in parts.items()}
    labels |= {"team": "%(namespace)s", "pod-template-hash": "%(hash)s"}
    annotations = {
        "checksum/config": "6b51d431df5d7f141cbececcf79edf3dd861c3b4069f0b11661a3eefacbba918",
        "prometheus.io/port": "9102",
        "cni.projectcalico.org/podIP": "%(ip)s/32",
        CAN_BE_PREEMPTED: "true",
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "%(app)s-%(hash)s", "uid": "%(hash)s-aaaa-bbbb"}
    containers = [_container("main", "500m", "512Mi"), _container("proxy", "100m", "128Mi")]
    sidecar = {**_container("log-shipper", "50m", "64Mi"), "restartPolicy": "Always"}
    managed = {"operation": "Update", "apiVersion": "v1", "time": "%(time)s", "fieldsType": "FieldsV1"}
    managed["fieldsV1"] = {"f:metadata": {"f:labels": {f"f:{key}": {} for key in labels}}, "f:spec": {}}
    term = {"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname"}}
    return {
        "metadata": {
            "name": "%(app)s-%(hash)s-%(name)s",
            "generateName": "%(app)s-%(hash)s-",
            "namespace": "%(namespace)s",
            "uid": "%(uid)s",
            "resourceVersion": "%(version)s",
            "creationTimestamp": "%(time)s",
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            "managedFields": [{**managed, "manager": manager} for manager in _MANAGERS],
        },
        "spec": {
            "volumes": [
                {"name": "config", "configMap": {"name": "%(app)s", "defaultMode": 420}},
                {**token_volume(""), "name": "kube-api-access-%(name)s"},
            ],
            "initContainers": [sidecar],
            "containers": containers,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "%(app)s",
            "serviceAccount": "%(app)s",
            "nodeName": "%(node)s",
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for key in ("not-ready", "unreachable")
            ],
            "priorityClassName": "batch",
            "priority": 100,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "%(time)s"}
                for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "hostIP": "10.0.0.1",
            "podIP": "%(ip)s",
            "podIPs": [{"ip": "%(ip)s"}],
            "startTime": "%(time)s",
            "initContainerStatuses": [_container_status(sidecar)],
            "containerStatuses": [_container_status(one) for one in containers],
            "qosClass": "Burstable",
        },
    }


def _container(name: str, cpu: str, memory: str) -> dict[str, Any]:
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10}
    mounts = {"config": "/etc/config", "kube-api-access-%(name)s": "/var/run/secrets/kubernetes.io/serviceaccount"}
    return {
        "name": name,
        "image": f"registry.example.com/shop/%(app)s/{name}:1.4.2",
        "args": ["--config=/etc/config/config.yaml", "--port=8080"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "resources": {"limits": {"memory": memory}, "requests": {"cpu": cpu, "memory": memory}},
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in mounts.items()],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }


def _container_status(container: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": container["name"],
        "state": {"running": {"startedAt": "%(time)s"}},
        "ready": True,
        "restartCount": 0,
        "image": container["image"],
        "imageID": f"{container['image']}@sha256:{'9f86d081' * 8}",
        "containerID": "containerd://%(uid)s",
        "allocatedResources": container["resources"]["requests"],
        "resources": container["resources"],
    }


def _node() -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "500Gi", "pods": "250"}
    labels = {"kubernetes.io/hostname": "%(node)s", "topology.kubernetes.io/zone": "%(zone)s"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    meta = {"name": "%(node)s", "uid": "node-uid-%(n)s", "resourceVersion": "5", "labels": labels}
    return {"metadata": meta, "spec": {"providerID": "example://%(node)s"}, "status": status}


async def _serve(cluster: LargeCluster) -> None:
    app = web.Application()
    app.router.add_post("/expire", cluster.expire)
    app.router.add_get("/{path:.*}", cluster.collection)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(LargeCluster(*map(int, sys.argv[1:]))))
