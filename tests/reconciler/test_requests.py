"""What a plan asks of the API server: no request too many, and evictions side by side."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from tests.reconciler.acting import playing
from tests.workloads import budget, eventually
from webhook.kube.resources import POD_DISRUPTION_BUDGET
from webhook.reconciler.service import ReconcilerService

pytestmark = pytest.mark.skipped_waits


class Traffic:
    """The requests of a reconciler, watches aside: how many of each kind, and how many evictions at a time."""

    def __init__(self, service: ReconcilerService) -> None:
        transport: Any = service.reconciler.executor._writer._client._transport
        self._send, transport.send = transport.send, self._record
        self.counts: Counter[str] = Counter()
        self.evicting: set[str] = set()
        self.waves: list[set[str]] = []
        """Of every eviction, which ones were under way when it was sent."""

    async def _record(self, method: str, path: str, *arguments: Any, **options: Any) -> bytes:
        kind = re.sub(r"^.*/(pods|events|leases)(/[^/]+)?", r"\1", path)
        self.counts[f"{method} {kind}"] += 1
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
    """Three victims: one patch nominates, three evictions, four Events, and one patch takes the plan off in the end."""
    async with playing() as play, play.reconciling(leader_elect=False) as service:
        traffic = Traffic(service)
        for name in ("a", "b", "c"):
            await play.victim(name, "node-1", "2")
        await play.victim("other", "node-1", "2", schedulerName="other")
        await play.preemptor("p", "6")
        await play.bound("p")
        await play.nominated("p", "")
        await eventually(lambda: traffic.counts["POST events"] == 4)
        assert dict(traffic.counts) == {"PATCH pods/status": 2, "POST pods/eviction": 3, "POST events": 4}


async def test_all_but_the_last_side_by_side():
    """All victims but one are asked together, whether or not a budget covers them; the last one has no budget."""
    async with playing() as play, play.reconciling(leader_elect=False) as service:
        traffic = Traffic(service)
        for name in ("a", "b", "c", "d"):
            labels = {"app": "web"} if name in "bd" else {"app": name}
            await play.victim(name, "node-1", "2")
            await play.client.patch(f"/api/v1/namespaces/default/pods/{name}", {"metadata": {"labels": labels}})
        path = POD_DISRUPTION_BUDGET.path("default")
        await play.client.create(path, budget("web", {"app": "web"}, minAvailable=0))

        async def allowed() -> bool:
            return (await play.client.get(f"{path}/web")).get("status", {}).get("disruptionsAllowed") == 2

        await eventually(allowed)
        await play.preemptor("p", "8")
        await play.bound("p")
        assert [len(wave) for wave in traffic.waves] == [1, 2, 3, 1]
        assert traffic.waves[-1] <= {"a", "c"}
