"""Indexes of pods: what is found there is what the pods say now, and nothing is left of pods that are gone."""

from __future__ import annotations

from tests.reconciler.builders import START, Setting, budget, node, pod, preemptor
from webhook.kube.instants import rfc3339
from webhook.reconciler.state.state import Indexes


def empty(indexes: Indexes) -> bool:
    return not any(vars(indexes).values())


def test_pod_from_nomination_to_its_end():
    """A pod is found by the node it is nominated to, then by its owner, then among those leaving, then nowhere."""
    indexes, owner = Indexes(), ("Job", "j")
    indexes.put("default/p", preemptor(nominated="n1", owner=owner))
    assert indexes.nominated == {"n1": {"default/p"}}
    indexes.put("default/p", preemptor(nominated="n2", owner=owner))
    assert indexes.nominated == {"n2": {"default/p"}}
    indexes.put("default/p", pod("p", node="n2", owner=owner, nominated="n2"))
    assert (indexes.nominated, indexes.owned) == ({}, {"Job/default/j": {"default/p"}})
    leaving = pod("p", node="n2", owner=owner, deleted=rfc3339(START))
    indexes.put("default/p", leaving)
    assert indexes.leaving == {"default/p": leaving}
    indexes.drop("default/p")
    assert empty(indexes)


def test_pinned_pod():
    """A pod that names its node is found as long as it is there."""
    indexes = Indexes()
    indexes.put("default/p", pod("p", node="n1", spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}}))
    assert indexes.pinned == {"default/p"}
    indexes.drop("default/p")
    assert empty(indexes)


def test_nothing_is_left_of_what_is_gone():
    """After a thousand namespaces with a budget and an evicted pod each, no memory of them is kept."""
    setting = Setting(node("n1"))
    state, labels = setting.state, {"app": "web"}
    for number in range(1000):
        team, meta = f"team-{number}", {"namespace": f"team-{number}"}
        covering = budget("web", 1, labels)
        covering.metadata.namespace = team
        setting._put(state.budgets, f"{team}/web", covering)
        victim = pod("v", node="n1", labels=labels, **meta)
        setting.add(victim)
        state.expect("plan", (f"{team}/p", "uid"), "n1", [victim], {victim.metadata.uid: START})
        setting.remove(f"{team}/v")
        state.give_up("plan", ())
        state.budgets._remove(f"{team}/web", covering)
    assert empty(state.index)
    assert (len(state.expectations), len(state.disruptions), state.disruptions._covers) == (0, 0, {})
    assert len(state.snapshot.budgets._rows) == 1, "the row of a budget that is gone is used again"
