"""Random clusters in which running pods want to grow, and the kubelet's part in that."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Collection
from typing import Any

import msgspec

from tests.reconciler.builders import START
from tests.reconciler.random_clusters import running, troubled
from tests.reconciler.simulation import Simulation
from webhook.kube.instants import rfc3339
from webhook.policy.model.values import MANAGED, MARK

Json = dict[str, Any]
_PENDING = "PodResizePending"
_GROWS = "grows"
"""The label of pods that want to grow."""


def troubled_growth(seed: int) -> Simulation:
    """The troubled cluster of that seed in which some pods that run want more on their node."""
    made, dice = troubled(seed), random.Random(f"growth {seed}")
    preemptors = msgspec.structs.replace(made.policy.preemptors, resize=True)
    made.policy = msgspec.structs.replace(made.policy, preemptors=preemptors)
    made.restart()
    kubelet = _Kubelet(made, dice)
    made.changes.append(kubelet.changed)
    made.spares.ask = kubelet.answering(made.spares.ask)  # type: ignore[method-assign]  # of those that grow
    made.spares._is_left_to = kubelet.leaving(made.spares._is_left_to)  # type: ignore[method-assign]
    loop = asyncio.get_running_loop()
    for number, host in enumerate(made.nodes):
        if number and dice.random() < 0.5:
            continue
        name, at = f"g{number}", dice.choice((0.0, 0.3, dice.uniform(0, 20)))
        pod = running(name, host["metadata"]["name"], dice)
        pod["metadata"] |= {"labels": {MARK: MANAGED, _GROWS: "true"}, "ownerReferences": []}
        pod["spec"] |= {"priority": dice.choice((100, 110, 120)), "priorityClassName": "high"}
        pod["spec"]["preemptionPolicy"] = "Never"
        if dice.random() < 0.8:
            pod["metadata"]["annotations"] = {}
        has = dice.randint(1, 2)
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(has)
        pod["status"]["containerStatuses"] = [_allotted(str(has))]
        host["status"]["allocatable"]["cpu"] = str(8 + has)
        made.put(pod)
        for _ in range(dice.choice((1, 1, 1, 2))):
            loop.call_later(at, kubelet.wish, name, str(has + dice.randint(1, 7)))
            at += dice.uniform(0, 30)
        if dice.random() < 0.15:
            loop.call_later(at, kubelet.wish, name, str(has))
    return made


class _Kubelet:
    """Grants what fits on its node beside what the pods there have, the highest priority first, and defers the rest."""

    def __init__(self, cluster: Simulation, dice: random.Random) -> None:
        self.cluster, self.dice = cluster, dice

    def wish(self, name: str, cpu: str) -> None:
        """Somebody changes what a pod wants."""
        known = self.cluster.pods.get(name)
        if known is None or "deletionTimestamp" in known["metadata"]:
            return
        pod = copy.deepcopy(known)
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
        self.cluster.outcomes.outside(f"{name} wants to grow there", pod["spec"]["nodeName"])
        self.cluster.put(pod)

    def changed(self, old: Json | None, new: Json | None) -> None:
        """A pod is different: its kubelet looks again at what is pending."""
        for pod in (old, new):
            if pod is not None and (node := pod["spec"].get("nodeName")):
                asyncio.get_running_loop().call_later(self.dice.choice((0.0, 0.01, 0.5)), self._look, node)
                return

    def _look(self, node: str) -> None:
        growing = [pod for pod in self.cluster.pods.values() if pod["spec"].get("nodeName") == node and _wants(pod)]
        for pod in sorted(growing, key=lambda one: -one["spec"]["priority"]):
            if "deletionTimestamp" in pod["metadata"]:
                continue
            size = self._size(node)
            conditions = [row for row in pod["status"].get("conditions", ()) if row["type"] != _PENDING]
            changed = copy.deepcopy(pod)
            if int(_asked(pod)) == _has(pod) or self.fits(self.cluster.pods, pod["metadata"]["name"], ()):
                changed["status"]["containerStatuses"] = [_allotted(_asked(pod))]
            else:
                reason = "Deferred" if int(_asked(pod)) <= size else "Infeasible"
                since = rfc3339(START + asyncio.get_running_loop().time())
                before = next((row for row in pod["status"].get("conditions", ()) if row["type"] == _PENDING), {})
                if before.get("reason") == reason:
                    continue
                conditions.append({"type": _PENDING, "status": "True", "reason": reason, "lastTransitionTime": since})
            changed["status"]["conditions"] = conditions
            self.cluster.put(changed)

    def _size(self, node: str) -> int:
        sizes = [one["status"]["allocatable"]["cpu"] for one in self.cluster.nodes if one["metadata"]["name"] == node]
        return int(sizes[0]) if sizes else 0

    def fits(self, pods: dict[str, Json], name: str, gone: Collection[str]) -> bool:
        """Whether a pod has room on its node for what it wants, beside what the others there have."""
        pod = pods[name]
        node = pod["spec"]["nodeName"]
        others = [
            one for key, one in pods.items() if key != name and key not in gone and one["spec"].get("nodeName") == node
        ]
        return sum(map(_has, others)) + max(int(_asked(pod)), _has(pod)) <= self._size(node)

    def answering(self, ask: Any) -> Any:
        """What to ask instead of the oracle, which knows only pods without a node."""

        def answer(pods: dict[str, Json], preemptor: str, gone: Any, may_go: Any = None) -> Json:
            if node := pods[preemptor]["spec"].get("nodeName"):
                return {"fits": [node] if self.fits(pods, preemptor, gone) else [], "candidates": []}
            return dict(ask(pods, preemptor, gone, may_go))

        return answer

    def leaving(self, is_left_to: Any) -> Any:
        """Room beside a pod that grows is its own at once: nobody takes it before."""

        def leaves(preemptor: str, pods: dict[str, Json], node: str, gone: Collection[str]) -> bool:
            if pods[preemptor]["spec"].get("nodeName"):
                return self.fits(pods, preemptor, gone)
            return bool(is_left_to(preemptor, pods, node, gone))

        return leaves


def _asked(pod: Json) -> str:
    return str(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def _has(pod: Json) -> int:
    said = pod["status"].get("containerStatuses")
    return int(said[0]["allocatedResources"]["cpu"] if said else _asked(pod))


def _wants(pod: Json) -> bool:
    """Whether what the pod wants is not what it has, or was not until now."""
    pending = any(row["type"] == _PENDING for row in pod["status"].get("conditions", ()))
    return "containerStatuses" in pod["status"] and (pending or int(_asked(pod)) != _has(pod))


def _allotted(cpu: str) -> Json:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}
