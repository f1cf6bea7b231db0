"""Leader election: one holder at a time, whatever the server, the clocks and the event loop do."""

import asyncio
import random
import selectors
import time

import pytest

from tests.kube.server import Server, answer, delay, until
from webhook.kube import resources
from webhook.kube.client import ApiError, Client
from webhook.kube.lease import LeaderElector, Lease
from webhook.kube.objects import ObjectMeta

pytestmark = pytest.mark.skipped_waits

PATH = resources.LEASE.path("giveway-system", "giveway")
QUICK = {"lease_duration": 1.0, "renew_deadline": 0.6, "retry_period": 0.1}


@pytest.fixture
async def server():
    async with Server() as started:
        yield started


@pytest.fixture
async def candidates(server):
    """Start candidates by name; each has `.elector`, `.log` and `.stop()`."""
    running = []

    class Candidate:
        def __init__(self, name, times=QUICK):
            self.client = Client.for_server(server.url, timeout=30)
            self.elector = LeaderElector(self.client, "giveway-system", "giveway", name, **times)
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
    await until(first.elector.is_leader)
    second = candidates("b")
    await asyncio.sleep(1.5)
    assert (first.log, second.log) == (["started"], [])
    assert not second.elector.is_leader()
    assert second.elector.holder == "a"
    assert server.objects[PATH]["spec"]["leaseDurationSeconds"] == 1
    assert len(server.asked("PUT")) >= 5


async def test_a_leader_that_stops_lets_go(server, candidates):
    """On stop the lease is released after the work has ended, and the next candidate need not wait for it to lapse."""
    slow = {"lease_duration": 60, "renew_deadline": 40, "retry_period": 0.1}
    first = candidates("a", slow)
    await until(first.elector.is_leader)
    second = candidates("b", slow)
    await first.stop()
    assert first.log == ["started", "stopped"]
    await until(second.elector.is_leader)
    assert second.elector.transitions == 1
    assert not first.elector.is_leader()


async def test_a_leader_that_vanishes_is_succeeded(server, candidates):
    """A holder that no longer renews is succeeded once its lease has lapsed, and not before."""
    server.put(PATH, spec={"holderIdentity": "gone", "leaseDurationSeconds": 1, "leaseTransitions": 4})
    begun = time.monotonic()
    second = candidates("b")
    await until(second.elector.is_leader)
    assert time.monotonic() - begun >= 1.0
    assert second.elector.transitions == 5


async def test_wall_clocks_do_not_matter(server, candidates):
    """A renewal stamped in the far future or past says nothing; only change observed by the own clock does."""
    server.put(
        PATH,
        spec={"holderIdentity": "gone", "leaseDurationSeconds": 1, "renewTime": "2099-01-01T00:00:00.000000Z"},
    )
    second = candidates("b")
    await until(second.elector.is_leader)


async def test_a_deleted_lease_is_still_its_holders_for_a_while(server, candidates):
    """Deleting the lease object does not hand over leadership while the holder may still believe in it."""
    first = candidates("a", {"lease_duration": 2, "renew_deadline": 1.5, "retry_period": 1.0})
    await until(first.elector.is_leader)
    second = candidates("b", {"lease_duration": 2, "renew_deadline": 1.5, "retry_period": 0.1})
    await until(lambda: second.elector.holder == "a")
    server.objects.pop(PATH)
    for _ in range(60):
        assert not (first.elector.is_leader() and second.elector.is_leader())
        await asyncio.sleep(0.02)
    await until(lambda: first.elector.is_leader() != second.elector.is_leader())


async def test_leadership_ends_by_itself(server, candidates):
    """When renewing fails, leadership ends at the deadline, and the work with it."""
    first = candidates("a")
    await until(first.elector.is_leader)
    server.fault(answer(500), times=1000)
    await asyncio.sleep(0.3)
    assert first.elector.is_leader()
    assert 0 < first.elector.remaining() < 0.6
    await until(lambda: first.log == ["started", "stopped"])
    assert first.elector.remaining() == 0


async def test_it_leads_again_when_the_server_is_back(server, candidates):
    """After a loss the same process contends again."""
    first = candidates("a")
    await until(first.elector.is_leader)
    server.fault(delay(5), times=20)
    await until(lambda: "stopped" in first.log)
    server.faults.clear()
    await until(lambda: first.log == ["started", "stopped", "started"])


async def test_a_stalled_event_loop_does_not_prolong_leadership(server, candidates):
    """While the loop is blocked no task can notice anything, and still `is_leader` turns false in time."""
    first = candidates("a")
    await until(first.elector.is_leader)
    time.sleep(0.7)  # noqa: ASYNC251 - this is the point
    assert not first.elector.is_leader()


