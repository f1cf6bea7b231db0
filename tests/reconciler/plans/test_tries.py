"""When something is asked again that came to nothing, and when only the pod itself says what became of it."""

import pytest

from tests.cases import table
from webhook.kube.errors import NO_ANSWER, ApiError
from webhook.reconciler.plans.actions import TRIES, Tries

THROTTLED = ApiError(429, "", "Too many requests, please try again later.", retry_after=3.0)
REFUSED = ApiError(429, "TooManyRequests", "not today", details={"name": "v"})
MIGRATING = ApiError(429, "TooManyRequests", "Evacuation in progress", details={"name": "v"})
BROKEN = ApiError(500, "InternalError", "")
HUNG = ApiError(NO_ANSWER, "Timeout", "no answer within 12 s")
DENIED = ApiError(403, "Forbidden", "a webhook denies it")


@table(
    "error, pauses, begun, unclear",
    ("throttled: as long as the server says", THROTTLED, [3.0, 3.0, 4.0, 5.0, 5.0], False, False),
    ("it is on its way out", MIGRATING, [1.0, 2.0, 4.0, 5.0, 5.0], True, False),
    ("a server in trouble: four times in all", BROKEN, [0.1, 0.3, 0.9, None], False, True),
    ("a webhook that answers 429", REFUSED, [0.1, 0.3, 0.9, None], False, False),
    ("an eviction that got no answer in all its time", HUNG, [None], False, True),
    ("a denial", DENIED, [None], False, False),
)
def test_it_is_asked_again_after_a_while(error: ApiError, pauses: list[float | None], begun: bool, unclear: bool):
    """A 429 without a Status is about the server, not about the victim; None is where the server is asked for it."""
    tries, now = Tries(), 100.0
    for pause in pauses:
        tries.failed(error, now)
        assert tries.over is (pause is None)
        assert pause is None or tries.due - now == pytest.approx(pause)
        now += 10.0
    assert (tries.begun, tries.unclear, tries.may_have_left) == (begun, unclear, begun or unclear)


def test_nobody_keeps_a_pod_by_changing_it():
    """After some conflicts it is asked whatever it is by then; failures before one count no more."""
    tries = Tries()
    for number in range(TRIES):
        assert not tries.whatever
        for _ in range(TRIES - 1):
            tries.failed(BROKEN, 0.0)
            assert not tries.over
        tries.changed(float(number))
        assert tries.due > number
    assert tries.whatever
