"""Gangs on any cluster: all members are nominated before anybody goes, and whoever goes makes room for all of them.

Pods say themselves that they belong together, as Kueue's do. Where the API server serves PodGroups, as for
`tests/e2e/test_pod_groups.py`, the same is tried with one of those, which kube-scheduler schedules as a gang.
"""

import asyncio
from typing import Any

import pytest

from tests.e2e.software import policies
from tests.killing import STEPS
from tests.workloads import served
from webhook.kube.errors import unless_absent
from webhook.kube.resources import POD_GROUP
from webhook.policy.model.values import MANAGED, MARK, PLAN

BY = ("annotations", "PodGroup")


class Room:
    """Nodes of 4 CPU, full of one victim each, and gangs whose members ask for as much."""

    def __init__(self, sandbox: Any, by: str) -> None:
        self.sandbox, self.by = sandbox, by
        self.nodes: list[str] = []
        self.low = self.high = ""

    async def begin(self, nodes: int, *, each: int = 1, **victims: Any) -> None:
        """Make nodes, and on each of them so many victims, all of which have to go; `victims` are fields of them."""
        sandbox = self.sandbox
        if self.by == "PodGroup":
            await served(sandbox.client.list(POD_GROUP.path(), dict), "PodGroups")
        self.nodes = [await sandbox.node(f"n{number}", cpu="4") for number in range(nodes)]
        self.low, self.high = await sandbox.classes()
        for number, node in enumerate(self.nodes):
            for part in range(each):
                await sandbox.victim(f"v{number}-{part}", self.low, f"{3000 // each}m", node=node, **victims)

    async def gang(self, name: str, minimum: int, *numbers: int, class_name: str = "", **spec: Any) -> list[str]:
        """Make the members of these numbers of a gang; their names."""
        sandbox, class_name = self.sandbox, class_name or self.high
        labels, annotations, more = {MARK: MANAGED}, dict[str, str](), dict(spec)
        if self.by == "PodGroup":
            more["schedulingGroup"] = {"podGroupName": name}
            policy = {"schedulingPolicy": {"gang": {"minCount": minimum}}, "priorityClassName": class_name}
            body = {"metadata": {"name": name}, "spec": policy}
            await unless_absent(sandbox.client.create(POD_GROUP.path(sandbox.id), body), 409)
        else:
            labels["kueue.x-k8s.io/pod-group-name"] = name
            annotations["kueue.x-k8s.io/pod-group-total-count"] = str(minimum)
        names = [f"{name}-{number}" for number in numbers]
        fields = {"cpu": "3", "priorityClassName": class_name, "labels": labels, "annotations": annotations, **more}
        for one in names:
            await sandbox.pod(one, **fields)
        return names

    async def victims(self) -> set[str]:
        """The victims that are still there."""
        return {name for name in await self.sandbox.here() if name.startswith("v")}

    async def bound(self, names: list[str], seconds: float = 40) -> None:
        """Wait until all of them have nodes of their own, and no plan is left on them."""
        nodes = await asyncio.gather(*(self.sandbox.bound(name, seconds) for name in names))
        assert len(set(nodes)) == len(names)
        for name in names:
            await self.sandbox.without(PLAN, name)


@pytest.fixture(params=BY)
def room(sandbox, request) -> Room:
    return Room(sandbox, request.param)


async def test_room_for_all(room, giveway):
    """Three victims go for three members, and all are bound; beyond the minimum a further one is placed by itself."""
    await room.begin(5)
    await giveway.reconcile(policies(room.high))
    names = await room.gang("gang", 3, 0, 1, 2)
    await room.bound(names)
    assert len(await room.victims()) == 2
    await room.bound(names + await room.gang("gang", 3, 3))
    assert len(await room.victims()) == 1


@pytest.mark.parametrize("gated", [False, True], ids=["missing", "held back by a gate"])
async def test_nobody_goes_for_a_part(room, giveway, gated):
    """While a member is missing, or a scheduling gate holds it back, nobody goes; when it has come, all are placed."""
    await room.begin(3)
    await giveway.reconcile(policies(room.high))
    names = await room.gang("gang", 3, 0, 1)
    if gated:
        names += await room.gang("gang", 3, 2, schedulingGates=[{"name": "e2e/wait"}])
    await asyncio.sleep(5)
    assert len(await room.victims()) == 3
    if gated:
        await room.sandbox.client.patch(f"{room.sandbox.pods}/gang-2", {"spec": {"schedulingGates": None}})
    else:
        names += await room.gang("gang", 3, 2)
    await room.bound(names)


async def test_nobody_goes_for_a_gang_that_does_not_fit(room, giveway):
    """Room for three of four members could be made: nobody goes, and nobody is nominated."""
    await room.begin(3)
    await giveway.reconcile(policies(room.high))
    names = await room.gang("gang", 4, 0, 1, 2, 3)
    await asyncio.gather(*(room.sandbox.unschedulable(name) for name in names))
    await asyncio.sleep(5)
    assert len(await room.victims()) == 3
    found = [await room.sandbox.get(name) for name in names]
    assert not any(one["status"].get("nominatedNodeName") for one in found)


async def test_groups_go_whole(room, giveway):
    """One group on two nodes goes for two members, and not one pod of each of two groups."""
    await room.begin(2, labels={"jobset.sigs.k8s.io/jobset-name": "wide"})
    for number in (2, 3):
        node = await room.sandbox.node(f"n{number}", cpu="4")
        labels = {"jobset.sigs.k8s.io/jobset-name": f"narrow-{number}"}
        for half in "ab":
            await room.sandbox.victim(f"v{number}{half}", room.low, "2", node=node, labels=labels)
    await giveway.reconcile(policies(room.high, groups={"disruption": "Group"}))
    await room.bound(await room.gang("gang", 2, 0, 1))
    assert await room.victims() == {"v2a", "v2b", "v3a", "v3b"}


async def test_two_gangs_for_one_room(room, giveway):
    """The more important gang gets the room, whoever came first; nobody goes for the other one."""
    await room.begin(3)
    urgent = await room.sandbox.priority_class("urgent", 200, preemptionPolicy="Never")
    lesser = await room.gang("lesser", 2, 0, 1)
    greater = await room.gang("greater", 3, 0, 1, 2, class_name=urgent)
    await asyncio.gather(*(room.sandbox.unschedulable(name) for name in (*lesser, *greater)))
    await giveway.reconcile(policies("", preemptors={"priorityClasses": [room.high, urgent]}))
    await room.bound(greater)
    await asyncio.sleep(2)
    found = [await room.sandbox.get(name) for name in lesser]
    assert not any(one["spec"].get("nodeName") or one["status"].get("nominatedNodeName") for one in found)


@pytest.mark.parametrize("step", STEPS)
async def test_kill_at_every_step(another_cluster, room, giveway, step):
    """A process killed at this step leaves plans that the next leader finishes, or takes back and makes again."""
    await room.begin(4, each=2)
    first = await giveway.reconcile(policies(room.high), kill_at=step)
    names = await room.gang("gang", 3, 0, 1, 2)
    await first.killed()
    second = await giveway.reconcile(policies(room.high))
    await room.bound(names)
    assert len(await room.victims()) == 2, second.log.read_text()
