"""A server, and informers of its pods."""

import asyncio

import pytest

from tests.kube.server import Server
from webhook.kube import resources
from webhook.kube.client import Client
from webhook.kube.informer import Informer
from webhook.kube.objects.pod import Pod

PODS = resources.POD.path()


@pytest.fixture
async def server():
    async with Server() as started:
        yield started


@pytest.fixture
async def follow(server):
    """Start a cache of pods and its list of changes."""
    tasks, clients = [], []

    def start(**more):
        client = Client.for_server(server.url, timeout=2)
        cache = Informer(client, [PODS], Pod, **more)
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
