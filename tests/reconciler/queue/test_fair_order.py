"""Whose turn it is among namespaces: against an oracle that says it once more, and that none starves."""

import random
import time
from collections import Counter

from webhook.reconciler.queue.queue import Queue


class Plain:
    """The same order by looking through all that wait, as semantics F2 says it."""

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
    """Any pods of any namespaces and priorities that come, are tried, take victims and go have their turns by F2."""
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
                    queue.took(entry, victims)
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
        queue.took(entry, 1)
        queue.remove(entry.key)
    kept = [part for part in vars(queue).values() if hasattr(part, "__len__")]
    assert max(map(len, kept)) <= 10_000
    assert sorted(map(len, kept))[-2] <= 10
