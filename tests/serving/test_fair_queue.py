"""Fair shares: among addresses first, then among the connections of each."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

import pytest

from webhook.serving import turns as turns_module
from webhook.serving.fair_queue import FairQueue, Peers
from webhook.serving.turns import FairSemaphore, Turns


class Clock:
    """A clock of work: only `work` takes time."""

    now = 0.0

    def work(self, seconds=0.01):
        self.now += seconds

    def perf_counter(self):
        return self.now

    thread_time = monotonic = perf_counter


@pytest.fixture
def work(monkeypatch):
    """Takes so many seconds of the processor."""
    clock = Clock()
    monkeypatch.setattr(turns_module, "time", clock)
    return clock.work


def served(queue, cost, rounds, again):
    """Who is served how long in so many rounds; everybody in `again` comes back at once."""
    took = Counter()
    for _ in range(rounds):
        flow, item = queue.pop()
        took[item] += cost[item]
        queue.charge(flow, cost[item])
        if item in again:
            queue.put(flow, item, cost[item])
    return took


@pytest.mark.parametrize("connections", [1, 300])
def test_addresses_get_equal_shares(connections):
    """One who opens three hundred connections for dear reviews gets no more time than one with a single cheap one."""
    peers, queue = Peers(), FairQueue()
    cost = {"honest": 0.0002, "attacker": 0.01}
    honest = peers.flow("10.0.0.1")
    queue.put(honest, "honest", cost["honest"])
    attackers = [peers.flow("10.0.0.2") for _ in range(connections)]
    for flow in attackers:
        queue.put(flow, "attacker", cost["attacker"])
    took = served(queue, cost, 5000, {"honest", "attacker"})
    assert took["honest"] == pytest.approx(took["attacker"], rel=0.05)


def test_behind_one_address_cheap_things_do_not_wait_behind_dear_ones():
    """Sixteen connections with cheap reviews get a good part of the time beside three hundred with dear ones."""
    peers, queue = Peers(), FairQueue()
    cost = {"honest": 0.0002, "attacker": 0.01}
    flows = []
    for number in range(316):
        flow = peers.flow("10.0.0.1")
        flows.append(flow)
        kind = "honest" if number >= 300 else "attacker"
        queue.put(flow, kind, cost[kind])
    assert queue.pop()[1] == "honest"
    queue.put(flows[-1], "honest", cost["honest"])
    took = served(queue, cost, 20_000, {"honest", "attacker"})
    assert took["honest"] > 0.3 * took["attacker"]
    assert took["attacker"] > 0


def test_behind_one_address_a_review_does_not_wait_behind_several_cheaper_ones():
    """An ordinary review has its turn about as often as one that costs a third of it."""
    peers, queue = Peers(), FairQueue()
    cost = {"honest": 0.0003, "attacker": 0.0001}
    for name, seconds in cost.items():
        queue.put(peers.flow("10.0.0.1"), name, seconds)
    took = served(queue, cost, 1000, set(cost))
    assert took["honest"] / cost["honest"] > 0.7 * took["attacker"] / cost["attacker"]


def test_what_has_begun_goes_first_unless_it_is_dear():
    """A review that was read in its turn does not wait behind all that is still to be read."""
    peers, queue = Peers(), FairQueue()
    for name, seconds in (("read", 0.0001), ("ordinary", 0.0003), ("dear", 0.003)):
        flow = peers.flow("10.0.0.1")
        queue.put(flow, name, seconds, begun=name != "read")
    assert [queue.pop()[1] for _ in range(3)] == ["ordinary", "read", "dear"]


def test_what_follows_in_a_turn_does_not_count_as_a_turn():
    """Who has a request read, parsed and reviewed has had one turn, like one for whom all of it is done in one go."""
    peers, queue = Peers(), FairQueue()
    parts, whole, other = (peers.flow("10.0.0.1") for _ in range(3))
    queue.put(other, "other", 0.0001)
    for flow, costs in ((parts, [0.00005] * 4), (whole, [0.0001])):
        queue.put(flow, "first", 0.0001)
        queue.put(flow, "again", 0.0001)
        for cost in costs:
            queue.charge(flow, cost)
    order = [queue.pop() for _ in range(5)]
    assert [item for _, item in order] == ["other", "first", "first", "again", "again"]


def test_dear_things_are_not_put_off_for_ever():
    """A single dear review behind the same address as many cheap ones has its turn within a moment."""
    peers, queue = Peers(), FairQueue()
    queue.put(peers.flow("a"), "dear", 0.01)
    flow = peers.flow("a")
    waited = 0.0
    queue.put(flow, "cheap", 0.0002)
    while (got := queue.pop())[1] != "dear":
        queue.charge(got[0], 0.0002)
        waited += 0.0002
        queue.put(got[0], "cheap", 0.0002)
    assert waited < 0.5


def test_nobody_saves_up_and_nobody_pays_for_what_hurt_nobody():
    """What was used while nobody waited gives a newcomer no advantage."""
    peers, queue = Peers(), FairQueue()
    api_server, newcomer = peers.flow("10.0.0.1"), peers.flow("10.0.0.2")
    for _ in range(1000):
        queue.charge(api_server, 1.0)
    for flow, item in ((newcomer, "new"), (api_server, "api")):
        queue.put(flow, item, 0.001)
    first = queue.pop()
    queue.charge(first[0], 0.001)
    queue.put(first[0], first[1], 0.001)
    assert {first[1], queue.pop()[1]} == {"new", "api"}


def test_a_peer_is_forgotten_with_its_last_connection():
    """Addresses that have gone take no memory."""
    peers = Peers()
    flows = [peers.flow(f"10.0.{number // 256}.{number % 256}") for number in range(1000)]
    queue = FairQueue()
    for flow in flows:
        queue.charge(flow, 0.001)
    assert len(peers._known) == 1000
    flows.clear()
    del flow
    gc.collect()
    assert len(peers._known) == 0


async def test_work_is_done_at_once_while_there_is_time():
    """Nothing is queued in a loop that has nothing else to do."""
    turns, flow = Turns(), Peers().flow("a")
    assert await turns.run(flow, lambda: 7, 0.0, begun=True) == 7
    assert not turns.busy


async def test_what_a_round_has_no_time_for_waits_and_the_cheap_goes_first(work):
    """After the slice is used up, reviews run by fair shares, and each gets its own result or error."""
    turns, peers = Turns(), Peers()
    order = []

    def answer(name):
        order.append(name)
        if name == "error":
            raise ValueError(name)
        return name

    async def late(address, name, estimate):
        turns.do(peers.flow("x"), work)
        assert turns.full
        return await turns.run(peers.flow(address), lambda: answer(name), estimate, begun=True)

    runs = [
        asyncio.create_task(late("10.0.0.2", "dear", 0.01)),
        asyncio.create_task(late("10.0.0.2", "error", 0.01)),
        asyncio.create_task(late("10.0.0.1", "cheap", 0.0001)),
    ]
    found = await asyncio.gather(*runs, return_exceptions=True)
    assert [found[0], found[2], type(found[1])] == ["dear", "cheap", ValueError]
    assert order[0] == "cheap"
    await asyncio.sleep(0)
    assert not turns.busy


async def test_who_has_had_less_than_his_share_does_not_wait_for_a_round(work):
    """While others wait for their turn an address that was quiet goes on at once, until it has had its share."""
    turns, peers = Turns(), Peers()
    quiet, many = peers.flow("10.0.0.1"), peers.flow("10.0.0.2")
    turns.do(many, lambda: work(0.003))
    for _ in range(50):
        turns.later(many, lambda: work(0.002), 0.002)
    assert turns.must_wait(quiet)
    assert turns.must_wait(many)
    for _ in range(4):  # rounds, in which only the other address is served
        await asyncio.sleep(0)
    assert turns.busy
    assert not turns.must_wait(quiet)
    assert turns.must_wait(many)
    assert await turns.run(quiet, lambda: 7, 0.0, begun=True) == 7
    turns.do(quiet, work)
    assert turns.must_wait(quiet)


async def test_what_is_done_inside_of_other_work_counts_once(work):
    """Parsing is a part of the reading that it follows from."""
    turns, peers = Turns(), Peers()
    flow = peers.flow("a")
    turns.later(peers.flow("b"), lambda: None, 1.0)
    turns.do(flow, lambda: turns.do(flow, lambda: work(0.002)))
    assert turns._used == pytest.approx(flow.peer.lines[turns._queue].tag) == 0.002


async def test_nobody_pays_for_the_garbage_collector(work):
    """A connection whose work it interrupts does not wait for it afterwards; the round has been as long as it was."""

    class Garbage:
        def __del__(self):
            work(0.02)

    def interrupted():
        work(0.001)
        garbage = Garbage()
        garbage.itself = garbage
        del garbage
        gc.collect()

    turns, peers = Turns(), Peers()
    flow = peers.flow("a")
    turns.later(peers.flow("b"), lambda: None, 1.0)
    turns.do(flow, interrupted)
    assert flow.peer.lines[turns._queue].tag == pytest.approx(0.001)
    assert turns._used == pytest.approx(0.021)


async def test_what_follows_from_a_round_leaves_room_in_the_next_one(work):
    """While what was read is reviewed, less is read; something of what waits is done in any case."""
    turns, flow = Turns(), Peers().flow("a")
    done = []
    for number in range(20):
        turns.later(flow, lambda number=number: (work(0.0004), done.append(number)), 0.0004)
    await asyncio.sleep(0)
    assert len(done) == 3
    turns.do(flow, work)
    await asyncio.sleep(0)
    assert len(done) == 4


async def test_a_round_is_bounded_for_everybody(work):
    """So many at once who have had less than their share wait as well."""
    turns, peers = Turns(), Peers()
    for number in range(50):
        turns.later(peers.flow("10.0.0.2"), lambda: work(0.002), number / 1000)
    quiet = [peers.flow(f"10.0.1.{number}") for number in range(50)]
    for flow in quiet:
        turns.must_wait(flow)
    for _ in range(4):
        await asyncio.sleep(0)
    at_once = 0
    for flow in quiet:
        if not turns.must_wait(flow):
            turns.do(flow, lambda: work(0.0015))
            at_once += 1
    assert at_once == 2


async def test_work_that_nobody_waits_for_any_more_is_not_done(work):
    """A review that was given up at its deadline costs no time."""
    turns, flow = Turns(), Peers().flow("a")
    done = []

    async def late():
        turns.do(flow, work)
        await turns.run(flow, lambda: done.append(1), 0.0, begun=True)

    task = asyncio.create_task(late())
    await asyncio.sleep(0)
    assert turns.busy
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == []


async def test_a_semaphore_lets_in_so_many_and_every_address_in_turn():
    """Whoever asks for fifty at once waits for his own; places of those who gave up go on to others."""
    peers, places = Peers(), FairSemaphore(2)
    running, most, order = 0, 0, []

    async def hold(name, flow):
        nonlocal running, most
        async with places.held(flow, 0.01):
            running += 1
            most = max(most, running)
            order.append(name)
            await asyncio.sleep(0.001)
            running -= 1

    tasks = [asyncio.create_task(hold("many", peers.flow("10.0.0.2"))) for _ in range(50)]
    await asyncio.sleep(0)
    one = asyncio.create_task(hold("one", peers.flow("10.0.0.1")))
    await asyncio.sleep(0)
    for task in tasks[10:]:
        task.cancel()
    await asyncio.gather(*tasks, one, return_exceptions=True)
    assert most == 2
    assert order.index("one") == 2
    assert places._free == 2
