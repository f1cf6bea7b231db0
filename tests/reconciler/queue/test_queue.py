"""The queue: order, back-off, flush, and who is woken (docs/semantics.md F)."""

import pytest

from tests.cases import table
from webhook.reconciler.queue.queue import FLUSH, Queue, QueueState


def filled(*rows: tuple[str, int, float]) -> Queue:
    """A queue with entries of (key, priority, created)."""
    queue = Queue()
    for key, priority, created in rows:
        queue.offer(key, uid=key, priority=priority, created=created, now=0.0)
    return queue


def drain(queue: Queue, now: float = 0.0) -> list[str]:
    found = []
    while (entry := queue.pop(now)) is not None:
        found.append(entry.key)
    return found


def test_higher_priority_then_older_first():
    """Pods are tried by priority, those of one priority by age."""
    queue = filled(("young", 10, 5.0), ("high", 20, 9.0), ("old", 10, 1.0))
    assert drain(queue) == ["high", "old", "young"]


def test_busy_pod_is_not_tried_again():
    """While a plan runs for a pod it is not considered."""
    queue = filled(("a", 1, 0.0))
    drain(queue)
    assert queue.wake(1.0) == 0
    assert drain(queue, 1000.0) == []


@table(
    "parked, due, tried",
    ("by the flush, if no event helps", 0.0, None, FLUSH),
    ("at the time that it names, such as the end of a protection window", 0.0, 7.0, 7.0),
    ("a little later, if that time is past, so that the loop does not spin", 10.0, 0.0, 10.05),
    ("a little later, if that time is now", 10.0, 10.0, 10.05),
)
def test_when_a_parked_pod_comes_back(parked: float, due: float | None, tried: float):
    """Then, and no earlier."""
    queue = filled(("a", 1, 0.0))
    drain(queue, parked)
    queue.park("a", parked, reason="full", **({} if due is None else {"due": due}))
    assert queue.next_due() == pytest.approx(tried)
    assert drain(queue, tried - 0.01) == []
    assert drain(queue, queue.next_due()) == ["a"]


def test_event_lets_a_pod_back_once_its_back_off_is_over():
    """An event moves a pod that failed a moment ago when its back-off is over, one that failed long ago at once."""
    queue = filled(("a", 1, 0.0))
    drain(queue)
    queue.park("a", 0.0, reason="full")
    assert queue.wake(0.01) == 1
    assert queue.entries["a"].state is QueueState.BACKOFF
    assert drain(queue, 0.02) == []
    assert drain(queue, 0.25) == ["a"]
    queue.park("a", 0.25, reason="full")
    queue.wake(5.0)
    assert drain(queue, 5.0) == ["a"]


def test_back_off_grows_and_is_bounded():
    """However many events come, a hopeless pod costs a bounded number of decisions."""
    queue = filled(("a", 1, 0.0))
    tries, now = 0, 0.0
    while now < 60.0:
        if queue.pop(now) is not None:
            tries += 1
            queue.park("a", now, reason="full")
        queue.wake(now)
        now += 0.01
    assert 6 <= tries <= 15


def test_hopeless_pod_does_not_hold_up_another():
    """A hopeless pod of high priority that is woken all the time leaves the others their turn."""
    queue = filled(("unschedulable", 1000, 0.0))
    served, now = [], 0.0
    for step in range(1000):
        now = step * 0.01
        queue.wake(now)
        if step % 100 == 0:
            queue.offer(f"pod-{step}", uid="u", priority=0, created=now, now=now)
        entry = queue.pop(now)
        if entry is not None and entry.key == "unschedulable":
            queue.park(entry.key, now, reason="full")
        elif entry is not None:
            served.append(entry.key)
            queue.remove(entry.key)
    assert len(served) == 10


def test_only_the_affected_are_woken():
    """An event moves the entries it could help."""
    queue = filled(("a", 1, 0.0), ("b", 1, 0.0))
    for key in drain(queue):
        queue.park(key, 0.0, reason="full")
    assert queue.wake(100.0, ("b",)) == 1
    assert drain(queue, 20.0) == ["b"]


@pytest.mark.parametrize(("after", "at", "tried"), [(0.0, 0.0, True), (2.0, 1.9, False), (2.0, 2.0, True)])
def test_retry_after_a_plan(after: float, at: float, tried: bool):
    """After a plan that failed the pod is tried again at once, or when its back-off is over, not by events."""
    queue = filled(("a", 1, 0.0))
    drain(queue)
    queue.retry("a", 0.0, after=after, reason="refused")
    assert queue.wake(at) == 0
    assert (drain(queue, at) == ["a"]) is tried


