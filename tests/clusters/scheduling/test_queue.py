"""The stand-in scheduler's queue: who is tried next, and when what was forgotten comes back."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from tests.preemption.building import pod
from webhook.clusters.scheduling import queue as queueing
from webhook.clusters.scheduling.queue import SchedulingQueue
from webhook.kube.objects.pod import Pod
from webhook.preemption.snapshot.pod_info import compile_pod


def queue_of(*pods: tuple[str, int]) -> tuple[SchedulingQueue, SimpleNamespace]:
    """A queue with pods of these priorities, and its clock, whose `now` a test moves."""
    clock = SimpleNamespace(now=1000.0)
    clock.monotonic = lambda: clock.now
    queue = SchedulingQueue(clock)
    for name, priority in pods:
        made = msgspec.convert(pod(name, priority=priority), Pod)
        queue.add(name, compile_pod(made))
    return queue, clock


async def test_the_highest_priority_goes_first_and_of_equals_who_came_first():
    """The active pods come by priority, then by age."""
    queue, _ = queue_of(("low", 1), ("high", 9), ("late", 9))
    assert [(await queue.pop()).key for _ in range(3)] == ["high", "late", "low"]


async def test_a_pod_backing_off_is_tried_early_unless_its_attempt_was_an_error():
    """When no active pod waits, one whose attempt failed is tried before its backoff ends; one that broke is not."""
    queue, _ = queue_of(("failed", 1), ("broke", 9))
    broke, failed = await queue.pop(), await queue.pop()
    queue.failed(broke, error=True)
    queue.failed(failed)
    queue.wake(lambda entry: True)
    assert (await queue.pop()).key == "failed"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.pop(), 0.05)


@pytest.mark.parametrize(("seconds", "comes_back"), [(299.0, False), (301.0, True)])
async def test_pods_that_no_event_helps_come_back_after_five_minutes(monkeypatch, seconds, comes_back):
    """What has been unschedulable for more than 300 s is tried again, in case an event was missed."""
    monkeypatch.setattr(queueing, "FLUSH_SECONDS", 0.0)
    queue, clock = queue_of(("a", 1))
    queue.failed(await queue.pop())
    clock.now += seconds
    flush = asyncio.create_task(queue.flush())
    for _ in range(5):
        await asyncio.sleep(0)
    assert queue.is_idle is not comes_back
    flush.cancel()
