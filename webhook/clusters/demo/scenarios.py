"""Gödel's six quickstart scenarios (docs/semantics.md G), played with ordinary API calls on a cluster with giveway.

Nothing here knows what kind of cluster it is. Every scenario has a node, a namespace and objects of its own, so that
all six can be played at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.instants import epoch
from webhook.kube.resources import DEPLOYMENT, EVENT, NAMESPACE, NODE, POD, POD_DISRUPTION_BUDGET, PRIORITY_CLASS
from webhook.policy.model.values import CAN_BE_PREEMPTED, PROTECTION_DURATION

T = TypeVar("T")

LABEL = "demo.giveway.dev/scenario"
"""The node label that keeps every scenario on its own node."""
POLICIES = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: demo}
spec:
  rules:
  - name: copy
    copyAnnotations:
    - godel.bytedance.com/can-be-preempted
    - godel.bytedance.com/protection-duration-from-preemption
---
apiVersion: giveway.dev/v1alpha1
kind: PreemptionPolicy
metadata: {name: demo}
spec:
  preemptors: {priorityClasses: [high-priority]}
  victims: {mode: opt-in}
  budgets: strict
"""
"""The policies under which the scenarios come out as documented."""

VICTIM, PREEMPTOR = "nginx-victim", "nginx-preemptor"
PREEMPTIBLE, PLAIN, HIGH = "low-priority", "low-priority-plain", "high-priority"
SUCCESS = "PreemptForPodSuccessfully"
Object = dict[str, Any]


@dataclass(frozen=True)
class ScenarioOutcome:
    """What was done, what happened, and whether that is what the document says."""

    done: str
    happened: str
    as_documented: bool


@dataclass
class Stage:
    """Where one scenario is played. `progress` is called with what happens; times are in seconds."""

    client: Client
    number: int
    progress: Callable[[str], None] = lambda _: None
    protection: int = 30
    patience: float = 20.0
    stillness: float = 4.0
    """For how long nothing must happen, where nothing is to happen."""
    evicted: list[str] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        """The scenario's own namespace."""
        return f"scenario-{self.number}"

    def pod(self, name: str, cpu: int, class_name: str, annotations: dict[str, str] | None = None) -> Object:
        """A pod for this scenario's node."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, "annotations": annotations or {}},
            "spec": _pod_spec(self.number, f"{cpu}", class_name),
        }

    async def create(self, pod: Object) -> Object:
        """Create a pod."""
        return await self.client.create(POD.path(self.namespace), pod)

    async def get(self, name: str) -> Object | None:
        """A pod of this scenario, None if it is gone."""
        return await unless_absent(self.client.get(POD.path(self.namespace, name)))

    async def until(self, look: Callable[[], Awaitable[T | None]], patience: float | None = None) -> T | None:
        """Look until there is something; None if there is nothing within the patience."""
        end = time.monotonic() + (patience or self.patience)
        while True:
            seen = await look()
            if seen is not None or time.monotonic() > end:
                return seen
            await asyncio.sleep(0.1)

    async def running(self, name: str, patience: float | None = None) -> float | None:
        """Wait for a pod to run; after how many seconds it did, None if it does not within the patience."""
        begun = time.monotonic()

        async def look() -> float | None:
            pod = await self.get(name)
            runs = pod is not None and pod["status"].get("phase") == "Running"
            return time.monotonic() - begun if runs else None

        return await self.until(look, patience)

    async def pending(self, name: str) -> None:
        """Wait until the scheduler has found no node for a pod."""

        async def look() -> bool | None:
            conditions = (await self.get(name) or {}).get("status", {}).get("conditions", [])
            return any(condition.get("reason") == "Unschedulable" for condition in conditions) or None

        if await self.until(look) is None:
            raise TimeoutError(f"the scheduler has not looked at {self.namespace}/{name} for {self.patience:g} s")

    async def is_still(self, seconds: float, preemptor: str, victims: list[str]) -> str:
        """Watch that nothing happens for some seconds; what did happen, empty for nothing."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pod = await self.get(preemptor)
            if pod is None or pod["spec"].get("nodeName") or pod["status"].get("nominatedNodeName"):
                return "the preemptor did not stay Pending"
            gone = [name for name in victims if await self.is_leaving(name)]
            if gone:
                return f"{', '.join(gone)} was evicted"
            await asyncio.sleep(0.2)
        return ""

    async def is_leaving(self, name: str) -> bool:
        """Whether a pod is gone or terminating."""
        pod = await self.get(name)
        return pod is None or "deletionTimestamp" in pod["metadata"]

    async def event(self, reason: str) -> bool:
        """Whether an Event of that reason is there, or comes within a few seconds."""

        async def look() -> bool | None:
            events, _ = await self.client.list(EVENT.path(self.namespace))
            return any(event.get("reason") == reason for event in events) or None

        return bool(await self.until(look, 6.0))

    async def replicas(self) -> list[str]:
        """Wait for the deployment's three pods to run; their names."""

        async def look() -> list[str] | None:
            pods, _ = await self.client.list(POD.path(self.namespace), labelSelector="name=nginx")
            names = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]
            return names if len(names) == 3 else None

        names = await self.until(look)
        if names is None:
            raise TimeoutError(f"the deployment in {self.namespace} has not come up in {self.patience:g} s")
        return names

    async def budget_allows(self, disruptions: int) -> None:
        """Wait until the disruption budget's status says so."""

        async def look() -> bool | None:
            budget = await self.client.get(POD_DISRUPTION_BUDGET.path(self.namespace, "nginx-pdb"))
            status = budget.get("status", {})
            return (status.get("expectedPods"), status.get("disruptionsAllowed")) == (3, disruptions) or None

        if await self.until(look) is None:
            raise TimeoutError(f"the budget in {self.namespace} has not come to allow {disruptions} disruptions")


