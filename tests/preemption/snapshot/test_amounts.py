"""How amounts are added up and rounded; what pods take while they are resized, the oracle and kube-scheduler say."""

from tests.cases import table
from tests.preemption.building import as_pod, cluster, decided, node, pod
from webhook.preemption.snapshot.amounts import requests


def asking(name, *memory, on="", priority=0):
    """A pod with a container for each of these amounts of memory."""
    made = pod(name, on=on, cpu="", priority=priority)
    made["spec"]["containers"] = [
        {"name": f"c{number}", "resources": {"requests": {"memory": amount}}} for number, amount in enumerate(memory)
    ]
    return made


@table(
    "resource, parts, whole",
    ("two halves of a byte are one byte", "memory", ("500m", "500m"), 1),
    ("only the sum is rounded up", "memory", ("100500m",) * 3, 301502 // 1000 + 1),
    ("a billionth of a byte is one more", "memory", ("1n", "1"), 2),
    ("tenths of a millicore add up", "cpu", ("100u",) * 10, 1),
    ("and are rounded up once", "cpu", ("100u",) * 11, 2),
    ("beyond an int64 it is the largest", "memory", ("6Ei", "6Ei"), 2**63 - 1),
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


@table(
    "has, used, wanted, victims",
    ("pebibytes that fit", "24Pi", "12Pi", "10Pi", 0),
    ("pebibytes that do not", "24Pi", "12Pi", "13Pi", 1),
    ("exbibytes that just fit", "7Ei", "3Ei", "4Ei", 0),
    ("one byte more", "7Ei", "3Ei", "4611686018427387905", 1),
    ("all that an int64 holds", "8Ei", "4Ei", "3Ei", 0),
)
def test_amounts_up_to_what_an_int64_holds_count_in_full(has, used, wanted, victims):
    """As in Kubernetes, an amount is an int64, and no smaller bound cuts it off."""
    machine = node("n1")
    machine["status"]["allocatable"]["memory"] = has
    data = cluster([machine], [asking("v", used, on="n1")], asking("p", wanted, priority=100))
    decision = decided(data)
    assert len(decision.selected.victims if decision.selected else ()) == victims
    assert decision.fits == ([] if victims else ["n1"])
