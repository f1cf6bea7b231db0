"""Whose turn it is among namespaces: against an oracle that keeps no heap, and that none starves."""

import random
from collections import Counter

from webhook.reconciler.queue.fair_order import FairOrder, WaitingTurn
from webhook.reconciler.queue.queue import Queue


class Plain:
    """The same order by looking through all that wait, as docs/semantics.md F2 says it."""

    def __init__(self):
        self.waiting, self.had, self.least = [], Counter(), 0.0

    def so_far(self, namespace):
        return max(self.had[namespace], self.least)

    def pop(self):
        if not self.waiting:
            return None
        top = max(priority for priority, _ in self.waiting)
        equal = [one for priority, one in self.waiting if priority == top]
        first = {}
        for one in sorted(equal):
            first.setdefault(one.key.partition("/")[0], one)
        namespace, chosen = min(first.items(), key=lambda row: (self.so_far(row[0]), row[1]))
        self.least = max(self.least, self.so_far(namespace))
        self.waiting.remove((top, chosen))
        return chosen

    def count(self, namespace, amount):
        self.had[namespace] = self.so_far(namespace) + amount


def test_the_order_is_that_of_the_oracle():
    """Any pods of any namespaces and priorities that come, are tried and take victims have their turns as F2 says."""
    for seed in range(200):
        dice, fair, plain = random.Random(seed), FairOrder(), Plain()
        for turn in range(300):
            if dice.random() < 0.55:
                key = f"ns-{dice.randrange(5)}/p{turn}"
                one = WaitingTurn(dice.choice([-1.0, 3.0, 9.0]), float(dice.randrange(9)), turn, key)
                priority = dice.choice([0, 0, 100])
                fair.push(priority, one)
                plain.waiting.append((priority, one))
                continue
            found, wanted = fair.pop(), plain.pop()
            assert found == wanted, seed
            if found is not None:
                namespace = found.key.partition("/")[0]
                fair.tried(namespace)
                plain.count(namespace, 1.0)
                if dice.random() < 0.5:
                    victims = dice.randint(1, 4)
                    fair.took(namespace, victims)
                    plain.count(namespace, 10.0 * victims)


def test_nobody_starves():
    """A namespace with 2000 pods for which nothing helps, and that are woken all the time, costs another one little."""
    queue, now = Queue(), 0.0
    for number in range(2000):
        queue.offer(f"greedy/p{number}", uid=f"g{number}", priority=10, created=0.0, now=now)
    waits = []
    for number in range(40):
        key = f"modest/p{number}"
        queue.offer(key, uid=f"m{number}", priority=10, created=100.0 + number, now=now)
        tries = 0
        while (entry := queue.pop(now)) is not None:
            tries += 1
            if entry.key == key:
                queue.remove(key)
                break
            queue.park(entry.key, now, reason="nothing helps")
            queue.retry(entry.key, now, after=0.0, reason="woken")
        waits.append(tries)
        now += 1.0
    assert max(waits) <= 2


def test_who_took_victims_goes_after_who_took_none():
    """Two namespaces take turns by what they took: 3 victims are worth 30 tries of the other one."""
    queue = Queue()
    for number in range(100):
        for namespace in ("a", "b"):
            queue.offer(f"{namespace}/p{number}", uid=f"{namespace}{number}", priority=1, created=number, now=0.0)
    first = queue.pop(0.0)
    queue.took(first.key, 3)
    order = [queue.pop(0.0).key.partition("/")[0] for _ in range(62)]
    other = "b" if first.key.startswith("a") else "a"
    assert set(order[:31]) == {other}
    assert 14 <= order[31:].count(first.key[0]) <= 17


def test_shares_of_evictions_are_even():
    """Three namespaces that ask as often as they can, for one, two and five victims a time, take as much each."""
    queue, took = Queue(), Counter()
    sizes = {"one": 1, "two": 2, "five": 5}
    for number in range(3000):
        for namespace in sizes:
            queue.offer(f"{namespace}/p{number}", uid=f"{namespace}{number}", priority=1, created=number, now=0.0)
    for _ in range(1500):
        entry = queue.pop(0.0)
        namespace = entry.key.partition("/")[0]
        queue.took(entry.key, sizes[namespace])
        took[namespace] += sizes[namespace]
    assert max(took.values()) / min(took.values()) < 1.15
