"""The Lease with the evictions: what a leader leaves there, what its successor makes of it, and what if it is away."""

import asyncio
import random
from typing import Any

import pytest

from tests.inspection.command import giveway
from tests.reconciler.acting import PODS, managing, playing
from tests.reconciler.builders import FakeClock, Setting, decided, node, planned, policy, preemptor
from tests.workloads import eventually
from tests.workloads import pod as pod_body
from webhook.kube.errors import ApiError
from webhook.kube.lease import Lease
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.resources import LEASE
from webhook.policy.model.limits import Limits, Rate, WorkloadLimit
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter, PlannedEviction
from webhook.reconciler.evaluate.eviction_record import NOTHING, EvictionRecord, decode, encode, record_of
from webhook.reconciler.evaluate.workload_history import KEPT_SECONDS
from webhook.reconciler.plans import eviction_store
from webhook.reconciler.plans.adoption import recall_evictions
from webhook.reconciler.plans.eviction_store import EVICTIONS, EvictionStore
from webhook.reconciler.state.annotations import DecidedVictim

WEB, API = "Deployment/default/web", "Deployment/default/api"
DAY = 86_400.0


class OneLease:
    """An API server that has room for one Lease, knows which version of it is replaced, and may be away."""

    def __init__(self) -> None:
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


class Leader:
    """One process with a clock of its own; `began` is where its monotonic clock begins."""

    def __init__(self, server: OneLease, began: float = 0.0) -> None:
        self.setting, self.leads = Setting(node("n1"), under=policy(limits=Limits(per_owner=Rate(9, 60.0)))), True
        self.clock: FakeClock = self.setting.clock
        self.clock.now, self.clock.jump = began, -began
        self.limiter: EvictionLimiter = self.setting.evaluator.limiter
        fence = lambda: 10.0 if self.leads else 0.0  # noqa: E731
        self.store = EvictionStore(server, ("giveway-system", "evictions"), self._known, fence)  # type: ignore[arg-type]

    def _known(self) -> EvictionRecord:
        returning = self.setting.evaluator.eviction_backoff.returning()
        return record_of(self.limiter, returning, self.clock.monotonic(), self.clock.wall())

    async def begin(self) -> None:
        """Begin to lead."""
        recall_evictions(self.setting.evaluator, self.setting.policy_set, await self.store.read(), "")

    def evicts(self, workload: str, for_whom: str = API) -> None:
        """Evict a pod of this workload."""
        self.limiter.note([PlannedEviction(workload, "n1")], self.clock.monotonic())
        self.limiter.history.note(workload, self.clock.monotonic(), for_whom)

    def counts(self, window: float = KEPT_SECONDS) -> dict[str, int]:
        """How often each workload was evicted within the window."""
        return self.limiter.history.counts(window, self.clock.monotonic())


@pytest.mark.parametrize("first", range(0, 60, 20))
async def test_leaders_that_follow_one_another_count_as_a_plain_list(first: int):
    """Over 60 days of evictions and ends of terms every window counts what one list does."""
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
                await leader.begin()
            for window in (DAY, 7 * DAY, 29 * DAY):
                wanted: dict[str, int] = {}
                for workload, at in events:
                    if at > day - window:
                        wanted[workload] = wanted.get(workload, 0) + 1
                assert leader.counts(window) == wanted, seed


@pytest.mark.parametrize("step", [-3 * DAY, 3 * DAY], ids=["set back", "set forward"])
async def test_a_step_of_the_clock_changes_no_count(step: float):
    """Within one leader nothing changes; the next one, by its own clock, takes what seems to come later for new."""
    server = OneLease()
    leader = Leader(server)
    leader.evicts(WEB)
    leader.clock.jump += step
    assert leader.counts(DAY) == {WEB: 1}
    await leader.store.write()
    successor = Leader(server)
    await successor.begin()
    assert successor.counts(7 * DAY) == {WEB: 1}
    successor.clock.now += 8 * DAY
    assert successor.counts(7 * DAY) == {}


async def test_owners_that_put_their_pods_back():
    """The next leader excludes their pods for what is left of the time, and for twice as long the next time."""
    server = OneLease()
    before, after = Leader(server), Leader(server)
    for _ in range(2):
        before.setting.evaluator.eviction_backoff.returned(WEB, before.clock.monotonic() - 50)
    await before.store.write()
    await after.begin()
    backoff, now = after.setting.evaluator.eviction_backoff, after.clock.monotonic()
    assert backoff.excluded(now + 69)[1] == [WEB]
    assert backoff.excluded(now + 71)[1] == []
    backoff.returned(WEB, now)
    assert backoff.excluded(now + 239)[1] == [WEB]


