"""The eviction sub-resource waits as a real one does; what it answers is among the recorded exchanges."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.workloads import condition, deployment, eventually
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube.resources import DEPLOYMENT, POD

PODS = POD.path("default")


async def evict(admin, name: str):
    return await admin.create(f"{PODS}/{name}/eviction", {"metadata": {"name": name}})


@pytest.mark.skipped_waits
async def test_evictions_wait_side_by_side(monkeypatch):
    """An eviction waits for the next progress notice: one after the other takes a period each, four at once one."""
    monkeypatch.setattr("webhook.clusters.embedded.apiserver.subresources.PROGRESS_PERIOD", 0.3)
    async with EmbeddedCluster(nodes=1) as cluster:
        admin = cluster.api.local()
        await admin.create(DEPLOYMENT.path("default"), deployment("web", 6))

        async def ready():
            pods, _ = await admin.list(PODS, dict)
            names = [one["metadata"]["name"] for one in pods if condition(one, "Ready").get("status") == "True"]
            return names if len(names) == 6 else None

        names = await eventually(ready)
        await evict(admin, names[0])
        begun = time.monotonic()
        await evict(admin, names[1])
        assert 0.2 <= time.monotonic() - begun < 0.5
        begun = time.monotonic()
        await asyncio.gather(*(evict(admin, name) for name in names[2:]))
        assert 0.2 <= time.monotonic() - begun < 0.5
