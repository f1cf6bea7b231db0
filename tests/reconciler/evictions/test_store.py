"""The Lease with the evictions: what a leader leaves there, what its successor makes of it, and what if it is away."""

import asyncio
import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.cases import table
from tests.reconciler.builders import START, FakeClock, Setting, evicted, node, pod, policy
from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.lease import Lease
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.objects.pod import Pod
from webhook.kube.transport import BEFORE_SENDING
from webhook.policy.model.limits import LabelRate, Limits
from webhook.reconciler.evictions.log import KEPT_SECONDS, EvictionLog, PodEviction
from webhook.reconciler.evictions.store import EVICTIONS, NOTHING, EvictionRecord, EvictionStore, decode, encode
from webhook.reconciler.plans.adoption import recall_evictions

pytestmark = pytest.mark.skipped_waits

LIMITS = Limits(per_label=LabelRate("team", 9, 3600.0))
WEB, API = "Deployment/default/web", "Deployment/default/api"
DAY = 86_400.0
NEXT = PodEviction(math.inf, WEB, "n1")


async def nothing() -> None:
    """Happens."""


class OneLease:
    """An API server that has room for one Lease, knows which version of it is replaced, and may be away.

    What happens `before` a write is a test's affair.
    """

    def __init__(self) -> None:
        self.before = nothing
        self.lease: Lease | None = None
        self.version, self.away, self.writes = 0, 0, 0
        self.error = ApiError(0, "Unreachable", "no answer came")

    def _answer(self) -> None:
        if self.away:
            self.away -= 1
            raise self.error

    async def get(self, path: str, of: Any) -> Lease:
        del path, of
        self._answer()
        if self.lease is None:
            raise ApiError(404, "NotFound", "there is none")
        return self.lease

    async def create(self, path: str, body: Lease, of: Any) -> Lease:
        assert self.lease is None
        return await self.replace(path, body, of)

    async def replace(self, path: str, body: Lease, of: Any) -> Lease:
        del path, of
        await self.before()
        self._answer()
        if body.metadata.resource_version != (str(self.version) if self.version else ""):
            raise ApiError(409, "Conflict", "it has changed")
        self.version += 1
        self.writes += 1
        meta = ObjectMeta(annotations=dict(body.metadata.annotations or {}), resource_version=str(self.version))
        self.lease = Lease(metadata=meta)
        return self.lease

    @property
    def record(self) -> EvictionRecord:
        return decode((self.lease.metadata.annotations or {})[EVICTIONS]) if self.lease else NOTHING

    @property
    def workloads(self) -> set[str]:
        return {row.workload for row in self.record.evictions}


class Leader:
    """One process with a clock of its own; `began` is where its monotonic clock begins."""

    def __init__(self, server: OneLease, began: float = 0.0) -> None:
        self.setting, self.leads = Setting(node("n1"), under=policy(limits=LIMITS)), True
        self.clock: FakeClock = self.setting.clock
        self.clock.now, self.clock.jump = began, -began
        self.log, place = self.setting.evaluator.log, ("giveway-system", "evictions")
        fence = lambda: 10.0 if self.leads else 0.0  # noqa: E731
        self.store = EvictionStore(server, place, self.log, self.clock, fence)  # type: ignore[arg-type]

    async def begin(self) -> None:
        """Begin to lead."""
        recall_evictions(self.setting.evaluator, self.setting.policy_set, await self.store.read())

    def evicts(self, workload: str, for_whom: str = API) -> None:
        """Evict a pod of this workload."""
        evicted(self.log, workload, self.clock.monotonic(), for_whom)

    def counts(self, window: float = KEPT_SECONDS) -> dict[str, int]:
        """How often each workload was evicted within the window."""
        return self.log.counts(window, self.clock.monotonic())


