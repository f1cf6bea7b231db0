"""Gödel's six quickstart scenarios (docs/semantics.md G), played with ordinary API calls on a cluster with giveway.

Nothing here knows what kind of cluster it is. Every scenario has a node, a namespace and objects of its own, so that
all six can be played at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from webhook.kube.client import Client
from webhook.kube.errors import unless_absent
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

VICTIM, PREEMPTOR, BUDGET = "nginx-victim", "nginx-preemptor", "nginx-pdb"
PREEMPTIBLE, PLAIN, HIGH = "low-priority", "low-priority-plain", "high-priority"
SUCCESS = "PreemptForPodSuccessfully"
_CONFLICT = 409
Object = dict[str, Any]


class ScenarioOutcome(NamedTuple):
    """What happened, and whether that is what the document says."""

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
    """For how long nothing must happen, if nothing is to happen."""

    @property
    def namespace(self) -> str:
        """The scenario's own namespace."""
        return f"scenario-{self.number}"

    async def create(self, name: str, cpu: int, class_name: str, annotations: Mapping[str, str] | None = None) -> None:
        """Create a pod for this scenario's node."""
        metadata = {"name": name, "annotations": annotations or {}}
        body = {"metadata": metadata, "spec": _pod_spec(self.number, f"{cpu}", class_name)}
        await self.client.create(POD.path(self.namespace), body)

    async def get(self, name: str) -> Object | None:
        """A pod of this scenario, None if it is gone."""
        return await unless_absent(self.client.get(POD.path(self.namespace, name)))

    async def until(self, what: str, look: Callable[[], Awaitable[T | None]]) -> T:
        """Look until there is something. Raises TimeoutError, which says `what` is not there."""
        end = time.monotonic() + self.patience
        while True:
            seen = await look()
            if seen:
                return seen
            if time.monotonic() > end:
                raise TimeoutError(f"{what} in {self.namespace} after {self.patience:g} s")
            await asyncio.sleep(0.1)

    async def reaches(self, name: str, phase: str, reason: str = "") -> Object:
        """Wait until a pod is in a phase, with a condition of that reason if one is given. Raises TimeoutError."""

        async def look() -> Object | None:
            status = (pod := await self.get(name) or {}).get("status", {})
            reasons = ["", *(condition.get("reason") for condition in status.get("conditions", []))]
            return pod if status.get("phase") == phase and reason in reasons else None

        return await self.until(f"{name} is not {reason or phase}", look)

    async def is_still(self, seconds: float, victims: list[str]) -> str:
        """Watch that nothing happens for some seconds; what did happen, empty for nothing."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pod = await self.get(PREEMPTOR)
            if pod is None or pod["spec"].get("nodeName") or pod["status"].get("nominatedNodeName"):
                return "the preemptor did not stay Pending"
            if gone := await self.leaving(victims):
                return f"{', '.join(gone)} was evicted"
            await asyncio.sleep(0.2)
        return ""

    async def leaving(self, names: list[str]) -> list[str]:
        """Those of the pods that are gone or terminating."""
        pods = {name: await self.get(name) for name in names}
        return [name for name, pod in pods.items() if pod is None or "deletionTimestamp" in pod["metadata"]]

    async def event(self, reason: str) -> None:
        """Wait for an Event of that reason. Raises TimeoutError."""

        async def look() -> bool:
            events, _ = await self.client.list(EVENT.path(self.namespace))
            return any(event.get("reason") == reason for event in events)

        await self.until(f"there is no event {reason}", look)

    async def deployment(self) -> list[str]:
        """Start a deployment with a budget, and wait until its pods run and the budget counts them; their names."""
        labels = {"name": "nginx"}
        selector = {"matchLabels": labels}
        meta = {"labels": labels, "annotations": {CAN_BE_PREEMPTED: "true"}}
        template = {"metadata": meta, "spec": _pod_spec(self.number, "2", PREEMPTIBLE)}
        for resource, name, spec in (
            (POD_DISRUPTION_BUDGET, BUDGET, {"minAvailable": 3, "selector": selector}),
            (DEPLOYMENT, VICTIM, {"replicas": 3, "selector": selector, "template": template}),
        ):
            await self.client.create(resource.path(self.namespace), {"metadata": {"name": name}, "spec": spec})

        async def look() -> list[str] | None:
            pods, _ = await self.client.list(POD.path(self.namespace), labelSelector="name=nginx")
            names = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]
            counted = await self.client.get(POD_DISRUPTION_BUDGET.path(self.namespace, BUDGET))
            status = counted.get("status", {})
            is_counted = (status.get("expectedPods"), status.get("disruptionsAllowed")) == (3, 0)
            return names if len(names) == 3 and is_counted else None

        return await self.until("the deployment and its budget have not come up", look)


@dataclass(frozen=True)
class QuickstartScenario:
    """One row of the document: its situation, what it says comes out, and what is done."""

    number: int
    situation: str
    document: str
    done: str
    victim: str = ""
    """The class of a victim of 6 CPUs; without, a Deployment of 3 pods of 2 CPUs under a budget is there to go."""
    protected: bool = False
    goes: bool = False
    """Whether a victim goes in the end."""

    async def play(self, stage: Stage) -> ScenarioOutcome:
        """Do it, and watch. Raises TimeoutError if something that must happen does not."""
        victims, started = await self._victims(stage)
        stage.progress("nginx-preemptor does not fit; watching")
        await stage.create(PREEMPTOR, 3, HIGH)
        if self.protected or not self.goes or not self.victim:  # it waits at first
            await stage.reaches(PREEMPTOR, "Pending", "Unschedulable")
            left = max(0.0, started + stage.protection - time.time())
            seconds = 1.0 if self.goes else stage.stillness
            if self.protected:
                seconds = left - 0.5 if self.goes else min(left - 1.5, 2 * stage.stillness)
            happened = await stage.is_still(seconds, victims)
            if happened or not self.goes:
                stayed = f"preemptor stayed Pending, nothing evicted ({seconds:.0f} s watched)"
                return ScenarioOutcome(happened or stayed, as_documented=not happened)
        if not self.victim:
            stage.progress("changing the PDB to minAvailable 2")
            path = POD_DISRUPTION_BUDGET.path(stage.namespace, BUDGET)
            await stage.client.patch(path, {"spec": {"minAvailable": 2}})
        begun = time.time()
        await stage.reaches(PREEMPTOR, "Running")
        now = time.time()
        gone = await stage.leaving(victims)
        await stage.event(SUCCESS)
        happened = f"preemptor Running after {now - begun:.1f} s, {len(gone)} evicted, event {SUCCESS}"
        if self.protected:
            happened += f", {now - started:.1f} s after the victim's start"
        in_time = now - started >= stage.protection or not self.protected
        return ScenarioOutcome(happened, as_documented=len(gone) == 1 and in_time)

    async def _victims(self, stage: Stage) -> tuple[list[str], float]:
        """Let the victims run; their names, and when the one of several CPUs started, in seconds since the epoch."""
        if not self.victim:
            stage.progress("starting the deployment and its PDB")
            return await stage.deployment(), 0.0
        stage.progress("starting nginx-victim")
        annotations = {PROTECTION_DURATION: str(stage.protection)} if self.protected else {}
        await stage.create(VICTIM, 6, self.victim, annotations)
        pod = await stage.reaches(VICTIM, "Running")
        return [VICTIM], epoch(pod["status"]["startTime"])


SCENARIOS = [
    QuickstartScenario(
        1,
        "a victim of lower priority",
        "evicted, preemptor Running, event PreemptForPodSuccessfully",
        "nginx-victim (6 CPU, class 80, which is annotated) runs; nginx-preemptor (3 CPU, class 100) created",
        victim=PREEMPTIBLE,
        goes=True,
    ),
    QuickstartScenario(
        2,
        "a PDB that lets nobody go",
        "preemptor stays Pending, nothing evicted",
        "Deployment 3 x 2 CPU with PDB minAvailable 3; nginx-preemptor created",
    ),
    QuickstartScenario(
        3,
        "the PDB then lets one go",
        "exactly one replica evicted, preemptor Running",
        "the same, then the PDB changed to minAvailable 2",
        goes=True,
    ),
    QuickstartScenario(
        4,
        "a victim that is not annotated",
        "preemptor Pending, nothing evicted",
        "nginx-victim is not annotated, nor is its class; nginx-preemptor created",
        victim=PLAIN,
    ),
    QuickstartScenario(
        5,
        "a protected victim",
        "preemptor Pending inside the window",
        "nginx-victim is protected by its annotation; nginx-preemptor created",
        victim=PREEMPTIBLE,
        protected=True,
    ),
    QuickstartScenario(
        6,
        "the protection runs out",
        "preemptor Running after the window, without anyone touching it",
        "the same, and nobody touches anything",
        victim=PREEMPTIBLE,
        protected=True,
        goes=True,
    ),
]
"""The rows of the document, in its order."""


async def prepare(client: Client, nodes: list[str]) -> None:
    """Make classes and namespaces, and give the six nodes (8 CPU each) to one scenario each, with 100m taken.

    What is there already stays as it is.
    """
    for name, value, said in ((PREEMPTIBLE, 80, {CAN_BE_PREEMPTED: "true"}), (PLAIN, 80, {}), (HIGH, 100, {})):
        body = {"metadata": {"name": name, "annotations": said}, "value": value}
        await unless_absent(client.create(PRIORITY_CLASS.path(), body), _CONFLICT)
    for scenario, node in zip(SCENARIOS, nodes, strict=True):
        number = scenario.number
        await client.patch(NODE.path(name=node), {"metadata": {"labels": {LABEL: str(number)}}})
        await unless_absent(client.create(NAMESPACE.path(), {"metadata": {"name": f"scenario-{number}"}}), _CONFLICT)
        system = {
            "metadata": {"name": f"system-{number}"},
            "spec": _pod_spec(number, "100m", "system-node-critical"),
        }
        await unless_absent(client.create(POD.path("kube-system"), system), _CONFLICT)


def _pod_spec(number: int, cpu: str, class_name: str) -> Object:
    return {
        "priorityClassName": class_name,
        "nodeSelector": {LABEL: str(number)},
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "nginx", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}],
    }