def test_attempts_are_forgiven_with_time():
    """Plans in vain hold a preemptor back for a while, not for good: one counts no more every 15 min."""
    queue = filled(("a", 1, 0.0))
    for now in (0.0, 10.0, 20.0):
        queue.plan_ended("a", now, in_vain=True, at_once=False, reason="")
    entry, counts = queue.entries["a"], []
    for now in (20.0, 919.0, 920.0, 1820.0, 2720.0, 1e9):
        entry.decay(now)
        counts.append(entry.attempts)
    assert counts == [3, 3, 2, 1, 0, 0]
    queue.plan_ended("a", 1e9, in_vain=True, at_once=False, reason="")
    assert entry.attempts == 1


def test_new_pod_of_the_same_name_starts_afresh():
    """A pod made again under the same name does not inherit the failures of the old one."""
    queue = filled(("a", 1, 0.0))
    drain(queue)
    queue.park("a", 0.0, reason="full")
    queue.offer("a", uid="another", priority=1, created=1.0, now=1.0)
    assert queue.entries["a"].failures == 0
    assert drain(queue, 1.0) == ["a"]


def test_delay_of_the_policy():
    """A pod is tried only when the policy's delay is over."""
    queue = Queue()
    queue.offer("a", uid="a", priority=1, created=0.0, now=0.0, due=5.0)
    assert drain(queue, 4.9) == []
    assert drain(queue, 5.0) == ["a"]


def test_back_off_between_attempts_grows():
    """Nobody is evicted thousands of times for one pod: every attempt in vain doubles the wait, up to five minutes."""
    queue, now, waits = Queue(), 0.0, []
    entry = queue.offer("a", uid="a", priority=1, created=0.0, now=now)
    for _ in range(11):
        assert queue.pop(now) is entry
        queue.plan_ended("a", now, in_vain=True, at_once=False, reason="")
        waits.append(entry.due - now)
        now = entry.due
    assert waits[:3] == [1.0, 2.0, 4.0]
    assert waits == sorted(waits)
    assert waits[-1] == 300.0


def test_an_event_does_not_put_off_a_pods_own_time():
    """A preemptor that named a time is tried then at the latest, however long its back-off is by now."""
    queue, now = Queue(), 0.0
    queue.offer("p", uid="u", priority=1, created=0, now=now)
    for _ in range(7):
        now += 10.0
        queue.wake(now)
        assert queue.pop(now) is not None
        queue.park("p", now, reason="protected", due=now + 1.0)
    queue.wake(now + 0.1)
    assert queue.pop(now + 0.9) is None
    assert queue.pop(now + 1.0) is not None


def test_many_are_woken_bit_by_bit():
    """An event costs the same however many wait for one, and nobody who waited then is forgotten."""
    queue = Queue()
    for number in range(1000):
        queue.offer(f"p{number}", uid="u", priority=1, created=number, now=0.0)
    for number in range(1000):
        assert queue.pop(0.0).key == f"p{number}"
        queue.park(f"p{number}", 0.0, reason="no room")
    assert queue.wake(20.0) == 1000
    assert {entry.state for entry in queue.entries.values()} == {QueueState.UNSCHEDULABLE}
    assert queue.next_due() <= 20.0, "there is work"
    woken = []
    while (entry := queue.pop(20.0)) is not None:
        woken.append(entry.key)
        queue.park(entry.key, 20.0, reason="no room")
    assert sorted(woken) == sorted(f"p{number}" for number in range(1000))
    assert queue.next_due() > 20.0


def test_who_was_tried_longest_ago_is_next():
    """Of equal priority who was never tried comes first, then the others in turn; age decides between equals."""
    queue = Queue()
    for name, created in (("old", 1.0), ("older", 0.0)):
        queue.offer(name, uid="u", priority=1, created=created, now=0.0)
    assert [queue.pop(0.0).key, queue.pop(1.0).key] == ["older", "old"]
    for name in ("old", "older"):
        queue.retry(name, 2.0, after=0.0, reason="")
    queue.offer("young", uid="u", priority=1, created=5.0, now=2.0)
    queue.offer("low", uid="u", priority=0, created=0.0, now=2.0)
    assert [queue.pop(2.0).key for _ in range(4)] == ["young", "older", "old", "low"]
