"""Watches: what they send, how they end, and what a client learns when history is gone."""

import asyncio
import json
from contextlib import aclosing

import pytest

from tests.clusters.embedded.bare import bare_server
from webhook.clusters.embedded.protocol.calls import ApiCall
from webhook.clusters.embedded.storage.object_store import ObjectStore

MAPS = "/api/v1/namespaces/n/configmaps"


def config_map(name, **labels):
    return {"metadata": {"name": name, "labels": labels}}


async def take(stream, count):
    """The first events, as (type, name)."""
    found = []
    async with asyncio.timeout(5), aclosing(stream):
        async for kind, raw in stream:
            metadata = json.loads(raw).get("metadata", {})
            found.append((kind, metadata.get("name", "")))
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize("version", ["", "0"])
async def test_from_anywhere(api, version):
    """A watch from nowhere, or from 0, begins with what there is."""
    client = api.local()
    await client.create(MAPS, config_map("a"))
    watch = asyncio.create_task(take(client.watch(MAPS, resource_version=version), 2))
    await asyncio.sleep(0.01)
    await client.create(MAPS, config_map("b"))
    assert await watch == [("ADDED", "a"), ("ADDED", "b")]


async def test_an_object_that_comes_to_match_and_ceases_to(api):
    """With a selector, an object is added when it comes to match and deleted when it ceases to."""
    client = api.local()
    _items, version = await client.list(MAPS)
    await client.create(MAPS, config_map("a"))
    await client.patch(f"{MAPS}/a", {"metadata": {"labels": {"on": "1"}}})
    await client.patch(f"{MAPS}/a", {"metadata": {"labels": {"x": "1"}}})
    await client.patch(f"{MAPS}/a", {"metadata": {"labels": {"on": None}}})
    stream = client.watch(MAPS, resource_version=version, labelSelector="on=1")
    assert await take(stream, 3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_lagging_watch_is_cut():
    """A watch whose position is no longer in the bounded history ends with a 410; nothing was buffered for it."""
    api = bare_server(store=ObjectStore(history=10))
    client = api.local()
    _items, version = await client.list(MAPS)
    await client.create(MAPS, config_map("first"))
    stream = client.watch(MAPS, resource_version=version)
    assert (await anext(stream))[0] == "ADDED"
    for number in range(50):
        await client.create(MAPS, config_map(f"m{number}"))
    kind, raw = await anext(stream)
    assert (kind, json.loads(raw)["code"]) == ("ERROR", 410)
    assert [event async for event in stream] == []


async def test_after_compaction(api):
    """Compaction ends the past: from before it, a watch is a 410; an open watch that is up to date goes on."""
    client = api.local()
    _items, version = await client.list(MAPS)
    open_watch = client.watch(MAPS, resource_version=version)
    await client.create(MAPS, config_map("a"))
    assert (await anext(open_watch))[0] == "ADDED"
    api.store.compact()
    kind, raw = await anext(client.watch(MAPS, resource_version=version))
    assert (kind, json.loads(raw)["reason"]) == ("ERROR", "Expired")
    await client.create(MAPS, config_map("b"))
    assert (await anext(open_watch))[0] == "ADDED"


async def test_a_revision_of_the_future(api):
    """A revision this server never had is refused, so that a client of another state lists again."""
    kind, raw = await anext(api.local().watch(MAPS, resource_version="999999"))
    assert kind == "ERROR"
    assert json.loads(raw)["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_timeout(api):
    """A watch ends by itself after its time."""
    async with asyncio.timeout(3):
        assert [event async for event in api.local().watch(MAPS, resource_version="0", timeoutSeconds=1)] == []


async def test_bookmarks(api, monkeypatch):
    """Bookmarks tell how far a quiet watch has come, if they are asked for."""
    monkeypatch.setattr("webhook.clusters.embedded.apiserver.watching._BOOKMARK_SECONDS", 0.05)
    client = api.local()
    await client.create("/api/v1/namespaces/other/configmaps", config_map("a"))
    kind, raw = await anext(client.watch(MAPS, resource_version="0", allowWatchBookmarks=True))
    assert kind == "BOOKMARK"
    assert json.loads(raw)["metadata"] == {"resourceVersion": str(api.store.revision)}
    silent = client.watch(MAPS, resource_version="0", timeoutSeconds=1)
    assert [event async for event in silent] == []


async def test_a_watch_of_one_object(api):
    """GET of an object with watch=true watches that object."""
    client = api.local()
    for name in "ab":
        await client.create(MAPS, config_map(name))
    reply = await api.handle(ApiCall("GET", f"{MAPS}/b", {"watch": "true"}))
    async with aclosing(reply.stream) as stream:
        line = json.loads(await anext(stream))
    assert (line["type"], line["object"]["metadata"]["name"]) == ("ADDED", "b")
