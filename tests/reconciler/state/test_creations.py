"""Which pods were made after a moment: the server's clock and what was seen say it, no clock of this process."""

import pytest

from tests.reconciler.builders import START, pod
from webhook.kube.instants import rfc3339
from webhook.reconciler.state.creations import Creations


@pytest.mark.parametrize(
    ("at", "known", "younger"),
    [
        pytest.param(9.0, False, False, id="made before, and seen late"),
        pytest.param(10.0, True, False, id="the youngest one that was seen"),
        pytest.param(10.0, False, True, id="made in the same second, and not seen yet"),
        pytest.param(11.0, False, True, id="made later"),
    ],
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
