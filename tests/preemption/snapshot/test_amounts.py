"""How amounts are added up and rounded; what pods take while they are resized, the oracle and kube-scheduler say."""

import pytest

from tests.preemption.building import as_pod, cluster, decided, node, pod
from webhook.preemption.snapshot.amounts import requests


def asking(name, *memory, on="", priority=0):
    """A pod with a container for each of these amounts of memory."""
    made = pod(name, on=on, cpu="", priority=priority)
    made["spec"]["containers"] = [
        {"name": f"c{number}", "resources": {"requests": {"memory": amount}}} for number, amount in enumerate(memory)
    ]
    return made


@pytest.mark.parametrize(
    ("resource", "parts", "whole"),
    [
        pytest.param("memory", ("500m", "500m"), 1, id="two halves of a byte are one byte"),
        pytest.param("memory", ("100500m",) * 3, 301502 // 1000 + 1, id="only the sum is rounded up"),
        pytest.param("memory", ("1n", "1"), 2, id="a billionth of a byte is one more"),
        pytest.param("cpu", ("100u",) * 10, 1, id="tenths of a millicore add up"),
        pytest.param("cpu", ("100u",) * 11, 2, id="and are rounded up once"),
        pytest.param("memory", ("6Ei", "6Ei"), 2**63 - 1, id="beyond an int64 it is the largest"),
    ],
)
def test_containers_are_added_up_before_they_are_rounded(resource, parts, whole):
    """Kubernetes rounds the sum over a pod's containers, not each container's amount."""
    made = asking("p")
    made["spec"]["containers"] = [{"name": part, "resources": {"requests": {resource: part}}} for part in parts]
    assert requests(as_pod(made)) == {resource: whole}


def test_init_containers_are_compared_before_they_are_rounded():
    """A sidecar's fraction and an init container's meet in one sum; overhead comes on top before the rounding, too."""
    made = asking("p", "400m")
    made["spec"] |= {"overhead": {"memory": "200m"}}
    made["spec"]["initContainers"] = [
        {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"memory": "300m"}}},
        {"name": "i", "resources": {"requests": {"memory": "500m"}}},
    ]
    assert requests(as_pod(made)) == {"memory": 1}


@pytest.mark.parametrize(
    ("has", "used", "wanted", "victims"),
    [
        pytest.param("24Pi", "12Pi", "10Pi", 0, id="pebibytes that fit"),
        pytest.param("24Pi", "12Pi", "13Pi", 1, id="pebibytes that do not"),
        pytest.param("7Ei", "3Ei", "4Ei", 0, id="exbibytes that just fit"),
        pytest.param("7Ei", "3Ei", "4611686018427387905", 1, id="one byte more"),
        pytest.param("8Ei", "4Ei", "3Ei", 0, id="all that an int64 holds"),
    ],
)
def test_amounts_up_to_what_an_int64_holds_count_in_full(has, used, wanted, victims):
    """As in Kubernetes, an amount is an int64, and no smaller bound cuts it off."""
    machine = node("n1")
    machine["status"]["allocatable"]["memory"] = has
    data = cluster([machine], [asking("v", used, on="n1")], asking("p", wanted, priority=100))
    decision = decided(data)
    assert len(decision.selected.victims if decision.selected else ()) == victims
    assert decision.fits == ([] if victims else ["n1"])
