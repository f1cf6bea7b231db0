"""What an object must look like: fields, types, names, quantities, labels, and what may not change."""

import pytest

from tests.clusters.embedded.bare import bare_server
from webhook.clusters.embedded.protocol.calls import ApiCall
from webhook.kube.errors import ApiError

PODS = "/api/v1/namespaces/n/pods"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
DEPLOYMENTS = "/apis/apps/v1/namespaces/n/deployments"


TOO_MUCH = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}


@pytest.fixture
def client():
    return bare_server().local()


def pod(name="a", container=None, **spec):
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "x", **(container or {})}], **spec},
    }


async def refusal(call):
    with pytest.raises(ApiError) as caught:
        await call
    return caught.value


def labelled(**metadata):
    return {**pod(), "metadata": {"name": "a", **metadata}}


REFUSED = [
    (
        PODS,
        pod(priority="high"),
        400,
        "cannot unmarshal str 'high' into spec.priority (integer)",
    ),
    (CLASSES, {"metadata": {"name": "p"}, "value": 3_000_000_000}, 400, "'3000000000' into value (integer)"),
    (
        PODS,
        pod(containers={}),
        400,
        "into spec.containers (list)",
    ),
    (PODS, pod(hostNetwork="yes"), 400, "into spec.hostNetwork (boolean)"),
    (PODS, pod(containers=[]), 422, "spec.containers: Required value"),
    (PODS, pod(container={"image": ""}), 422, "spec.containers[0].image: Required value"),
    (PODS, {**pod(), "kind": "Node", "apiVersion": "v1"}, 400, "must be of type Pod"),
    (PODS, {**pod(), "kind": "Pod", "apiVersion": "v2"}, 400, "v2, Kind=Pod is not v1, Kind=Pod"),
    (PODS, pod("Upper"), 422, "a lowercase RFC 1123 subdomain must consist of"),
    (PODS, pod(""), 422, "name or generateName is required"),
    (PODS, labelled(labels={"a b": "c"}), 422, 'metadata.labels: Invalid value: "a b"'),
    (PODS, labelled(labels={"a": "-"}), 422, "a valid label must be an empty string or"),
    (PODS, labelled(namespace="m"), 400, "the namespace of the provided object does not match"),
    (PODS, labelled(resourceVersion="7"), 400, "resourceVersion should not be set on objects to be created"),
    (PODS, pod(container={"resources": TOO_MUCH}), 422, "must be less than or equal to cpu limit of 1"),
    (CLASSES, {"metadata": {"name": "p"}, "value": 1, "preemptionPolicy": "Maybe"}, 422, 'Unsupported value: "Maybe"'),
    (CLASSES, {"metadata": {"name": "system-node-critical"}, "value": 7}, 422, "must be 2000001000, not 7"),
    ("/api/v1/namespaces", {"metadata": {"name": "a.b"}}, 422, "a lowercase RFC 1123 label"),
]


@pytest.mark.parametrize(("path", "body", "status", "text"), REFUSED)
async def test_refused(client, path, body, status, text):
    """What is wrong is refused, and said."""
    error = await refusal(client.create(path, body))
    assert error.status == status
    assert text in error.message


async def test_every_fault_is_named(client):
    """All that is wrong with an object is said at once."""
    body = pod("UP", containers=[{"name": "c", "image": "x"}, {"name": "c"}])
    error = await refusal(client.create(PODS, body))
    fields = [cause["field"] for cause in error.details["causes"]]
    assert fields == ["metadata.name", "spec.containers[1].name", "spec.containers[1].image"]


