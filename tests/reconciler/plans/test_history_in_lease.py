"""What becomes of the history of evictions if its Lease cannot be read, or if two write it."""

import random

import pytest

from tests.reconciler.builders import FakeClock
from webhook.kube.errors import ApiError
from webhook.kube.lease import Lease
from webhook.reconciler.evaluate.workload_history import KEPT_SECONDS, WorkloadHistory, read_history
from webhook.reconciler.plans.history_store import HISTORY, HistoryStore

WEB, API = "Deployment/default/web", "Deployment/default/api"
DAY = 86_400.0


class OneLease:
    """An API server that has room for one Lease and knows which version of it is replaced."""

    def __init__(self):
        self.lease, self.version, self.silent = None, 0, False

    async def get(self, path, of):
        del path, of
        if self.silent:
            raise ApiError(0, "Unreachable", "no answer came")
        if self.lease is None:
            raise ApiError(404, "NotFound", "there is none")
        return self.lease

    async def create(self, path, body, of):
        assert self.lease is None
        await self.replace(path, body, of)

    async def replace(self, path, body, of):
        del path, of
        if body.metadata.resource_version != (str(self.version) if self.version else ""):
            raise ApiError(409, "Conflict", "it has changed")
        self.version += 1
        self.lease = Lease(metadata=body.metadata)
        self.lease.metadata.resource_version = str(self.version)

    @property
    def counts(self):
        written = read_history(self.lease.metadata.annotations[HISTORY]).workloads if self.lease else {}
        return {workload: len(rows) for workload, rows in written.items()}


class Leader:
    """One process with a clock of its own; `began` is where its monotonic clock begins."""

    def __init__(self, server, began=0.0):
        self.clock, self.history, self.leads = FakeClock(), WorkloadHistory(), True
        self.clock.now, self.clock.jump = began, -began
        fence = lambda: 10.0 if self.leads else 0.0  # noqa: E731
        self.store = HistoryStore(server, ("giveway-system", "evictions"), self.history, self.clock, fence)

    def evicts(self, workload, for_whom=API):
        self.history.note(workload, self.clock.monotonic(), for_whom)

    def counts(self, window=KEPT_SECONDS):
        return self.history.counts(window, self.clock.monotonic())


async def test_what_could_not_be_read_is_not_overwritten():
    """A leader whose first read fails reads later and adds what it has evicted since; nothing is lost."""
    server = OneLease()
    first = Leader(server)
    for _ in range(3):
        first.evicts(WEB)
    await first.store.write()
    second = Leader(server, began=500.0)
    server.silent = True
    await second.store.read()
    second.clock.now += 10.0
    second.evicts(WEB)
    second.evicts(API, WEB)
    await second.store.write()
    assert second.counts() == {WEB: 1, API: 1}
    server.silent = False
    await second.store.write()
    assert second.counts() == server.counts == {WEB: 4, API: 1}
    assert second.history.evictors(WEB, KEPT_SECONDS, second.clock.monotonic()).keys() == {API}


async def test_a_quiet_leader_reads_what_it_could_not_read():
    """It does so also if it has evicted nobody."""
    server = OneLease()
    first = Leader(server)
    first.evicts(WEB)
    await first.store.write()
    second = Leader(server)
    server.silent = True
    await second.store.read()
    server.silent = False
    await second.store.write()
    assert second.counts() == {WEB: 1}


async def test_the_second_of_two_leaders_writes_over_nothing():
    """Of two that write on the same version one is refused; it writes nothing until it leads again."""
    server = OneLease()
    old, new = Leader(server), Leader(server, began=900.0)
    old.evicts(WEB)
    await old.store.write()
    stale = server.lease
    old.evicts(WEB)
    await new.store.read()
    new.evicts(API)
    await new.store.write()
    get, server.get = server.get, lambda path, of: answer(stale)
    await old.store.write()
    server.get = get
    assert server.counts == {WEB: 1, API: 1}
    old.leads = False
    await old.store.write()
    assert server.counts == {WEB: 1, API: 1}
    await old.store.read()
    assert old.counts() == {WEB: 1, API: 1}


async def answer(lease):
    return lease


@pytest.mark.parametrize("first", range(0, 60, 20))
async def test_leaders_that_follow_one_another_count_as_a_plain_list(first):
    """Over 60 days of evictions, ends of terms and reads that fail every window counts what one list does."""
    for seed in range(first, first + 20):
        dice, server, events, day = random.Random(seed), OneLease(), [], 0.0
        leader = Leader(server)
        for _ in range(60):
            step = dice.random() * 2 * DAY
            day += step
            leader.clock.now += step
            if dice.random() < 0.6:
                workload = f"Job/a/{dice.randrange(5)}"
                leader.evicts(workload)
                events.append((workload, day))
            else:
                await leader.store.write()
                last, leader = leader, Leader(server, began=dice.random() * 1e7)
                leader.clock.jump += last.clock.wall() - leader.clock.wall()
                server.silent = dice.random() < 0.3
                await leader.store.read()
                server.silent = False
                await leader.store.write()
            for window in (DAY, 7 * DAY, 29 * DAY):
                wanted = {}
                for workload, at in events:
                    if at > day - window:
                        wanted[workload] = wanted.get(workload, 0) + 1
                assert leader.counts(window) == wanted, seed


@pytest.mark.parametrize("step", [-3 * DAY, 3 * DAY], ids=["set back", "set forward"])
async def test_a_step_of_the_clock_changes_no_count(step):
    """Within one leader nothing changes; the next one, by its own clock, takes what seems to come later for new."""
    server = OneLease()
    leader = Leader(server)
    leader.evicts(WEB)
    leader.clock.jump += step
    assert leader.counts(DAY) == {WEB: 1}
    await leader.store.write()
    successor = Leader(server)
    await successor.store.read()
    assert successor.counts(7 * DAY) == {WEB: 1}
    successor.clock.now += 8 * DAY
    assert successor.counts(7 * DAY) == {}
