"""The workload controllers: pods made, replaced and rolled over."""

from __future__ import annotations

from tests.workloads import condition, deployment, eventually, pod
from webhook.clusters.embedded.embedded_cluster import node
from webhook.clusters.model.kubelet import RUN_SECONDS
from webhook.kube.resources import DAEMON_SET, DEPLOYMENT, JOB, NODE, POD, REPLICA_SET, STATEFUL_SET

NS = "default"
PODS = POD.path(NS)
CLUSTER = {"nodes": 3, "termination_seconds": 0.05}


async def ready_pods(admin, app: str, count: int):
    """The pods of an app once exactly `count` exist, all ready."""

    async def check():
        found, _ = await admin.list(PODS, dict, labelSelector=f"app={app}")
        ready = [one for one in found if condition(one, "Ready").get("status") == "True"]
        return (found or True) if len(found) == len(ready) == count else None

    found = await eventually(check, what=f"{count} ready pods of {app}")
    return [] if found is True else found


async def status_of(admin, path: str, **wanted):
    async def check():
        status = (await admin.get(path)).get("status", {})
        return status if wanted.items() <= status.items() else None

    return await eventually(check, what=f"{path}: {wanted}")


async def test_deployment_runs_its_replicas_and_says_so(admin):
    """A Deployment gets a ReplicaSet and ready pods, and a status that `kubectl rollout status` waits for."""
    await admin.create(DEPLOYMENT.path(NS), deployment("web", 3))
    pods = await ready_pods(admin, "web", 3)
    assert {one["spec"]["nodeName"] for one in pods} == {"node-1", "node-2", "node-3"}
    owner = pods[0]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["controller"]) == ("ReplicaSet", True)
    status = await status_of(
        admin, DEPLOYMENT.path(NS, "web"), replicas=3, updatedReplicas=3, availableReplicas=3, observedGeneration=1
    )
    assert condition({"status": status}, "Available")["status"] == "True"
    assert condition({"status": status}, "Progressing")["reason"] == "NewReplicaSetAvailable"


async def test_lost_pod_is_replaced(admin):
    """A pod that is deleted comes back under another name, exactly once."""
    await admin.create(DEPLOYMENT.path(NS), deployment("web", 2))
    before = {one["metadata"]["name"] for one in await ready_pods(admin, "web", 2)}
    await admin.delete(f"{PODS}/{min(before)}")
    await eventually(lambda: _names_changed(admin, before))
    after = {one["metadata"]["name"] for one in await ready_pods(admin, "web", 2)}
    assert len(before & after) == 1


async def _names_changed(admin, before: set[str]) -> bool:
    found, _ = await admin.list(PODS, dict, labelSelector="app=web")
    return {one["metadata"]["name"] for one in found} != before


async def test_scaling_goes_both_ways(admin):
    """Scaling up adds pods, scaling down removes them."""
    await admin.create(DEPLOYMENT.path(NS), deployment("web", 1))
    before = {one["metadata"]["name"] for one in await ready_pods(admin, "web", 1)}
    for replicas in (5, 2, 0):
        await admin.patch(DEPLOYMENT.path(NS, "web"), {"spec": {"replicas": replicas}})
        after = {one["metadata"]["name"] for one in await ready_pods(admin, "web", replicas)}
        assert before <= after or after <= before, "nobody is replaced by scaling"
        before = after


async def test_rollout_replaces_all_pods_and_keeps_enough(admin):
    """A new template rolls over to a new ReplicaSet, the old one ends at zero, the revision counts up."""
    await admin.create(DEPLOYMENT.path(NS), deployment("web", 4))
    await ready_pods(admin, "web", 4)
    template = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}}
    await admin.patch(DEPLOYMENT.path(NS, "web"), template, kind="strategic")
    await status_of(
        admin, DEPLOYMENT.path(NS, "web"), observedGeneration=2, updatedReplicas=4, replicas=4, availableReplicas=4
    )
    images = {one["spec"]["containers"][0]["image"] for one in await ready_pods(admin, "web", 4)}
    assert images == {"nginx:2"}
    sets, _ = await admin.list(REPLICA_SET.path(NS), dict)
    assert sorted(one["spec"]["replicas"] for one in sets) == [0, 4]
    annotations = (await admin.get(DEPLOYMENT.path(NS, "web")))["metadata"]["annotations"]
    assert annotations["deployment.kubernetes.io/revision"] == "2"


