"""What a turn of a connection is good for: one request, one look at its review, and so much decryption."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.admission.builders import make_class, make_pod, make_review
from tests.policy.builders import namespace
from tests.serving.openssl import OpenSslClient, openssl
from webhook.admission.context import Objects, Overlay
from webhook.serving import turns
from webhook.serving.cluster_objects import GivenObjects
from webhook.serving.turns import Turns

pytestmark = pytest.mark.slow

HIGH = make_class("high", 100)


def request(name: str, class_name: str = "high") -> bytes:
    """A review of a pod of that name, as it goes over the wire."""
    body = json.dumps(make_review(make_pod(name, priorityClassName=class_name))).encode()
    head = f"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.fixture
def served(connect):
    """Open a connection that has had its first turn."""

    async def connecting(running):
        reader, writer = await connect(running)
        writer.write(request("first"))
        await reader.readuntil(b"}}")
        return writer

    return connecting


class Asked(GivenObjects):
    """An API server that has no class but those that are given."""

    async def ask(self, unsure, flow):
        return Overlay(self.lookup, {name: None for _, name in unsure}, {}, {})


@pytest.mark.parametrize(
    ("classes", "turns_taken"),
    [
        pytest.param(["high"], 1, id="one"),
        pytest.param(["high"] * 5, 5, id="several that came in one go"),
        pytest.param(["ghost"], 2, id="one that is looked at again after a look-up"),
    ],
)
async def test_reviews_take_so_many_turns(start, served, monkeypatch, classes, turns_taken):
    """Who waits for answers has as many reviews as who sends them in a row, and one with look-ups has half as many."""
    own = []
    later = Turns.later

    def noting(self, flow, work, estimate, *, begun=False):
        own.append(not begun)
        later(self, flow, work, estimate, begun=begun)

    async with start(source=Asked(Objects([HIGH], [namespace("team-a")]))) as running:
        writer = await served(running)
        monkeypatch.setattr(turns, "_ROUND", -1.0)  # nothing is done without waiting
        monkeypatch.setattr(Turns, "later", noting)
        writer.write(b"".join(request(f"pod-{number}", name) for number, name in enumerate(classes)))
        await running.logged(object=f"team-a/pod-{len(classes) - 1}")
        assert sum(own) == turns_taken


@pytest.mark.skipif(openssl() is None, reason="there is no library of OpenSSL")
async def test_changes_of_keys_are_carried_out_in_turns(start):
    """64 KB can hold 2400 of them, which take 35 ms together."""
    async with start(objects=Objects([HIGH])) as running:
        client = await asyncio.to_thread(OpenSslClient, running.server.secure_port)

        for _ in range(2000):
            client.update_keys(answered=False)
        longest = 0.0
        for _ in range(300):
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)
        client.close()
        assert longest < 0.01


async def test_of_a_client_that_takes_nothing_no_more_is_read(start, served):
    """What it is sent without a request of its own, as answers to changes of keys, does not pile up."""
    async with start(objects=Objects([HIGH])) as running:
        await served(running)
        [served] = running.server._listener._server.connections
        tls = served.transport._ssl_protocol
        tls.pause_writing()
        assert not tls._raw.is_reading()
        tls.resume_writing()
        assert tls._raw.is_reading()


async def test_no_session_is_kept_for_a_client_to_come_back_to(start, served):
    """API servers do not resume TLS sessions, and a ticket takes a fifth of the time of a handshake."""
    async with start(objects=Objects([HIGH])) as running:
        writer = await served(running)
        assert writer.get_extra_info("ssl_object").session.has_ticket is False
