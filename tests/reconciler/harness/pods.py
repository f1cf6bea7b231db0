"""Pods, groups and nodes of simulated clusters, as plain JSON."""

import json
import random
from typing import Any

from tests.preemption import building
from tests.preemption.building import Json
from tests.reconciler.builders import START
from webhook.kube.instants import rfc3339
from webhook.policy.model.values import CAN_BE_PREEMPTED, MANAGED, MARK, PLAN

GANG = "scheduling.x-k8s.io/pod-group"
"""The label by which a pod belongs to a PodGroup of coscheduling."""


def victim(
    name: str, on: str, cpu: str = "4", *, priority: int = 10, owner: str = "", grace: int = 0, **labels: str
) -> Json:
    """A pod on a node that may be evicted."""
    spec = {"priorityClassName": "low", "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": grace}
    made = building.pod(name, on=on, priority=priority, cpu=cpu, started=3000 + priority, **spec)
    made["metadata"] |= {"labels": labels or {"app": "v"}, "annotations": {CAN_BE_PREEMPTED: "true"}}
    made["metadata"]["ownerReferences"] = building.owned_by("Job", owner) if owner else []
    return made


def fixed(name: str, on: str, cpu: str = "4", **more: Any) -> Json:
    """A pod on a node that may not go."""
    made = victim(name, on, cpu, **more)
    made["metadata"]["annotations"] = {}
    return made


def preemptor(
    name: str = "p", cpu: str = "4", *, priority: int = 100, managed: bool = True, since: float = 0.0, **labels: str
) -> Json:
    """A pod that waits: one that the policy preempts for, or one that only waits."""
    spec = {"schedulerName": "default-scheduler", "preemptionPolicy": "Never"}
    made = building.pod(name, priority=priority, cpu=cpu, priorityClassName="high" if managed else "other", **spec)
    made["metadata"]["labels"] = ({MARK: MANAGED} if managed else {"app": "ordinary"}) | labels
    made["status"]["conditions"] = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "preemption: not eligible due to preemptionPolicy=Never.",
            "lastTransitionTime": rfc3339(START + since),
        }
    ]
    return made


def running(name: str, on: str, dice: random.Random) -> Json:
    """A pod on a node, which mostly may go, with a grace period of its own."""
    may_go, owner, app = dice.random() < 0.9, dice.choice(("", "x", "y")), dice.choice(("a", "b", "c"))
    made = (victim if may_go else fixed)(name, on, priority=dice.choice((10, 20, 80)), owner=owner, app=app)
    made["spec"]["terminationGracePeriodSeconds"] = dice.choice((0, 1, 30, 90))
    request(made, dice.randint(1, 4))
    made["status"]["startTime"] = rfc3339(START - dice.randint(0, 3000))
    return made


def waiting(name: str, dice: random.Random, at: float, *, managed: bool = True) -> Json:
    """A pod that found no node: a preemptor, or one that only holds a nomination."""
    priority = dice.choice((100, 110, 120)) if managed else dice.choice((50, 90, 105))
    made = preemptor(name, priority=priority, managed=managed, since=at)
    if not managed:
        made["metadata"]["labels"] = {"app": "d"}
        made["spec"]["preemptionPolicy"] = "PreemptLowerPriority"
    request(made, dice.randint(1, 7))
    return made


def group(name: str, minimum: int, **more: Any) -> Json:
    """A PodGroup of coscheduling."""
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": minimum, **more}}


def minimum_of(group: Json) -> int:
    """How many members a group needs, of whichever kind it is."""
    spec = group["spec"]
    minimum: int = spec.get("minMember") or spec.get("schedulingPolicy", {}).get("gang", {}).get("minCount", 0)
    return minimum


def members(name: str, count: int, cpu: int, *, priority: int = 100, first: int = 0, at: float = 0.0) -> list[Json]:
    """Preemptors that belong to a gang."""
    numbers = range(first, first + count)
    return [preemptor(f"{name}-{at_}", str(cpu), priority=priority, since=at, **{GANG: name}) for at_ in numbers]


def written_on(pod: Json | None, key: str = PLAN) -> Json | None:
    """What an annotation of a pod says, such as its plan; None if there is none."""
    text = ((pod or {}).get("metadata", {}).get("annotations") or {}).get(key)
    return json.loads(text) if text else None


def owner_of(pod: Json) -> str:
    """The name of the pod's owner; empty if it has none."""
    return next((owner["name"] for owner in pod["metadata"].get("ownerReferences", ())), "")


def cpu_of(pod: Json) -> int:
    """How many CPUs the pod asks for."""
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def request(pod: Json, cpu: int) -> None:
    """Let the pod ask for so many CPUs."""
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(cpu)
