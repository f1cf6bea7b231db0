"""Objects: what is decoded, and what is left alone."""

import importlib
import pkgutil

import msgspec
import pytest

from webhook.kube import objects
from webhook.kube.objects.pod import Pod

STRUCTS = sorted(
    {
        item
        for module in pkgutil.iter_modules(objects.__path__, f"{objects.__name__}.")
        for item in vars(importlib.import_module(module.name)).values()
        if isinstance(item, type) and issubclass(item, msgspec.Struct) and item is not msgspec.Struct
    },
    key=lambda struct: struct.__name__,
)


def said(part):
    """Whether a part of an object says anything, by itself or in a part of its own."""
    return any(map(said, part.values())) if isinstance(part, dict) else True


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_an_empty_object_decodes(struct):
    """Every field may be absent, and what is absent is not made up when it is written back."""
    written = msgspec.json.decode(msgspec.json.encode(msgspec.json.decode(b"{}", type=struct)))
    assert not any(map(said, written.values()))


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_unknown_fields_are_ignored(struct):
    """Objects of newer versions decode."""
    assert msgspec.json.decode(b'{"fromTheFuture": {"a": [1]}}', type=struct) == struct()


@pytest.mark.parametrize(
    "text",
    [
        b'{"metadata": {"labels": null, "annotations": null, "ownerReferences": null, "finalizers": null}}',
        b'{"spec": {"containers": null, "initContainers": null, "tolerations": null, "volumes": null}}',
        b'{"spec": {"affinity": null, "nodeSelector": null, "overhead": null, "topologySpreadConstraints": null}}',
        b'{"status": {"conditions": null, "startTime": null}}',
    ],
)
def test_null_collections(text):
    """What Kubernetes may send as null decodes and counts as absent."""
    assert msgspec.json.decode(text, type=Pod) == Pod()


def reported(**status):
    """A running pod of one container that asks for a CPU, with what its status says of the container."""
    requests = {"requests": {"cpu": "1", "memory": "1Gi"}}
    return {
        "spec": {"containers": [{"name": "main", "resources": {**requests, "limits": {"cpu": "2"}}}]},
        "status": {"containerStatuses": [{"name": "main", "ready": True, **status}]},
    }


ASKED = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("status", "kept"),
    [
        pytest.param({"resources": {"requests": ASKED}, "allocatedResources": ASKED}, False, id="as asked for"),
        pytest.param({"allocatedResources": {"cpu": "4"}}, False, id="the kubelet has not reported yet"),
        pytest.param({"resources": {"requests": ASKED}}, False, id="nothing is said of what was allotted"),
        pytest.param({"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}, True, id="it still has more"),
        pytest.param(
            {"resources": {"requests": ASKED}, "allocatedResources": {"cpu": "2"}}, True, id="it was allotted more"
        ),
        pytest.param({"resources": {}}, True, id="it has nothing of what it asks for"),
    ],
)  # fmt: skip
def test_a_status_is_kept_where_it_tells_of_a_resize(status, kept):
    """What a running pod's status repeats of its spec is not kept in memory; what differs is."""
    pod = msgspec.convert(reported(**status), Pod)
    assert bool(pod.status.container_statuses) is kept


@pytest.mark.parametrize(
    ("spec", "has", "kept"),
    [
        pytest.param({"resources": {"requests": ASKED}}, ASKED, False, id="as asked for"),
        pytest.param({"resources": {"requests": ASKED}}, {"cpu": "2"}, True, id="resized"),
        pytest.param({}, {"cpu": "2"}, False, id="nothing is asked for the pod as a whole"),
    ],
)
def test_a_pods_own_status_is_kept_where_it_tells_of_a_resize(spec, has, kept):
    """The same for the requests of the pod as a whole."""
    pod = msgspec.convert({"spec": spec, "status": {"resources": {"requests": has}, "allocatedResources": has}}, Pod)
    assert (pod.status.resources is not None, pod.status.allocated_resources is not None) == (kept, kept)
