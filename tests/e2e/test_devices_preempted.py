"""The reconciler preempts for devices (DRA): whoever has to go goes, nobody else, and the preemptor is bound.

On the real scheduler and the real controller; run with `--kubelet-stand-in` where nodes have no kubelet. Skipped where
`resource.k8s.io/v1` is not served.
"""

import asyncio
import signal
from typing import Any

import pytest

from tests.e2e.playing_devices import SCENARIOS, Devices, Scenario, exactly, held, plain
from tests.e2e.software import Process, Software, policies
from tests.workloads import eventually, served
from webhook.kube.client import Client
from webhook.kube.resources import RESOURCE_CLAIM
from webhook.policy.model.values import MANAGED, MARK, PLAN


class Preempting(Devices):
    """Devices, and a reconciler that acts for the pods of high priority."""

    def __init__(self, sandbox: Any, giveway: Software) -> None:
        super().__init__(sandbox)
        self.giveway = giveway

    async def reconcile(self, kill_at: str = "") -> Process:
        """Start it, perhaps to be killed at a step."""
        policy = policies(self.classes["high"], victims={"mode": "opt-out"}, limits={"attemptsPerPreemptor": 3})
        return await self.giveway.reconcile(policy, kill_at=kill_at)

    async def high(self, name: str, *claims: Any, **fields: Any) -> None:
        """Create a preemptor."""
        await self.pod(name, "high", claims, {"labels": {MARK: MANAGED}, **fields})

    async def ended(self, name: str) -> str:
        """The node of the preemptor once it is bound and its plan is taken off."""
        node = str(await self.sandbox.bound(name, 40))

        await self.sandbox.without(PLAN, name)
        await asyncio.sleep(1)
        return node


@pytest.fixture
async def devices(client: Client, sandbox: Any, giveway: Software) -> Preempting:
    """The sandbox's devices; skipped where there are none."""
    await served(client.get("/apis/resource.k8s.io/v1"), "resource.k8s.io/v1")
    made = Preempting(sandbox, giveway)
    await made.begin()
    return made


async def test_claims_of_templates(devices: Preempting) -> None:
    """Two of four devices: two pods go, two stay."""
    device_class = await held(devices, 4)
    await devices.reconcile()
    await devices.high("high", await devices.template("two", [exactly(device_class, 2)]))
    await devices.sandbox.bound("high", 40)
    await asyncio.sleep(1)
    assert len(await devices.sandbox.here() - {"high"}) == 2


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one.name for one in SCENARIOS])
async def test_who_has_to_go(devices: Preempting, scenario: Scenario) -> None:
    """Just those pods go, and the preemptor is bound."""
    claims, fields = await scenario.prepare(devices)
    await devices.reconcile()
    await devices.high("high", *claims, **fields)
    await devices.ended("high")
    assert await devices.sandbox.here() == {"high", *scenario.staying}


async def test_a_claim_without_the_finalizer_is_not_counted_on(devices: Preempting) -> None:
    """The controller would not take such an allocation back (docs/kubernetes-behaviour.md K42): nobody goes for it."""
    device_class = await devices.device_class()
    await devices.publish(await devices.sandbox.node("a"), plain(1))
    await devices.low("low", await devices.claim("named", [exactly(device_class)]))
    path = f"{RESOURCE_CLAIM.path(devices.sandbox.id)}/named"

    async def reserved() -> Any:
        return (await devices.client.get(path)).get("status", {}).get("reservedFor")

    await eventually(reserved)
    await devices.client.patch(path, {"metadata": {"finalizers": None}}, kind="merge")
    process = await devices.reconcile()
    await devices.high("high", await devices.template("own", [exactly(device_class)]))
    await eventually(lambda: process.lines("no preemption"), 30)
    await asyncio.sleep(1)
    assert await devices.sandbox.here() == {"low", "high"}


async def test_two_preemptors_for_the_devices_of_one_node(devices: Preempting) -> None:
    """Each gets two of four devices, and each victim goes once."""
    device_class = await held(devices, 5)
    await devices.reconcile()
    two = await devices.template("two", [exactly(device_class, 2)])
    await devices.high("high-0", two)
    await devices.high("high-1", two)
    await devices.sandbox.bound("high-0", 40)
    await devices.sandbox.bound("high-1", 40)
    await asyncio.sleep(1)
    assert len(await devices.sandbox.here() - {"high-0", "high-1"}) == 1


