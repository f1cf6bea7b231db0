"""What the API server fills in of new pods: requests, ports, LimitRanges, RuntimeClasses."""

from __future__ import annotations

import copy

import msgspec
import pytest

from tests.cases import cases
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


ASKS, MOST = {"cpu": "1"}, {"limits": {"cpu": "4", "memory": "8"}}


@pytest.mark.parametrize(
    ("containers", "more", "expected"),
    cases(
        ("limits alone", [container({"cpu": "2", GPU: "1"})], {}, {"cpu": 2000, GPU: 1}),
        ("a request stays", [container({"cpu": "2", "memory": "4"}, ASKS)], {}, {"cpu": 1000, "memory": 4}),
        ("requests alone", [container({}, ASKS)], {}, {"cpu": 1000}),
        ("neither", [container()], {}, {}),
        ("before it", [container(ASKS)], {"initContainers": [container({"cpu": "3"})]}, {"cpu": 3000}),
        ("beside it", [container(ASKS)], {"initContainers": [container(ASKS, restartPolicy="Always")]}, {"cpu": 2000}),
        ("limits of the pod", [container()], {"resources": MOST}, {"cpu": 4000, "memory": 8}),
        ("a container asks for less", [container({}, ASKS)], {"resources": MOST}, {"cpu": 1000, "memory": 8}),
        (
            "requests of the pod",
            [container(ASKS)],
            {"resources": {**MOST, "requests": {"cpu": "2"}}},
            {"cpu": 2000, "memory": 8},
        ),
    ),
)
def test_requests_that_are_not_given_are_the_limits(containers, more, expected):
    """Of each container, and of the pod what no container asks for; nothing changes if it is done twice."""
    pod = copy.deepcopy({"metadata": {}, "spec": {"containers": containers, **more}})
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


FOUR, FIVE = {"cpu": "4"}, {"cpu": "5"}


@pytest.mark.parametrize(
    ("items", "own", "limits", "requested"),
    cases(
        ("defaultRequest", [{"defaultRequest": FOUR}], {}, {}, FOUR),
        ("default is both", [{"default": FOUR}], {}, FOUR, FOUR),
        ("max and min", [{"max": FOUR, "min": {"cpu": "1", "memory": "1"}}], {}, FOUR, {**FOUR, "memory": "1"}),
        ("the last row of one", [{"default": FOUR}, {"default": FIVE}], {}, FIVE, FIVE),
        ("given", [{"defaultRequest": FOUR}], FIVE, {}, FIVE),
        ("of pods", [{"type": "Pod", "max": FOUR}], {}, {}, {}),
    ),
)
def test_a_limit_range_gives_what_is_not_named(items, own, limits, requested):
    """To containers and init containers alike."""
    spec = {name: [container(requested=own)] for name in ("containers", "initContainers")}
    apply_limit_ranges({"spec": spec}, [{"limits": [{"type": "Container", **item} for item in items]}])
    assert [row for rows in spec.values() for row in rows] == [container(limits, requested)] * 2


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