@pytest.mark.parametrize("first", range(0, 60, 20))
async def test_leaders_that_follow_one_another_count_as_a_plain_list(first: int):
    """Over 60 days of evictions and ends of terms every window counts what one list does, whatever clocks say."""
    for seed in range(first, first + 20):
        dice, server, events, day = random.Random(seed), OneLease(), [], 0.0
        leader = Leader(server)
        for _ in range(60):
            step = dice.random() * 2 * DAY
            day += step
            leader.clock.now += step
            leader.clock.jump += dice.choice([0.0, 0.0, -3 * DAY, 3 * DAY])
            if dice.random() < 0.6:
                workload = f"Job/a/{dice.randrange(5)}"
                leader.evicts(workload)
                events.append((workload, day))
            else:
                await leader.store.write()
                last, leader = leader, Leader(server, began=dice.random() * 1e7)
                leader.clock.jump += last.clock.wall() - leader.clock.wall()
                leader.clock.jump -= dice.choice([0.0, 3 * DAY])
                await leader.begin()
            for window in (DAY, 7 * DAY, 29 * DAY):
                wanted: dict[str, int] = {}
                for workload, at in events:
                    if at > day - window:
                        wanted[workload] = wanted.get(workload, 0) + 1
                assert leader.counts(window) == wanted, seed


async def test_owners_that_put_their_pods_back():
    """The next leader excludes their pods for what is left of the time, and for twice as long the next time."""
    server = OneLease()
    before, after = Leader(server), Leader(server)
    for _ in range(2):
        before.log.returned(WEB, before.clock.monotonic() - 50)
    await before.store.write()
    await after.begin()
    log, now = after.log, after.clock.monotonic()
    assert log.excluded(now + 69)[1] == [WEB]
    assert log.excluded(now + 71)[1] == []
    log.returned(WEB, now)
    assert log.excluded(now + 239)[1] == [WEB]


@table(
    "there, charged",
    ("it is gone", [], 2),
    ("it leaves", [pod("a", node="n1", deleted=rfc3339(START))], 2),
    ("it is there: nobody has asked it", [pod("a", node="n1")], 1),
    ("another pod has its name", [pod("a", node="n1", uid="another")], 2),
)
async def test_what_a_plan_intended(there: list[Pod], charged: int):
    """A victim that went counts for its team, whoever deleted the preemptor: once, also for the leader after that."""
    server = OneLease()
    first = Leader(server)
    first.log.remember([LIMITS])
    victim = pod("a", node="n1", labels={"team": "x"})
    first.log.asked("uid-b", first.log.eviction_of(pod("b", node="n1", labels={"team": "x"})), 0.0)
    first.log.intend("p", {"uid-a": first.log.eviction_of(victim)})
    await first.store.write()
    for _ in range(2):
        leader = Leader(server)
        leader.setting.add(*there)
        await leader.begin()
        left = leader.log.remaining(LIMITS, leader.clock.monotonic()).left
        assert left["perLabel"] == {"x": 9 - charged}
        assert not leader.log.intended(), "plans that go on say so themselves"
        await leader.store.write()


@pytest.mark.parametrize(("status", "known"), [(0, {WEB: 1}), (503, {WEB: 1}), (429, {WEB: 1}), (403, {})], ids=str)
async def test_the_record_cannot_be_read(status: int, known: dict[str, int]):
    """A server that is away is asked again before anything is decided; without the right to read it counts nothing."""
    server = OneLease()
    first, second = Leader(server), Leader(server)
    first.evicts(WEB)
    await first.store.write()
    server.away, server.error = 3, ApiError(status, "x", "")
    await second.begin()
    assert second.counts() == known


async def test_what_nobody_would_have_written_counts_nothing():
    """It is told, and written over."""
    server = OneLease()
    server.version, meta = 1, ObjectMeta(annotations={EVICTIONS: "x", "other": "y"}, resource_version="1")
    server.lease = Lease(metadata=meta)
    leader = Leader(server)
    await leader.begin()
    leader.evicts(WEB)
    assert await leader.store.write()
    assert server.workloads == {WEB}
    assert server.lease.metadata.annotations.keys() == {EVICTIONS, "other"}


