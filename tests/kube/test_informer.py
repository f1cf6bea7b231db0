"""The list+watch cache against a server that lies, stalls, forgets and dies."""

import asyncio
import json
import random
import tracemalloc

import msgspec
import pytest
from aiohttp import web

from tests.bench.large_cluster import LargeCluster
from tests.kube.server import Server, answer, cut, delay, reply, status, until
from webhook.kube import informer as caches
from webhook.kube import resources
from webhook.kube.backoff import Backoff
from webhook.kube.client import Chunk, ChunkMeta, Client
from webhook.kube.informer import Informer
from webhook.kube.objects import Pod

PODS = resources.POD.path()
A = "/api/v1/namespaces/a/pods"


@pytest.fixture
async def server():
    async with Server() as started:
        yield started


@pytest.fixture
async def follow(server):
    """Start a cache of pods and its list of changes."""
    tasks, clients = [], []

    def start(**selectors):
        client = Client.for_server(server.url, timeout=2)
        cache = Informer(client, PODS, Pod, **selectors)
        changes = []
        cache.handlers.append(lambda change: changes.append((change.kind, change.key)))
        tasks.append(asyncio.create_task(cache.run()))
        clients.append(client)
        return cache, changes

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for client in clients:
        await client.close()


def truth(server):
    """What the server holds: key to resourceVersion."""
    return {
        f"{obj['metadata']['namespace']}/{obj['metadata']['name']}": obj["metadata"]["resourceVersion"]
        for obj in server.objects.values()
    }


def held(cache):
    return {key: pod.metadata.resource_version for key, pod in cache.items().items()}


async def test_it_lists_and_follows(server, follow):
    """What is there is listed, what changes is followed, and every change is told once and in order."""
    server.put(f"{A}/one", spec={"nodeName": "n1"})
    cache, changes = follow()
    await cache.wait_for_sync(5)
    server.put(f"{A}/two")
    server.put(f"{A}/one", spec={"nodeName": "n2"})
    server.remove(f"{A}/two")
    await until(lambda: len(changes) == 4)
    assert changes == [("added", "a/one"), ("added", "a/two"), ("modified", "a/one"), ("deleted", "a/two")]
    assert cache.get("a/one").spec.node_name == "n2"
    assert cache.get("a/two") is None
    assert held(cache) == truth(server)


async def test_changes_carry_both_states(server, follow):
    """A handler sees the object before and after; a deletion carries the last state."""
    cache, _ = follow()
    seen = []
    cache.handlers.append(seen.append)
    await cache.wait_for_sync(5)
    server.put(f"{A}/one", spec={"nodeName": "n1"})
    server.put(f"{A}/one", spec={"nodeName": "n2"})
    server.remove(f"{A}/one")
    await until(lambda: len(seen) == 3)
    nodes = [(c.old and c.old.spec.node_name, c.new and c.new.spec.node_name) for c in seen]
    assert nodes == [(None, "n1"), ("n1", "n2"), ("n2", None)]
    assert seen[2].old.metadata.resource_version == str(server.version)


async def test_it_asks_as_a_good_client_does(server, follow):
    """Selectors go with list and watch; watches ask for bookmarks and end after five to ten minutes."""
    cache, _ = follow(field_selector="spec.nodeName=", label_selector="a=b")
    await cache.wait_for_sync(5)
    await until(lambda: server.watches)
    listing, watching = server.asked("GET")
    assert "limit=500" in listing
    assert "allowWatchBookmarks=true" in watching
    assert 300 <= int(watching.split("timeoutSeconds=")[1].split("&")[0]) <= 600
    for path in (listing, watching):
        assert "fieldSelector=" in path
        assert "labelSelector=" in path


async def test_a_watch_that_ends_goes_on_where_it_was(server, follow):
    """After a clean end nothing is listed again and nothing is missed."""
    cache, changes = follow()
    await cache.wait_for_sync(5)
    server.put(f"{A}/one")
    await until(lambda: len(changes) == 1)
    server.cut_watches()
    server.put(f"{A}/two")
    await until(lambda: len(changes) == 2)
    assert len(server.asked("GET", "limit=")) == 1
    assert f"resourceVersion={server.version - 1}" in server.asked("GET", "watch=")[-1]