async def test_kill_between_the_last_eviction_and_the_deallocation(devices: Preempting) -> None:
    """The next leader waits for what the one before had freed, and evicts nobody more."""
    device_class = await held(devices, 4)
    first = await devices.reconcile(kill_at="evicted")
    await devices.high("high", await devices.template("two", [exactly(device_class, 2)]))
    assert await first.ended() == -signal.SIGKILL
    await devices.reconcile()
    await devices.sandbox.bound("high", 40)
    await asyncio.sleep(2)
    assert len(await devices.sandbox.here() - {"high"}) == 2


async def test_a_stranger_who_takes_the_devices(devices: Preempting) -> None:
    """Whoever takes a device first keeps it if nobody may evict him; once he has gone the preemptor is bound."""
    device_class = await held(devices, 2)
    full = (await devices.sandbox.get("low-0"))["spec"]["nodeName"]
    other = await devices.sandbox.node("b")
    await devices.publish(other, plain(1))
    await devices.low("low-b", await devices.template("b", [exactly(device_class)]))
    await devices.sandbox.priority_class("stranger", 5000)
    devices.classes["stranger"] = f"{devices.sandbox.id}-stranger"
    victims = [f"{devices.sandbox.pods}/low-{number}" for number in range(2)]
    for path in victims:
        await devices.client.patch(path, {"metadata": {"finalizers": ["example.com/held"]}})
    process = await devices.reconcile()
    pair = await devices.template("pair", [exactly(device_class, 2)])
    await devices.high("high", pair)

    async def both_leave() -> bool:
        return not {"low-0", "low-1"} & await devices.sandbox.here()

    await eventually(both_leave, 15, "both victims have been asked")
    await devices.pod("stranger", "stranger", (await devices.template("s", [exactly(device_class)]),), {})
    await devices.sandbox.unschedulable("stranger")
    # With one device free the stranger has room, and the preemptor has not
    for path in victims:
        await devices.client.patch(path, {"metadata": {"finalizers": None}})
        await devices.sandbox.bound("stranger", 40)

    def ended() -> bool:
        return any(line.get("ending") in {"devices-taken", "space-taken"} for line in process.lines("plan ended"))

    await eventually(ended, 20, "the plan is over")
    assert "low-b" in await devices.sandbox.here(), "one device less helps nobody who wants two"
    assert not (await devices.sandbox.get("high"))["spec"].get("nodeName")
    await devices.client.delete(f"{devices.sandbox.pods}/stranger")
    assert await devices.ended("high") == full
    assert await devices.sandbox.here() == {"high", "low-b"}


async def test_a_waiting_pod_that_wants_fewer_devices(devices: Preempting) -> None:
    """The pod whose devices come free at once goes, not two whose devices the waiting pod would take one by one."""
    device_class = await held(devices, 2)
    await devices.sandbox.priority_class("middle", 1500)
    devices.classes["middle"] = f"{devices.sandbox.id}-middle"
    other = await devices.sandbox.node("b")
    await devices.publish(other, plain(2))
    pair = await devices.template("pair", [exactly(device_class, 2)])
    await devices.pod("both", "middle", (pair,), {})
    assert await devices.sandbox.bound("both") == other
    await devices.pod("waits", "low", (await devices.template("w", [exactly(device_class)]),), {})
    await devices.sandbox.unschedulable("waits")
    await devices.reconcile()
    await devices.high("high", pair)
    assert await devices.ended("high") == other
    assert await devices.sandbox.here() == {"high", "low-0", "low-1", "waits"}


async def test_what_the_plan_holds_is_written(devices: Preempting) -> None:
    """The plan on the preemptor names the devices that it waits for, and nobody allocates them by hand."""
    device_class = await held(devices, 1)
    process = await devices.reconcile(kill_at="nominated")
    await devices.high("high", await devices.template("own", [exactly(device_class)]))
    assert await process.ended() == -signal.SIGKILL
    plan = (await devices.sandbox.get("high"))["metadata"]["annotations"][PLAN]
    assert f'"devices":[["{devices.driver}"' in plan
    claims, _ = await devices.client.list(RESOURCE_CLAIM.path(devices.sandbox.id), dict)
    assert sum("allocation" in (claim.get("status") or {}) for claim in claims) == 1
