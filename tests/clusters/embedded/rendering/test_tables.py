"""What stands in the cells of a table."""

import msgspec
import pytest

from webhook.clusters.embedded.protocol.api_resources import RESOURCES
from webhook.clusters.embedded.rendering.tables import human, pod_ready, pod_restarts, pod_status, table
from webhook.clusters.embedded.storage.object_store import record_of


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (659, "10m"), (7200, "2h"), (172799, "47h"), (172800, "2d")],
)
def test_durations(seconds, shown):
    """A duration is shown in its largest unit of which there are two."""
    assert human(seconds) == shown


def container(ready=False, restarts=0, **state):
    return {"ready": ready, "restartCount": restarts, "state": state}


def pod(phase="Running", statuses=(), deleted=False, **status):
    metadata = {"name": "a", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})}
    spec = {"containers": [{"name": "c"}] * max(len(statuses), 1)}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase, "containerStatuses": statuses, **status}}


RUNNING = container(ready=True, running={})
DONE = container(terminated={"reason": "Completed", "exitCode": 0})


@pytest.mark.parametrize(
    ("shown", "of_pod"),
    [
        ("Pending", pod("Pending")),
        ("Running", pod("Running", [RUNNING])),
        ("Terminating", pod("Running", [RUNNING], deleted=True)),
        ("Succeeded", pod("Succeeded", deleted=True)),
        ("Evicted", pod("Failed", reason="Evicted")),
        ("Completed", pod("Succeeded", [DONE])),
        ("Error", pod("Failed", [container(terminated={"reason": "Error", "exitCode": 1})])),
        ("SchedulingGated", pod("Pending", conditions=[{"type": "PodScheduled", "reason": "SchedulingGated"}])),
    ],
)
def test_status_of_a_pod(shown, of_pod):
    """The reason that says most is shown."""
    assert pod_status(of_pod, 0) == shown


def test_readiness_and_restarts():
    """Ready counts the containers that run, restarts all starts after the first."""
    of_pod = pod("Running", [RUNNING, container(restarts=2, running={})])
    assert (pod_ready(of_pod, 0), pod_restarts(of_pod, 0)) == ("1/2", "2")


@pytest.mark.parametrize("resource", [row for row in RESOURCES if row.stored], ids=lambda row: row.qualified)
def test_every_kind_has_a_table(resource):
    """A list of any kind can be shown, of an object with little but a name too."""
    obj = {"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}
    document = msgspec.json.decode(table(resource, [record_of(resource, obj, 1)], {}))
    [row] = document["rows"]
    assert len(row["cells"]) == len(document["columnDefinitions"])
    assert row["object"]["metadata"]["name"] == "x"
