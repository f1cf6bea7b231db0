"""The queue: back-off, flush, who is woken, and whose turn it is among namespaces (docs/semantics.md F)."""

import random
import time
from collections import Counter

import pytest

from tests.cases import table
from webhook.reconciler.queue.queue import FLUSH, Queue, QueueState


def filled(*keys: str) -> Queue:
    """A queue with these pods."""
    queue = Queue()
    for key in keys:
        queue.offer(key, uid=key, priority=1, created=0.0, now=0.0)
    return queue


def drain(queue: Queue, now: float = 0.0) -> list[str]:
    """Those who are tried then."""
    found = []
    while (entry := queue.pop(now)) is not None:
        found.append(entry.key)
    return found


def parked(*keys: str, now: float = 0.0, **more: float) -> Queue:
    """A queue with these pods, for which nothing helped then."""
    queue = filled(*keys)
    for key in drain(queue, now):
        queue.park(queue.entries[key], now, reason="full", **more)
    return queue


def in_vain(queue: Queue, now: float) -> None:
    """A plan for pod a has ended after it had evicted."""
    queue.plan_ended(queue.entries["a"], now, in_vain=True, at_once=False, reason="")


def test_busy_pod_is_not_tried_again():
    """While a plan runs for a pod it is not considered."""
    queue = filled("a")
    drain(queue)
    assert (queue.wake(1.0), drain(queue, 1000.0)) == (0, [])


@table(
    "now, due, tried",
    ("by the flush, if no event helps", 0.0, None, FLUSH),
    ("at the time that it names, such as the end of a protection window", 0.0, 7.0, 7.0),
    ("a little later, if that time is past, so that the loop does not spin", 10.0, 0.0, 10.05),
    ("a little later, if that time is now", 10.0, 10.0, 10.05),
)
def test_when_a_parked_pod_comes_back(now: float, due: float | None, tried: float):
    """Then, and no earlier."""
    queue = parked("a", now=now, due=due)
    assert queue.next_due() == pytest.approx(tried)
    assert drain(queue, tried - 0.01) == []
    assert drain(queue, queue.next_due()) == ["a"]


def test_event_lets_a_pod_back_once_its_back_off_is_over():
    """An event moves a pod that failed a moment ago when its back-off is over, one that failed long ago at once."""
    queue = parked("a")
    assert (queue.wake(0.01), queue.entries["a"].state) == (1, QueueState.BACKOFF)
    assert [drain(queue, 0.02), drain(queue, 0.25)] == [[], ["a"]]
    queue.park(queue.entries["a"], 0.25, reason="full")
    queue.wake(5.0)
    assert drain(queue, 5.0) == ["a"]


def test_back_off_grows_and_is_bounded():
    """However many events come, a hopeless pod costs a bounded number of decisions."""
    queue, tries = filled("a"), 0
    for step in range(6000):
        now = step / 100
        if queue.pop(now) is not None:
            tries += 1
            queue.park(queue.entries["a"], now, reason="full")
        queue.wake(now)
    assert 6 <= tries <= 15


def test_only_the_affected_are_woken():
    """An event moves the entries it could help."""
    queue = parked("a", "b")
    assert (queue.wake(100.0, ("b",)), drain(queue, 20.0)) == (1, ["b"])


@pytest.mark.parametrize(("after", "at", "tried"), [(0.0, 0.0, True), (2.0, 1.9, False), (2.0, 2.0, True)])
def test_retry_after_a_plan(after: float, at: float, tried: bool):
    """After a plan that failed the pod is tried again at once, or when its back-off is over, not by events."""
    queue = filled("a")
    drain(queue)
    queue.retry(queue.entries["a"], 0.0, due=after, reason="refused")
    assert not queue.wake(at)
    assert (drain(queue, at) == ["a"]) is tried


def test_attempts_are_forgiven_with_time():
    """Plans in vain hold a preemptor back for a while, not for good: one counts no more every 15 min."""
    queue = filled("a")
    for now in (0.0, 10.0, 20.0):
        in_vain(queue, now)
    entry, counts = queue.entries["a"], []
    for now in (20.0, 919.0, 920.0, 1820.0, 2720.0, 1e9):
        queue.retry(entry, now)
        drain(queue, now)
        counts.append(entry.attempts)
    in_vain(queue, 1e9)
    assert [*counts, entry.attempts] == [3, 3, 2, 1, 0, 0, 1]


def test_new_pod_of_the_same_name_starts_afresh():
    """A pod made again under the same name does not inherit the failures of the old one."""
    queue = parked("a")
    queue.offer("a", uid="another", priority=1, created=1.0, now=1.0)
    assert (queue.entries["a"].failures, drain(queue, 1.0)) == (0, ["a"])


def test_delay_of_the_policy():
    """A pod is tried only when the policy's delay is over."""
    queue = Queue()
    queue.offer("a", uid="a", priority=1, created=0.0, now=0.0, due=5.0)
    assert [drain(queue, 4.9), drain(queue, 5.0)] == [[], ["a"]]


def test_back_off_between_attempts_grows():
    """Nobody is evicted thousands of times for one pod: every attempt in vain doubles the wait, up to five minutes."""
    queue, now, waits = filled("a"), 0.0, []
    for _ in range(11):
        entry = queue.pop(now)
        in_vain(queue, now)
        waits.append(entry.due - now)
        now = entry.due
    assert waits == [*(2.0**attempt for attempt in range(9)), 300.0, 300.0]


