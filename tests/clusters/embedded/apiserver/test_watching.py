"""Watches: what they send, how they end, and what a client learns when history is gone."""

import asyncio
import json

from tests.clusters.embedded.bare import bare_server
from webhook.clusters.embedded.storage.object_store import ObjectStore

MAPS = "/api/v1/namespaces/n/configmaps"
ACCEPTED = ("", b"")


def config_map(name, **labels):
    return {"metadata": {"name": name, "labels": labels}}


async def test_a_lagging_watch_is_cut():
    """A watch whose position is no longer in the bounded history ends with a 410; nothing was buffered for it."""
    api = bare_server(store=ObjectStore(history=10))
    client = api.local()
    _items, version = await client.list(MAPS)
    await client.create(MAPS, config_map("first"))
    stream = client.watch(MAPS, resource_version=version)
    assert [(await anext(stream))[0] for _ in range(2)] == ["", "ADDED"]
    for number in range(50):
        await client.create(MAPS, config_map(f"m{number}"))
    kind, raw = await anext(stream)
    assert (kind, json.loads(raw)["code"]) == ("ERROR", 410)
    assert [event async for event in stream] == []


async def test_timeout(api):
    """A watch ends by itself after its time."""
    async with asyncio.timeout(3):
        assert [event async for event in api.local().watch(MAPS, resource_version="0", timeoutSeconds=1)] == [ACCEPTED]


async def test_bookmarks(api, monkeypatch):
    """Bookmarks tell how far a quiet watch has come, if they are asked for."""
    monkeypatch.setattr("webhook.clusters.embedded.apiserver.watching._BOOKMARK_SECONDS", 0.05)
    client = api.local()
    await client.create("/api/v1/namespaces/other/configmaps", config_map("a"))
    told = client.watch(MAPS, resource_version="0", allowWatchBookmarks=True)
    assert await anext(told) == ACCEPTED
    kind, raw = await anext(told)
    assert kind == "BOOKMARK"
    assert json.loads(raw)["metadata"] == {"resourceVersion": str(api.store.revision)}
    silent = client.watch(MAPS, resource_version="0", timeoutSeconds=1)
    assert [event async for event in silent] == [ACCEPTED]
