"""Creating, changing and deleting objects: what the server fills in, keeps, refuses and waits for."""

import asyncio
import json

import pytest

from tests.clusters.embedded.bare import bare_server
from webhook.clusters.embedded.protocol.calls import ApiCall
from webhook.kube.errors import ApiError

MAPS = "/api/v1/namespaces/n/configmaps"
PODS = "/api/v1/namespaces/n/pods"
NODES = "/api/v1/nodes"
DEPLOYMENTS = "/apis/apps/v1/namespaces/n/deployments"


def config_map(name="a", **metadata):
    return {"metadata": {"name": name, **metadata}, "data": {"k": "v"}}


def pod(name="a", node="", **metadata):
    spec = {"containers": [{"name": "c", "image": "nginx"}], **({"nodeName": node} if node else {})}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def deployment(replicas=1):
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    return {
        "metadata": {"name": "d"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


async def refusal(call):
    with pytest.raises(ApiError) as caught:
        await call
    return caught.value


async def test_a_change_of_nothing(api, client):
    """An update that changes nothing is no change: same version, no event."""
    created = await client.create(MAPS, config_map())
    assert await client.replace(f"{MAPS}/a", created) == created
    assert await client.patch(f"{MAPS}/a", {"data": {"k": "v"}}) == created
    assert str(api.store.revision) == created["metadata"]["resourceVersion"]


async def test_what_only_the_server_sets(client):
    """A client's uid, times and status are not taken over."""
    sent = pod(uid="mine", creationTimestamp="2001-01-01T00:00:00Z", generation=7)
    created = await client.create(PODS, {**sent, "status": {"phase": "Running"}})
    assert created["metadata"]["uid"] != "mine"
    assert created["metadata"]["creationTimestamp"] > "2026"
    assert (created["metadata"]["generation"], created["status"]["phase"]) == (1, "Pending")


async def test_dry_run(client):
    """A dry run answers as if it were done and stores nothing."""
    created = await client.create(MAPS, config_map(), dryRun="All")
    assert created["metadata"]["uid"]
    assert "resourceVersion" not in created["metadata"]
    assert (await client.list(MAPS))[0] == []
    await client.create(MAPS, config_map())
    assert (await client.patch(f"{MAPS}/a", {"data": {"k": "w"}}, dryRun="All"))["data"] == {"k": "w"}
    await client.delete(f"{MAPS}/a", {"dryRun": ["All"]})
    assert (await client.get(f"{MAPS}/a"))["data"] == {"k": "v"}


async def test_update_without_a_version(client):
    """Some kinds may be replaced unconditionally, under their own name; a lease may not."""
    await client.create(MAPS, config_map())
    error = await refusal(client.replace(f"{MAPS}/a", config_map("b")))
    assert error.message == "the name of the object (b) does not match the name on the URL (a)"
    await client.replace(f"{MAPS}/a", {**config_map(), "data": {"k": "w"}})
    leases = "/apis/coordination.k8s.io/v1/namespaces/n/leases"
    await client.create(leases, {"metadata": {"name": "l"}, "spec": {}})
    error = await refusal(client.replace(f"{leases}/l", {"metadata": {"name": "l"}, "spec": {}}))
    assert (error.status, "metadata.resourceVersion" in error.message) == (422, True)


async def test_concurrent_patches(client):
    """Patches that name no version never lose each other's changes."""
    await client.create(MAPS, config_map())
    await asyncio.gather(*(client.patch(f"{MAPS}/a", {"data": {f"k{number}": "v"}}) for number in range(50)))
    assert len((await client.get(f"{MAPS}/a"))["data"]) == 51


async def test_status_apart(client):
    """The object's update does not touch its status; the status' update touches nothing else but labels."""
    await client.create(PODS, pod())
    await client.patch(f"{PODS}/a", {"status": {"phase": "Running"}, "metadata": {"labels": {"x": "1"}}})
    changed = {"status": {"phase": "Failed"}, "spec": {"nodeName": "n"}, "metadata": {"annotations": {"y": "2"}}}
    stored = await client.patch(f"{PODS}/a/status", changed)
    assert (stored["status"]["phase"], stored["spec"].get("nodeName")) == ("Failed", None)
    assert (stored["metadata"]["labels"], stored["metadata"]["annotations"]) == ({"x": "1"}, {"y": "2"})


async def test_generation(client):
    """The generation counts changes of the spec, not of labels or status."""
    await client.create(DEPLOYMENTS, deployment())
    path = f"{DEPLOYMENTS}/d"
    assert (await client.patch(path, {"metadata": {"labels": {"x": "1"}}}))["metadata"]["generation"] == 1
    assert (await client.patch(f"{path}/status", {"status": {"replicas": 1}}))["metadata"]["generation"] == 1
    assert (await client.patch(path, {"spec": {"replicas": 2}}))["metadata"]["generation"] == 2


async def test_pod_that_runs_is_deleted_gracefully(client):
    """Its kubelet has until the deletionTimestamp, then removes it with a grace of 0."""
    await client.create(PODS, pod(node="n"))
    marked = await client.delete(f"{PODS}/a")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert await client.delete(f"{PODS}/a", {"gracePeriodSeconds": 60}) == marked
    shorter = await client.delete(f"{PODS}/a", {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionTimestamp"] < marked["metadata"]["deletionTimestamp"]
    await client.delete(f"{PODS}/a", {"gracePeriodSeconds": 0})
    assert (await refusal(client.get(f"{PODS}/a"))).status == 404


async def test_finalizers(client):
    """An object with finalizers is marked, takes no new ones, and goes when the last is removed."""
    await client.create(MAPS, config_map(finalizers=["example.com/a"]))
    marked = await client.delete(f"{MAPS}/a")
    assert marked["metadata"]["deletionTimestamp"]
    error = await refusal(client.patch(f"{MAPS}/a", {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}))
    assert 'found new finalizers []string{"example.com/b"}' in error.message
    await client.patch(f"{MAPS}/a", {"metadata": {"finalizers": None}})
    assert (await refusal(client.get(f"{MAPS}/a"))).status == 404


async def test_namespace_ends_when_its_content_is_gone(client):
    """A namespace is Terminating until its finalizer is removed through `finalize`."""
    created = await client.create("/api/v1/namespaces", {"metadata": {"name": "x"}})
    assert (created["spec"]["finalizers"], created["status"]["phase"]) == (["kubernetes"], "Active")
    marked = await client.delete("/api/v1/namespaces/x")
    assert marked["status"]["phase"] == "Terminating"
    await client.replace("/api/v1/namespaces/x", {**marked, "spec": {}})
    assert (await client.get("/api/v1/namespaces/x"))["spec"]["finalizers"] == ["kubernetes"]
    await client.replace("/api/v1/namespaces/x/finalize", {**marked, "spec": {"finalizers": []}})
    assert (await refusal(client.get("/api/v1/namespaces/x"))).status == 404


async def test_preconditions_of_a_delete(client):
    """A delete may be bound to a uid and to a version."""
    created = await client.create(MAPS, config_map())
    for wanted in ({"uid": "x"}, {"resourceVersion": "1"}):
        assert (await refusal(client.delete(f"{MAPS}/a", {"preconditions": wanted}))).status == 409
    metadata = created["metadata"]
    await client.delete(
        f"{MAPS}/a", {"preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}}
    )


async def test_scale(client):
    """The scale sub-resource reads and writes a workload's replicas."""
    await client.create(DEPLOYMENTS, deployment(2))
    scale = await client.get(f"{DEPLOYMENTS}/d/scale")
    assert (scale["spec"], scale["status"]["selector"]) == ({"replicas": 2}, "app=web")
    await client.replace(f"{DEPLOYMENTS}/d/scale", {**scale, "spec": {"replicas": 5}})
    assert (await client.get(f"{DEPLOYMENTS}/d"))["spec"]["replicas"] == 5
    assert (await refusal(client.patch(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": -1}}))).status == 422


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        pytest.param("DELETE", f"{PODS}/a", {"gracePeriodSeconds": "soon"}, id="delete"),
        pytest.param("DELETE", f"{PODS}/a", {"preconditions": "x"}, id="preconditions"),
        pytest.param("POST", f"{PODS}/a/binding", {"target": "n"}, id="binding"),
        pytest.param("POST", f"{PODS}/a/binding", {"metadata": "a"}, id="metadata"),
        pytest.param("PUT", f"{DEPLOYMENTS}/d/scale", {"spec": "x"}, id="scale"),
        pytest.param("PATCH", f"{DEPLOYMENTS}/d/scale", {"spec": "x"}, id="patched-scale"),
    ],
)
async def test_wrong_types_in_options_and_subresources(api, client, method, path, body):
    """A value of another type is the caller's fault (400) in options and in the objects of sub-resources, too."""
    await client.create(PODS, pod())
    await client.create(DEPLOYMENTS, deployment(2))
    headers = {"content-type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
    reply = await api.handle(ApiCall(method, path, headers=headers, body=json.dumps(body).encode()))
    assert (reply.status, b"json: cannot unmarshal" in reply.body) == (400, True)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/namespaces/n/unknowns", 404),
        ("GET", "/apis/example.com/v1/things", 404),
        ("POST", f"{MAPS}/a", 405),
        ("DELETE", "/api/v1/namespaces", 405),
        ("GET", f"{PODS}/a/log", 404),
        ("GET", "/nowhere", 404),
        ("POST", "/version", 404),
    ],
)
async def test_what_there_is_not(api, method, path, status):
    """What is not served is refused as a Status."""
    reply = await api.handle(ApiCall(method, path, body=b"{}"))
    assert reply.status == status
    assert b'"kind":"Status"' in reply.body


async def test_local_clients_are_users(api):
    """A local client acts as the user it was made for, through the same authorization."""

    class OnlyAlice:
        def authorize(self, user, *_request):
            return user.username == "alice"

    api.authorizer = OnlyAlice()
    await api.local("alice").list(MAPS)
    error = await refusal(api.local("system:serviceaccount:n:a").list(MAPS))
    assert error.message == (
        'configmaps is forbidden: User "system:serviceaccount:n:a" cannot list resource "configmaps" in API group "" '
        'in the namespace "n"'
    )


async def test_the_oldest_events_go(client, monkeypatch):
    """Events do not pile up: the oldest make room."""
    monkeypatch.setattr("webhook.clusters.embedded.apiserver.writing._MOST_EVENTS", 3)
    path = "/api/v1/namespaces/n/events"
    for number in range(5):
        body = {"metadata": {"name": f"e{number}"}, "involvedObject": {"kind": "Pod", "name": "a"}, "reason": "R"}
        await client.create(path, body)
    assert [item["metadata"]["name"] for item in (await client.list(path))[0]] == ["e2", "e3", "e4"]


async def test_what_admission_adds_is_completed():
    """A container that admission adds gets its defaults like any other."""

    class AddsContainer:
        async def mutate(self, attributes):
            attributes.object["spec"]["containers"].append({"name": "added", "image": "x:1"})
            return attributes.object

        async def validate(self, attributes):
            assert attributes.object["metadata"]["uid"]

    client = bare_server(admission=AddsContainer()).local()
    created = await client.create(PODS, pod())
    assert created["spec"]["containers"][1]["imagePullPolicy"] == "IfNotPresent"
    assert "added" not in str(created["metadata"]["managedFields"])


async def test_a_new_pods_label_keys_are_merged_once(client):
    """MatchLabelKeys become part of the selector at creation; an update of the labels changes nothing of that."""
    term = {"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["v"]}
    body = pod(labels={"v": "1"})
    body["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await client.create(PODS, body)
    stored = await client.patch(f"{PODS}/a", {"metadata": {"labels": {"v": "2"}}})
    (term,) = stored["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchExpressions"] == [{"key": "v", "operator": "In", "values": ["1"]}]