Play = Callable[[Stage], Awaitable[ScenarioOutcome]]


@dataclass(frozen=True)
class QuickstartScenario:
    """One row of the document: its situation, what it says comes out, and the play."""

    number: int
    situation: str
    document: str
    play: Play


SCENARIOS: list[QuickstartScenario] = []
"""The rows of the document, in its order; `_scenario` adds one."""


async def prepare(client: Client, nodes: list[str]) -> None:
    """Make classes and namespaces, and give the six nodes (8 CPU each) to one scenario each, with 100m taken."""
    for name, value, said in (
        (PREEMPTIBLE, 80, {CAN_BE_PREEMPTED: "true"}),
        (PLAIN, 80, {}),
        (HIGH, 100, {}),
    ):
        body = {"metadata": {"name": name, "annotations": said}, "value": value}
        await _ensure(client, PRIORITY_CLASS.path(), {**_kind("scheduling.k8s.io/v1", "PriorityClass"), **body})
        await class_is_usable(client, name)
    for scenario, node in zip(SCENARIOS, nodes, strict=True):
        labels = {"metadata": {"labels": {LABEL: str(scenario.number)}}}
        await client.patch(NODE.path(name=node), labels)
        namespace = {**_kind("v1", "Namespace"), "metadata": {"name": f"scenario-{scenario.number}"}}
        await _ensure(client, NAMESPACE.path(), namespace)
        spec = _pod_spec(scenario.number, "100m", "system-node-critical")
        system = {**_kind("v1", "Pod"), "metadata": {"name": f"system-{scenario.number}"}, "spec": spec}
        await _ensure(client, POD.path("kube-system"), system)


async def class_is_usable(client: Client, name: str, namespace: str = "default", *, patience: float = 20.0) -> None:
    """Wait until pods may name a PriorityClass that was just made; `patience` in seconds.

    The API server's Priority plugin reads classes from an informer of its own: until that has seen the class, a pod
    that names it is refused with 403. A dry run asks. Raises TimeoutError.
    """
    container = {"name": "probe", "image": "registry.k8s.io/pause"}
    spec = {"priorityClassName": name, "containers": [container]}
    probe = {**_kind("v1", "Pod"), "metadata": {"generateName": "probe-"}, "spec": spec}
    end = time.monotonic() + patience
    while True:
        try:
            await client.create(POD.path(namespace), probe, dryRun="All")
        except ApiError as error:
            if f"no PriorityClass with name {name} was found" in error.message:
                if time.monotonic() > end:
                    raise TimeoutError(f"PriorityClass {name} cannot be used after {patience:g} s") from error
                await asyncio.sleep(0.05)
                continue
        return


