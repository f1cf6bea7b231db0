"""Reviews over real TLS: what goes around the answer."""

import asyncio
import gc
import json
import tracemalloc

import pytest

from tests.admission.builders import (
    UID,
    make_class,
    make_context,
    make_pod,
    make_review,
)
from tests.serving.conftest import GivenObjects, trusting
from webhook.admission.webhook import HANDLERS
from webhook.kube.errors import ApiError

HIGH = make_class("high", 100)
GOOD = make_review(make_pod(priorityClassName="high"))


def error(code, reason, message, uid=""):
    return {"uid": uid, "allowed": False, "status": {"code": code, "reason": reason, "message": message}}


async def test_another_content_type_is_a_415(running):
    """A body of another type is not looked at; `application/json; charset=utf-8` is JSON."""
    status, answer = await running.post("/mutate", GOOD, headers={"Content-Type": "text/plain"})
    assert status == 415
    text = "Content-Type is 'text/plain'; application/json was expected"
    assert answer == error(415, "UnsupportedMediaType", text)
    status, _ = await running.post("/mutate", GOOD, headers={"Content-Type": "application/json; charset=utf-8"})
    assert status == 200


async def test_the_largest_objects_are_judged(running):
    """An UPDATE carries two objects of the 3 MB that the API server takes."""
    largest = make_pod(
        containers=[{"name": "c", "image": "i", "args": ["x" * 3 * 1024 * 1024]}],
        priorityClassName="high",
        priority=100,
    )
    status, answer = await running.post("/validate", make_review(largest, largest))
    assert (status, answer["allowed"]) == (200, True)


@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
async def test_an_oversized_body_that_is_no_review_is_a_413(running, chunked):
    """Without a uid there is no answer that an API server would accept."""
    big = b" " * (8 * 1024 * 1024 + 1)

    async def chunks():
        for at in range(0, len(big), 65536):
            yield big[at : at + 65536]

    headers = {"Content-Type": "application/json"}
    async with running.session.post(running.url + "/mutate", data=chunks() if chunked else big, headers=headers) as got:
        status, answer = got.status, (await got.json())["response"]
    assert status == 413
    text = "the body is larger than 8388608 bytes, and it does not begin with the uid of an AdmissionReview"
    assert answer == error(413, "RequestEntityTooLarge", text)


@pytest.mark.parametrize("size", [9, 27, 40], ids="{} MB".format)
@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.slow
async def test_an_oversized_review_is_refused_and_not_an_error(running, path, size):
    """An error would let it pass wherever failurePolicy is Ignore, and a tenant can make any object that large."""
    padded = make_review(make_pod(meta={"annotations": {"a": "<" * (size * 1_000_000 // 6)}}))
    body = json.dumps(padded).replace("<", "\\u003c").encode()
    status, answer = await running.post(path, body)
    line = await running.logged(message="review")
    metrics = (await running.get("/metrics"))[1]
    assert status == 200
    assert answer["uid"] == UID
    assert answer["allowed"] is False
    assert answer["status"]["code"] == 403
    assert "rule builtin/size: the review of this request is larger than 8388608 bytes" in answer["status"]["message"]
    assert answer["auditAnnotations"] == {"denied-by": "builtin/size"}
    assert (line["verdict"], line["rule"], line["uid"]) == ("denied", "builtin/size", UID)
    assert 'giveway_policy_evaluations_total{policy="builtin",rule="size",verdict="deny"} 1.0' in metrics


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/mutate", 405), ("POST", "/", 404), ("POST", "/mutate/x", 404), ("GET", "/metrics", 404)],
)
async def test_only_reviews_are_served_on_the_secure_port(start, method, path, status):
    """Another method or path is refused as such."""
    async with start() as running, running.session.request(method, running.url + path) as answer:
        assert answer.status == status


async def test_a_handler_that_raises_is_a_500_and_logged(running, monkeypatch):
    """A bug is answered well formed, and its traceback is in the log."""
    monkeypatch.setitem(HANDLERS, ("mutate", "", "pods", ""), lambda *_: 1 / 0)
    status, answer = await running.post("/mutate", GOOD)
    line = await running.logged(level="error")
    assert status == 500
    assert answer["uid"] == UID
    assert "ZeroDivisionError" in line["exception"]


@pytest.mark.parametrize(
    ("there", "path", "status", "words"),
    [
        pytest.param(HIGH, "/mutate", 200, "", id="found before its first pod is refused"),
        pytest.param(None, "/validate", 200, "no PriorityClass with name high was found", id="looked up and not there"),
        pytest.param(ApiError(500, "x", "etcd is away"), "/validate", 503, "etcd is away", id="nobody answers"),
    ],
)
async def test_a_class_missing_from_the_cache_is_looked_up_live_once(start, there, path, status, words):
    """Nobody is refused because the API server is silent: 503, and failurePolicy decides."""

    async def asked(below):
        if isinstance(there, ApiError):
            raise there
        return below.corrected({"priorityclasses": {"high": there}})

    source = GivenObjects(make_context().lookup, asked)
    async with start(source=source) as running:
        found, answer = await running.post(path, GOOD)
    assert (found, answer["uid"]) == (status, UID)
    assert words in answer.get("status", {}).get("message", "")
    assert answer["allowed"] is not bool(words)
    assert source.asked == [("team-a", [("priorityclasses", "high")])]


async def test_a_review_ends_within_its_share_of_the_timeout(start):
    """The answer comes before the API server stops waiting: 80 % of the query's timeout."""

    async def slow(below):
        await asyncio.sleep(30)

    async with start(source=GivenObjects(make_context().lookup, slow)) as running:
        began = asyncio.get_running_loop().time()
        status, answer = await running.post("/validate?timeout=1s", GOOD)
        took = asyncio.get_running_loop().time() - began
    assert status == 504
    assert answer == error(
        504, "Timeout", "the review was not finished within 0.8 s, its share of the timeout", answer["uid"]
    )
    assert 0.7 < took < 1


async def test_a_server_that_stops_gives_requests_in_hand_its_timeout_and_no_more(start):
    """Kubernetes kills a process that takes too long to stop: whoever hangs does not take longer than is set."""
    asked = asyncio.Event()

    async def slow(below):
        asked.set()
        await asyncio.sleep(30)

    async with start(source=GivenObjects(make_context().lookup, slow), shutdown_timeout=1.0) as running:
        hanging = asyncio.create_task(running.post("/validate?timeout=10s", GOOD))
        await asked.wait()
        began = asyncio.get_running_loop().time()
        await running.manager.__aexit__()
        took = asyncio.get_running_loop().time() - began
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
    assert 0.9 < took < 1.6


@pytest.fixture
def traced():
    """Memory is counted, and nobody collects cycles: garbage that waits for that can fill the memory before."""
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


async def test_a_client_that_leaves_is_no_bug(start, authority, caplog, traced):
    """An API server that gives up in the middle of a body leaves one line in the log, no traceback and no body."""
    head = b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 5000000\r\n\r\n"
    async with start() as running:
        _, writer = await asyncio.open_connection("127.0.0.1", running.server.secure_port, ssl=trusting(authority))
        writer.write(head + b" " * 4_000_000)
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.transport.abort()
        await running.logged(message="review", code=400)
        held, _ = tracemalloc.get_traced_memory()
    assert held < 2_000_000
    assert not [record for record in caplog.records if record.exc_info]
