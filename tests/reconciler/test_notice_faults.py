"""What the judge of notices finds: each way to break a promise is found in a small cluster."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.reconciler.notice_judge import say_ready
from tests.reconciler.test_notices import lived, two_victims
from webhook.reconciler.evict import notice_writer
from webhook.reconciler.plans import adoption, next_action
from webhook.reconciler.plans.notices import Askable, Notices
from webhook.reconciler.state import notices

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch


def ask_at_once(patch: Patch) -> None:
    patch.setattr(next_action, "askable", lambda _state, _plan, left, _now: Askable(list(left), float("inf")))


def tell_nobody(patch: Patch) -> None:
    patch.setattr(next_action, "not_told", lambda *_: ())


def take_nothing_off(patch: Patch) -> None:
    patch.setattr(Notices, "stands", lambda *_: True)


def forget_what_was_told(patch: Patch) -> None:
    patch.setattr(adoption, "_notices", lambda *_: {})


def leave_old_answers(patch: Patch) -> None:
    patch.setattr(notices, "ANSWERS", ())


def say_it_late(patch: Patch) -> None:
    rfc3339 = notice_writer.rfc3339
    patch.setattr(notice_writer, "rfc3339", lambda seconds: rfc3339(seconds - 5))


@pytest.mark.parametrize(
    ("break_it", "finds"),
    [
        (ask_at_once, "is asked"),
        (tell_nobody, "without a notice"),
        (take_nothing_off, "which is over"),
        (forget_what_was_told, "told twice"),
        (leave_old_answers, "has not read"),
        (say_it_late, "s before"),
    ],
)
def test_a_fault_is_found(break_it: Callable[[Patch], None], finds: str, monkeypatch: Patch):
    """With the fault the judge says so; without it nothing is found in the same cluster."""

    def make():
        made, judge = two_victims()
        if break_it is forget_what_was_told:
            made.terms = [(0.0, 5.0, 0.0), (5.0, math.inf, 0.0)]
        return made, judge

    happens = {"at_0": lambda made: say_ready(made, "a")}
    if break_it is take_nothing_off:
        happens["at_8"] = lambda made: made.withdraw("p")
    assert lived(make, **happens)[1].faults == []
    break_it(monkeypatch)
    assert any(finds in fault for fault in lived(make, **happens)[1].faults)
