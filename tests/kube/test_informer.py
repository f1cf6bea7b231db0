"""The list+watch cache against a server that stalls and dies: what it watches, and what it tells."""

import asyncio

import pytest

from tests.kube.server import answer, cut, delay, event, held, reply, truth, until
from webhook.kube import informer as caches
from webhook.kube import resources
from webhook.kube.backoff import Backoff

pytestmark = pytest.mark.skipped_waits

PODS = resources.POD.path()
A = "/api/v1/namespaces/a/pods"


async def test_it_lists_and_follows(server, follow):
    """What is there is listed, what changes is followed; every change is told once, in order, with both states."""
    server.put(f"{A}/one", spec={"nodeName": "n1"})
    cache, changes = follow()
    seen = []
    cache.handlers.append(seen.append)
    await asyncio.wait_for(cache.synced.wait(), 5)
    server.put(f"{A}/two")
    server.put(f"{A}/one", spec={"nodeName": "n2"})
    server.remove(f"{A}/one")
    await until(lambda: len(changes) == 4)
    assert changes == [("added", "a/one"), ("added", "a/two"), ("modified", "a/one"), ("deleted", "a/one")]
    nodes = [(c.old and c.old.spec.node_name, c.new and c.new.spec.node_name) for c in seen if c.key == "a/one"]
    assert nodes == [(None, "n1"), ("n1", "n2"), ("n2", None)]
    assert seen[-1].old.metadata.resource_version == str(server.version)
    assert held(cache) == truth(server)


async def test_it_asks_as_a_good_client_does(server, follow):
    """Watches ask for bookmarks and end after five to ten minutes."""
    cache, _ = follow()
    await asyncio.wait_for(cache.synced.wait(), 5)
    await until(lambda: server.watches)
    listing, looking, watching = server.asked("GET")
    assert (listing, looking) == (f"{PODS}?limit=500", f"{PODS}?limit=1")
    assert "allowWatchBookmarks=true" in watching
    assert 300 <= int(watching.split("timeoutSeconds=")[1].split("&")[0]) <= 600


async def test_a_watch_that_ends_goes_on_where_it_was(server, follow):
    """After a clean end nothing is listed again and nothing is missed."""
    cache, changes = follow()
    await asyncio.wait_for(cache.synced.wait(), 5)
    server.put(f"{A}/one")
    await until(lambda: len(changes) == 1)
    server.cut_watches()
    server.put(f"{A}/two")
    await until(lambda: len(changes) == 2)
    assert len(server.asked("GET", "limit=500")) == 1
    assert f"resourceVersion={server.version - 1}" in server.asked("GET", "watch=")[-1]


async def test_bookmarks_move_the_place_to_resume_from(server, follow):
    """A bookmark alone is enough to resume after it."""
    cache, _ = follow()
    await until(lambda: server.watches)
    server.version = 4242
    server.tell(b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"4242"}}}\n')
    await until(lambda: cache.version == "4242")
    server.cut_watches()
    await until(lambda: "resourceVersion=4242" in server.asked("GET", "watch=")[-1])


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
async def test_failures_of_a_list_are_waited_out(server, follow, action):
    """Whatever goes wrong with a list, the cache comes back by itself."""
    server.put(f"{A}/one")
    server.fault(action, contains="limit=", times=2)
    cache, _ = follow()
    await asyncio.wait_for(cache.synced.wait(), 10)
    server.put(f"{A}/two")
    await until(lambda: held(cache) == truth(server), 10)


async def test_the_wait_the_server_asks_for_is_kept(server, follow):
    """After 429 with Retry-After: 1 the next try comes no sooner."""
    server.fault(answer(429, "TooManyRequests", headers={"Retry-After": "1"}), contains="limit=")
    begun = asyncio.get_running_loop().time()
    cache, _ = follow()
    await asyncio.wait_for(cache.synced.wait(), 5)
    assert asyncio.get_running_loop().time() - begun >= 1.0


async def test_a_watch_cut_again_and_again_does_not_become_a_hot_loop(server, follow):
    """A server that ends every watch at once is asked ever less often."""

    async def ended(_request):
        return await reply(b"")(_request)

    server.fault(ended, contains="watch=", times=1000)
    cache, _ = follow()
    await asyncio.wait_for(cache.synced.wait(), 5)
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
    assert len(server.asked("GET", "limit=500")) == 1


async def test_a_server_that_never_answers_a_watch_is_noticed(server, follow):
    """A watch that is accepted and never begun is given up after the time that any request has."""
    server.fault(delay(60), contains="watch=", times=1)
    cache, _ = follow()
    await asyncio.wait_for(cache.synced.wait(), 5)
    server.put(f"{A}/one")
    await until(lambda: held(cache) == truth(server))


async def test_an_open_watch_is_a_sign_of_life(server, follow):
    """The server is heard from when it accepts a watch, also where it has nothing to tell then."""
    cache, _ = follow()
    await until(lambda: server.watches)
    cache._heard_at -= 1000
    server.cut_watches()
    await until(lambda: cache.age() < 5)


