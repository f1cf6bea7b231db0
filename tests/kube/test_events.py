"""Events: told once, counted after, never in the way."""

import asyncio
import json

import pytest

from tests.kube.server import answer, cut, delay, until
from webhook.kube import events, resources
from webhook.kube.client import Client
from webhook.kube.events import EventRecorder, Occurrence, reference
from webhook.kube.objects.meta import ObjectMeta

pytestmark = pytest.mark.skipped_waits

POD = reference(resources.POD, ObjectMeta(name="web-1", namespace="team-a", uid="u1"))
OTHER = reference(resources.POD, ObjectMeta(name="vip", namespace="team-b", uid="u2"))
NODE = reference(resources.NODE, ObjectMeta(name="n1", uid="u3"))


@pytest.fixture
async def recorder(server, monkeypatch):
    monkeypatch.setattr(events, "_SERIES_PERIOD", 0.05)
    client = Client.for_server(server.url, timeout=2)
    recorder = EventRecorder(client, "giveway.dev/reconciler", "giveway-0")
    yield recorder
    await recorder.close(0.1)
    await client.close()


def told(server):
    return [obj for path, obj in server.objects.items() if "/events/" in path]


def preempted(recorder, regarding=POD, note="made room for a pod of class vip"):
    recorder.event(Occurrence(regarding, OTHER, "Normal", "Preempted", "Preempting", note))


def occurrence(name, reason, *, urgent=False):
    return Occurrence({**POD, "name": name}, None, "Normal", reason, "Preempting", "-", urgent)


async def test_an_event_says_what_happened_to_whom(server, recorder):
    """An Event carries everything that events.k8s.io asks for, in the namespace of the object it regards."""
    preempted(recorder)
    await until(lambda: told(server))
    [event] = told(server)
    assert event["metadata"]["namespace"] == "team-a"
    assert event["metadata"]["name"].startswith("web-1.")
    assert event["eventTime"].endswith("Z")
    assert {key: event[key] for key in ("type", "reason", "action", "note", "reportingController", "related")} == {
        "type": "Normal",
        "reason": "Preempted",
        "action": "Preempting",
        "note": "made room for a pod of class vip",
        "reportingController": "giveway.dev/reconciler",
        "related": {"apiVersion": "v1", "kind": "Pod", "namespace": "team-b", "name": "vip", "uid": "u2"},
    }
    assert event["reportingInstance"] == "giveway-0"
    assert "series" not in event


async def test_events_of_cluster_wide_objects_lie_in_default(server, recorder):
    """An Event that regards a node is written to the namespace default, as the API demands."""
    recorder.event(Occurrence(NODE, None, "Warning", "Full", "Planning", "no room"))
    await until(lambda: told(server))
    [event] = told(server)
    assert event["metadata"]["namespace"] == "default"
    assert "related" not in event


async def test_repetitions_become_a_series(server, recorder):
    """The same thing said again is one Event whose series counts; another thing is another Event."""
    preempted(recorder)
    await until(lambda: told(server))
    for number in range(4):
        preempted(recorder, note=f"again, {number}")
    preempted(recorder, regarding=OTHER)
    await until(lambda: len(told(server)) == 2 and any("series" in event for event in told(server)))
    [series] = [event["series"] for event in told(server) if "series" in event]
    assert series["count"] == 5
    assert series["lastObservedTime"].endswith("Z")
    assert len(server.asked("POST")) == 2


async def test_a_burst_is_counted_before_it_is_sent(server, recorder):
    """Repetitions that come before the first was sent cost one request."""
    for _ in range(50):
        preempted(recorder)
    await recorder.close()
    [event] = told(server)
    assert event["series"]["count"] == 50
    assert len(server.requests) == 1


async def test_a_series_is_updated_now_and_then(server, recorder, monkeypatch):
    """A thing that happens all the time is not written all the time, and the last count gets out at the end."""
    monkeypatch.setattr(events, "_SERIES_PERIOD", 60.0)
    for _ in range(30):
        preempted(recorder)
        await asyncio.sleep(0.005)
    assert len(server.requests) == 1
    await recorder.close()
    assert told(server)[0]["series"]["count"] == 30
    assert len(server.requests) == 2


async def test_after_a_while_a_new_series_begins(server, recorder, monkeypatch):
    """What happens again after six minutes of quiet is a new Event."""
    preempted(recorder)
    await until(lambda: told(server))
    monkeypatch.setattr(events, "_SERIES_ENDS", -1.0)
    preempted(recorder)
    await until(lambda: len(told(server)) == 2)


