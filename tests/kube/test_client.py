"""The client against a real socket: verbs, errors, pages, watches, timeouts."""

import asyncio
import json
import socket
from contextlib import aclosing

import msgspec
import pytest
from aiohttp import web

from tests.kube.server import answer, cut, delay, reply, until
from webhook.kube import resources
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.objects.pod import Pod
from webhook.kube.transport import BEFORE_SENDING

pytestmark = pytest.mark.skipped_waits

PODS = resources.POD.path("team-a")


@pytest.fixture
async def client(server):
    async with Client.for_server(server.url, token="secret", timeout=5) as connected:
        yield connected


@pytest.mark.parametrize(
    ("resource", "args", "expected"),
    [
        pytest.param(resources.POD, (), "/api/v1/pods", id="all-namespaces"),
        pytest.param(resources.POD, ("a", "p", "eviction"), "/api/v1/namespaces/a/pods/p/eviction", id="subresource"),
        pytest.param(resources.NODE, (None, "n1", "status"), "/api/v1/nodes/n1/status", id="cluster-wide"),
        pytest.param(resources.POD_DISRUPTION_BUDGET, (), "/apis/policy/v1/poddisruptionbudgets", id="group"),
        pytest.param(resources.POD, ("a", "x/../y"), "/api/v1/namespaces/a/pods/x%2F..%2Fy", id="escaped"),
    ],
)
def test_paths(resource, args, expected):
    """A resource knows the path of its collection, its objects and their sub-resources."""
    assert resource.path(*args) == expected


@pytest.mark.parametrize(
    ("resource", "args"),
    [
        pytest.param(resources.NODE, ("a", "n"), id="too-much"),
        pytest.param(resources.POD, (None, "p"), id="too-little"),
    ],
)
def test_paths_refuse_a_wrong_namespace(resource, args):
    """A namespace too many or too few is an error, not another path."""
    with pytest.raises(ValueError, match="namespace"):
        resource.path(*args)


async def test_objects_are_decoded_to_the_type_asked_for(server, client):
    """An answer becomes the given type; fields nobody asked for do no harm."""
    server.put(f"{PODS}/a", spec={"nodeName": "n1", "unheardOf": [1]})
    pod = await client.get(f"{PODS}/a", Pod)
    assert (pod.metadata.namespace, pod.spec.node_name) == ("team-a", "n1")
    assert (await client.get(f"{PODS}/a"))["spec"]["unheardOf"] == [1]


async def test_requests_carry_who_they_are_from(server, client):
    """Every request names the program and its version and carries the token."""
    server.put(f"{PODS}/a")
    await client.get(f"{PODS}/a", dryRun=None, pretty=False, resourceVersion="")
    [(_, path, headers, _)] = server.requests
    assert path == f"{PODS}/a?pretty=false"
    assert headers["Authorization"] == "Bearer secret"
    assert headers["User-Agent"].startswith("giveway/0")


async def test_objects_are_created_replaced_and_deleted(server, client):
    """POST, PUT and DELETE reach the server with their bodies and queries."""
    made = await client.create(PODS, {"metadata": {"name": "a"}}, Pod, dryRun="All")
    with pytest.raises(ApiError) as stale:
        await client.replace(f"{PODS}/a", {"metadata": {"name": "a", "resourceVersion": "1"}})
    assert (stale.value.status, stale.value.reason) == (409, "Conflict")
    again = await client.replace(f"{PODS}/a", made, Pod)
    assert again.metadata.resource_version > made.metadata.resource_version
    assert (await client.delete(f"{PODS}/a", {"preconditions": {"uid": made.metadata.uid}}))["status"] == "Success"
    assert json.loads(server.requests[-1][3]) == {"preconditions": {"uid": made.metadata.uid}}
    assert server.asked("POST") == [f"{PODS}?dryRun=All"]


async def test_a_refusal_is_told_in_the_servers_words(server, client):
    """A Status becomes an ApiError with its reason, message, details and the wait it asks for."""
    refuse = answer(
        429, "TooManyRequests", headers={"Retry-After": "7"}, causes=[{"reason": "DisruptionBudget", "message": "no"}]
    )
    server.fault(refuse, method="POST")
    with pytest.raises(ApiError) as refused:
        await client.create(f"{PODS}/a/eviction", {})
    error = refused.value
    assert (error.status, error.reason, error.retry_after) == (429, "TooManyRequests", 7.0)
    assert error.causes() == ["DisruptionBudget"]
    assert str(error) == "429 TooManyRequests: TooManyRequests"


@pytest.mark.parametrize(
    ("absent", "status", "is_none"), [((), 404, True), ((), 403, False), ((403, 409), 409, True), ((403,), 404, False)]
)
async def test_what_is_absent_is_none(server, client, absent, status, is_none):
    """The statuses that are named, or else 404, become None; every other refusal stays an error."""
    server.fault(answer(status, "Refused"))
    if is_none:
        assert await unless_absent(client.get(f"{PODS}/a"), *absent) is None
    else:
        with pytest.raises(ApiError, match="Refused"):
            await unless_absent(client.get(f"{PODS}/a"), *absent)


