"""A resource that not every API server has: several versions, none at all, and one that comes later."""

import asyncio

import pytest

from tests.kube.server import answer, until
from webhook.kube import informer as caches
from webhook.kube.client import Client
from webhook.kube.informer import Informer
from webhook.kube.objects.cluster_scoped import PriorityClass

pytestmark = pytest.mark.skipped_waits

NEW, OLD = "/apis/example.dev/v1/things", "/apis/example.dev/v1alpha1/things"
FORBIDDEN = answer(403, "Forbidden")
MISSING = answer(404, "NotFound")


@pytest.fixture
async def things(server, monkeypatch):
    """Start the cache of an optional resource with two versions."""
    monkeypatch.setattr(caches, "_MOMENT", 0.2)
    client = Client.for_server(server.url, timeout=2)
    cache = Informer(client, [NEW, OLD], PriorityClass, optional=True)
    task = asyncio.create_task(cache.run())
    yield cache
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await client.close()


@pytest.mark.parametrize("refusal", [pytest.param(MISSING, id="404"), pytest.param(FORBIDDEN, id="403")])
async def test_what_is_not_served_counts_as_empty(server, things, refusal):
    """A server without the resource, or that refuses it, does not keep the cache from being in sync."""
    server.fault(refusal, contains="/example.dev/", times=1000)
    await asyncio.wait_for(things.synced.wait(), 5)
    assert (dict(things.items()), things.served) == ({}, False)
    assert len(server.asked("GET", NEW)) == len(server.asked("GET", OLD)) == 1


async def test_an_older_version_is_found(server, things):
    """If the first version is missing, the next one is listed and watched."""
    server.fault(MISSING, contains=NEW, times=1000)
    server.put(f"{OLD}/a", value=1)
    await asyncio.wait_for(things.synced.wait(), 5)
    server.put(f"{OLD}/b", value=2)
    await until(lambda: set(things.items()) == {"a", "b"})
    assert things.served


async def test_it_may_come_later(server, things, monkeypatch):
    """A resource that is served later on is found without a restart."""
    monkeypatch.setattr(caches, "_LOOK_AGAIN", 0.2)
    server.fault(MISSING, contains="/example.dev/", times=4)
    server.put(f"{NEW}/a", value=1)
    await asyncio.wait_for(things.synced.wait(), 5)
    await until(lambda: set(things.items()) == {"a"})
    assert things.served


async def test_it_may_go(server, things):
    """If the resource is taken away while it is watched, its objects go and handlers hear of it."""
    changes = []
    things.handlers.append(lambda change: changes.append((change.kind, change.key)))
    server.put(f"{NEW}/a", value=1)
    await until(lambda: server.watches)
    server.fault(MISSING, contains="/example.dev/", times=1000)
    server.cut_watches()
    await until(lambda: not things.served)
    assert changes == [("added", "a"), ("deleted", "a")]


@pytest.mark.parametrize("refusal", [pytest.param(MISSING, id="404"), pytest.param(FORBIDDEN, id="403")])
async def test_it_may_be_away_for_a_moment(server, things, refusal):
    """A server that starts may refuse what it has: nobody hears that the objects were gone."""
    changes = []
    things.handlers.append(lambda change: changes.append((change.kind, change.key)))
    server.put(f"{NEW}/a", value=1)
    await until(lambda: server.watches)
    server.fault(refusal, contains="/example.dev/", times=2)
    server.cut_watches()
    await until(lambda: len(server.asked("GET", f"{NEW}?limit=500")) == 2)
    server.put(f"{NEW}/b", value=2)
    await until(lambda: set(things.items()) == {"a", "b"})
    assert changes == [("added", "a"), ("added", "b")]