def _scenario(number: int, situation: str, document: str) -> Callable[[Play], Play]:
    """Add a play to the table of scenarios."""

    def add(play: Play) -> Play:
        SCENARIOS.append(QuickstartScenario(number, situation, document, play))
        return play

    return add


@_scenario(1, "a victim of lower priority", "evicted, preemptor Running, event PreemptForPodSuccessfully")
async def _evicted(stage: Stage) -> ScenarioOutcome:
    done = "nginx-victim (6 CPU, class 80, annotated) runs; nginx-preemptor (3 CPU, class 100) created"
    await _victim(stage, PREEMPTIBLE, {CAN_BE_PREEMPTED: "true"})
    await stage.create(stage.pod(PREEMPTOR, 3, HIGH))
    after = await stage.running(PREEMPTOR)
    gone = await stage.is_leaving(VICTIM)
    event = await stage.event(SUCCESS)
    happened = f"{_went(after)}, victim {'evicted' if gone else 'still there'}, event {SUCCESS if event else 'missing'}"
    return ScenarioOutcome(done, happened, as_documented=after is not None and gone and event)


@_scenario(2, "a PDB that lets nobody go", "preemptor stays Pending, nothing evicted")
async def _budget_lets_nobody_go(stage: Stage) -> ScenarioOutcome:
    names = await _deployment(stage)
    await stage.create(stage.pod(PREEMPTOR, 3, HIGH))
    await stage.pending(PREEMPTOR)
    happened = await stage.is_still(stage.stillness, PREEMPTOR, names)
    done = "Deployment 3 x 2 CPU with PDB minAvailable 3; nginx-preemptor created"
    return ScenarioOutcome(done, happened or _stayed(stage.stillness), as_documented=not happened)


@_scenario(3, "the PDB then lets one go", "exactly one replica evicted, preemptor Running")
async def _budget_then_lets_one_go(stage: Stage) -> ScenarioOutcome:
    names = await _deployment(stage)
    await stage.create(stage.pod(PREEMPTOR, 3, HIGH))
    await stage.pending(PREEMPTOR)
    early = await stage.is_still(1.0, PREEMPTOR, names)
    stage.progress("changing the PDB to minAvailable 2")
    path = POD_DISRUPTION_BUDGET.path(stage.namespace, "nginx-pdb")
    await stage.client.patch(path, {"spec": {"minAvailable": 2}})
    after = await stage.running(PREEMPTOR)
    gone = [name for name in names if await stage.is_leaving(name)]
    done = "the same, then the PDB changed to minAvailable 2"
    happened = early or f"{len(gone)} replica{'s' * (len(gone) != 1)} evicted, {_went(after)}"
    return ScenarioOutcome(done, happened, as_documented=not early and len(gone) == 1 and after is not None)


@_scenario(4, "a victim that is not annotated", "preemptor Pending, nothing evicted")
async def _not_annotated(stage: Stage) -> ScenarioOutcome:
    await _victim(stage, PLAIN, {})
    await stage.create(stage.pod(PREEMPTOR, 3, HIGH))
    await stage.pending(PREEMPTOR)
    happened = await stage.is_still(stage.stillness, PREEMPTOR, [VICTIM])
    done = "nginx-victim is not annotated, nor is its class; nginx-preemptor created"
    return ScenarioOutcome(done, happened or _stayed(stage.stillness), as_documented=not happened)