async def test_the_wait_may_stand_in_the_details(server, client):
    """Where no Retry-After header came, `details.retryAfterSeconds` counts."""
    server.fault(answer(504, "Timeout", retryAfterSeconds=3))
    with pytest.raises(ApiError) as late:
        await client.get(f"{PODS}/a")
    assert late.value.retry_after == 3.0


async def test_an_answer_from_a_proxy_is_quoted(server, client):
    """An error that is no Status (a proxy's page) is quoted, shortened."""
    server.fault(reply(b"<html>bad gateway</html>" + b"x" * 10_000, code=502, content_type="text/html"))
    with pytest.raises(ApiError) as refused:
        await client.get(f"{PODS}/a")
    assert refused.value.status == 502
    assert refused.value.message.startswith("<html>bad gateway")
    assert len(refused.value.message) <= 300


async def test_an_answer_of_another_shape_is_an_error(server, client):
    """An answer that is not what was asked for says where and why."""
    server.fault(reply(b'{"spec": {"nodeName": 5}}'))
    with pytest.raises(ApiError, match=r"Expected `str`, got `int`.*spec.nodeName"):
        await client.get(f"{PODS}/a", Pod)


async def test_lists_are_read_page_by_page(server, client):
    """All pages of a list come back as one, with the list's resourceVersion."""
    for number in range(25):
        server.put(f"{PODS}/p{number:02}")
    pods, version = await client.list(PODS, Pod, limit=10, labelSelector="a=b")
    assert [pod.metadata.name for pod in pods] == [f"p{number:02}" for number in range(25)]
    assert version == str(server.version)
    assert len(server.asked("GET")) == 3
    assert all("labelSelector=a%3Db" in path or "labelSelector=a=b" in path for path in server.asked("GET"))


async def test_an_empty_list_may_be_null(server, client):
    """`items: null` is an empty list."""
    assert await client.list(PODS, Pod) == ([], "100")


async def test_a_large_list_is_unpacked(server, client):
    """A compressed page far larger than on the wire is read in full."""
    body = json.dumps({"metadata": {}, "items": [{"metadata": {"name": "a" * 200}}] * 100_000}).encode()

    async def compressed(_request):
        answer = web.Response(body=body, content_type="application/json")
        answer.enable_compression(web.ContentCoding.gzip)
        return answer

    server.fault(compressed)
    items, _ = await client.list(PODS, msgspec.Raw)
    assert len(items) == 100_000


async def test_a_peer_that_is_gone_is_noticed(server, client):
    """Connections are probed when they are idle, and given up when nothing is acknowledged within half a minute."""
    await client.list(PODS)
    [(protocol, _)] = [found for kept in client._transport._session.connector._conns.values() for found in kept]
    connection = protocol.transport.get_extra_info("socket")
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    options = {name: getattr(socket, name) for name in dir(socket) if name.startswith(("TCP_KEEP", "TCP_USER_TIMEOUT"))}
    found = {name: connection.getsockopt(socket.IPPROTO_TCP, option) for name, option in options.items()}
    expected = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
    assert found == {name: value for name, value in expected.items() if hasattr(socket, name)}


async def test_an_expired_list_goes_on_where_it_stopped(server, client):
    """The token of the 410 is used, at each page, but not without end."""
    for number in range(5):
        server.put(f"{PODS}/p{number}")

    async def too_old(request):
        expired = {"kind": "Status", "code": 410, "metadata": {"continue": request.query["continue"]}}
        return web.json_response(expired, status=410)

    for place in (2, 4):
        server.fault(too_old, contains=f"continue={place}")
    pods, _ = await client.list(PODS, Pod, limit=2)
    assert [pod.metadata.name for pod in pods] == ["p0", "p1", "p2", "p3", "p4"]
    server.fault(too_old, contains="continue=2", times=6)
    with pytest.raises(ApiError, match="410"):
        await client.list(PODS, limit=2)


@pytest.mark.parametrize("action", [answer(429, "TooManyRequests"), answer(503, "Unavailable")], ids=["429", "503"])
async def test_a_busy_server_is_asked_again(server, client, action):
    """A page that the server is too busy to send is asked for again, but not without end."""
    for number in range(3):
        server.put(f"{PODS}/p{number}")
    server.fault(action, contains="continue=2", times=5)
    pods, _ = await client.list(PODS, Pod, limit=2)
    assert [pod.metadata.name for pod in pods] == ["p0", "p1", "p2"]
    server.fault(action, contains="continue=2", times=6)
    with pytest.raises(ApiError, match=r"TooManyRequests|Unavailable"):
        await client.list(PODS, Pod, limit=2)


