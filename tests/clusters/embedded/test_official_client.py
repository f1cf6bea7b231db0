"""The official `kubernetes` client against the embedded control plane: the operations kubectl is tested with."""

import time

import pytest
from kubernetes import client, config, watch
from kubernetes.client import ApiException


@pytest.fixture(scope="module")
def connection(background):
    with config.new_client_from_config(str(background.kubeconfig)) as connection:
        yield connection


@pytest.fixture(scope="module")
def core(connection):
    return client.CoreV1Api(connection)


@pytest.fixture(scope="module")
def apps(connection):
    return client.AppsV1Api(connection)


@pytest.fixture
def namespace(core, request):
    name = request.node.name.replace("_", "-").replace("[", "-").rstrip("]")[:60].lower()
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    return name


def pod(name, **spec):
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name=name, labels={"app": name}),
        spec=client.V1PodSpec(containers=[client.V1Container(name="c", image="nginx")], **spec),
    )


def deployment(replicas=1):
    labels = {"app": "web"}
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels),
        spec=client.V1PodSpec(containers=[client.V1Container(name="c", image="nginx")]),
    )
    return client.V1Deployment(
        metadata=client.V1ObjectMeta(name="web"),
        spec=client.V1DeploymentSpec(
            replicas=replicas, selector=client.V1LabelSelector(match_labels=labels), template=template
        ),
    )


def eventually(look, wanted, seconds=10):
    deadline = time.monotonic() + seconds
    while (found := look()) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_discovery(connection):
    """Groups, versions and resources can be discovered."""
    groups = client.ApisApi(connection).get_api_versions().groups
    assert "apps" in [group.name for group in groups]
    names = [row.name for row in client.PolicyV1Api(connection).get_api_resources().resources]
    assert names == ["poddisruptionbudgets", "poddisruptionbudgets/status"]
    assert client.VersionApi(connection).get_code().minor == "36"


def test_create_and_read(core, namespace):
    """A pod that is created is scheduled, runs, and reads back with its defaults."""
    created = core.create_namespaced_pod(namespace, pod("a"))
    assert (created.status.phase, created.spec.restart_policy) == ("Pending", "Always")
    eventually(lambda: core.read_namespaced_pod("a", namespace).status.phase, "Running")
    assert core.read_namespaced_pod("a", namespace).spec.node_name in ("node-1", "node-2")


def test_create_twice(core, namespace):
    """A name is given once."""
    core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="m")))
    with pytest.raises(ApiException) as refusal:
        core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="m")))
    assert (refusal.value.status, refusal.value.reason) == (409, "Conflict")


def test_lists_with_selectors_and_pages(core, namespace):
    """A list is narrowed by labels and fields and read in pages."""
    for name in "abc":
        metadata = client.V1ObjectMeta(name=name, labels={"even": str(name == "b")})
        core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=metadata))
    even = core.list_namespaced_config_map(namespace, label_selector="even=True")
    assert [item.metadata.name for item in even.items] == ["b"]
    named = core.list_namespaced_config_map(namespace, field_selector="metadata.name!=b")
    assert [item.metadata.name for item in named.items] == ["a", "c"]
    first = core.list_namespaced_config_map(namespace, limit=2)
    rest = core.list_namespaced_config_map(namespace, limit=2, _continue=first.metadata._continue)
    assert first.metadata.remaining_item_count == 1
    assert [item.metadata.name for item in first.items + rest.items] == ["a", "b", "c"]


def test_watch(core, namespace):
    """A watch tells of every change."""
    version = core.list_namespaced_config_map(namespace).metadata.resource_version
    core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="m")))
    core.patch_namespaced_config_map("m", namespace, {"data": {"k": "v"}})
    core.delete_namespaced_config_map("m", namespace)
    stream = watch.Watch().stream(
        core.list_namespaced_config_map, namespace, resource_version=version, timeout_seconds=1
    )
    assert [event["type"] for event in stream] == ["ADDED", "MODIFIED", "DELETED"]


def test_replace_of_an_outdated_object(core, namespace):
    """Replacing an outdated object is a conflict."""
    old = core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="m")))
    core.patch_namespaced_config_map("m", namespace, {"data": {"k": "v"}})
    with pytest.raises(ApiException) as refusal:
        core.replace_namespaced_config_map("m", namespace, old)
    assert refusal.value.status == 409


@pytest.mark.parametrize(
    ("kind", "body", "containers"),
    [
        ("application/json-patch+json", [{"op": "replace", "path": "/spec/replicas", "value": 0}], ["c"]),
        ("application/merge-patch+json", {"spec": {"replicas": 0}}, ["c"]),
        (
            "application/strategic-merge-patch+json",
            {"spec": {"replicas": 0, "template": {"spec": {"containers": [{"name": "d", "image": "x"}]}}}},
            ["d", "c"],
        ),
    ],
    ids=["json", "merge", "strategic"],
)
def test_patch(apps, namespace, kind, body, containers):
    """An object is patched in each of the three ways."""
    apps.create_namespaced_deployment(namespace, deployment())
    patched = apps.patch_namespaced_deployment("web", namespace, body, _content_type=kind)
    assert patched.spec.replicas == 0
    assert [one.name for one in patched.spec.template.spec.containers] == containers


