"""What a running pod says now decides nothing: its labels, its group and its start are those that giveway recorded."""

import pytest

from tests.cases import table
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


NEVER = rules(groups=GroupDisruption.NEVER)
JUDGED = {
    "a label that somebody puts on makes no victim": ({"now": BATCH}, rules(pairs=VICTIMS), "pairs"),
    "one that somebody takes off keeps none": ({"was": BATCH}, rules(pairs=VICTIMS), ""),
    "nor one that is changed": ({"was": BATCH, "now": {"tier": "web"}}, rules(pairs=VICTIMS), ""),
    "other labels are no matter": ({"was": BATCH, "now": {**BATCH, "app": "new"}}, rules(pairs=VICTIMS), ""),
    "what the record does not tell of is read as it is now": ({"now": BATCH, "keys": ()}, rules(pairs=VICTIMS), ""),
    "a member stays one by its label": ({"was": {JOB_SET: "g"}}, NEVER, "group"),
    "and by its annotation": ({"was": {VOLCANO: "g"}, "key": "annotations"}, NEVER, "group"),
}


@pytest.mark.parametrize(("how", "by", "rule"), JUDGED.values(), ids=JUDGED)
def test_what_a_victim_was_made_with(how, by, rule):
    """A pair selects victims by the labels that they were made with, and a member of a group goes only as that does."""
    went, excluded = outcome([changed(pod("victim", on="n1", cpu="3"), **how)], by)
    assert (went, excluded) == (([], {"victim": f"policy/{rule}"}) if rule else (["victim"], {}))


@table("was, now", ("put on", {}, BATCH), ("taken off", BATCH, {}))
def test_labels_of_preemptors(was, now):
    """A pair selects preemptors by the labels that they were made with, too."""
    preemptor = changed(pod("preemptor", priority=100, cpu="4"), was=was, now=now)
    went, _ = outcome([pod("victim", on="n1", cpu="3")], rules(pairs=PREEMPTORS), preemptor=preemptor)
    assert went == (["victim"] if was == BATCH else [])


@pytest.mark.parametrize("disruption", [GroupDisruption.NEVER, GroupDisruption.GROUP])
@table("key, name", ("a label", "labels", JOB_SET), ("an annotation", "annotations", VOLCANO))
def test_groups_that_somebody_names_later(key, name, disruption):
    """Nobody keeps a pod, or ties it to pods that may not go, by naming a group on it later."""
    victim = changed(pod("victim", on="n1", cpu="3"), now={name: "g"}, key=key)
    other = changed(pod("other", on="n2", priority=200, cpu="4"), was={name: "g"}, now={name: "g"}, key=key)
    went, excluded = outcome([victim, other], rules(groups=disruption), nodes=[node("n1"), node("n2")])
    assert (went, "victim" in excluded) == (["victim"], False)


@table(
    "created, started, goes",
    ("protected since its start", 300, 200, False),
    ("also if it waited long for its node", 900, 200, False),
    ("not any more", 900, 700, True),
    ("no start before it was made ends its protection", 300, 4000, False),
    ("no start in the future protects it", 900, -4000, True),
    ("one that is as young is protected all the same", 300, -4000, False),
    ("the clock of its node may be before ours", 900, -30, False),
)
def test_the_start_that_somebody_writes(created, started, goes):
    """A protection window begins with the pod's start, and never before it was made or in the future."""
    victim = pod("victim", on="n1", cpu="3", started=started)
    victim["metadata"]["creationTimestamp"] = rfc3339(NOW - created)
    went, excluded = outcome([victim], rules(protection=Protection(default=600.0)))
    assert (went, excluded) == ((["victim"], {}) if goes else ([], {"victim": "policy/protection"}))


@table("forged", ("long ago", 1e9), ("in the future", -1e9))
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