def test_an_event_does_not_put_off_a_pods_own_time():
    """A preemptor that named a time is tried then at the latest, however long its back-off is by now."""
    queue = filled("a")
    for now in range(10, 80, 10):
        queue.wake(now)
        assert drain(queue, now) == ["a"]
        queue.park(queue.entries["a"], now, reason="protected", due=now + 1.0)
    queue.wake(70.1)
    assert [drain(queue, 70.9), drain(queue, 71.0)] == [[], ["a"]]


def test_all_that_wait_are_woken():
    """However many they are, nobody who waited when something changed is forgotten, and each is tried once."""
    queue = parked(*map(str, range(1000)))
    assert queue.wake(20.0)
    assert queue.next_due() <= 20.0, "there is work"
    woken = []
    while (entry := queue.pop(20.0)) is not None:
        woken.append(entry.key)
        queue.park(entry, 20.0, reason="no room")
    assert sorted(woken) == sorted(map(str, range(1000)))
    assert queue.next_due() > 20.0


class Plain:
    """The same order by looking through all that wait, as docs/semantics.md F2 says it."""

    def __init__(self):
        self.ready, self.victims, self.in_vain, self.pods, self.last = [], Counter(), Counter(), Counter(), 0

    def offer(self, namespace):
        if not self.pods[namespace]:
            self.victims[namespace] = max(self.victims[namespace], self.last)
        self.pods[namespace] += 1

    def push(self, entry):
        namespace = entry.key.partition("/")[0]
        if all(other.key.partition("/")[0] != namespace for other in self.ready):
            self.in_vain[namespace] = 0
        self.ready.append(entry)

    def remove(self, entry):
        self.pods[entry.key.partition("/")[0]] -= 1
        self.ready = [other for other in self.ready if other is not entry]

    def pop(self):
        if not self.ready:
            return None
        top, first = max(entry.priority for entry in self.ready), {}
        for entry in sorted(self.ready, key=lambda entry: (entry.tried, entry.created, entry.turn)):
            if entry.priority == top:
                first.setdefault(entry.key.partition("/")[0], entry)
        most = max(self.victims.values(), default=0)
        order = {
            namespace: 10 * max(self.victims[namespace], most - 10) + self.in_vain[namespace] for namespace in first
        }
        namespace = min(first, key=lambda name: (order[name], first[name].tried, first[name].created, first[name].turn))
        self.ready.remove(first[namespace])
        self.last = self.victims[namespace]
        self.in_vain[namespace] += 1
        return first[namespace]

    def took(self, entry, victims):
        if victims:
            namespace, most = entry.key.partition("/")[0], max(self.victims.values(), default=0)
            self.in_vain[namespace] -= 1
            self.victims[namespace] = max(self.victims[namespace], most - 10) + victims


def test_the_order_is_that_of_the_oracle():
    """Any pods that come, are tried, take victims and go have their turns as docs/semantics.md F2 says."""
    for seed in range(60):
        dice, queue, plain, parked = random.Random(seed), Queue(), Plain(), []
        for turn in range(300):
            now, way = float(turn // 20), dice.random()
            if way < 0.4:
                key, priority = f"ns-{dice.randrange(5)}/p{turn}", dice.choice([0, 0, 100])
                plain.offer(key.partition("/")[0])
                created = float(dice.randrange(9))
                plain.push(queue.offer(key, uid=key, priority=priority, created=created, now=now))
            elif way < 0.55 and parked:
                entry = parked.pop(dice.randrange(len(parked)))
                queue.retry(entry, now)
                plain.push(entry)
            elif way < 0.65 and queue.entries:
                entry = queue.entries[dice.choice(sorted(queue.entries))]
                queue.remove(entry.key)
                plain.remove(entry)
                parked = [other for other in parked if other is not entry]
            else:
                wanted = plain.pop()
                entry = queue.pop(now)
                assert entry is wanted, seed
                if entry is not None:
                    victims = dice.choice([0, 0, 1, 2, 4])
                    queue.hold([entry], 0, victims)
                    plain.took(entry, victims)
                    queue.park(entry, now, reason="", due=1e9)
                    parked.append(entry)


def test_a_turn_takes_no_longer_with_thousands_of_namespaces():
    """Whose turn it is is not looked up among all of them."""
    queue, began = Queue(), time.process_time()
    for number in range(10_000):
        queue.offer(f"ns{number}/p", uid="u", priority=100, created=float(number), now=0.0)
    for number in range(10_000):
        assert (entry := queue.pop(0.0)) is not None
        assert entry.key == f"ns{number}/p"
    assert queue.pop(0.0) is None
    assert time.process_time() - began < 2.0


def test_namespaces_that_come_and_go_are_forgotten():
    """What is remembered of namespaces without preemptors is bounded."""
    queue = Queue()
    for number in range(10_500):
        queue.offer(f"ns-{number}/p", uid=f"{number}", priority=1, created=0.0, now=0.0)
        entry = queue.pop(0.0)
        queue.hold([entry], 0, 1)
        queue.remove(entry.key)
    kept = [part for part in vars(queue).values() if hasattr(part, "__len__")]
    assert max(map(len, kept)) <= 10_000
    assert sorted(map(len, kept))[-2] <= 10