async def test_recreate_ends_the_old_pods_first(admin):
    """Strategy Recreate never runs two templates at once."""
    body = deployment("web", 2, strategy={"type": "Recreate"})
    await admin.create(DEPLOYMENT.path(NS), body)
    await ready_pods(admin, "web", 2)
    template = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}}
    await admin.patch(DEPLOYMENT.path(NS, "web"), template, kind="strategic")
    seen = set()

    async def rolled():
        found, _ = await admin.list(PODS, dict, labelSelector="app=web")
        images = {one["spec"]["containers"][0]["image"] for one in found}
        seen.add(frozenset(images))
        return images == {"nginx:2"} and len(found) == 2

    await eventually(rolled)
    assert frozenset({"nginx", "nginx:2"}) not in seen


async def test_daemon_set_has_a_pod_on_every_node_also_later_ones(admin):
    """A DaemonSet covers all nodes that take its pod, and follows when one comes or goes."""
    body = deployment("agent", 0, kind="DaemonSet")
    del body["spec"]["replicas"]
    await admin.create(NODE.path(), node("cordoned"))
    tainted = node("tainted")
    tainted["spec"] = {"taints": [{"key": "only", "value": "gpu", "effect": "NoSchedule"}]}
    await admin.create(NODE.path(), tainted)
    await admin.create(DAEMON_SET.path(NS), body)
    pods = await ready_pods(admin, "agent", 4)
    assert {one["spec"]["nodeName"] for one in pods} == {"node-1", "node-2", "node-3", "cordoned"}
    await admin.create(NODE.path(), node("late"))
    await ready_pods(admin, "agent", 5)
    await status_of(admin, DAEMON_SET.path(NS, "agent"), desiredNumberScheduled=5, numberReady=5)


async def test_stateful_set_numbers_its_pods_in_order(admin):
    """StatefulSet pods are numbered, made one after the other, and come back under their own name."""
    await admin.create(STATEFUL_SET.path(NS), deployment("db", 3, kind="StatefulSet", serviceName="db"))
    pods = await ready_pods(admin, "db", 3)
    assert sorted(one["metadata"]["name"] for one in pods) == ["db-0", "db-1", "db-2"]
    uid = next(one["metadata"]["uid"] for one in pods if one["metadata"]["name"] == "db-1")
    await admin.delete(f"{PODS}/db-1")

    async def replaced():
        found, _ = await admin.list(PODS, dict, fieldSelector="metadata.name=db-1")
        return found and found[0]["metadata"]["uid"] != uid

    await eventually(replaced)
    await status_of(admin, STATEFUL_SET.path(NS, "db"), replicas=3, readyReplicas=3)


def job(name: str, **spec):
    template = {"metadata": {"annotations": {RUN_SECONDS: "0.1"}}, "spec": pod(name, restartPolicy="Never")["spec"]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


async def test_job_runs_to_completion(admin):
    """A Job runs its pods, so many at a time, until enough succeeded, and is then Complete."""
    await admin.create(JOB.path(NS), job("once", completions=3, parallelism=2))
    status = await status_of(admin, JOB.path(NS, "once"), succeeded=3)
    assert condition({"status": status}, "Complete")["status"] == "True"
    pods, _ = await admin.list(PODS, dict, labelSelector="job-name=once")
    assert len(pods) == 3


async def test_job_replaces_a_pod_that_was_taken_away(admin):
    """A Job whose running pod is evicted starts another."""
    body = job("long")
    del body["spec"]["template"]["metadata"]
    await admin.create(JOB.path(NS), body)

    async def first():
        pods, _ = await admin.list(PODS, dict, labelSelector="job-name=long")
        return pods[0]["metadata"]["name"] if pods and pods[0]["spec"].get("nodeName") else None

    name = await eventually(first)
    await admin.create(f"{PODS}/{name}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction"})

    async def another():
        found = await first()
        return found if found != name else None

    successor = await eventually(another)
    assert (await admin.get(f"{PODS}/{successor}"))["metadata"]["ownerReferences"][0]["name"] == "long"
    status = (await admin.get(JOB.path(NS, "long"))).get("status", {})
    assert not condition({"status": status}, "Failed")


async def test_pods_are_created_by_the_real_controllers_users(cluster, admin):
    """Each controller acts as its own service account of kube-system."""
    await admin.create(DEPLOYMENT.path(NS), deployment("web", 1))
    await ready_pods(admin, "web", 1)
    did = {
        right.full_resource
        for right in cluster.authorizer.used.of("system:serviceaccount:kube-system:replicaset-controller")
        if right.verb == "create"
    }
    assert did == {"pods"}
    assert not cluster.authorizer.used.refused("system:serviceaccount:kube-system:replicaset-controller")
    assert not cluster.authorizer.used.refused("system:serviceaccount:kube-system:deployment-controller")