async def test_bookmarks_move_the_place_to_resume_from(server, follow):
    """A bookmark alone is enough to resume after it."""
    cache, _ = follow()
    await until(lambda: server.watches)
    server.tell(b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"4242"}}}\n')
    await until(lambda: cache.resource_version == "4242")
    server.cut_watches()
    await until(lambda: "resourceVersion=4242" in server.asked("GET", "watch=")[-1])


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


async def test_the_server_may_restart(server, follow):
    """While the server is away the copy stays; when it is back nothing has been lost."""
    server.put(f"{A}/one")
    cache, changes = follow()
    await cache.wait_for_sync(5)
    await server.stop()
    server.put(f"{A}/two")
    server.remove(f"{A}/one")
    await asyncio.sleep(0.3)
    assert list(cache.items()) == ["a/one"]
    await server.start()
    await until(lambda: held(cache) == truth(server), 10)
    assert changes == [("added", "a/one"), ("added", "a/two"), ("deleted", "a/one")]


@pytest.mark.parametrize(
    "action",
    [
        pytest.param(answer(500, "InternalError"), id="500"),
        pytest.param(answer(503, "ServiceUnavailable"), id="503"),
        pytest.param(answer(429, "TooManyRequests", headers={"Retry-After": "1"}), id="429"),
        pytest.param(answer(403, "Forbidden"), id="403"),
        pytest.param(cut, id="cut"),
        pytest.param(reply(b"<html>"), id="not-json"),
    ],
)
@pytest.mark.parametrize("step", ["limit=", "watch="])
async def test_failures_are_waited_out(server, follow, action, step):
    """Whatever goes wrong with a list or a watch, the cache comes back by itself."""
    server.put(f"{A}/one")
    server.fault(action, contains=step, times=2)
    cache, _ = follow()
    await cache.wait_for_sync(10)
    server.put(f"{A}/two")
    await until(lambda: held(cache) == truth(server), 10)


async def test_the_wait_the_server_asks_for_is_kept(server, follow):
    """After 429 with Retry-After: 1 the next try comes no sooner."""
    server.fault(answer(429, "TooManyRequests", headers={"Retry-After": "1"}), contains="limit=")
    begun = asyncio.get_running_loop().time()
    cache, _ = follow()
    await cache.wait_for_sync(5)
    assert asyncio.get_running_loop().time() - begun >= 1.0


async def test_a_watch_cut_again_and_again_does_not_become_a_hot_loop(server, follow):
    """A server that ends every watch at once is asked ever less often."""

    async def ended(_request):
        return await reply(b"")(_request)

    server.fault(ended, contains="watch=", times=1000)
    cache, _ = follow()
    await cache.wait_for_sync(5)
    await asyncio.sleep(1.5)
    assert 2 <= len(server.asked("GET", "watch=")) <= 6


async def test_silence_is_no_fault(server, follow, caplog):
    """A quiet watch is neither given up nor complained about, though no bookmark comes for minutes."""
    cache, _ = follow()
    await until(lambda: server.watches)
    server.put(f"{A}/zero")
    await until(lambda: held(cache) == truth(server))  # the answer has begun, so what waited for that waits no more
    loop = asyncio.get_running_loop()
    real = loop.time
    loop.time = lambda: real() + 200
    await asyncio.sleep(0.2)
    server.put(f"{A}/one")
    await until(lambda: held(cache) == truth(server))
    assert len(server.asked("GET", "watch=")) == 1
    assert not [record for record in caplog.records if record.name == caches.__name__]