@pytest.mark.parametrize(
    "action",
    [
        pytest.param(answer(500, "InternalError"), id="500"),
        pytest.param(answer(503, "ServiceUnavailable"), id="503"),
        pytest.param(answer(504, "Timeout"), id="504"),
        pytest.param(answer(429, "TooManyRequests"), id="429"),
        pytest.param(cut, id="cut"),
        pytest.param(reply(b""), id="eof"),
        pytest.param(reply(b"<html>"), id="not-json"),
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
    assert len(server.asked("GET", "limit=500")) == 1
    assert len(server.asked("GET", "resourceVersion=101&")) >= 11


@pytest.mark.parametrize("restored", [True, False])
@pytest.mark.parametrize("how", ["in order", "by a restart"])
async def test_after_a_watch_the_version_of_the_server_is_looked_at(server, follow, restored, how):
    """One object is listed before each watch: a server that went back shows by its version.

    A watch from a version in the future is answered by silence.
    """
    server.put(f"{A}/one")
    cache, _ = follow()
    await until(lambda: server.watches)
    if how == "by a restart":
        await server.stop()
    if restored:
        server.version, server.objects = 10, {}
        server.log.clear()
        server.put(f"{A}/two")
    if how == "by a restart":
        await server.start()
    looked = len(server.asked("GET", "limit=1"))
    server.cut_watches()
    await until(lambda: len(server.asked("GET", "limit=1")) > looked and server.watches, 10)
    await until(lambda: held(cache) == truth(server), 10)
    assert (len(server.asked("GET", "limit=500")) > 1) is restored


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


async def test_while_nobody_answers_the_copy_stays_and_its_age_grows(server, follow):
    """`age` is infinite before the first answer, small while the server talks, and grows while it is away."""
    server.put(f"{A}/one")
    cache, _ = follow()
    assert cache.age() == float("inf")
    await asyncio.wait_for(cache.synced.wait(), 5)
    assert cache.age() < 1
    await server.stop()
    await asyncio.sleep(0.5)
    assert cache.age() >= 0.5
    assert held(cache) == truth(server)


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


async def test_what_nests_deeper_than_a_decoder_goes_stops_nothing(server, follow):
    """The API server takes ten thousand levels of what nobody reads: the object is like others, and its list, too."""
    spec = b'"spec":{"unheardOf":["' + rb"\"[" + b'",' + b"[" * 5000 + b"]" * 5000 + b'],"nodeName":"n1"}'
    body = b'{"metadata":{"namespace":"a","name":"%s","uid":"u","resourceVersion":"%d"},' + spec + b"}"
    page = b'{"metadata":{"resourceVersion":"7"},"items":[' + body % (b"listed", 7) + b"]}"
    server.fault(reply(page), contains="limit=500")
    cache, changes = follow()
    await until(lambda: server.watches)
    server.tell(b'{"type":"ADDED","object":' + body % (b"watched", 107) + b"}\n")
    await until(lambda: len(changes) == 2)
    assert {pod.spec.node_name for pod in cache.items().values()} == {"n1"}
    server.tell(b'{"type":"DELETED","object":' + body % (b"watched", 108) + b"}\n")
    await until(lambda: len(changes) == 3)
    assert list(cache.items()) == ["a/listed"]


async def test_an_object_that_became_unreadable_is_kept_as_it_was(server, follow):
    """A known object that can no longer be read stays as it was, also after a new list, until it goes."""
    server.put(f"{A}/one", spec={"nodeName": "n1"})
    cache, changes = follow()
    await until(lambda: server.watches)
    server.put(f"{A}/one", spec={"nodeName": 5})
    server.fault(answer(410, "Expired"), contains="watch=")
    server.cut_watches()
    await until(lambda: len(server.asked("GET", "limit=500")) == 2)
    await until(lambda: server.watches)
    assert cache.get("a/one").spec.node_name == "n1"
    assert changes == [("added", "a/one")]
    server.remove(f"{A}/one")
    await until(lambda: len(changes) == 2)
    assert changes[1] == ("deleted", "a/one")


async def test_a_handler_that_fails_stops_nobody(server, follow, caplog):
    """An exception in a handler is logged; the other handlers and the cache go on."""
    cache, changes = follow()
    cache.handlers.insert(0, lambda change: 1 / 0)
    await asyncio.wait_for(cache.synced.wait(), 5)
    server.put(f"{A}/one")
    server.put(f"{A}/two")
    await until(lambda: len(changes) == 2)
    assert "ZeroDivisionError" in caplog.text


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
    assert cache.version == "207"


async def test_versions_that_are_no_numbers_are_only_compared_for_equality(server, follow):
    """Opaque resourceVersions are taken in the order in which they come."""
    _, changes = follow()
    await until(lambda: server.watches)
    server.tell(event("ADDED", "x", "q9") + event("MODIFIED", "x", "b2") + event("MODIFIED", "x", "b2"))
    server.tell(event("DELETED", "x", "a1"))
    await until(lambda: len(changes) == 3)
    assert changes == [("added", "a/x"), ("modified", "a/x"), ("deleted", "a/x")]