@_scenario(5, "a protected victim", "preemptor Pending inside the window")
async def _protected(stage: Stage) -> ScenarioOutcome:
    await _victim(stage, PREEMPTIBLE, {PROTECTION_DURATION: str(stage.protection)})
    await stage.create(stage.pod(PREEMPTOR, 3, HIGH))
    await stage.pending(PREEMPTOR)
    inside = await _left(stage) - 1.5
    happened = await stage.is_still(min(inside, 2 * stage.stillness), PREEMPTOR, [VICTIM])
    done = f"nginx-victim is protected for {stage.protection} s; nginx-preemptor created"
    return ScenarioOutcome(done, happened or "preemptor stayed Pending inside the window", as_documented=not happened)


@_scenario(6, "the protection runs out", "preemptor Running after the window, without anyone touching it")
async def _protection_runs_out(stage: Stage) -> ScenarioOutcome:
    """A victim within its protection window stays, and goes as soon as the window has ended."""
    await _victim(stage, PREEMPTIBLE, {PROTECTION_DURATION: str(stage.protection)})
    victim = await stage.get(VICTIM)
    assert victim is not None
    start = epoch(victim["status"]["startTime"])
    await stage.create(stage.pod(PREEMPTOR, 3, HIGH))
    await stage.pending(PREEMPTOR)
    stage.progress("waiting for the window to end")
    early = await stage.is_still(await _left(stage) - 0.5, PREEMPTOR, [VICTIM])
    after = await stage.running(PREEMPTOR)
    age = time.time() - start
    done = "the same, and nobody touches anything"
    happened = early or (
        f"preemptor Running {age:.1f} s after the victim's start" if after is not None else _went(after)
    )
    return ScenarioOutcome(done, happened, as_documented=not early and after is not None and age >= stage.protection)


async def _victim(stage: Stage, class_name: str, annotations: dict[str, str]) -> None:
    stage.progress("starting nginx-victim")
    await stage.create(stage.pod(VICTIM, 6, class_name, annotations))
    if await stage.running(VICTIM) is None:
        raise TimeoutError(f"{stage.namespace}/{VICTIM} does not run after {stage.patience:g} s")
    stage.progress("nginx-preemptor does not fit; watching")


async def _deployment(stage: Stage) -> list[str]:
    """Start a deployment with a budget, and wait until its pods run; their names."""
    stage.progress("starting the deployment and its PDB")
    labels = {"name": "nginx"}
    template = {
        "metadata": {"labels": labels, "annotations": {CAN_BE_PREEMPTED: "true"}},
        "spec": _pod_spec(stage.number, "2", PREEMPTIBLE),
    }
    deployment = {
        **_kind("apps/v1", "Deployment"),
        "metadata": {"name": VICTIM},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": template},
    }
    budget = {
        **_kind("policy/v1", "PodDisruptionBudget"),
        "metadata": {"name": "nginx-pdb"},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": labels}},
    }
    await stage.client.create(POD_DISRUPTION_BUDGET.path(stage.namespace), budget)
    await stage.client.create(DEPLOYMENT.path(stage.namespace), deployment)
    names = await stage.replicas()
    await stage.budget_allows(0)
    stage.progress("nginx-preemptor does not fit; watching")
    return names


async def _left(stage: Stage) -> float:
    """Seconds until the victim's protection ends."""
    victim = await stage.get(VICTIM)
    assert victim is not None
    return max(0.0, epoch(victim["status"]["startTime"]) + stage.protection - time.time())


def _pod_spec(number: int, cpu: str, class_name: str) -> Object:
    return {
        "priorityClassName": class_name,
        "nodeSelector": {LABEL: str(number)},
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "nginx", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}],
    }


def _kind(api_version: str, kind: str) -> Object:
    return {"apiVersion": api_version, "kind": kind}


async def _ensure(client: Client, path: str, body: Object) -> None:
    try:
        await client.create(path, body)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


def _went(after: float | None) -> str:
    return "preemptor still Pending" if after is None else f"preemptor Running after {after:.1f} s"


def _stayed(seconds: float) -> str:
    return f"preemptor stayed Pending, nothing evicted ({seconds:g} s watched)"