async def test_someone_elses_write_ends_leadership(server, candidates):
    """A holder that finds another name in the lease stops at once."""
    first = candidates("a")
    await until(first.elector.is_leader)
    server.put(PATH, spec={"holderIdentity": "b", "leaseDurationSeconds": 60, "leaseTransitions": 9})
    await until(lambda: first.log == ["started", "stopped"])
    assert first.elector.holder == "b"


async def test_labels_of_the_lease_are_kept(server, candidates):
    """What others wrote on the lease stays on it."""
    server.put(PATH, metadata={"labels": {"team": "x"}, "annotations": {"y": "z"}}, spec={})
    first = candidates("a")
    await until(first.elector.is_leader)
    assert server.objects[PATH]["metadata"]["labels"] == {"team": "x"}
    assert server.objects[PATH]["metadata"]["annotations"] == {"y": "z"}


async def test_work_that_ends_ends_the_contest(server):
    """When the work is done, or fails, the lease is released and `run` says so."""
    async with Client.for_server(server.url) as client:

        async def fail():
            raise RuntimeError("broken")

        elector = LeaderElector(client, "giveway-system", "giveway", "a", **QUICK)
        with pytest.raises(RuntimeError, match="broken"):
            await elector.run(fail)
        assert server.objects[PATH]["spec"]["holderIdentity"] == ""
        assert not elector.is_leader()


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
        LeaderElector(None, "ns", "name", "a", **times)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer, so that hours pass in a moment."""

    def __init__(self):
        self.now = 0.0
        loop = self

        class Selector(selectors.DefaultSelector):
            def select(self, timeout=None):
                loop.now += timeout or 0.0
                return super().select(0)

        super().__init__(Selector())

    def time(self):
        return self.now


class Storage:
    """One lease; writes are conditional, as on a real server."""

    def __init__(self):
        self.lease = None
        self.version = 0

    def read(self):
        if self.lease is None:
            raise ApiError(404, "NotFound", "")
        return self.lease

    def write(self, body, *, new):
        if new != (self.lease is None):
            raise ApiError(409, "AlreadyExists", "")
        if not new and body.metadata.resource_version != self.lease.metadata.resource_version:
            raise ApiError(409, "Conflict", "")
        self.version += 1
        self.lease = Lease(metadata=ObjectMeta(name="l", resource_version=str(self.version)), spec=body.spec)
        return self.lease


class BadLine:
    """One candidate's way to the storage: requests and answers take any time, get lost, or are stuck for a while."""

    def __init__(self, storage, rng, loop):
        self.storage, self.rng, self.loop = storage, rng, loop
        self.stuck_until = 0.0
        self.calm = False

    async def travel(self):
        await asyncio.sleep(self.rng.expovariate(1 / 0.05))
        while not self.calm and self.loop.time() < self.stuck_until:  # noqa: ASYNC110 - time is virtual here
            await asyncio.sleep(self.stuck_until - self.loop.time())
        if not self.calm and self.rng.random() < 0.05:
            raise ApiError(0, "Unreachable", "lost")

    async def call(self, apply):
        """The request travels on even when its sender has given up."""

        async def carry():
            await self.travel()
            result = apply()
            await self.travel()
            return result

        return await asyncio.shield(asyncio.ensure_future(carry()))

    async def get(self, _path, _type):
        return await self.call(self.storage.read)

    async def create(self, _path, body, _type):
        return await self.call(lambda: self.storage.write(body, new=True))

    async def replace(self, _path, body, _type):
        return await self.call(lambda: self.storage.write(body, new=False))


async def rivalry(seed, loop):
    """Three candidates with clocks that drift and start anywhere; how often each led, checked all along."""
    rng = random.Random(seed)
    storage = Storage()
    led = []

    def candidate(name):
        rate, offset = rng.uniform(0.98, 1.02), rng.uniform(-1e6, 1e6)
        line = BadLine(storage, rng, loop)
        elector = LeaderElector(line, "n", "l", name, clock=lambda: offset + loop.time() * rate)

        async def work():
            led.append(name)
            await asyncio.sleep(rng.expovariate(1 / 300))

        async def live():
            while True:
                await elector.run(work)

        return elector, line, asyncio.create_task(live())

    rivals = [candidate(name) for name in "abc"]
    for _ in range(12_000):
        await asyncio.sleep(0.1)
        believers = [elector for elector, _, _ in rivals if elector.is_leader()]
        assert len(believers) <= 1, f"at {loop.time():.1f} s"
        assert [elector for elector, _, _ in rivals if elector.remaining() > 0] == believers
        for elector, line, _ in rivals:
            if rng.random() < (0.05 if elector in believers else 0.002):
                line.stuck_until = loop.time() + rng.choice([rng.uniform(1, 5), rng.uniform(8, 40)])
    for _, line, _ in rivals:
        line.calm = True
    await asyncio.sleep(60)
    assert len([elector for elector, _, _ in rivals if elector.is_leader()]) <= 1
    assert led[-1] in storage.lease.spec.holder_identity or not storage.lease.spec.holder_identity
    for _, _, task in rivals:
        task.cancel()
    await asyncio.gather(*(task for _, _, task in rivals), return_exceptions=True)
    return led