async def test_an_event_the_server_forgot_is_written_again(server, recorder):
    """Events expire after an hour; a series whose Event is gone begins again."""
    preempted(recorder)
    await until(lambda: told(server))
    server.objects.clear()
    preempted(recorder)
    await until(lambda: told(server))
    assert "series" not in told(server)[0]


async def test_events_go_on_after_their_task_failed(server, recorder, monkeypatch):
    """An error nobody foresaw costs what was waiting for a moment, not every Event that follows."""
    with monkeypatch.context() as patched:
        patched.setattr(events, "_PER_SECOND", 0)
        preempted(recorder)
        await asyncio.gather(recorder._task, return_exceptions=True)
    preempted(recorder)
    await until(lambda: told(server))
    assert told(server)[0]["series"]["count"] == 2


@pytest.mark.parametrize("action", [answer(500), answer(429), cut], ids=["500", "429", "cut"])
async def test_passing_trouble_is_waited_out(server, recorder, action):
    """An Event survives a server that fails for a moment."""
    server.fault(action, method="POST", times=2)
    preempted(recorder)
    await until(lambda: told(server))
    assert recorder.dropped == 0


async def test_an_event_that_did_arrive_is_not_doubled(server, recorder):
    """Where the answer to a write was lost, trying again finds the Event there and is content."""
    arrived = []

    async def store_and_cut(request):
        body = json.loads(await request.read())
        server.put(f"{request.path}/{body['metadata']['name']}", **body)
        arrived.append(1)
        return await cut(request)

    server.fault(store_and_cut, method="POST")
    preempted(recorder)
    await until(lambda: len(server.asked("POST")) == 2)
    await recorder.close()
    assert (len(told(server)), recorder.dropped) == (1, 0)


@pytest.mark.parametrize("code", [403, 404, 422])
async def test_a_refused_event_is_dropped(server, recorder, caplog, code):
    """An Event that the server will never accept is logged and dropped; later ones go on."""
    server.fault(answer(code, "No"), method="POST")
    preempted(recorder)
    preempted(recorder, regarding=OTHER)
    await until(lambda: told(server))
    assert recorder.dropped == 1
    assert "Preempted was not accepted" in caplog.text


async def test_the_queue_is_bounded(server, recorder):
    """What waits for a server that does not answer stays bounded, the rest is counted; a repetition needs no room."""
    server.fault(delay(60), method="POST", times=10_000)
    for number in [*range(1500), 5]:
        preempted(recorder, regarding={**POD, "name": f"web-{number}"})
    assert recorder.dropped == 500


async def test_urgent_events_outlive_the_others(server, recorder, caplog):
    """In a herd the others make room for urgent events, which are sent first; what is dropped is counted by reason."""
    reasons = []
    recorder._on_drop = reasons.append
    for number in range(1200):
        recorder.event(occurrence(f"other-{number}", "NodeReserved"))
    for number in range(1001):
        recorder.event(occurrence(f"web-{number}", "Preempted", urgent=True))
    assert (recorder.dropped, reasons) == (1201, [*["NodeReserved"] * 1200, "Preempted"])
    assert caplog.text.count("further ones are counted") == 1
    await until(lambda: len(told(server)) >= 50)
    assert {event["reason"] for event in told(server)} == {"Preempted"}


async def test_it_never_raises(recorder, caplog):
    """Even an occurrence that makes no sense is only logged."""
    recorder.event(Occurrence({}, None, "Normal", "Preempted", "Preempting", "?"))
    recorder.event(Occurrence(POD, None, "Normal", "Preempted", "Preempting", None))
    assert recorder.dropped == 2
    assert "was lost" in caplog.text


async def test_the_end_comes_in_time(server, recorder):
    """Closing waits no longer than its deadline for a server that hangs."""
    server.fault(delay(60), times=10)
    preempted(recorder)
    begun = asyncio.get_running_loop().time()
    await recorder.close(0.3)
    assert asyncio.get_running_loop().time() - begun < 1
    preempted(recorder)
    assert len(told(server)) == 0


async def test_a_long_note_is_shortened(server, recorder):
    """Notes end after the 1024 bytes that the API allows, never inside a character."""
    preempted(recorder, note="ü" * 2000)
    await until(lambda: told(server))
    assert told(server)[0]["note"] == "ü" * 512


async def test_the_rate_is_bounded(server, recorder, monkeypatch):
    """After a burst, requests go out at the given rate and no faster."""
    monkeypatch.setattr(events, "_PER_SECOND", 20)
    monkeypatch.setattr(events, "_BURST", 5)
    for number in range(40):
        preempted(recorder, regarding={**POD, "name": f"web-{number}"})
    await asyncio.sleep(1.0)
    assert 20 <= len(server.requests) <= 28
