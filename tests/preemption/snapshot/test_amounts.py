"""How amounts are added up and rounded; what pods take while they are resized, the oracle and kube-scheduler say."""

from tests.cases import table
from tests.preemption.building import as_pod, pod
from webhook.preemption.snapshot.amounts import requests


def asking(resource, *parts):
    """A pod with a container for each of these amounts."""
    made = pod("p", cpu="")
    made["spec"]["containers"] = [{"name": part, "resources": {"requests": {resource: part}}} for part in parts]
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
    assert requests(as_pod(asking(resource, *parts))) == {resource: whole}


def test_init_containers_are_compared_before_they_are_rounded():
    """A sidecar's fraction and an init container's meet in one sum; overhead comes on top before the rounding, too."""
    made = asking("memory", "400m")
    made["spec"] |= {"overhead": {"memory": "200m"}}
    made["spec"]["initContainers"] = [
        {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"memory": "300m"}}},
        {"name": "i", "resources": {"requests": {"memory": "500m"}}},
    ]
    assert requests(as_pod(made)) == {"memory": 1}
