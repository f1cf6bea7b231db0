"""The state: pods by what they have in common, and what counts of what the watches show."""

from tests.reconciler.builders import START, pod, preemptor
from webhook.kube.instants import rfc3339
from webhook.reconciler.state.index import PodIndexes
from webhook.reconciler.state.state import State


def test_pod_from_nomination_to_its_end():
    """A pod is found by the node it is nominated to, then by its owner, then among those leaving, then nowhere."""
    indexes, owner = PodIndexes(), ("Job", "j")
    for node in ("n1", "n2"):
        indexes.put("default/p", shown := preemptor(nominated=node, owner=owner))
        assert indexes.nominated == {node: {"default/p": shown}}
    indexes.put("default/p", shown := pod("p", node="n2", owner=owner, nominated="n2"))
    assert (indexes.nominated, indexes.owned) == ({}, {"Job/default/j": {"default/p": shown}})
    indexes.put("default/p", leaving := pod("p", node="n2", owner=owner, deleted=rfc3339(START)))
    assert indexes.leaving == {"default/p": leaving}
    indexes.put("default/p", None)
    assert not any(vars(indexes).values())


def test_the_first_start_of_a_pod_counts():
    """Who writes another one into the status of a pod on a node changes nothing, also when the pods are listed again.

    A pod of its name that is made again has a start of its own, and so has one that got a node only now.
    """
    state = State(None, frozenset())  # type: ignore[arg-type]  # nothing is asked of a server

    def seen(started: float | None, uid: str = "u") -> float:
        made = pod("v", node="n1", uid=uid)
        made.status.start_time = None if started is None else rfc3339(START + started)
        state.pods.take("default/v", made)
        row = state.snapshot.pods.find("default", "v")
        return float(state.snapshot.pods.start[row]) - START

    waiting = pod("v", uid="u")
    waiting.status.start_time = rfc3339(START - 900)
    state.pods.take("default/v", waiting)
    assert seen(-50) == -50
    assert (seen(50), seen(None), seen(-200)) == (-50, -50, -50)
    assert seen(10, uid="another") == 10
