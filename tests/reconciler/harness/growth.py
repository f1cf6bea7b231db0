"""Random clusters in which running pods want to grow, and the kubelet's part in that."""

import copy
import random

from msgspec.structs import replace

from tests.reconciler.builders import START
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import Json, cpu_of, request, running
from tests.reconciler.harness.virtual_time import later, now
from webhook.kube.instants import rfc3339
from webhook.policy.model.values import MANAGED, MARK

_PENDING = "PodResizePending"
_GROWS = "grows"
"""The label of pods that want to grow."""


def growth(made: Cluster, seed: int) -> None:
    """Some pods that run want more on their node."""
    dice = random.Random(f"growth {seed}")
    preemptors = replace(made.policy.preemptors, resize=True)
    made.policy = replace(made.policy, preemptors=preemptors)
    kubelet = _Kubelet(made, dice)
    made.changes.append(kubelet.changed)
    for number, host in enumerate(made.nodes):
        if number and dice.random() < 0.5:
            continue
        name, at = f"g{number}", dice.choice((0.0, 0.3, dice.uniform(0, 20)))
        pod = running(name, host["metadata"]["name"], dice)
        pod["metadata"] |= {"labels": {MARK: MANAGED, _GROWS: "true"}, "ownerReferences": []}
        priority = dice.choice((100, 110, 120))
        pod["spec"] |= {"priority": priority, "priorityClassName": "high", "preemptionPolicy": "Never"}
        if dice.random() < 0.8:
            pod["metadata"]["annotations"] = {}
        has = dice.randint(1, 2)
        request(pod, has)
        pod["status"]["containerStatuses"] = [_allotted(has)]
        host["status"]["allocatable"]["cpu"] = str(8 + has)
        made.put(pod)
        for _ in range(dice.choice((1, 1, 1, 2))):
            later(at, kubelet.wish, name, has + dice.randint(1, 7))
            at += dice.uniform(0, 30)
        if dice.random() < 0.15:
            later(at, kubelet.wish, name, has)


class _Kubelet:
    """Grants what fits on its node beside what the pods there have, the highest priority first, and defers the rest."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self.cluster, self.dice = cluster, dice

    def wish(self, name: str, cpu: int) -> None:
        """Somebody changes what a pod wants."""
        known = self.cluster.pods.get(name)
        if known is not None and "deletionTimestamp" not in known["metadata"]:
            pod = copy.deepcopy(known)
            request(pod, cpu)
            self.cluster.outcomes.outside(f"{name} wants to grow there", pod["spec"]["nodeName"])
            self.cluster.put(pod)

    def changed(self, old: Json | None, new: Json | None) -> None:
        """A pod is different: its kubelet looks again at what is pending."""
        for pod in (old, new):
            if pod is not None and (node := pod["spec"].get("nodeName")):
                later(self.dice.choice((0.0, 0.01, 0.5)), self._look, node)
                return

    def _look(self, node: str) -> None:
        growing = [pod for pod in self.cluster.pods.values() if pod["spec"].get("nodeName") == node and _wants(pod)]
        for pod in sorted(growing, key=lambda pod: -pod["spec"]["priority"]):
            if "deletionTimestamp" in pod["metadata"]:
                continue
            told = {row["type"]: row for row in pod["status"].get("conditions", ())}
            before, changed = told.pop(_PENDING, {}), copy.deepcopy(pod)
            if cpu_of(pod) == _has(pod) or self._fits(pod):
                changed["status"]["containerStatuses"] = [_allotted(cpu_of(pod))]
            else:
                reason = "Deferred" if cpu_of(pod) <= self.cluster.cpus(node) else "Infeasible"
                if before.get("reason") == reason:
                    continue
                said = {"type": _PENDING, "status": "True", "reason": reason}
                told[_PENDING] = {**said, "lastTransitionTime": rfc3339(START + now())}
            changed["status"]["conditions"] = list(told.values())
            self.cluster.put(changed)

    def _fits(self, pod: Json) -> bool:
        """Whether a pod has room on its node for what it wants, beside what the others there have."""
        node = pod["spec"]["nodeName"]
        there = [other for other in self.cluster.pods.values() if other["spec"].get("nodeName") == node]
        used = sum(_has(other) for other in there if other["metadata"]["name"] != pod["metadata"]["name"])
        return used + max(cpu_of(pod), _has(pod)) <= self.cluster.cpus(node)


def _has(pod: Json) -> int:
    said = pod["status"].get("containerStatuses")
    return int(said[0]["allocatedResources"]["cpu"]) if said else cpu_of(pod)


def _wants(pod: Json) -> bool:
    """Whether what the pod wants is not what it has, or was not until now."""
    pending = any(row["type"] == _PENDING for row in pod["status"].get("conditions", ()))
    return "containerStatuses" in pod["status"] and (pending or cpu_of(pod) != _has(pod))


def _allotted(cpu: int) -> Json:
    amounts = {"cpu": str(cpu)}
    return {"name": "main", "resources": {"requests": amounts}, "allocatedResources": amounts}
