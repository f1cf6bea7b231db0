"""Leader election: one holder at a time, whatever the server, the clocks and the event loop do."""

import asyncio
import time

import pytest

from tests.kube.server import answer, until
from webhook.kube import resources
from webhook.kube.client import Client
from webhook.kube.lease import LeaderElector

pytestmark = pytest.mark.skipped_waits

PATH = resources.LEASE.path("giveway-system", "giveway")
QUICK = {"lease_duration": 1.0, "renew_deadline": 0.6, "retry_period": 0.1}


@pytest.fixture
async def candidates(server):
    """Start candidates by name; each has `.elector`, `.log` and `.stop()`."""
    running = []

    class Candidate:
        def __init__(self, name, times=QUICK):
            self.client = Client.for_server(server.url, timeout=30)
            self.elector = LeaderElector(self.client, "giveway-system", "giveway", name, clock=time.monotonic, **times)
            self.log = []
            self.task = asyncio.create_task(self.elector.run(self.work))
            running.append(self)

        async def work(self):
            self.log.append("started")
            try:
                await asyncio.Event().wait()
            finally:
                self.log.append("stopped")

        async def stop(self):
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    yield Candidate
    for candidate in running:
        await candidate.stop()
        await candidate.client.close()


async def test_the_first_to_come_leads(server, candidates):
    """A candidate creates the lease, leads, renews it; a second one waits."""
    first = candidates("a")
    await until(first.elector.remaining)
    second = candidates("b")
    await asyncio.sleep(1.5)
    assert (first.log, second.log) == (["started"], [])
    assert not second.elector.remaining()
    assert second.elector.holder == "a"
    assert server.objects[PATH]["spec"]["leaseDurationSeconds"] == 1
    assert len(server.asked("PUT")) >= 5


async def test_a_leader_that_stops_lets_go(server, candidates):
    """On stop the lease is released after the work has ended, and the next candidate need not wait for it to lapse."""
    slow = {"lease_duration": 60, "renew_deadline": 40, "retry_period": 0.1}
    first = candidates("a", slow)
    await until(first.elector.remaining)
    second = candidates("b", slow)
    await first.stop()
    assert first.log == ["started", "stopped"]
    await until(second.elector.remaining)
    assert second.elector.transitions == 1
    assert not first.elector.remaining()


@pytest.mark.parametrize("stamp", [None, "2099-01-01T00:00:00.000000Z", "1999-01-01T00:00:00.000000Z"])
async def test_a_leader_that_vanishes_is_succeeded(server, candidates, stamp):
    """A holder that no longer renews is succeeded once its lease has lapsed, and not before.

    A renewal stamped in the far future or past says nothing; only change observed by the own clock does.
    """
    spec = {"holderIdentity": "gone", "leaseDurationSeconds": 1, "leaseTransitions": 4, "renewTime": stamp}
    server.put(PATH, spec=spec)
    begun = time.monotonic()
    second = candidates("b")
    await until(second.elector.remaining)
    assert time.monotonic() - begun >= 1.0
    assert second.elector.transitions == 5


async def test_a_deleted_lease_is_still_its_holders_for_a_while(server, candidates):
    """Deleting the lease object does not hand over leadership while the holder may still believe in it."""
    first = candidates("a", {"lease_duration": 2, "renew_deadline": 1.5, "retry_period": 1.0})
    await until(first.elector.remaining)
    second = candidates("b", {"lease_duration": 2, "renew_deadline": 1.5, "retry_period": 0.1})
    await until(lambda: second.elector.holder == "a")
    server.objects.pop(PATH)
    for _ in range(60):
        assert not (first.elector.remaining() and second.elector.remaining())
        await asyncio.sleep(0.02)
    await until(lambda: bool(first.elector.remaining()) != bool(second.elector.remaining()))


async def test_leadership_ends_by_itself(server, candidates):
    """When renewing fails, leadership ends at the deadline, and the work with it; then it contends again."""
    first = candidates("a")
    await until(first.elector.remaining)
    server.fault(answer(500), times=1000)
    await asyncio.sleep(0.3)
    assert first.elector.remaining()
    assert 0 < first.elector.remaining() < 0.6
    await until(lambda: first.log == ["started", "stopped"])
    assert first.elector.remaining() == 0
    server.faults.clear()
    await until(lambda: first.log == ["started", "stopped", "started"])


async def test_a_stalled_event_loop_does_not_prolong_leadership(server, candidates):
    """While the loop is blocked no task can notice anything, and still the lease is not held in time."""
    first = candidates("a")
    await until(first.elector.remaining)
    time.sleep(0.7)  # noqa: ASYNC251 - this is the point
    assert not first.elector.remaining()


async def test_someone_elses_write_ends_leadership(server, candidates):
    """A holder that finds another name in the lease stops at once."""
    first = candidates("a")
    await until(first.elector.remaining)
    server.put(PATH, spec={"holderIdentity": "b", "leaseDurationSeconds": 60, "leaseTransitions": 9})
    await until(lambda: first.log == ["started", "stopped"])
    assert first.elector.holder == "b"


async def test_what_others_wrote_on_the_lease_stays(server, candidates):
    """Whoever takes, renews and releases the lease leaves labels and annotations on it."""
    server.put(PATH, metadata={"labels": {"team": "x"}, "annotations": {"y": "z"}}, spec={"holderIdentity": ""})
    first = candidates("a")
    await until(first.elector.remaining)
    await first.stop()
    assert server.objects[PATH]["metadata"]["labels"] == {"team": "x"}
    assert server.objects[PATH]["metadata"]["annotations"] == {"y": "z"}


async def test_work_that_ends_ends_the_contest(server):
    """When the work is done, or fails, the lease is released and `run` says so."""
    async with Client.for_server(server.url) as client:

        async def fail():
            raise RuntimeError("broken")

        elector = LeaderElector(client, "giveway-system", "giveway", "a", clock=time.monotonic, **QUICK)
        with pytest.raises(RuntimeError, match="broken"):
            await elector.run(fail)
        assert server.objects[PATH]["spec"]["holderIdentity"] == ""
        assert not elector.remaining()


@pytest.mark.parametrize(
    "times",
    [
        pytest.param({"lease_duration": 10, "renew_deadline": 10, "retry_period": 2}, id="no-gap"),
        pytest.param({"lease_duration": 15, "renew_deadline": 2, "retry_period": 2}, id="no-second-try"),
        pytest.param({"lease_duration": 15, "renew_deadline": 10, "retry_period": 0}, id="no-pause"),
    ],
)
def test_times_that_leave_no_room_are_refused(times):
    """Durations that could not keep the promise are an error at the start."""
    with pytest.raises(ValueError, match="lease_duration > renew_deadline"):
        LeaderElector(None, "ns", "name", "a", clock=time.monotonic, **times)


async def test_a_holder_renews_without_reading(server, candidates):
    """A renewal is one request; after one that was applied and not answered, the lease is read again and kept."""
    first = candidates("a")
    await until(first.elector.remaining)
    reads = len(server.asked("GET"))
    await asyncio.sleep(1.0)
    assert len(server.asked("GET")) == reads
    spec = server.objects[PATH]["spec"]
    server.put(PATH, spec={**spec, "renewTime": "2026-01-01T00:00:00.000000Z"})
    await until(lambda: len(server.asked("GET")) == reads + 1)
    await asyncio.sleep(1.0)
    assert (first.log, len(server.asked("GET"))) == (["started"], reads + 1)