async def test_a_read_whose_connection_breaks_is_tried_again(server, client):
    """A GET survives one broken connection."""
    server.put(f"{PODS}/a")
    server.fault(cut)
    assert (await client.get(f"{PODS}/a", Pod)).metadata.name == "a"


async def test_a_write_whose_connection_breaks_is_not_repeated(server, client):
    """A POST is never sent twice: whether the first arrived is for the caller to find out."""
    await client.list(PODS)  # so that the connection is one that was used before
    server.fault(cut, times=9)
    with pytest.raises(ApiError) as broken:
        await client.create(PODS, {"metadata": {"name": "a"}})
    assert (broken.value.status, broken.value.reason) == (0, "Unreachable")
    assert len(server.asked("POST")) == 1


async def test_each_sending_of_a_body_is_asked_about(server, client):
    """If a used connection turns out to be closed, aiohttp 3.14.1 sends a DELETE again: whole, and after the check."""
    checks, failed = [], ""
    await client.create(PODS, {"metadata": {"name": "a"}})
    server.fault(cut, method="DELETE")
    before = BEFORE_SENDING.set(lambda: checks.append("asked"))
    try:
        await client.delete(f"{PODS}/a", {"gracePeriodSeconds": 5})
    except ApiError as error:  # what newer ones say instead
        failed = error.reason
    finally:
        BEFORE_SENDING.reset(before)
    assert failed in ("", "Unreachable")
    bodies = [body for method, _, _, body in server.requests if method == "DELETE"]
    assert set(bodies) == {b'{"gracePeriodSeconds":5}'}
    assert len(checks) == len(bodies)


async def test_no_server_is_said_plainly():
    """Where nobody listens, the error names the request and the address."""
    async with Client.for_server("http://127.0.0.1:9") as client:
        with pytest.raises(ApiError, match=r"no answer Unreachable: GET /api/v1/pods: .*127.0.0.1:9"):
            await client.get("/api/v1/pods")


async def test_every_request_has_an_end(server):
    """A server that does not answer costs the timeout and no more."""
    server.fault(delay(30), times=5)
    async with Client.for_server(server.url, timeout=0.2) as client:
        with pytest.raises(ApiError) as late:
            await asyncio.wait_for(client.get(PODS), 5)
    assert (late.value.status, late.value.reason) == (0, "Timeout")


async def collect(client, count, since="100"):
    events = []
    async with aclosing(client.watch(PODS, resource_version=since)) as stream:
        assert await anext(stream) == ("", b""), "the server has accepted"
        async for event in stream:
            events.append(event)
            if len(events) == count:
                break
    return events


async def test_watches_carry_lines_of_any_length(server, client):
    """A watch event of a megabyte arrives like any other."""
    server.put(f"{PODS}/small")
    server.put(f"{PODS}/large", metadata={"annotations": {"note": "x" * (1 << 20)}})
    server.put(f"{PODS}/last")
    events = await collect(client, 3)
    assert [kind for kind, _ in events] == ["ADDED"] * 3
    assert len(events[1][1]) > 1 << 20
    assert msgspec.json.decode(events[2][1], type=Pod).metadata.name == "last"


async def test_lines_do_not_depend_on_how_they_arrive(server, client):
    """A line that comes in parts is one, blank ones are left out, and one that is cut off is dropped."""
    server.put(f"{PODS}/a")
    watching = asyncio.create_task(collect(client, 9))
    await until(lambda: server.watches)
    for part in (b'{"type":"MODIFIED",', b'"object":{}}\n', b'\n{"type":"DELETED","object":{}}\n', b'{"type":"MODIF'):
        server.tell(part)
        await asyncio.sleep(0.02)
    server.cut_watches()
    assert [kind for kind, _ in await watching] == ["ADDED", "MODIFIED", "DELETED"]


async def test_a_line_that_is_no_event_is_an_error(server, client):
    """Garbage on a watch is reported rather than guessed at."""
    watching = asyncio.create_task(collect(client, 9))
    await until(lambda: server.watches)
    server.tell(b"proxy says hello\n")
    with pytest.raises(ApiError, match="BadWatchLine"):
        await watching


async def test_a_refused_watch_is_an_error(server, client):
    """A watch that the server refuses raises what the server says."""
    server.compacted = 500
    with pytest.raises(ApiError) as expired:
        await collect(client, 1)
    assert (expired.value.status, expired.value.reason) == (410, "Expired")


async def test_who_it_is(server, client):
    """The API server says as whom it knows the client; an answer that names nobody is an error."""
    server.fault(reply(b'{"status":{"userInfo":{"username":"anna"}}}'), method="POST")
    assert await client.user_name() == "anna"
    server.fault(reply(b'{"status":{}}'), method="POST")
    with pytest.raises(ApiError, match="names no user"):
        await client.user_name()
