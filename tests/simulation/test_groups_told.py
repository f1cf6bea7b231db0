"""What a report tells of pods that belong together and of work that checkpoints have saved, and how two runs differ."""

import pytest

from tests.preemption.building import NOW
from tests.simulation.clusters import cluster_of, loaded, node, pod, policy_text, run
from webhook.kube.instants import rfc3339
from webhook.policy.model.values import CAN_BE_PREEMPTED
from webhook.simulation.report.html import page
from webhook.simulation.report.sections import differences, markdown
from webhook.simulation.report.summary import summarize

LABEL = "scheduling.x-k8s.io/pod-group"
MAY_GO = {CAN_BE_PREEMPTED: "true"}
SAVED = "example.com/saved-at"


def pod_group(name, minimum):
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": minimum}}


def ring(room):
    """Two full nodes and so many empty ones, and a gang of two, each of which needs a node; a pod that waits alone."""
    pods = [
        *(pod(f"v{name}", "2", on=name, annotations=MAY_GO if room else {CAN_BE_PREEMPTED: "false"}) for name in "ab"),
        *(pod(f"ring-{number}", "2", "high", labels={LABEL: "ring"}) for number in range(2)),
    ]
    return cluster_of([node(name, "2") for name in "ab"], pods, CoschedulingPodGroup=[pod_group("ring", 2)])


def test_a_gang_that_is_placed_and_one_that_waits():
    """A gang counts as bound once as many as it needs have a node, with the time that took; else it waits."""
    bound, waits = (summarize("a", run(ring(room=room))) for room in (True, False))
    (row,) = bound.groups
    assert (row.name, row.minimum, row.running, row.waiting) == ("default/ring", 2, 2, 0)
    last = max(at for at, name, *_ in bound.placements if "ring" in name)
    assert row.waited == pytest.approx(last + 60, abs=1)
    assert (bound.metrics["gangs-bound"], bound.metrics["gangs-waiting"]) == (1, 0)
    assert bound.metrics["gangs-placed-max"] == bound.metrics["gangs-placed-p50"] == row.waited
    assert (waits.metrics["gangs-bound"], waits.metrics["gangs-waiting"]) == (0, 1)
    assert "With a 1 more gang waits in the end: 1, not 0." in differences(bound, waits)


def training(whole):
    """The future of a group of two with that minimum, one of which is in the way of a preemptor."""
    pods = [
        *(pod(f"train-{name}", "2", on=name, labels={LABEL: "train"}, annotations=MAY_GO) for name in "ab"),
        pod("p", "2", "high"),
    ]
    cluster = cluster_of([node(name, "2") for name in "ab"], pods, CoschedulingPodGroup=[pod_group("train", 2)])
    return run(cluster, loaded(policy_text(groups={"disruption": "Group" if whole else "Pod"})))


def test_groups_that_lose_pods():
    """A group that keeps fewer than its minimum is broken, one that loses all goes whole; a comparison says so."""
    broken, whole = summarize("parts", training(whole=False)), summarize("whole", training(whole=True))
    names = ("groups-broken", "groups-evicted-whole", "evictions")
    assert [broken.metrics[name] for name in names] == [1, 0, 1]
    assert [whole.metrics[name] for name in names] == [0, 1, 2]
    said = differences(broken, whole)
    assert "With whole 1 fewer group is left below its minimum: 0, not 1." in said
    assert "With whole 1 more group is evicted whole: 1, not 0." in said
    assert "groups left below their minimum | 1 | 0 |" in markdown([broken, whole])
    assert "evicted whole" in page([whole], ["cluster"])


def test_work_that_was_saved_is_not_lost():
    """Work counts from the last checkpoint by the annotations that a policy names, as the decision counts it."""
    annotations = MAY_GO | {SAVED: rfc3339(NOW - 100)}
    cluster = cluster_of([node("a", "2")], [pod("v", "2", on="a", annotations=annotations), pod("p", "2", "high")])
    cost = {"lostWork": {"checkpoints": [SAVED]}}
    knows = loaded(policy_text(victims={"mode": "opt-in", "cost": cost}))
    lost = [
        summarize("a", run(cluster, policies, checkpoints=more)).metrics["work-lost"]
        for policies, more in ((None, ()), (knows, ()), (None, (SAVED,)))
    ]
    assert lost == [pytest.approx(3600, abs=5), pytest.approx(100, abs=5), pytest.approx(100, abs=5)]
