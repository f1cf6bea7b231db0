"""What a plan asks of the API server: no request too many, and evictions side by side."""

import re
from collections import Counter
from typing import Any

import pytest

from tests.reconciler.acting import playing
from tests.workloads import eventually
from webhook.reconciler.service import ReconcilerService

pytestmark = pytest.mark.skipped_waits


class Traffic:
    """The requests of a reconciler, watches aside: how many of each kind, and how many evictions at a time."""

    def __init__(self, service: ReconcilerService) -> None:
        transport: Any = service.reconciler.executor._writer._client._transport
        self._send, transport.send = transport.send, self._record
        self.counts: Counter[str] = Counter()
        self.tried: set[str] = set()
        """Pods that were asked for without effect."""
        self.evicting: set[str] = set()
        self.waves: list[set[str]] = []
        """Of every eviction, which ones were under way when it was sent."""

    async def _record(self, method: str, path: str, *arguments: Any, **options: Any) -> bytes:
        kind = re.sub(r"^.*/(pods|events|leases)(/[^/]+)?", r"\1", path)
        self.counts[f"{method} {kind}"] += 1
        if "dryRun" in str((path, arguments, options)):
            self.tried.add(path.split("/")[-2])
            return await self._send(method, path, *arguments, **options)
        if not kind.endswith("/eviction"):
            return await self._send(method, path, *arguments, **options)
        name = path.split("/")[-2]
        self.evicting.add(name)
        self.waves.append(set(self.evicting))
        try:
            return await self._send(method, path, *arguments, **options)
        finally:
            self.evicting.discard(name)


async def test_no_request_too_many():
    """Three victims: a patch nominates, each is tried and then evicted, four Events, and a patch takes the plan off."""
    async with playing() as play, play.reconciling(leader_elect=False) as service:
        traffic = Traffic(service)
        for name in ("a", "b", "c"):
            await play.victim(name, "node-1", "2")
        await play.victim("other", "node-1", "2", schedulerName="other")
        await play.preemptor("p", "6")
        await play.bound("p")
        await play.nominated("p", "")
        await eventually(lambda: traffic.counts["POST events"] == 4)
        assert sum(count for kind, count in traffic.counts.items() if "leases" in kind) <= 6
        sent = {kind: count for kind, count in traffic.counts.items() if "leases" not in kind}
        assert sent == {"PATCH pods/status": 2, "POST pods/eviction": 6, "POST events": 4}


async def test_those_that_a_budget_may_keep_go_first():
    """All are tried without effect; those that a budget covers are asked together, then all others together."""
    async with playing() as play, play.reconciling(leader_elect=False) as service:
        traffic = Traffic(service)
        for name in ("a", "b", "c", "d"):
            labels = {"app": "web"} if name in "bd" else {"app": name}
            await play.victim(name, "node-1", "2")
            await play.client.patch(f"/api/v1/namespaces/default/pods/{name}", {"metadata": {"labels": labels}})
        await play.covered("web", 2)
        await play.preemptor("p", "8")
        await play.bound("p")
        assert traffic.tried == {"a", "b", "c", "d"}
        assert [len(wave) for wave in traffic.waves] == [1, 2, 1, 2]
        assert traffic.waves[-1] == {"a", "c"}


async def test_the_last_one_waits_if_a_budget_covers_all():
    """If all victims are covered, all but one are asked together, and the last one after them."""
    async with playing() as play, play.reconciling(leader_elect=False) as service:
        traffic = Traffic(service)
        for name in ("a", "b", "c"):
            await play.victim(name, "node-1", "2")
            await play.client.patch(f"/api/v1/namespaces/default/pods/{name}", {"metadata": {"labels": {"app": "web"}}})
        await play.covered("web", 3)
        await play.preemptor("p", "8")
        await play.bound("p")
        assert traffic.tried == {"a", "b", "c"}
        assert [len(wave) for wave in traffic.waves] == [1, 2, 1]


async def test_all_side_by_side_if_nobody_can_keep_one():
    """Without budgets all victims are asked at once when they have been tried."""
    async with playing() as play, play.reconciling(leader_elect=False) as service:
        traffic = Traffic(service)
        for name in ("a", "b", "c"):
            await play.victim(name, "node-1", "2")
        await play.preemptor("p", "8")
        await play.bound("p")
        assert traffic.tried == {"a", "b", "c"}
        assert [len(wave) for wave in traffic.waves] == [1, 2, 3]