class SlowLine(BadLine):
    """A way on which every answer takes the same time."""

    def __init__(self, storage, seconds):
        self.storage, self.seconds, self.calls = storage, seconds, []

    async def call(self, apply):
        self.calls.append(apply)
        await asyncio.sleep(self.seconds / 2)
        result = apply()
        await asyncio.sleep(self.seconds / 2)
        return result


@pytest.mark.parametrize("seconds", [0.0, 1.0, 2.6, 4.0, 5.0, 9.0])
async def test_one_leads_through_a_slow_server(seconds):
    """Each request has the whole deadline, and a renewal that took long is followed by the next one at once.

    At no moment do two believe to hold it.
    """
    loop, led = asyncio.get_running_loop(), []
    line = SlowLine(Storage(), seconds)

    async def work():
        led.append(loop.time())
        await asyncio.Event().wait()

    rivals = [LeaderElector(line, "n", "l", name, clock=loop.time) for name in "ab"]
    tasks = [asyncio.create_task(rival.run(work)) for rival in rivals]
    held = []
    for _ in range(1200):
        await asyncio.sleep(0.1)
        held.append([rival.is_leader() for rival in rivals].count(True))
    assert len(led) == 1
    assert max(held) == 1
    begun = held[round(30 * seconds) + 10 :]
    assert sum(begun) >= len(begun) * min(1.0, (9.9 - seconds) / (seconds + 0.1)) * 0.95
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_holder_renews_without_reading(server, candidates):
    """A renewal is one request; after one that was applied and not answered, the lease is read again and kept."""
    first = candidates("a")
    await until(first.elector.is_leader)
    reads = len(server.asked("GET"))
    await asyncio.sleep(1.0)
    assert len(server.asked("GET")) == reads
    spec = server.objects[PATH]["spec"]
    server.put(PATH, spec={**spec, "renewTime": "2026-01-01T00:00:00.000000Z"})
    await until(lambda: len(server.asked("GET")) == reads + 1)
    await asyncio.sleep(1.0)
    assert (first.log, len(server.asked("GET"))) == (["started"], reads + 1)


async def test_the_holder_keeps_annotations_on_the_lease(server, candidates):
    """They go with its renewals and stay when it lets go; who does not hold it leaves what is there, and reads it."""
    given = {"others": "x", "mine": "of the last holder"}
    server.put(PATH, metadata={"annotations": given}, spec={"holderIdentity": ""})
    first = candidates("a")
    await until(first.elector.is_leader)
    assert first.elector.annotations == {"others": "x", "mine": "of the last holder"}
    texts = {"mine": "1"}
    first.elector._annotations = lambda: texts
    await until(lambda: first.elector.annotations == {"others": "x", "mine": "1"})
    texts["mine"] = ""
    await until(lambda: first.elector.annotations == {"others": "x"})
    texts["mine"] = "last"
    await first.stop()
    second = candidates("b")
    await until(second.elector.is_leader)
    assert second.elector.annotations == {"others": "x", "mine": "last"}


async def test_a_renewal_comes_soon_if_it_is_asked_for(server, candidates):
    """Wishes of a moment share one renewal, and they are no more than four a second."""
    first = candidates("a", {"lease_duration": 60, "renew_deadline": 40, "retry_period": 20})
    await until(first.elector.is_leader)
    await asyncio.sleep(1.0)
    before = len(server.asked("PUT"))
    for _ in range(100):
        first.elector.renew_soon()
        await asyncio.sleep(0.02)
    assert 6 <= len(server.asked("PUT")) - before <= 9
    await asyncio.sleep(5.0)
    assert len(server.asked("PUT")) - before <= 10
    assert first.log == ["started"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_never_two_believe(seed, caplog):
    """Twenty minutes of stalls, losses and late writes with drifting clocks: at no moment do two believe to lead."""
    caplog.set_level("CRITICAL")
    loop = VirtualLoop()
    loop.set_exception_handler(lambda *_: None)
    try:
        led = loop.run_until_complete(rivalry(seed, loop))
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(100))
        loop.close()
    assert len(led) >= 10
    assert set(led) == {"a", "b", "c"}
