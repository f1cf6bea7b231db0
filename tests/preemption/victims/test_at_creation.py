"""What a running pod says now decides nothing: its labels, its group and its start are those that giveway recorded."""

import pytest

from tests.preemption.building import NOW, cluster, decided, node, outcome, pod, rules
from webhook.kube.instants import rfc3339
from webhook.kube.objects.meta import LabelSelector
from webhook.policy.model.creation import creation_record
from webhook.policy.model.preemption import GroupDisruption, Protection
from webhook.policy.model.values import CREATION
from webhook.policy.model.victims import PodsMatch, PreemptionPair

TIER = LabelSelector(match_labels={"tier": "batch"})
VICTIMS = (PreemptionPair(victims=PodsMatch(labels=TIER)),)
PREEMPTORS = (PreemptionPair(preemptors=PodsMatch(labels=TIER)),)
BATCH = {"tier": "batch"}
JOB_SET, VOLCANO = "jobset.sigs.k8s.io/jobset-name", "scheduling.k8s.io/group-name"


def changed(made, *, was=None, now=None, key="labels", keys=("tier",)):
    """The pod, made with the labels or annotations `was`, which are `now` by the time that it is decided about."""
    meta = made["metadata"]
    before = {"labels": {}, "annotations": {}, key: was or {}}
    meta[key] = dict(now or {})
    meta.setdefault("annotations", {})[CREATION] = creation_record(before["labels"], before["annotations"], keys)
    return made


@pytest.mark.parametrize(
    ("was", "now", "keys", "goes"),
    [
        pytest.param({}, BATCH, ("tier",), False, id="a label that somebody puts on makes no victim"),
        pytest.param(BATCH, {}, ("tier",), True, id="one that somebody takes off keeps none"),
        pytest.param(BATCH, {"tier": "web"}, ("tier",), True, id="nor one that is changed"),
        pytest.param(BATCH, {**BATCH, "app": "new"}, ("tier",), True, id="other labels are no matter"),
        pytest.param({}, BATCH, (), True, id="a label that the record does not tell of is read as it is now"),
    ],
)
def test_labels_of_victims(was, now, keys, goes):
    """A pair selects victims by the labels that they were made with."""
    victim = changed(pod("victim", on="n1", cpu="3"), was=was, now=now, keys=keys)
    went, excluded = outcome([victim], rules(pairs=VICTIMS))
    assert (went, excluded) == ((["victim"], {}) if goes else ([], {"victim": "policy/pairs"}))


@pytest.mark.parametrize(("was", "now"), [({}, BATCH), (BATCH, {})], ids=["put on", "taken off"])
def test_labels_of_preemptors(was, now):
    """A pair selects preemptors by the labels that they were made with, too."""
    preemptor = changed(pod("preemptor", priority=100, cpu="4"), was=was, now=now)
    went, _ = outcome([pod("victim", on="n1", cpu="3")], rules(pairs=PREEMPTORS), preemptor=preemptor)
    assert went == (["victim"] if was == BATCH else [])


@pytest.mark.parametrize("disruption", [GroupDisruption.NEVER, GroupDisruption.GROUP])
@pytest.mark.parametrize(
    ("key", "name"), [("labels", JOB_SET), ("annotations", VOLCANO)], ids=["a label", "an annotation"]
)
def test_groups_that_somebody_names_later(key, name, disruption):
    """Nobody keeps a pod, or ties it to pods that may not go, by naming a group on it later."""
    victim = changed(pod("victim", on="n1", cpu="3"), now={name: "g"}, key=key)
    other = changed(pod("other", on="n2", priority=200, cpu="4"), was={name: "g"}, now={name: "g"}, key=key)
    went, excluded = outcome([victim, other], rules(groups=disruption), nodes=[node("n1"), node("n2")])
    assert (went, "victim" in excluded) == (["victim"], False)


@pytest.mark.parametrize(("key", "name"), [("labels", JOB_SET), ("annotations", VOLCANO)])
def test_groups_that_somebody_takes_off(key, name):
    """A member of a group stays one: it goes only as its group does."""
    victim = changed(pod("victim", on="n1", cpu="3"), was={name: "g"}, key=key)
    assert outcome([victim], rules(groups=GroupDisruption.NEVER)) == ([], {"victim": "policy/group"})


@pytest.mark.parametrize(
    ("created", "started", "goes"),
    [
        pytest.param(300, 200, False, id="protected since its start"),
        pytest.param(900, 200, False, id="also if it waited long for its node"),
        pytest.param(900, 700, True, id="not any more"),
        pytest.param(300, 4000, False, id="no start before it was made ends its protection"),
        pytest.param(900, -4000, True, id="no start in the future protects it"),
        pytest.param(300, -4000, False, id="one that is as young is protected all the same"),
        pytest.param(900, -30, False, id="the clock of its node may be before ours"),
    ],
)
def test_the_start_that_somebody_writes(created, started, goes):
    """A protection window begins with the pod's start, and never before it was made or in the future."""
    victim = pod("victim", on="n1", cpu="3", started=started)
    victim["metadata"]["creationTimestamp"] = rfc3339(NOW - created)
    went, excluded = outcome([victim], rules(protection=Protection(default=600.0)))
    assert (went, excluded) == ((["victim"], {}) if goes else ([], {"victim": "policy/protection"}))


@pytest.mark.parametrize("forged", [1e9, -1e9], ids=["long ago", "in the future"])
def test_the_start_by_which_pods_are_ranked(forged):
    """Of two pods of one priority the younger goes, whatever is written as the start of the other."""
    pods = [pod("old", on="n1", cpu="2", started=forged), pod("young", on="n1", cpu="2", started=500)]
    for made, created in zip(pods, (700, 600), strict=True):
        made["metadata"]["creationTimestamp"] = rfc3339(NOW - created)
    preemptor = pod("preemptor", priority=100, cpu="2")
    assert outcome(pods, rules(), preemptor=preemptor)[0] == ["young"]
    pods[0]["metadata"]["creationTimestamp"] = rfc3339(NOW - 400)
    assert outcome(pods, rules(), preemptor=preemptor)[0] == ["old"]


@pytest.mark.parametrize(("now", "told"), [(BATCH, ", by the labels that it was made with"), ({}, "")])
def test_why_a_relabelled_pod_stays(now, told):
    """Who sees the label on the pod reads that it does not count."""
    victim, by = changed(pod("victim", on="n1", cpu="3"), now=now), rules(pairs=VICTIMS)
    data = cluster([node("n1")], [victim], pod("preemptor", priority=100, cpu="4"))
    [excluded] = decided(data, by).excluded("n1")
    assert excluded.text == f"no pair of the policy lets this preemptor evict it{told}"