def test_server_side_apply(apps, namespace):
    """Apply creates an object, and conflicts over another manager's field until forced."""
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "nginx"}]},
            },
        },
    }
    kind = {"_content_type": "application/apply-patch+yaml"}
    apps.patch_namespaced_deployment("web", namespace, body, field_manager="one", **kind)
    body["spec"]["replicas"] = 2
    with pytest.raises(ApiException) as refusal:
        apps.patch_namespaced_deployment("web", namespace, body, field_manager="two", **kind)
    assert refusal.value.status == 409
    assert 'conflict with \\"one\\" using apps/v1: .spec.replicas' in refusal.value.body
    forced = apps.patch_namespaced_deployment("web", namespace, body, field_manager="two", force=True, **kind)
    assert forced.spec.replicas == 2


def test_scale_and_rollout(apps, core, namespace):
    """A deployment scales through its sub-resource and rolls out."""
    apps.create_namespaced_deployment(namespace, deployment())
    assert apps.read_namespaced_deployment_scale("web", namespace).spec.replicas == 1
    apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 3}})
    eventually(lambda: apps.read_namespaced_deployment("web", namespace).status.available_replicas, 3)
    assert len(core.list_namespaced_pod(namespace, label_selector="app=web").items) == 3


def test_graceful_delete(core, namespace):
    """A running pod is marked first and gone when its kubelet is done."""
    core.create_namespaced_pod(namespace, pod("a"))
    eventually(lambda: core.read_namespaced_pod("a", namespace).status.phase, "Running")
    marked = core.delete_namespaced_pod("a", namespace)
    assert marked.metadata.deletion_timestamp is not None

    def left():
        return [item.metadata.name for item in core.list_namespaced_pod(namespace).items]

    eventually(left, [])


def test_delete_with_a_wrong_uid(core, namespace):
    """A precondition that does not hold is a conflict."""
    core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="m")))
    options = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="another"))
    with pytest.raises(ApiException) as refusal:
        core.delete_namespaced_config_map("m", namespace, body=options)
    assert refusal.value.status == 409


def test_delete_of_a_collection(core, namespace):
    """A collection is deleted as far as it is selected."""
    for name in "abc":
        metadata = client.V1ObjectMeta(name=name, labels={"gone": str(name != "b")})
        core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=metadata))
    core.delete_collection_namespaced_config_map(namespace, label_selector="gone=True")
    assert [item.metadata.name for item in core.list_namespaced_config_map(namespace).items] == ["b"]


def test_eviction_and_budget(connection, core, apps, namespace):
    """An eviction that would break a budget is a 429; without the budget it succeeds."""
    apps.create_namespaced_deployment(namespace, deployment())
    eventually(lambda: apps.read_namespaced_deployment("web", namespace).status.available_replicas, 1)
    policy = client.PolicyV1Api(connection)
    selector = client.V1LabelSelector(match_labels={"app": "web"})
    policy.create_namespaced_pod_disruption_budget(
        namespace,
        client.V1PodDisruptionBudget(
            metadata=client.V1ObjectMeta(name="b"),
            spec=client.V1PodDisruptionBudgetSpec(min_available=1, selector=selector),
        ),
    )
    eventually(lambda: policy.read_namespaced_pod_disruption_budget("b", namespace).status.current_healthy, 1)
    name = core.list_namespaced_pod(namespace).items[0].metadata.name
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=name, namespace=namespace))
    with pytest.raises(ApiException) as refusal:
        core.create_namespaced_pod_eviction(name, namespace, eviction)
    assert refusal.value.status == 429
    policy.delete_namespaced_pod_disruption_budget("b", namespace)
    core.create_namespaced_pod_eviction(name, namespace, eviction)


def test_cordon(core):
    """A node is cordoned and uncordoned."""
    assert core.patch_node("node-1", {"spec": {"unschedulable": True}}).spec.unschedulable
    assert not core.patch_node("node-1", {"spec": {"unschedulable": None}}).spec.unschedulable


def test_events(connection, core, namespace):
    """An event written in one version reads in the other."""
    api = client.EventsV1Api(connection)
    event = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "test.example/r",
        "reportingInstance": "r-1",
        "action": "Preempting",
        "reason": "Preempted",
        "type": "Normal",
        "regarding": {"kind": "Pod", "namespace": namespace, "name": "a"},
        "note": "by another",
    }
    api.create_namespaced_event(namespace, event)
    found = core.list_namespaced_event(namespace, field_selector="involvedObject.name=a").items[0]
    assert (found.message, found.involved_object.kind, found.reporting_component) == (
        "by another",
        "Pod",
        "test.example/r",
    )
    assert api.read_namespaced_event("e", namespace).note == "by another"


def test_access_review(connection, namespace):
    """Who asks what they may do is told."""
    attributes = client.V1ResourceAttributes(verb="create", resource="pods", namespace=namespace)
    review = client.V1SelfSubjectAccessReview(spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes))
    answer = client.AuthorizationV1Api(connection).create_self_subject_access_review(review)
    assert answer.status.allowed


def test_lease(connection, namespace):
    """A lease is taken and renewed with microseconds."""
    api = client.CoordinationV1Api(connection)
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000001Z"}
    api.create_namespaced_lease(namespace, {"metadata": {"name": "l"}, "spec": spec})
    lease = api.read_namespaced_lease("l", namespace)
    lease.spec.holder_identity = "you"
    assert api.replace_namespaced_lease("l", namespace, lease).spec.holder_identity == "you"
    assert lease.spec.renew_time.microsecond == 1
