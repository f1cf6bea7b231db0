"""What the API server fills in of new pods: requests, ports, LimitRanges, RuntimeClasses."""

from __future__ import annotations

import msgspec
import pytest

from tests.preemption import building
from webhook.clusters.model.new_pods import apply_limit_ranges, apply_runtime_class, default_pod, template_like
from webhook.kube.objects.pod import Pod
from webhook.policy.model.values import MANAGED, MARK, POD_ANNOTATIONS
from webhook.preemption.snapshot.amounts import requests

GPU = "nvidia.com/gpu"


def container(limits=None, requested=None, **more):
    resources = {"limits": limits or {}, "requests": requested or {}}
    return {"name": "c", "resources": {key: value for key, value in resources.items() if value}, **more}


def amounts(pod):
    return requests(msgspec.convert(pod, Pod))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"containers": [container({"cpu": "2", GPU: "1"})]}, {"cpu": 2000, GPU: 1}, id="limits alone"),
        pytest.param(
            {"containers": [container({"cpu": "2", "memory": "4"}, {"cpu": "1"})]},
            {"cpu": 1000, "memory": 4},
            id="a request stays",
        ),
        pytest.param({"containers": [container(requested={"cpu": "1"})]}, {"cpu": 1000}, id="requests alone"),
        pytest.param({"containers": [{"name": "c"}]}, {}, id="neither"),
        pytest.param(
            {"containers": [container({"cpu": "1"})], "initContainers": [container({"cpu": "3"})]},
            {"cpu": 3000},
            id="an init container before it",
        ),
        pytest.param(
            {
                "containers": [container({"cpu": "1"})],
                "initContainers": [container({"cpu": "3"}, restartPolicy="Always")],
            },
            {"cpu": 4000},
            id="a sidecar beside it",
        ),
        pytest.param(
            {"containers": [{"name": "c"}], "resources": {"limits": {"cpu": "4", "memory": "8"}}},
            {"cpu": 4000, "memory": 8},
            id="limits of the pod",
        ),
        pytest.param(
            {"containers": [container(requested={"cpu": "1"})], "resources": {"limits": {"cpu": "4", "memory": "8"}}},
            {"cpu": 1000, "memory": 8},
            id="limits of the pod, of which a container asks for less",
        ),
        pytest.param(
            {"containers": [container({"cpu": "1"})], "resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "2"}}},
            {"cpu": 2000},
            id="requests of the pod",
        ),
    ],
)
def test_requests_that_are_not_given_are_the_limits(spec, expected):
    """Of each container, and of the pod what no container asks for; nothing changes if it is done twice."""
    pod = {"metadata": {}, "spec": spec}
    default_pod(pod)
    once = msgspec.json.encode(pod)
    assert amounts(pod) == expected
    default_pod(pod)
    assert msgspec.json.encode(pod) == once


@pytest.mark.parametrize(("host", "expected"), [(True, [80, 8443]), (False, [None, 8443])], ids=["host", "own"])
def test_ports_on_the_network_of_the_host_are_ports_of_the_host(host, expected):
    """A port that names another one of the host keeps it."""
    ports = [{"containerPort": 80}, {"containerPort": 443, "hostPort": 8443}]
    spec = {"containers": [{"name": "c", "ports": ports}], "hostNetwork": host}
    default_pod({"spec": spec})
    assert [port.get("hostPort") for port in ports] == expected


@pytest.mark.parametrize(
    ("items", "own", "expected"),
    [
        pytest.param([{"defaultRequest": {"cpu": "4"}}], {}, {"requests": {"cpu": "4"}}, id="defaultRequest"),
        pytest.param(
            [{"default": {"cpu": "4"}}], {}, {"limits": {"cpu": "4"}, "requests": {"cpu": "4"}}, id="default is both"
        ),
        pytest.param(
            [{"max": {"cpu": "8"}, "min": {"cpu": "1", "memory": "1"}}],
            {},
            {"limits": {"cpu": "8"}, "requests": {"cpu": "8", "memory": "1"}},
            id="max and min without defaults",
        ),
        pytest.param(
            [{"default": {"cpu": "4"}}, {"default": {"cpu": "5"}}],
            {},
            {"limits": {"cpu": "5"}, "requests": {"cpu": "5"}},
            id="the last row of one",
        ),
        pytest.param([{"defaultRequest": {"cpu": "4"}}], {"cpu": "1"}, {"requests": {"cpu": "1"}}, id="given"),
        pytest.param([{"type": "Pod", "max": {"cpu": "4"}}], {}, {}, id="of pods"),
    ],
)
def test_a_limit_range_gives_what_is_not_named(items, own, expected):
    """To containers and init containers alike."""
    spec = {name: [container(requested=own)] for name in ("containers", "initContainers")}
    apply_limit_ranges({"spec": spec}, [{"limits": [{"type": "Container", **item} for item in items]}])
    assert [row["resources"] for rows in spec.values() for row in rows] == [expected, expected]


def test_a_runtime_class_gives_overhead_and_nodes():
    """Tolerations are added to the pod's own; a pod that asks for other nodes is refused."""
    scheduling = {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata"}, {"key": "own"}]}
    pod = {"spec": {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "own"}]}}
    apply_runtime_class(pod, {"podFixed": {"cpu": "1"}}, scheduling)
    assert pod["spec"] == {
        "nodeSelector": {"zone": "a", "kata": "yes"},
        "tolerations": [{"key": "own"}, {"key": "kata"}],
        "overhead": {"cpu": "1"},
    }
    with pytest.raises(ValueError, match="conflict"):
        apply_runtime_class({"spec": {"nodeSelector": {"kata": "no"}}}, None, scheduling)


def test_a_pod_in_the_place_of_another_has_nothing_of_what_giveway_says_of_that():
    """Neither its plan and its notice nor its answer are copied, nor the mark; other annotations and labels are."""
    said = {row.key: "x" for row in POD_ANNOTATIONS}
    sample = building.as_pod(building.pod("web-1"))
    sample.metadata.annotations, sample.metadata.labels = {**said, "note": "x"}, {MARK: MANAGED, "app": "web"}
    made = template_like(sample)["metadata"]
    assert (made["annotations"], made["labels"]) == ({"note": "x"}, {"app": "web"})
