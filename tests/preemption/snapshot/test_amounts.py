"""What pods ask for and what they take from their nodes, above all while they are resized in place."""

import pytest

from tests.preemption.building import as_pod, cluster, decided, node, pod
from webhook.preemption.snapshot.amounts import occupied, requests

PENDING = {"type": "PodResizePending", "status": "True"}


def status(name, has, allotted):
    given = {"name": name, "resources": {"requests": {"cpu": has}}}
    return given | ({"allocatedResources": {"cpu": allotted}} if allotted else {})


def resized(asked, has, allotted=None, reason=""):
    """A pod whose only container asks for, has and was allotted so many CPUs."""
    made = pod("resized", on="n1", cpu=asked)
    made["status"]["containerStatuses"] = [status("main", has, allotted)]
    if reason:
        made["status"]["conditions"] = [{"type": "Ready", "status": "True"}, {**PENDING, "reason": reason}]
    return made


@pytest.mark.parametrize(
    ("made", "millicores"),
    [
        pytest.param(resized("1", "1", "1"), 1000, id="not resized"),
        pytest.param(resized("3", "1", "1"), 3000, id="growing: it takes what it asks for"),
        pytest.param(resized("1", "3", "3"), 3000, id="shrinking: it takes what it still has"),
        pytest.param(resized("1", "1", "2"), 2000, id="allotted more than it has"),
        pytest.param(resized("3", "1", "1", "Deferred"), 3000, id="deferred: it may be granted at any time"),
        pytest.param(resized("9", "1", "2", "Infeasible"), 2000, id="infeasible: what it asks for does not count"),
        pytest.param(resized("1", "1500m"), 1500, id="nothing allotted"),
    ],
)
def test_a_container_that_is_resized(made, millicores):
    """A pod takes the most of what it asks for, has and was allotted, unless the resize can never be granted."""
    assert occupied(as_pod(made))["cpu"] == millicores


def test_what_the_container_has_of_other_resources_counts():
    """Each resource by itself: one may grow while another shrinks."""
    made = resized("2", "1", "1")
    made["spec"]["containers"][0]["resources"]["requests"]["memory"] = "64Mi"
    made["status"]["containerStatuses"][0]["resources"]["requests"]["memory"] = "128Mi"
    assert occupied(as_pod(made)) == {"cpu": 2000, "memory": 128 * 2**20}


@pytest.mark.parametrize(("restart_policy", "millicores"), [("Always", 4000), (None, 1000)])
def test_of_init_containers_only_sidecars_are_resized(restart_policy, millicores):
    """A sidecar's status counts like a container's; that of an init container that ends does not."""
    made = pod("resized", on="n1", cpu="1")
    made["spec"]["initContainers"] = [
        {"name": "init", "restartPolicy": restart_policy, "resources": {"requests": {"cpu": "500m"}}}
    ]
    made["status"]["initContainerStatuses"] = [status("init", "3", "3")]
    assert occupied(as_pod(made))["cpu"] == millicores


@pytest.mark.parametrize(
    ("has", "allotted", "reason", "millicores"),
    [
        pytest.param("2", "2", "", 2100, id="not resized"),
        pytest.param("3", "2", "", 3100, id="shrinking"),
        pytest.param("1", "1", "Deferred", 2100, id="growing"),
        pytest.param("1", "1", "Infeasible", 1100, id="infeasible"),
    ],
)
def test_pod_level_requests_are_resized_too(has, allotted, reason, millicores):
    """Pod-level requests stand instead of the containers' sum, in the status as in the spec; overhead comes on top."""
    made = pod("resized", on="n1", cpu="8", resources={"requests": {"cpu": "2"}}, overhead={"cpu": "100m"})
    made["status"] |= {"resources": {"requests": {"cpu": has}}, "allocatedResources": {"cpu": allotted}}
    made["status"]["conditions"] = [{**PENDING, "reason": reason}] if reason else []
    assert occupied(as_pod(made))["cpu"] == millicores


def test_the_preemptor_is_taken_at_its_word():
    """A pending pod runs nowhere: what its status may say of resources is not looked at, as in kube-scheduler."""
    assert requests(as_pod(resized("1", "3", "3")))["cpu"] == 1000


def test_a_pod_that_is_shrinking_still_holds_its_room():
    """On a node of 4 CPUs a pod that shrinks from 3 to 1 leaves 1 until it has shrunk: then nobody has to go."""
    asking = pod("preemptor", priority=100, cpu="3")
    for has, fits in (("3", []), ("1", ["n1"])):
        data = cluster([node("n1")], [resized("1", has, has)], asking)
        decision = decided(data)
        assert decision.fits == fits
        assert [victim.name for victim in decision.selected.victims] if not fits else not decision.selected


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