async def test_the_second_of_two_leaders_writes_over_nothing():
    """Of two that write on the same version one is refused; who does not lead any more writes nothing."""
    server = OneLease()
    old, new = Leader(server), Leader(server, began=900.0)
    await old.begin()
    old.evicts(WEB)
    await old.store.write()
    await new.begin()
    new.evicts(API)
    await new.store.write()
    assert not await old.store.write()
    old.leads = False
    assert not await old.store.write()
    assert server.workloads == {WEB, API}


@asynccontextmanager
async def keeping(*, away: int = 0, error: int = 0) -> AsyncIterator[tuple[OneLease, Leader]]:
    """A leader that keeps its log on a server, which answers so often with this error first."""
    server = OneLease()
    server.away, server.error = away, ApiError(error, "x", "")
    leader = Leader(server)
    task = asyncio.create_task(leader.store.keep())
    await asyncio.sleep(0)
    yield server, leader
    task.cancel()


async def waited(leader: Leader) -> float:
    """How many seconds it takes until what is intended now is written."""
    leader.log.intend("p", {"a": NEXT})
    began = asyncio.get_running_loop().time()
    await leader.store.wait_until_written(leader.log.version)
    return asyncio.get_running_loop().time() - began


@pytest.mark.parametrize(("status", "written"), [(None, True), (503, True), (409, True), (403, False)], ids=str)
async def test_nobody_is_asked_before_it_is_written(status: int | None, written: bool):
    """Whoever asks waits for a text that was made since, as long as it takes, unless the server refuses it for good."""
    async with keeping(away=3 if status else 0, error=status or 0) as (server, leader):
        seconds = await waited(leader)
        assert status or seconds < 0.2, "nothing is put off while somebody waits"
        assert list(server.record.intended) == (["a"] if written else [])
        writes = server.writes
        await leader.store.wait_until_written(leader.log.version)
        assert server.writes == writes, "what is written already holds nobody up"


@pytest.mark.parametrize(("awaited", "writes"), [(True, (20, 110)), (False, (4, 7))], ids=["awaited", "not awaited"])
async def test_wishes_of_a_moment_share_a_write(awaited: bool, writes: tuple[int, int]):
    """They are twenty a second at most, and one a second if nobody waits; what is older is written twice a minute."""
    async with keeping() as (server, leader):
        for _ in range(500):
            leader.evicts(WEB)
            if awaited:
                leader.store.hurried.set()
            await asyncio.sleep(0.01)
        assert writes[0] <= server.writes <= writes[1]
        await asyncio.sleep(2.0)
        before = server.writes
        await asyncio.sleep(62.0)
        assert 2 <= server.writes - before <= 3


async def test_a_text_that_cannot_be_made_once(caplog: pytest.LogCaptureFixture):
    """That is told, and nobody waits forever."""
    async with keeping() as (server, leader):
        known, wrong = leader.log.intended, [ValueError("broken")]

        def sometimes() -> dict[str, PodEviction]:
            if wrong:
                raise wrong.pop()
            return known()

        leader.log.intended = sometimes  # type: ignore[method-assign]
        assert await waited(leader) < 10.0
        assert list(server.record.intended) == ["a"]
    assert "broken" in caplog.text


async def test_the_lease_is_lost_until_the_text_is_sent():
    """A process that stood still until there was a connection writes nothing."""
    server = OneLease()
    leader = Leader(server)
    await leader.begin()

    async def late() -> None:
        leader.leads = False
        BEFORE_SENDING.get()()

    server.before = late
    leader.evicts(WEB)
    assert not await leader.store.write()
    assert server.lease is None


async def test_a_process_without_a_place_keeps_nothing():
    """A dry run reads and writes nothing, and waits for nothing."""
    store = EvictionStore(None, None, EvictionLog(), FakeClock(), lambda: 10.0)  # type: ignore[arg-type]
    assert (await store.read(), await store.write(), encode(NOTHING)) == (NOTHING, False, "")
    await store.wait_until_written(1)
