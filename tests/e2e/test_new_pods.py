"""A pod made of a template is completed in a simulation as the API server completes it: on any cluster."""

import asyncio
import copy
from typing import Any

import msgspec
import pytest

from tests.preemption.building import NOW
from tests.simulation.clusters import added
from tests.workloads import Json, deployment, eventually, fills_in_priorities
from webhook.clusters.embedded.embedded_cluster import node
from webhook.clusters.simulated.objects import ClusterObjects
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import LIMIT_RANGE, REPLICA_SET, RUNTIME_CLASS
from webhook.policy.model.policies import Policies
from webhook.preemption.snapshot.amounts import requests
from webhook.simulation.simulation import simulate
from webhook.simulation.whatif import Apply

HALF = {"limits": {"cpu": "500m", "memory": "64Mi"}}


def container(name: str = "c", **more: Any) -> Json:
    return {"name": name, "image": "nginx", **more}


TEMPLATES = {
    "limits alone": {"containers": [container(resources=HALF)]},
    "an init container and a sidecar": {
        "containers": [container(resources=HALF)],
        "initContainers": [
            container("i", resources=HALF),
            container("s", resources={"limits": {"cpu": "1"}}, restartPolicy="Always"),
        ],
    },
    "limits of the pod": {"containers": [container()], "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
    "limits of the pod and a container": {
        "containers": [container(resources={"requests": {"cpu": "200m"}}), container("d")],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
    },
    "its own tolerations": {
        "containers": [container()],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
    },
    "the network of its host": {
        "containers": [container(ports=[{"containerPort": 8081}, {"containerPort": 8082, "hostPort": 8082}])],
        "hostNetwork": True,
    },
    "a runtime class": {"containers": [container(resources=HALF)], "runtimeClassName": "kata"},
}
RANGES = {
    "no range": {},
    "defaults": {"default": {"cpu": "300m"}, "defaultRequest": {"cpu": "200m", "memory": "32Mi"}},
    "a largest amount": {"max": {"cpu": "2", "memory": "2Gi"}, "min": {"cpu": "10m"}},
}


def traits(pod: Pod) -> Json:
    """What a scheduler goes by, and what the API server fills in of it."""
    ports = [port for row in pod.spec.containers or () for port in row.ports or ()]
    tolerations = [msgspec.to_builtins(row) for row in pod.spec.tolerations or ()]
    return {
        "requests": requests(pod),
        "overhead": pod.spec.overhead,
        "nodeSelector": pod.spec.node_selector,
        "tolerations": sorted(map(str, tolerations)),
        "ports": [(port.container_port, port.host_port) for port in ports],
        "priority": (pod.spec.priority, pod.spec.preemption_policy),
        "labels": pod.metadata.labels,
    }


PAIRS = [(template, "no range") for template in TEMPLATES]
PAIRS += [("limits alone", "defaults"), ("an init container and a sidecar", "defaults")]
PAIRS += [("its own tolerations", "a largest amount"), ("limits alone", "a largest amount")]


@pytest.mark.parametrize(("name", "limit_range"), PAIRS, ids=map(", ".join, PAIRS))
async def test_a_template_makes_the_same_pod(another_cluster, sandbox, name, limit_range):
    """By amounts, overhead, nodes, tolerations and ports."""
    if not await fills_in_priorities(sandbox.client):
        pytest.skip("the API server has no Priority plugin")
    kata = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": f"{sandbox.id}-kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "150m"}},
        "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
    }
    workload = deployment("web", 1, kind="ReplicaSet")
    workload["spec"]["template"]["spec"] = copy.deepcopy(TEMPLATES[name])
    if "runtimeClassName" in TEMPLATES[name]:
        workload["spec"]["template"]["spec"]["runtimeClassName"] = kata["metadata"]["name"]
    namespaced = [(REPLICA_SET, workload)]
    if limits := RANGES[limit_range]:
        spec = {"limits": [{"type": "Container", **limits}]}
        body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "lr"}, "spec": spec}
        namespaced.insert(0, (LIMIT_RANGE, body))
    await sandbox.create(RUNTIME_CLASS, kata)
    for resource, body in namespaced:
        await sandbox.client.create(resource.path(sandbox.id), body)
        body["metadata"]["namespace"] = sandbox.id

    async def made() -> list[Pod]:
        return list((await sandbox.client.list(sandbox.pods, Pod))[0])

    [real] = await eventually(made, 30, "the controller has made a pod")
    cluster = ClusterObjects(NOW)
    added(cluster, "Namespace", {"metadata": {"name": sandbox.id}})
    added(cluster, "Node", node("n"))
    steps = [Apply(0.0, "test", (kata, *(body for _, body in namespaced)))]
    result = await asyncio.to_thread(simulate, cluster, Policies(), steps)
    [simulated] = result.tracker.all("Pod").values()
    assert traits(simulated) == traits(real)