async def test_a_watch_that_does_not_end_in_time_is_ended(server, follow, monkeypatch):
    """A connection that is open and mute beyond the end of its watch is given up, and what it kept back is fetched."""
    monkeypatch.setattr(caches, "_WATCH_SECONDS", (0, 0))
    monkeypatch.setattr(caches, "_OVERDUE", 0.3)
    cache, _ = follow()
    await until(lambda: server.watches)
    server.watches.clear()  # the stream stays open and mute
    server.put(f"{A}/one")
    await until(lambda: held(cache) == truth(server))
    assert len(server.asked("GET", "limit=")) == 1


async def test_a_server_that_never_answers_a_watch_is_noticed(server, follow):
    """A watch that is accepted and never begun is given up after the time that any request has."""
    server.fault(delay(60), contains="watch=", times=1)
    cache, _ = follow()
    await cache.wait_for_sync(5)
    server.put(f"{A}/one")
    await until(lambda: held(cache) == truth(server))


async def test_an_open_watch_is_a_sign_of_life(server, follow):
    """The server is heard from when it accepts a watch, also where it has nothing to tell then."""
    cache, _ = follow()
    await until(lambda: server.watches)
    cache._heard_at -= 1000
    server.cut_watches()
    await until(lambda: cache.age() < 5)


TOO_LARGE = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}


@pytest.mark.parametrize(
    "action",
    [
        pytest.param(answer(500, "InternalError"), id="500"),
        pytest.param(answer(503, "ServiceUnavailable"), id="503"),
        pytest.param(answer(504, "Timeout"), id="504"),
        pytest.param(answer(429, "TooManyRequests"), id="429"),
        pytest.param(cut, id="cut"),
        pytest.param(reply(b""), id="eof"),
    ],
)
async def test_failures_of_a_watch_are_no_reason_to_list(server, follow, action, monkeypatch):
    """However often watching fails, it goes on from the last version, and nothing is listed again."""
    wait = Backoff.next
    monkeypatch.setattr(Backoff, "next", lambda self: min(wait(self), 0.01))
    server.put(f"{A}/one")
    server.fault(action, contains="watch=", times=10)
    cache, _ = follow()
    await until(lambda: server.watches)
    server.put(f"{A}/two")
    await until(lambda: held(cache) == truth(server))
    assert len(server.asked("GET", "limit=")) == 1
    assert len(server.asked("GET", "resourceVersion=101&")) >= 11


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(("ERROR", status(410, "Expired")), id="410"),
        pytest.param(("ERROR", status(504, "Timeout", **TOO_LARGE)), id="too-large"),
        pytest.param(("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "7"}}), id="older-bookmark"),
    ],
)
async def test_a_version_of_no_use_is_a_reason_to_list(server, follow, event):
    """Where the server cannot go on from the version that is known, everything is listed again."""
    server.put(f"{A}/one")
    cache, _ = follow()
    await until(lambda: server.watches)
    kind, body = event
    server.tell(json.dumps({"type": kind, "object": body}).encode() + b"\n")
    server.watches.clear()
    server.put(f"{A}/two")
    await until(lambda: held(cache) == truth(server))
    assert len(server.asked("GET", "limit=")) == 2


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


@pytest.mark.parametrize("restored", [True, False])
async def test_a_watch_without_a_word_leads_to_a_look(server, follow, monkeypatch, restored):
    """After minutes of silence, no bookmark either, one object is listed: a server that went back shows by its version.

    A watch from a version in the future is answered by silence.
    """
    monkeypatch.setattr(caches, "_BRIEF", 0.05)
    monkeypatch.setattr(caches, "_LONG", 0.1)
    server.put(f"{A}/one")
    server.fault(silent(0.2), contains="watch=")
    cache, _ = follow()
    await cache.wait_for_sync(5)
    if restored:
        server.version, server.objects = 10, {}
        server.log.clear()
        server.put(f"{A}/two")
    await until(lambda: server.watches, 10)
    assert held(cache) == truth(server)
    whole = server.asked("GET", "limit=500")
    assert len(server.asked("GET", "limit=")) == len(whole) + 1
    assert (len(whole) > 1) is restored


def silent(seconds):
    """Accept a watch and end it in order after some seconds."""

    async def act(request):
        stream = web.StreamResponse()
        await stream.prepare(request)
        await asyncio.sleep(seconds)
        return stream

    return act


