"""A budget of five and thirty preemptors: never more than five disrupted at once, and nobody is forgotten."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.e2e.conftest import LABEL
from tests.e2e.software import policies
from tests.workloads import eventually
from webhook.clusters.model.pods import is_ready
from webhook.kube.informer import Informer
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import NODE, POD
from webhook.policy.model.values import PLAN

POOL = "giveway.dev/e2e-pool"
REPLICAS, PREEMPTORS, UNAVAILABLE = 40, 30, 5


class Watched:
    """The namespace's pods by a watch; the fewest of the deployment's that were healthy, once all of them had been."""

    def __init__(self, sandbox) -> None:
        self._cache, self.fewest = Informer(sandbox.client, POD.paths(sandbox.id), Pod), -1
        self._cache.handlers.append(lambda _: self._count())
        self.watching = asyncio.create_task(self._cache.run())

    def healthy(self) -> int:
        pods = [one for one in self._cache.items().values() if (one.metadata.labels or {}).get("app") == "web"]
        return sum(not one.metadata.deletion_timestamp and is_ready(one) for one in pods)

    def preemptors(self, *, bound: bool) -> list[Pod]:
        """The preemptors that are bound, or that wait."""
        pods = self._cache.items().values()
        return [one for one in pods if one.metadata.name[0] == "p" and bool(one.spec.node_name) is bound]

    def _count(self) -> None:
        if self.fewest >= 0 or self.healthy() == REPLICAS:
            self.fewest = min(self.fewest if self.fewest >= 0 else REPLICAS, self.healthy())


@asynccontextmanager
async def crowded(sandbox, giveway, spare: int) -> AsyncIterator[Watched]:
    """Ten nodes full of the deployment's pods, the budget, spare nodes for replacements only, and thirty preemptors."""
    low, high = await sandbox.classes()
    for number in range(10 + spare):
        name = await sandbox.node(f"n{number}", cpu="8")
        pool = "spare" if number >= 10 else "main"
        change = {"metadata": {"labels": {POOL: pool}}, "spec": {"unschedulable": pool == "spare" or None}}
        await sandbox.client.patch(NODE.path(name=name), change)
    watched = Watched(sandbox)
    await sandbox.workload("web", REPLICAS, "2", low)
    await eventually(lambda: watched.healthy() == REPLICAS, 60, "the deployment is up")
    await sandbox.budget("web", {"app": "web"}, maxUnavailable=UNAVAILABLE)
    for number in range(10, 10 + spare):
        await sandbox.client.patch(NODE.path(name=f"{sandbox.id}-n{number}"), {"spec": {"unschedulable": None}})
    await giveway.reconcile(policies(high))
    for number in range(PREEMPTORS):
        await sandbox.preemptor(high, "2", f"p{number}", nodeSelector={LABEL: sandbox.id, POOL: "main"})
    yield watched
    watched.watching.cancel()


async def test_all_thirty_are_bound_as_replacements_come_up(sandbox, giveway):
    """If replacements find room elsewhere, wave after wave gets in; never are more than five pods missing."""
    async with crowded(sandbox, giveway, spare=8) as watched:
        await eventually(lambda: len(watched.preemptors(bound=True)) == PREEMPTORS, 60, "all thirty are bound")
        assert watched.fewest >= REPLICAS - UNAVAILABLE


async def test_the_others_wait_where_replacements_find_no_room(sandbox, giveway):
    """If replacements cannot run, five get in and twenty-five wait: Pending, promised nothing, evicting nobody."""
    async with crowded(sandbox, giveway, spare=0) as watched:
        await eventually(lambda: len(watched.preemptors(bound=True)) == UNAVAILABLE, 30, "five are bound")
        await asyncio.sleep(4)
        assert len(watched.preemptors(bound=True)) == UNAVAILABLE
        assert watched.fewest == REPLICAS - UNAVAILABLE
        waiting = watched.preemptors(bound=False)
        assert len(waiting) == PREEMPTORS - UNAVAILABLE
        promised = [one for one in waiting if one.status.nominated_node_name]
        assert not [*promised, *(one for one in waiting if PLAN in (one.metadata.annotations or {}))]
