"""Lists of the list+watch cache, against a server that lies, forgets and comes back from a backup."""

import asyncio
import json
import random
import tracemalloc

import msgspec
import pytest
from aiohttp import web

from tests.bench.large_cluster import LargeCluster
from tests.kube.server import answer, held, status, truth, until
from webhook.kube import informer as caches
from webhook.kube import resources
from webhook.kube.client import Chunk, ChunkMeta
from webhook.kube.informer import Informer
from webhook.kube.objects.pod import Pod

pytestmark = pytest.mark.skipped_waits

PODS = resources.POD.path()
A = "/api/v1/namespaces/a/pods"


@pytest.mark.parametrize("how", ["status", "event"])
async def test_expired_means_list_again_and_tell_the_difference(server, follow, how):
    """After 410, as an answer or as an event, only what really changed is told."""
    for name in ("same", "gone", "changed"):
        server.put(f"{A}/{name}")
    cache, changes = follow()
    await until(lambda: server.watches)
    changes.clear()
    if how == "event":
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        server.tell(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
    else:
        server.fault(answer(410, "Expired"), contains="watch=")
        server.cut_watches()
    for queue in list(server.watches):
        server.watches.remove(queue)  # what happens now is not told to those who watched
    server.remove(f"{A}/gone")
    server.put(f"{A}/changed")
    server.put(f"{A}/new")
    server.compact()
    await until(lambda: held(cache) == truth(server))
    assert sorted(changes) == [("added", "a/new"), ("deleted", "a/gone"), ("modified", "a/changed")]


async def test_a_remade_object_is_a_deletion_and_an_addition(server, follow):
    """An object deleted and made again while nobody watched is told as both: its uid is another."""
    server.put(f"{A}/one")
    cache, changes = follow()
    await until(lambda: server.watches)
    server.watches.clear()
    server.remove(f"{A}/one")
    server.put(f"{A}/one")
    server.compact()
    server.fault(answer(410, "Expired"), contains="watch=")
    await server.stop()
    await server.start()
    await until(lambda: held(cache) == truth(server), 10)
    assert changes == [("added", "a/one"), ("deleted", "a/one"), ("added", "a/one")]


async def test_a_list_is_believed_object_by_object(server, follow):
    """After a backup was restored and the cluster went on, objects may be older in a list that is not: they count."""
    server.put(f"{A}/one", spec={"nodeName": "n1"})
    before = server.put(f"{A}/two", spec={"nodeName": "n1"})
    server.put(f"{A}/two", spec={"nodeName": "n2"})
    cache, changes = follow()
    await until(lambda: server.watches)
    server.objects[f"{A}/two"] = before
    server.version += 10
    server.compact()
    server.fault(answer(410, "Expired"), contains="watch=")
    server.cut_watches()
    await until(lambda: held(cache) == truth(server))
    assert cache.get("a/two").spec.node_name == "n1"
    assert changes[-1] == ("modified", "a/two")


async def test_lists_do_not_become_a_flood(server, follow):
    """Where every watch expires at once, each list waits longer than the one before."""
    server.fault(answer(410, "Expired"), contains="watch=", times=1000)
    cache, _ = follow()
    await asyncio.wait_for(cache.synced.wait(), 5)
    await asyncio.sleep(1.5)
    assert 2 <= len(server.asked("GET", "limit=500")) <= 6


async def test_a_watch_that_lasts_ends_the_row_of_lists(server, follow):
    """Where a proxy breaks each quiet watch after a minute, and it has expired then, lists do not come ever later."""

    async def broken(request):
        begun = web.StreamResponse()
        await begun.prepare(request)
        await asyncio.sleep(60)
        request.transport.close()
        return begun

    for _ in range(12):
        server.fault(broken, contains="watch=")
        server.fault(answer(410, "Expired"), contains="watch=")
    follow()
    await asyncio.sleep(13 * 60)
    assert len(server.asked("GET", "limit=500")) == 13


async def test_a_list_is_a_success(server, follow):
    """What failed before a list succeeded does not count any more."""
    server.fault(answer(500, "InternalError"), contains="limit=", times=3)
    cache, _ = follow()
    await until(lambda: server.watches, 10)
    assert cache._backoff.failures == 0


@pytest.mark.parametrize("action", [answer(500, "InternalError"), answer(410, "Expired")], ids=["500", "410"])
async def test_a_list_is_told_as_a_whole(server, follow, monkeypatch, action):
    """A list that breaks between two pages tells nothing; who is gone is told before what is new."""
    monkeypatch.setattr(caches, "_PAGE", 2)
    for name in ("a", "b", "c", "d"):
        server.put(f"{A}/{name}")
    cache, changes = follow()
    await until(lambda: server.watches)
    changes.clear()
    server.fault(answer(410, "Expired"), contains="watch=")
    server.fault(action, contains="continue=2")
    server.cut_watches()
    server.watches.clear()
    server.put(f"{A}/a")
    server.put(f"{A}/e")
    server.remove(f"{A}/d")
    server.compact()
    await until(lambda: held(cache) == truth(server))
    assert changes == [("deleted", "a/d"), ("modified", "a/a"), ("added", "a/e")]
    assert len(server.asked("GET", "continue=2")) == 3


class Pages:
    """A source of 1000 ordinary pods that sends every watch back to the list once."""

    def __init__(self):
        self.cluster = LargeCluster(1000, 100)
        self.watched = asyncio.Queue()
        self.again = asyncio.Event()

    async def pages(self, _path, *, limit, **_query):
        """All pods, page by page."""
        for start in range(0, 1000, limit):
            pods = [msgspec.Raw(self.cluster.pod(number)) for number in range(start, start + limit)]
            yield Chunk(pods, ChunkMeta(str(self.cluster.version)))

    async def watch(self, _path, **_query):
        """Nothing, and then 410."""
        self.watched.put_nowait(None)
        await self.again.wait()
        self.again.clear()
        yield "ERROR", json.dumps(status(410, "Expired")).encode()


@pytest.mark.slow
async def test_listing_again_makes_no_second_copy(monkeypatch):
    """What has not changed stays the same object, and while all is listed the memory grows by some pages, no more."""
    monkeypatch.setattr(caches, "_PAGE", 50)
    source = Pages()
    cache = Informer(source, [PODS], Pod)
    tracemalloc.start()
    following = asyncio.create_task(cache.run())
    try:
        await source.watched.get()
        known, told = dict(cache.items()), []
        cache.handlers.append(told.append)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        source.again.set()
        await source.watched.get()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        following.cancel()
    assert len(known) == 1000
    assert all(cache.get(key) is pod for key, pod in known.items())
    assert told == []
    assert peak < 1.35 * before


async def test_a_restored_server_is_believed(server, follow):
    """What a server lists that was restored from a backup is the truth, also of an object of the same version."""
    server.put(f"{A}/one", spec={"nodeName": "n1"})
    server.put(f"{A}/two")
    cache, _ = follow()
    await until(lambda: server.watches)
    server.version, server.objects = 100, {}
    server.log.clear()
    server.put(f"{A}/one", spec={"nodeName": "n2"})
    server.fault(answer(410, "Expired"), contains="watch=")
    server.cut_watches()
    await until(lambda: held(cache) == {"a/one": "101"}, 10)
    assert cache.get("a/one").spec.node_name == "n2"


async def test_whatever_happens_it_ends_up_equal_to_the_server(server, follow):
    """Random changes under random cuts, compactions and errors: the copy and the told changes agree with the server."""
    rng = random.Random(7)
    cache, _ = follow()
    told = {}

    def follow_changes(change):
        assert (change.key in told) == (change.kind != "added")
        if change.kind == "deleted":
            del told[change.key]
        else:
            told[change.key] = change.new.metadata.resource_version

    cache.handlers.append(follow_changes)
    await asyncio.wait_for(cache.synced.wait(), 5)
    for _ in range(400):
        path = f"{A}/p{rng.randrange(12)}"
        if path in server.objects and rng.random() < 0.4:
            server.remove(path)
        else:
            server.put(path)
        if rng.random() < 0.05:
            server.cut_watches()
        if rng.random() < 0.03:
            server.compact()
            server.cut_watches()
        if rng.random() < 0.03 and not any(fault.times for fault in server.faults):
            server.fault(answer(500, "InternalError"))
        if rng.random() < 0.3:
            await asyncio.sleep(0.002)
    await until(lambda: held(cache) == truth(server), 20)
    assert told == truth(server)


async def test_a_list_that_is_taken_in_in_turns_is_not_whole_until_its_end(server, follow, monkeypatch):
    """While the differences of a list are told, with turns for others in between, the cache is not whole."""
    monkeypatch.setattr(caches, "_TURN", 0.0)
    for number in range(5):
        server.put(f"{A}/old-{number}")
    cache, _ = follow()
    await until(lambda: server.watches)
    seen = []
    cache.handlers.append(lambda change: seen.append((change.kind, cache.whole.is_set())))
    others = []

    async def look():
        while True:
            others.append((len(cache.items()), cache.whole.is_set()))
            await asyncio.sleep(0)

    server.watches.clear()
    for number in range(5):
        server.remove(f"{A}/old-{number}")
        server.put(f"{A}/new-{number}")
    server.compact()
    server.fault(answer(410, "Expired"), contains="watch=")
    looking = asyncio.create_task(look())
    await server.stop()
    await server.start()
    await until(lambda: held(cache) == truth(server) and cache.whole.is_set())
    looking.cancel()
    assert seen == [("deleted", False)] * 5 + [("added", False)] * 5
    assert (0, False) in others, "the turns are there"
    assert all(count == 5 for count, whole in others if whole)