async def test_lists_do_not_become_a_flood(server, follow):
    """Where every watch expires at once, each list waits longer than the one before."""
    server.fault(answer(410, "Expired"), contains="watch=", times=1000)
    cache, _ = follow()
    await cache.wait_for_sync(5)
    await asyncio.sleep(1.5)
    assert 2 <= len(server.asked("GET", "limit=")) <= 6


async def test_a_list_is_a_success(server, follow):
    """What failed before a list succeeded does not count any more."""
    server.fault(answer(500, "InternalError"), contains="limit=", times=3)
    cache, _ = follow()
    await until(lambda: server.watches, 10)
    assert cache._backoff.failures == 0


async def test_a_list_keeps_what_it_knows(server, follow):
    """Listing again makes no second copy of what has not changed."""
    for number in range(20):
        server.put(f"{A}/p{number}")
    cache, changes = follow()
    await until(lambda: server.watches)
    before = dict(cache.items())
    server.fault(answer(410, "Expired"), contains="watch=")
    server.cut_watches()
    await until(lambda: len(server.asked("GET", "limit=")) == 2 and server.watches)
    assert all(cache.get(key) is pod for key, pod in before.items())
    assert len(changes) == 20


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
        self.decoder = msgspec.json.Decoder(Pod)
        self.watched = asyncio.Queue()
        self.again = asyncio.Event()

    async def pages(self, _path, _type, *, limit, **_query):
        """All pods, page by page."""
        for start in range(0, 1000, limit):
            pods = [self.decoder.decode(self.cluster.pod(number)) for number in range(start, start + limit)]
            yield Chunk(pods, ChunkMeta(str(self.cluster.version)))

    async def watch(self, _path, **_query):
        """Nothing, and then 410."""
        self.watched.put_nowait(None)
        await self.again.wait()
        self.again.clear()
        yield "ERROR", json.dumps(status(410, "Expired")).encode()


@pytest.mark.slow
async def test_listing_again_makes_no_second_copy(monkeypatch):
    """The memory in use while everything is listed again is what was in use before and some pages, no more."""
    monkeypatch.setattr(caches, "_PAGE", 50)
    source = Pages()
    cache = Informer(source, PODS, Pod)
    tracemalloc.start()
    following = asyncio.create_task(cache.run())
    try:
        await source.watched.get()
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        source.again.set()
        await source.watched.get()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        following.cancel()
    assert len(cache.items()) == 1000
    assert peak < 1.35 * before


async def test_what_is_kept_may_be_less_than_what_is_sent(server, follow):
    """A transform decides what is kept of listed and of watched objects."""

    def nameless(pod):
        pod.spec.node_name = ""
        return pod

    server.put(f"{A}/one", spec={"nodeName": "n1", "priority": 5})
    cache, _ = follow(transform=nameless)
    await until(lambda: server.watches)
    server.put(f"{A}/two", spec={"nodeName": "n1", "priority": 5})
    await until(lambda: held(cache) == truth(server))
    assert {(pod.spec.node_name, pod.spec.priority) for pod in cache.items().values()} == {("", 5)}


async def test_age_grows_while_nobody_answers(server, follow):
    """`age` is infinite before the first answer, small while the server talks, and grows while it is away."""
    cache, _ = follow()
    assert cache.age() == float("inf")
    await cache.wait_for_sync(5)
    assert cache.age() < 1
    await server.stop()
    await asyncio.sleep(0.5)
    assert cache.age() >= 0.5


@pytest.mark.parametrize("when", ["listed", "watched"])
async def test_an_object_that_cannot_be_read_is_skipped(server, follow, caplog, when):
    """One broken object is logged and left out; the others are not held up."""
    if when == "listed":
        server.put(f"{A}/broken", spec={"nodeName": 5})
    cache, _ = follow()
    await until(lambda: server.watches)
    server.put(f"{A}/broken", spec={"nodeName": 5})
    server.put(f"{A}/fine")
    await until(lambda: "a/fine" in cache.items())
    assert list(cache.items()) == ["a/fine"]
    assert "a/broken" in caplog.text
    assert "spec.nodeName" in caplog.text


