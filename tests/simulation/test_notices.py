"""Notices in virtual time: a simulation waits for them, and its pods may say that they are ready."""

import pytest

from tests.preemption.building import NOW
from tests.simulation.clusters import cluster_of, evicted, loaded, node, placed, pod, policy_text, run, write
from webhook.clusters.acting.kubelet import READY_SECONDS, seconds_to_ready
from webhook.kube.instants import rfc3339
from webhook.policy.model.values import CAN_BE_PREEMPTED, NOTICE, NOTICE_CONDITION
from webhook.simulation.cluster_file.format import read_cluster


def one_victim(ready: str = ""):
    """A full node and a preemptor; its victim may answer a notice."""
    victim = pod("v", "2", on="a", ran=60)
    if ready:
        victim["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "true", READY_SECONDS: ready}
    return cluster_of([node("a", "2")], [victim, pod("p", "2", "high")])


@pytest.mark.parametrize(
    ("spec", "ready", "least", "most"),
    [
        pytest.param({"mode": "opt-in"}, "", 0, 5, id="without a notice"),
        pytest.param({"mode": "opt-in", "notice": "2m"}, "", 120, 130, id="nobody answers"),
        pytest.param({"mode": "opt-in", "notice": "2m"}, "30", 30, 40, id="it is ready after half a minute"),
    ],
)
def test_a_simulation_waits_for_the_notice(spec, ready, least, most):
    """The victim goes when its notice is over, or when it is ready; then the preemptor is bound."""
    result = run(one_victim(ready), loaded(policy_text(victims=spec)), until=600)
    ((at, name, by),) = evicted(result)
    assert (name, by) == ("v", "giveway")
    assert least <= at <= most
    assert at < placed(result)["p"] < at + 60


def test_a_file_keeps_since_when_a_pod_was_told(tmp_path):
    """A pod that was told 20 s before the file was written, and answers after 30, has 10 s left."""
    body = pod("v", "2", on="a", annotations={READY_SECONDS: "30"})
    told = {"type": NOTICE_CONDITION, "status": "True", "lastTransitionTime": rfc3339(NOW - 20)}
    body["status"]["conditions"].append(told)
    write(tmp_path / "c.gz", iter([("Node", node("a", "2")), ("Pod", body)]))
    read = read_cluster([tmp_path / "c.gz"]).of("Pod")["default/v"]
    assert seconds_to_ready(read, NOW) == 10.0


def test_a_node_that_comes_takes_the_notice_off():
    """The preemptor fits elsewhere before the notice is over: nobody goes, and nobody keeps a notice."""
    noticed = loaded(policy_text(victims={"mode": "opt-in", "notice": "2m"}))
    result = run(one_victim(), noticed, "30s:add-nodes 1xm", until=600)
    assert evicted(result) == []
    assert 30 <= placed(result)["p"] < 60
    pods = result.tracker.all("Pod").values()
    assert not [one for one in pods if NOTICE in (one.metadata.annotations or {})]
