"""The verbs of a client that the reconciler uses, on a cluster in memory that keeps budgets and may refuse."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

import msgspec

from tests.reconciler.builders import START
from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod

if TYPE_CHECKING:
    from tests.reconciler.simulation import Simulation

Json = dict[str, Any]


class SimulatedApi:
    """A `Client` of the cluster of a simulation."""

    def __init__(self, cluster: Simulation) -> None:
        self._cluster = cluster

    async def get(self, path: str, as_: type[Pod]) -> Pod:
        """A pod, as `Client.get`."""
        return msgspec.convert(self._found(path.rsplit("/", 1)[1]), as_)

    async def patch(self, path: str, body: Json, *, kind: str = "merge", as_: type[Pod] = Pod) -> Pod:
        """Change a pod's status, as `Client.patch`; a strategic merge has one condition of each type."""
        if self._cluster.slow_writes:
            await asyncio.sleep(self._cluster.dice.choice((0.0, 0.05, 0.5)))
        pod = copy.deepcopy(self._found(path.split("/")[-2]))
        meta = body["metadata"]
        version = pod["metadata"]["resourceVersion"]
        if (meta["uid"], meta.get("resourceVersion", version)) != (pod["metadata"]["uid"], version):
            raise ApiError(409, "Conflict", "it has changed")
        annotations = {**pod["metadata"].get("annotations", {}), **meta.get("annotations", {})}
        pod["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
        status = {**pod["status"], **body.get("status", {})}
        if kind == "strategic":
            known = {one["type"]: one for one in pod["status"].get("conditions", ())}
            new = {one["type"]: one for one in body.get("status", {}).get("conditions", ())}
            status["conditions"] = list({**known, **new}.values())
        pod["status"] = {key: value for key, value in status.items() if value is not None}
        self._cluster.put(pod)
        return msgspec.convert(pod, as_)

    async def create(self, path: str, body: Json, as_: Any = dict, **query: Any) -> None:
        """Evict a pod, as `Client.create` does with an Eviction."""
        del path, as_
        name, dry = body["metadata"]["name"], query.get("dryRun") == "All"
        if not dry:
            self._tell_asked(name, body["deleteOptions"]["preconditions"]["uid"])
        await asyncio.sleep(self._cluster.dice.choice((0.0, 0.005, 0.1)))
        self._admit(name, body["deleteOptions"]["preconditions"]["uid"])
        pod = copy.deepcopy(self._found(name))
        going = "deletionTimestamp" in pod["metadata"] or not self._spend(pod, dry=dry)
        self._check_version(pod, body["deleteOptions"]["preconditions"])
        if not going and not dry:
            self._cluster.end(pod)
            if self._cluster.answers_lost > 0:
                self._cluster.answers_lost -= 1
                raise ApiError(500, "InternalError", "the answer was lost")

    async def delete(self, path: str, body: Json, as_: Any = dict, **query: Any) -> None:
        """Delete a pod, as `Client.delete`; budgets are not asked."""
        del as_
        name, dry = path.rsplit("/", 1)[1], query.get("dryRun") == "All"
        if not dry:
            self._tell_asked(name, body["preconditions"]["uid"])
        self._admit(name, body["preconditions"]["uid"])
        pod = copy.deepcopy(self._found(name))
        self._check_version(pod, body["preconditions"])
        if "deletionTimestamp" not in pod["metadata"] and not dry:
            self._cluster.end(pod)

    def _check_version(self, pod: Json, preconditions: Json) -> None:
        version = pod["metadata"]["resourceVersion"]
        if preconditions.get("resourceVersion", version) != version:
            raise ApiError(409, "Conflict", "it has changed")

    def _tell_asked(self, name: str, uid: str) -> None:
        if self._cluster.pods.get(name, {}).get("metadata", {}).get("uid") != uid:
            return  # another pod of that name is not asked
        self._cluster.spares.asked(name)
        for told in self._cluster.asked:
            told(name)

    def _admit(self, name: str, uid: str) -> None:
        """What the server says before it looks at budgets."""
        until, share = self._cluster.throttled
        now = asyncio.get_running_loop().time()
        if now < until and self._cluster.dice.random() < share:
            raise ApiError(429, "", "Too many requests, please try again later.", retry_after=1.0)
        if self._found(name)["metadata"]["uid"] != uid:
            raise ApiError(409, "Conflict", "another pod of that name")
        if now < self._cluster.migrating.get(name, 0.0):
            if (
                self._cluster.migrating[name] - now > self._cluster.policy.plan_timeout - 6.0
            ):  # it is asked again every 5 s
                self._cluster.outcomes.outside(f"{name} was migrated for longer than a plan may take", uid)
            raise ApiError(429, "TooManyRequests", "Evacuation in progress")
        if name in self._cluster.kept:
            if name in self._cluster.migrating:
                self._cluster.outcomes.outside(f"{name} was said to be on its way, and is kept", uid)
            self._cluster.refused.add(name)
            raise ApiError(403, "Forbidden", "it is kept")

    def _found(self, name: str) -> Json:
        if name not in self._cluster.pods:
            raise ApiError(404, "NotFound", f"no pod {name}")
        return self._cluster.pods[name]

    def _spend(self, pod: Json, *, dry: bool) -> bool:
        for one in self._cluster.budgets.values():
            if not one["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items():
                continue
            status, conditions = one["status"], pod["status"].get("conditions", ())
            ready = all(row["status"] == "True" for row in conditions if row["type"] == "Ready")
            if not ready and status.get("currentHealthy", 0) >= status.get("desiredHealthy", 1):
                continue
            if status["disruptionsAllowed"] <= 0:
                cause = {"causes": [{"reason": "DisruptionBudget"}]}
                raise ApiError(429, "TooManyRequests", "the budget is used up", details=cause)
            if not dry:
                status["disruptionsAllowed"] -= 1
                status["disruptedPods"] = {**status.get("disruptedPods", {}), pod["metadata"]["name"]: rfc3339(START)}
                self._cluster.show_budget(one)
        return True