@pytest.mark.parametrize(
    ("victims", "charged"),
    [
        pytest.param(None, 2, id="the preemptors are gone, and the record remembers"),
        pytest.param(("a",), 2, id="what is written of a plan is not counted again"),
        pytest.param(("a", "b"), 3, id="of a plan under way the pod tells more"),
    ],
)
async def test_what_plans_tell_beside_the_record(victims: tuple[str, ...] | None, charged: int):
    """Nothing is forgotten by the deletion of a preemptor, and nothing counts twice, also for the leader after that."""
    server = OneLease()
    first = Leader(server)
    for plan in ("", "p1"):
        first.limiter.note([PlannedEviction(WEB, "n1", (), plan)], first.clock.monotonic())
        first.limiter.history.note(WEB, first.clock.monotonic(), API)
    await first.store.write()
    for _ in range(2):
        leader = Leader(server)
        if victims is not None:
            rows = (DecidedVictim(pod=f"default/{name}", priority=80, owner=WEB) for name in victims)
            leader.setting.add(planned(preemptor(), *decided(*rows, plan="p1", age=200)))
        await leader.begin()
        left = leader.limiter.remaining(leader.setting.policy.limits, leader.clock.monotonic()).left
        assert (9 - left["perOwner"][f"owner {WEB}"], leader.counts()[WEB]) == (charged, charged)
        await leader.store.write()


@pytest.mark.skipped_waits
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
    assert server.record.workloads.keys() == {WEB}
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
    assert server.record.workloads.keys() == {WEB, API}


@pytest.mark.skipped_waits
async def test_a_plan_stays_until_its_evictions_are_written(monkeypatch: pytest.MonkeyPatch):
    """Whoever takes it off waits for a text that was made since, but not longer if none can be written."""
    for name, seconds in (("_RETRY", 0.2), ("_LEAST_GAP", 0.01), ("_LONGEST_WAIT", 3.0)):
        monkeypatch.setattr(eviction_store, name, seconds)
    server, loop = OneLease(), asyncio.get_running_loop()
    leader = Leader(server)
    keeping = asyncio.create_task(leader.store.keep())
    leader.evicts(WEB)
    await leader.store.wait_until_written()
    assert server.record.workloads.keys() == {WEB}
    leader.evicts(API)
    server.away, began = 3, loop.time()
    await leader.store.wait_until_written()
    assert server.record.workloads.keys() == {WEB, API}
    assert 0.6 < loop.time() - began < 2.9
    server.away, began = 1000, loop.time()
    await leader.store.wait_until_written()
    assert loop.time() - began >= 2.9
    keeping.cancel()


@pytest.mark.skipped_waits
async def test_wishes_of_a_moment_share_a_write():
    """They are no more than four a second."""
    server = OneLease()
    leader = Leader(server)
    keeping = asyncio.create_task(leader.store.keep())
    for _ in range(100):
        leader.evicts(WEB)
        leader.store.write_soon()
        await asyncio.sleep(0.02)
    assert 5 <= server.writes <= 9
    await asyncio.sleep(1.0)
    assert server.writes <= 10
    assert len(server.record.workloads[WEB]) == 64
    keeping.cancel()


async def test_a_process_without_a_place_keeps_nothing():
    """A dry run reads and writes nothing, and waits for nothing."""
    store = EvictionStore(None, None, lambda: NOTHING, lambda: 10.0)  # type: ignore[arg-type]
    assert (await store.read(), await store.write(), encode(NOTHING)) == (NOTHING, False, "")
    await store.wait_until_written()


async def owned(play: Any, name: str, on: str, cpu: str = "6") -> None:
    """A victim of a Training."""
    owner = {"apiVersion": "example.com/v1", "kind": "Training", "name": "db", "uid": "u-db", "controller": True}
    body = pod_body(name, cpu=cpu, node=on, priorityClassName="low")
    body["metadata"]["ownerReferences"] = [owner]
    await play.client.create(PODS, body)
    await eventually(lambda: play.phase_is(name, "Running"))


@pytest.mark.slow
async def test_the_next_leader_knows_how_often_a_workload_was_evicted():
    """What a leader wrote a later one reads, and `giveway explain workload` shows it."""
    limit = managing(limits=Limits(per_workload=WorkloadLimit(2)))
    async with playing() as play:
        async with play.reconciling(limit) as first:
            await owned(play, "a", "node-1")
            await play.preemptor("p")
            await play.bound("p")
            known = first.reconciler.evaluator.limiter.history
            await eventually(lambda: known.counts(1e12, 1e12))
        lease = await play.client.get(LEASE.path("kube-system", "giveway-reconciler-evictions"))
        written = decode(lease["metadata"]["annotations"][EVICTIONS]).workloads
        assert {workload: len(rows) for workload, rows in written.items()} == {"Training/default/db": 1}
        assert written["Training/default/db"][0].preemptor == "Pod/default/p"
        async with play.reconciling(limit) as second:
            await eventually(lambda: second.reconciler.leading)
            history, clock = second.reconciler.evaluator.limiter.history, second.clock
            assert history.counts(3600.0, clock.monotonic()) == {"Training/default/db": 1}
        shown = await giveway(
            "explain", "workload", "Training/db", "-n", "default", "--system-namespace", "kube-system",
            "--kubeconfig", play.cluster.kubeconfig,
        )  # fmt: skip
        assert shown.exit_code == 0, shown.stderr
        assert "Training/default/db was evicted: 1 in the last hour" in shown.stdout
        assert "for Pod/default/p" in shown.stdout
