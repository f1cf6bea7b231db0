"""The state: pods by what they have in common, and what counts of what the watches show."""

import pytest

from tests.cases import table
from tests.reconciler.builders import START, pod, preemptor
from webhook.kube.instants import rfc3339
from webhook.reconciler.state.index import PodIndexes
from webhook.reconciler.state.state import Creations, State


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


@table(
    "there, version, counts",
    ("a later version", "u", "10", True),
    ("the version that is known", "u", "9", False),
    ("an earlier one", "u", "8", False),
    ("versions without order", "u", "x", False),
    ("another pod of its name is there", "another", "10", False),
    ("it is gone", "", "10", False),
)
def test_what_a_write_was_answered_with(there: str, version: str, counts: bool):
    """It counts at once, unless a watch has shown as much, or that the pod is gone."""
    state = State(None, frozenset())  # type: ignore[arg-type]  # nothing is asked of a server
    shown, answer = pod("v", uid=there), pod("v", uid="u")
    shown.metadata.resource_version, answer.metadata.resource_version = "9", version
    if there:
        state.pods.take("default/v", shown)
    state.pods.written(answer)
    known = state.pods.get("default/v")
    assert known == (answer if counts else shown if there else None)
    assert known is not answer, "who asked may change the answer"


@table(
    "at, known, younger",
    ("made before, and seen late", 9.0, False, False),
    ("the youngest one that was seen", 10.0, True, False),
    ("made in the same second, and not seen yet", 10.0, False, True),
    ("made later", 11.0, False, True),
)
def test_what_is_younger(at: float, known: bool, younger: bool):
    """A pod is younger if it was made in a later second, or in the same one and had not been seen."""
    creations, made = Creations(), pod("one", created=rfc3339(START + at))
    creations.note(pod("other", created=rfc3339(START + 10.0)))
    if known:
        creations.note(made)
    moment = creations.now()
    creations.note(made)
    creations.note(pod("later", created=rfc3339(START + 60.0)))
    assert moment.is_before(made) is younger


@pytest.mark.parametrize(("begun", "younger"), [(5.0, True), (60.0, False)], ids=["before", "by a clock that is ahead"])
def test_a_moment_that_another_clock_gave(begun: float, younger: bool):
    """A moment that an earlier leader wrote counts, but pods that were seen are younger than none that is to come."""
    creations, made = Creations(), pod("one", created=rfc3339(START + 10.0))
    creations.note(made)
    assert creations.at(rfc3339(START + begun)).is_before(made) is younger


def test_moments_of_one_second_share_what_was_seen():
    """A cluster is made in a second: a moment kept for each of its pods is no copy of them all."""
    creations = Creations()
    for number in range(3):
        creations.note(pod(f"p{number}", created=rfc3339(START)))
    assert creations.now().seen is creations.now().seen
