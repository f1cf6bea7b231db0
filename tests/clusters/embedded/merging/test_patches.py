"""Merge patches, and strategic merge patches by table."""

import copy

import pytest

from tests.clusters.embedded.bare import bare_server
from webhook.clusters.embedded.merging.patches import merge_patch, strategic_merge
from webhook.clusters.embedded.object_types.schemas import of_model
from webhook.clusters.embedded.protocol.calls import ApiCall
from webhook.clusters.embedded.protocol.statuses import StatusError


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ],
)
def test_merge_patch(target, patch, result):
    """The examples of RFC 7396."""
    assert merge_patch(target, patch) == result


def containers(*names):
    return [{"name": name, "image": name} for name in names]


STRATEGIC = {
    "fields merge, null removes": (
        {"nodeName": "n", "hostNetwork": True},
        {"nodeName": None, "hostname": "h"},
        {"hostNetwork": True, "hostname": "h"},
    ),
    "an item merges by its key": (
        {"containers": containers("a", "b")},
        {"containers": [{"name": "b", "image": "c"}]},
        {"containers": [{"name": "a", "image": "a"}, {"name": "b", "image": "c"}]},
    ),
    "a new item comes first": (
        {"containers": containers("z")},
        {"$setElementOrder/containers": [{"name": "z"}, {"name": "a"}], "containers": containers("a")},
        {"containers": containers("a", "z")},
    ),
    "an item is removed by directive": (
        {"containers": containers("a", "b")},
        {"containers": [{"$patch": "delete", "name": "a"}]},
        {"containers": containers("b")},
    ),
    "a list is replaced by directive": (
        {"containers": containers("a", "b")},
        {"containers": [{"$patch": "replace"}, *containers("c")]},
        {"containers": containers("c")},
    ),
    "a map is replaced by directive": (
        {"nodeSelector": {"a": "1"}},
        {"nodeSelector": {"$patch": "replace", "b": "2"}},
        {"nodeSelector": {"b": "2"}},
    ),
    "an atomic list is replaced": (
        {"tolerations": [{"key": "a"}]},
        {"tolerations": [{"key": "b"}]},
        {"tolerations": [{"key": "b"}]},
    ),
    "of a volume only the source given is kept": (
        {"volumes": [{"name": "v", "emptyDir": {}}]},
        {"volumes": [{"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/"}}]},
        {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
    ),
    "ports merge by containerPort": (
        {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "http"}]}]},
        {"containers": [{"name": "a", "ports": [{"containerPort": 81}]}]},
        {"containers": [{"name": "a", "ports": [{"containerPort": 81}, {"containerPort": 80, "name": "http"}]}]},
    ),
}


@pytest.mark.parametrize("case", STRATEGIC)
def test_strategic_merge_of_a_pod_spec(case):
    """Lists with a key merge item by item; directives delete, replace and retain."""
    target, patch, result = STRATEGIC[case]
    assert strategic_merge(of_model("V1PodSpec"), copy.deepcopy(target), patch) == result


def test_strategic_merge_of_finalizers():
    """A list of distinct values is extended."""
    merged = strategic_merge(of_model("V1ObjectMeta"), {"finalizers": ["a"]}, {"finalizers": ["b", "a"]})
    assert merged == {"finalizers": ["a", "b"]}


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ({"containers": [{"image": "x"}]}, "does not contain declared merge key: name"),
        ({"$patch": "explode"}, "unknown patch type"),
    ],
)
def test_strategic_merge_says_why_not(patch, why):
    """A patch without the key of an item, or with an unknown directive, is refused."""
    with pytest.raises(StatusError, match=why):
        strategic_merge(of_model("V1PodSpec"), {}, patch)


async def test_unknown_kind_of_patch():
    """Another content type is a 415."""
    api = bare_server()
    maps = "/api/v1/namespaces/n/configmaps"
    await api.local().create(maps, {"metadata": {"name": "a"}})
    reply = await api.handle(ApiCall("PATCH", f"{maps}/a", headers={"content-type": "application/json"}, body=b"{}"))
    assert reply.status == 415