async def test_an_object_that_became_unreadable_is_kept_as_it_was(server, follow):
    """A known object that can no longer be read stays in its last readable state, also after a new list."""
    server.put(f"{A}/one", spec={"nodeName": "n1"})
    cache, changes = follow()
    await until(lambda: server.watches)
    server.put(f"{A}/one", spec={"nodeName": 5})
    server.fault(answer(410, "Expired"), contains="watch=")
    server.cut_watches()
    await until(lambda: len(server.asked("GET", "limit=")) == 2)
    await until(lambda: server.watches)
    assert cache.get("a/one").spec.node_name == "n1"
    assert changes == [("added", "a/one")]


async def test_a_handler_that_fails_stops_nobody(server, follow, caplog):
    """An exception in a handler is logged; the other handlers and the cache go on."""
    cache, changes = follow()
    cache.handlers.insert(0, lambda change: 1 / 0)
    await cache.wait_for_sync(5)
    server.put(f"{A}/one")
    server.put(f"{A}/two")
    await until(lambda: len(changes) == 2)
    assert "ZeroDivisionError" in caplog.text


def event(kind, name, version, uid="u"):
    body = {"metadata": {"name": name, "namespace": "a", "resourceVersion": str(version), "uid": uid}}
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


async def test_what_is_known_already_is_not_told_again(server, follow):
    """Repeated and late events change nothing and bring nothing back from the dead."""
    cache, changes = follow()
    await until(lambda: server.watches)
    server.tell(event("ADDED", "x", 201) + event("MODIFIED", "x", 205))
    server.tell(event("MODIFIED", "x", 205) + event("MODIFIED", "x", 203) + event("DELETED", "x", 202))
    server.tell(event("DELETED", "x", 206) + event("ADDED", "x", 201) + event("DELETED", "x", 206))
    server.tell(event("ADDED", "last", 207))
    await until(lambda: cache.get("a/last"))
    assert changes == [("added", "a/x"), ("modified", "a/x"), ("deleted", "a/x"), ("added", "a/last")]
    assert cache.resource_version == "207"


async def test_versions_that_are_no_numbers_are_only_compared_for_equality(server, follow):
    """Opaque resourceVersions are taken in the order in which they come."""
    _, changes = follow()
    await until(lambda: server.watches)
    server.tell(event("ADDED", "x", "q9") + event("MODIFIED", "x", "b2") + event("MODIFIED", "x", "b2"))
    server.tell(event("DELETED", "x", "a1"))
    await until(lambda: len(changes) == 3)
    assert changes == [("added", "a/x"), ("modified", "a/x"), ("deleted", "a/x")]


def older_list(version):
    return reply(json.dumps({"metadata": {"resourceVersion": str(version)}, "items": []}).encode())


async def test_an_older_server_does_not_take_the_copy_back(server, follow):
    """A list from a server that lags behind is not believed."""
    server.put(f"{A}/one")
    _, changes = follow()
    await until(lambda: server.watches)
    server.fault(answer(410, "Expired"), contains="watch=")
    server.fault(older_list(50), contains="limit=", times=2)
    server.cut_watches()
    await until(lambda: len(server.asked("GET", "limit=")) == 4)
    await until(lambda: server.watches)
    assert changes == [("added", "a/one")]


async def test_a_restored_server_is_believed_in_the_end(server, follow):
    """A server that stays behind was restored from a backup: after three lists its state is the truth."""
    server.put(f"{A}/one")
    cache, _ = follow()
    await until(lambda: server.watches)
    server.version, server.objects = 10, {}
    server.log.clear()
    server.put(f"{A}/two")
    server.fault(answer(410, "Expired"), contains="watch=")
    server.cut_watches()
    await until(lambda: held(cache) == {"a/two": "11"}, 10)


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
    await cache.wait_for_sync(5)
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
