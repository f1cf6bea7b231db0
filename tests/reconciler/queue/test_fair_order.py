"""Whose turn it is among namespaces: against an oracle that says it once more, and that none starves."""

import random
import time
from collections import Counter

from webhook.reconciler.queue.fair_order import FairOrder, WaitingTurn
from webhook.reconciler.queue.queue import Queue


class Plain:
    """The same order by looking through all that wait, as semantics F2 says it."""

    def __init__(self):
        self.waiting, self.victims, self.in_vain, self.pods, self.last = [], Counter(), Counter(), Counter(), 0

    def push(self, priority, one):
        namespace = one.key.partition("/")[0]
        if all(other.key.partition("/")[0] != namespace for _, other in self.waiting):
            self.in_vain[namespace] = 0
        self.waiting.append((priority, one))

    def pop(self):
        if not self.waiting:
            return None
        top, first = max(priority for priority, _ in self.waiting), {}
        for one in sorted(one for priority, one in self.waiting if priority == top):
            first.setdefault(one.key.partition("/")[0], one)
        most = max(self.victims.values(), default=0)
        order = {
            namespace: 10 * max(self.victims[namespace], most - 10) + self.in_vain[namespace] for namespace in first
        }
        namespace = min(first, key=lambda name: (order[name], first[name]))
        self.waiting.remove((top, first[namespace]))
        self.last = self.victims[namespace]
        return first[namespace]

    def tried(self, namespace, victims):
        self.in_vain[namespace] += not victims
        if victims:
            most = max(self.victims.values(), default=0)
            self.victims[namespace] = max(self.victims[namespace], most - 10) + victims

    def join(self, namespace):
        if not self.pods[namespace]:
            self.victims[namespace] = max(self.victims[namespace], self.last)
        self.pods[namespace] += 1

    def leave(self, namespace):
        self.pods[namespace] -= 1
        if not self.pods[namespace]:
            self.in_vain[namespace] = 0


def test_the_order_is_that_of_the_oracle():
    """Any pods of any namespaces and priorities that come, are tried and take victims have their turns as F2 says."""
    for seed in range(60):
        dice, fair, plain = random.Random(seed), FairOrder(), Plain()
        for turn in range(300):
            if dice.random() < 0.55:
                key = f"ns-{dice.randrange(5)}/p{turn}"
                one = WaitingTurn(dice.choice([-1.0, 3.0, 9.0]), float(dice.randrange(9)), turn, key)
                priority = dice.choice([0, 0, 100])
                fair.push(priority, one)
                plain.push(priority, one)
                continue
            if dice.random() < 0.1:
                namespace = f"ns-{dice.randrange(5)}"
                leaves = plain.pods[namespace] and dice.random() < 0.5
                for order in (fair, plain):
                    (order.leave if leaves else order.join)(namespace)
                continue
            found, wanted = fair.pop(), plain.pop()
            assert found == wanted, seed
            if found is not None:
                namespace, victims = found.key.partition("/")[0], dice.choice([0, 0, 1, 2, 4])
                fair.tried(namespace)
                fair.took(namespace, victims)
                plain.tried(namespace, victims)


def test_a_turn_takes_no_longer_with_thousands_of_namespaces():
    """Whose turn it is is not looked up among all of them."""
    order, began = FairOrder(), time.process_time()
    for number in range(10_000):
        order.join(f"ns{number}")
        order.push(100, WaitingTurn(0.0, float(number), number, f"ns{number}/p"))
    for number in range(10_000):
        assert (waiting := order.pop()) is not None
        assert waiting.key == f"ns{number}/p"
        order.tried(f"ns{number}")
    assert order.pop() is None
    assert time.process_time() - began < 2.0


def test_namespaces_that_come_and_go_are_forgotten():
    """What is remembered of namespaces without preemptors is bounded."""
    queue = Queue()
    for number in range(10_500):
        queue.offer(f"ns-{number}/p", uid=f"{number}", priority=1, created=0.0, now=0.0)
        entry = queue.pop(0.0)
        queue.took(entry.key, 1)
        queue.remove(entry.key)
    kept = [part for one in (queue, queue._active) for part in vars(one).values() if hasattr(part, "__len__")]
    assert max(map(len, kept)) <= 10_000
    assert sorted(map(len, kept))[-2] <= 10