@pytest.mark.parametrize(("mode", "warned"), [("Warn", True), ("", True), ("Ignore", False)])
async def test_unknown_fields_are_dropped(mode, warned):
    """A field Kubernetes does not know is not stored; by default its author is warned."""
    api = bare_server()
    body = b'{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"x","colour":"red"}],"shape":1}}'
    reply = await api.handle(ApiCall("POST", PODS, {"fieldValidation": mode}, body=body))
    assert reply.status == 201
    assert b"colour" not in reply.body
    texts = ['299 - "unknown field \\"spec.containers[0].colour\\""', '299 - "unknown field \\"spec.shape\\""']
    assert [value for name, value in reply.headers if name == "Warning"] == (texts if warned else [])


@pytest.mark.parametrize(
    "change",
    [
        {"nodeName": "n"},
        {"priorityClassName": "x"},
        {"containers": [{"name": "c", "image": "x", "command": ["y"]}]},
        {"tolerations": []},
        {"terminationGracePeriodSeconds": 5},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_what_a_pod_may_not_change(client, change):
    """Of a pod's spec almost nothing changes."""
    await client.create(PODS, pod(tolerations=[{"key": "a", "operator": "Exists"}]))
    error = await refusal(client.patch(f"{PODS}/a", {"spec": change}))
    assert error.status == 422
    assert "Forbidden: " in error.message


@pytest.mark.parametrize(
    "change",
    [
        {"containers": [{"name": "c", "image": "y"}]},
        {"activeDeadlineSeconds": 7},
        {"tolerations": [{"key": "a", "operator": "Exists"}]},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_what_a_pod_may_change(client, change):
    """Image, deadline and further tolerations may change."""
    await client.create(PODS, pod())
    stored = await client.patch(f"{PODS}/a", {"spec": change}, kind="strategic")
    assert stored["metadata"]["generation"] == 2


async def test_selector_of_a_workload(client):
    """A workload's selector must match its template and stays as it is."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "other"}}, "template": template}}
    error = await refusal(client.create(DEPLOYMENTS, body))
    assert "`selector` does not match template `labels`" in error.message
    error = await refusal(client.create(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": {"template": template}}))
    assert "spec.selector: Required value" in error.message
    body["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    await client.create(DEPLOYMENTS, body)
    labels = {"app": "web", "x": "y"}
    change = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}
    assert "field is immutable" in (await refusal(client.patch(f"{DEPLOYMENTS}/d", {"spec": change}))).message


async def test_immutable_parts(client):
    """A class keeps its value and policy, a binding its role."""
    await client.create(CLASSES, {"metadata": {"name": "p"}, "value": 1})
    error = await refusal(client.patch(f"{CLASSES}/p", {"value": 2, "preemptionPolicy": "Never"}))
    assert [cause["field"] for cause in error.details["causes"]] == ["value", "preemptionPolicy"]
    stored = await client.patch(f"{CLASSES}/p", {"metadata": {"annotations": {"a": "b"}}})
    assert stored["metadata"]["annotations"] == {"a": "b"}
    bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/n/rolebindings"
    role = {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
    await client.create(bindings, {"metadata": {"name": "b"}, "roleRef": role})
    error = await refusal(client.patch(f"{bindings}/b", {"roleRef": {**role, "name": "s"}}))
    assert "field is immutable" in error.message


@pytest.mark.parametrize("text", ["", "1 Gi", "Gi", "1gi", "1e99999", "much", "1" * 65])
async def test_what_is_no_quantity(client, text):
    """What cannot be read as an amount is refused."""
    error = await refusal(client.create(PODS, pod(container={"resources": {"requests": {"cpu": text}}})))
    assert (error.status, "quantities must match the regular expression" in error.message) == (400, True)


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"requests": {"cpu": "0m"}}, "BestEffort"),
    ],
)
async def test_quality_of_service(client, resources, quality):
    """A pod's class of service follows from its requests and limits."""
    created = await client.create(PODS, pod(container={"resources": resources}))
    assert created["status"]["qosClass"] == quality


async def test_body_that_is_no_json():
    """A body that cannot be read is a 400."""
    for body in (b"{", b"[]", b"7"):
        reply = await bare_server().handle(ApiCall("POST", PODS, body=body))
        assert reply.status == 400
