"""An API server in memory, as `webhook.kube.client.Client` shows it: list and watch, pods and their verbs, Leases.

It keeps budgets, and refuses what it is told to. What a watch shows comes late, and in order.
"""

from __future__ import annotations

import asyncio
import copy
from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from tests.reconciler.builders import START
from tests.reconciler.harness.pods import Json
from tests.reconciler.harness.virtual_time import later, now
from webhook.kube.client import Chunk, ChunkMeta
from webhook.kube.errors import NO_ANSWER, ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.resources import EVENT, LEASE, POD, POD_DISRUPTION_BUDGET

if TYPE_CHECKING:
    from tests.reconciler.harness.cluster import Cluster

_REVIEWS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_REVIEW = {"resourceRules": [{"operations": ["*"], "apiGroups": [""], "resources": ["pods", "pods/eviction"]}]}
_ABSENT = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_EXPIRED = b'{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}'


class StoredObjects:
    """The objects of one kind by name, and what watches are shown of them, `lag()` seconds late or at once."""

    def __init__(self, lag: Callable[[], float] | None = None) -> None:
        self.objects: dict[str, Json] = {}
        self.seen: dict[str, Json] = {}
        """The objects as the reconciler's watch has shown them."""
        self.log: list[tuple[int, str, bytes]] = []
        """What has been shown, by resourceVersion."""
        self.watchers: set[asyncio.Event] = set()
        self.version = self.broken = 0
        """How often all watches of it have ended with 410."""
        self.held = False
        self._listed = False
        self.lag, self._shown = lag, 0.0

    def put(self, name: str, body: Json, *, at_once: bool = False) -> None:
        """Create or change an object, which may be shown `at_once`."""
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.objects[name] = body
        self._show_later(name, "MODIFIED", body, at_once=at_once)

    def remove(self, name: str) -> Json:
        """Delete an object, and show that."""
        gone = self.objects.pop(name)
        self.version += 1
        meta = {**gone["metadata"], "resourceVersion": str(self.version)}
        self._show_later(name, "DELETED", {**gone, "metadata": meta})
        return gone

    def _show_later(self, name: str, kind: str, body: Json, *, at_once: bool = False) -> None:
        loop, event = asyncio.get_running_loop(), (self.version, kind, msgspec.json.encode(body))
        if at_once or (self.lag is None and self._shown <= loop.time()):
            self._show(name, event)
        else:
            self._shown = max(self._shown + 1e-4, loop.time() + (self.lag() if self.lag else 0.0))
            loop.call_at(self._shown, self._show, name, event)

    def _show(self, name: str, event: tuple[int, str, bytes]) -> None:
        self.log.append(event)
        if not self.held:
            self._see(name, event)
            self.wake()

    def _see(self, name: str, event: tuple[int, str, bytes]) -> None:
        if event[1] == "DELETED":
            self.seen.pop(name, None)
        elif event[0] > int(self.seen.get(name, {}).get("metadata", {}).get("resourceVersion", 0)):
            self.seen[name] = msgspec.json.decode(event[2])

    def wake(self) -> None:
        """Let watches look what there is."""
        for watcher in self.watchers:
            watcher.set()

    def list(self) -> tuple[str, list[Json]]:
        """A consistent read, and its version. The first one was made before anything that is yet to be shown."""
        if not self._listed:
            self._listed = True
            return str(self.log[-1][0] if self.log else 1), list(self.seen.values())
        self.seen = msgspec.json.decode(msgspec.json.encode(self.objects))
        return str(max(1, self.version)), list(self.seen.values())

    def hold(self, seconds: float) -> None:
        """Show nothing for so long; after that watches have to begin again with a list."""
        self.held = True
        later(seconds, self._break)

    def _break(self) -> None:
        self.held = False
        self.broken += 1
        self.wake()


class ApiServer:
    """The collections of a cluster by path, as if all namespaces were one."""

    def __init__(self, pods: StoredObjects) -> None:
        self.collections: defaultdict[str, StoredObjects] = defaultdict(StoredObjects, {POD.path(): pods})
        policy = {"metadata": {"name": "kept", "uid": "kept"}, "spec": {"matchConstraints": _REVIEW}}
        self.collections[_REVIEWS].objects["kept"] = self.collections[_REVIEWS].seen["kept"] = policy

    def at(self, path: str) -> tuple[StoredObjects, str, str]:
        """The collection that a path names, and the names of an object and a sub-resource in it, or nothing."""
        parts = [unquote(part) for part in path.split("/")]
        place = 3 if parts[1] == "api" else 4
        namespaced = parts[place] == "namespaces" and len(parts) > place + 2
        rest = parts[place + 2 :] if namespaced else parts[place:]
        if rest[0] in _ABSENT:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        plural, name, subresource = [*rest, "", ""][:3]
        return self.collections["/".join([*parts[:place], plural])], name, subresource

    def free_the_lease(self) -> None:
        """Whoever holds a Lease is dead, and another one need not wait for it to lapse."""
        leases = self.collections[LEASE.path()]
        for name, lease in leases.objects.items():
            leases.put(name, {**lease, "spec": {**lease["spec"], "holderIdentity": ""}})


class ApiClient:
    """The verbs of a `Client` of one process; once `cluster` is None the process is dead, and nothing arrives."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster: Cluster | None = cluster

    def _alive(self) -> Cluster:
        if self.cluster is None:
            raise ApiError(NO_ANSWER, "Unreachable", "the process is dead")
        return self.cluster

    async def pages(self, path: str, *, limit: int = 500, **_: Any) -> AsyncIterator[Chunk]:
        """All objects at once; of a list of one only the version is right."""
        known = self._alive().api.at(path)[0]
        version, objects = known.list() if limit > 1 else (str(max(1, known.version)), [])
        items = msgspec.json.decode(msgspec.json.encode(objects), type=list[msgspec.Raw])
        yield Chunk(items=items, metadata=ChunkMeta(resource_version=version))

    async def watch(self, path: str, *, resource_version: str, **query: Any) -> AsyncIterator[tuple[str, bytes]]:
        """What is shown after that version, as `Client.watch`."""
        known, woken, loop = self._alive().api.at(path)[0], asyncio.Event(), asyncio.get_running_loop()
        place = bisect_right(known.log, int(resource_version), key=lambda event: event[0])
        broken, end = known.broken, loop.time() + query["timeoutSeconds"]
        timer = loop.call_at(end, woken.set)
        known.watchers.add(woken)
        try:
            yield "", b""
            while loop.time() < end:
                if known.broken != broken:
                    yield "ERROR", _EXPIRED
                while not known.held and place < len(known.log):
                    _, kind, raw = known.log[place]
                    place += 1
                    yield kind, raw
                await woken.wait()
                woken.clear()
        finally:
            timer.cancel()
            known.watchers.discard(woken)

    async def get(self, path: str, as_: Any = dict, **query: Any) -> Any:
        """An object, as `Client.get`; of a collection only that it is there."""
        cluster = self._alive()
        known, name, _ = cluster.api.at(path)
        if "limit" in query:
            return {}
        await cluster.hear("get" if known is cluster.collection else "read", name, {})
        return msgspec.convert(_found(known, name), as_)

    async def create(self, path: str, body: Any, as_: Any = dict, **query: Any) -> Any:
        """Evict a pod, or write an object. Events are heard by nobody."""
        if path.endswith(EVENT.plural):
            return {}
        if self._alive().api.at(path)[2] == "eviction":
            return await self._remove(path, body["deleteOptions"], evict=True, **query)
        return await self._put(path, body, as_)

    async def replace(self, path: str, body: Any, as_: Any = dict) -> Any:
        """Write an object that is there, as `Client.replace`."""
        return await self._put(path, body, as_, is_there=True)

    async def _put(self, path: str, body: Any, as_: Any, *, is_there: bool = False) -> Any:
        known, made = self._alive().api.at(path)[0], msgspec.to_builtins(body)
        name = made["metadata"]["name"]
        await self._alive().hear("write", name, made)
        if is_there:
            _check_version(_found(known, name), made["metadata"])
        known.put(name, made)
        return msgspec.convert(made, as_)

    async def delete(self, path: str, body: Json, as_: Any = dict, **query: Any) -> None:
        """Delete a pod, as `Client.delete`; budgets are not asked."""
        del as_
        await self._remove(path, body, evict=False, **query)

    # The process may be killed before a request that changes something, or before its answer.

    async def patch(self, path: str, body: Json, *, kind: str = "merge", as_: Any = dict) -> Any:
        """Change a pod's status and annotations; a strategic merge has one condition of each type."""
        if EVENT.plural in path.split("/"):
            return {}
        await self._alive().step()
        cluster, name = self._alive(), self._alive().api.at(path)[1]
        await cluster.hear("patch", name, body)
        if cluster.slow_writes:
            await asyncio.sleep(cluster.dice.choice((0.0, 0.05, 0.5)))
        pod = copy.deepcopy(_found(cluster.collection, name))
        meta = body["metadata"]
        if meta["uid"] != pod["metadata"]["uid"]:
            raise ApiError(409, "Conflict", "another pod of that name")
        _check_version(pod, meta)
        annotations = {**pod["metadata"].get("annotations", {}), **meta.get("annotations", {})}
        pod["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
        status = {**pod["status"], **body.get("status", {})}
        if kind == "strategic":
            known = {row["type"]: row for row in pod["status"].get("conditions", ())}
            new = {row["type"]: row for row in body.get("status", {}).get("conditions", ())}
            status["conditions"] = list({**known, **new}.values())
        pod["status"] = {key: value for key, value in status.items() if value is not None}
        cluster.put(pod)
        await cluster.hear("patch", name, body, done=True)
        await cluster.step()
        return msgspec.convert(pod, as_)

    async def _remove(self, path: str, options: Json, *, evict: bool, **query: Any) -> None:
        """Evict or delete a pod, as far as it is admitted and its budget lets it go."""
        dry = query.get("dryRun") == "All"
        if not dry:
            await self._alive().step()
        cluster, name = self._alive(), self._alive().api.at(path)[1]
        await cluster.hear("try" if dry else "evict" if evict else "delete", name, options)
        if not dry:
            cluster.tell_asked(name, options["preconditions"]["uid"])
        if evict:
            await asyncio.sleep(cluster.dice.choice((0.0, 0.005, 0.1)))
        self._admit(name, options["preconditions"]["uid"])
        pod = copy.deepcopy(_found(cluster.collection, name))
        stays = "deletionTimestamp" not in pod["metadata"] and (not evict or _spend(cluster, pod, dry=dry))
        _check_version(pod, options["preconditions"])
        if stays and not dry:
            cluster.end(pod)
            await cluster.hear("evict" if evict else "delete", name, options, done=True)
            if evict and cluster.answers_lost > 0:
                cluster.answers_lost -= 1
                raise ApiError(500, "InternalError", "the answer was lost")
        if not dry:
            await cluster.step()

    def _admit(self, name: str, uid: str) -> None:
        """What the server says before it looks at budgets."""
        cluster, (until, share) = self._alive(), self._alive().throttled
        stays = cluster.migrating.get(name, 0.0) - now()
        if now() < until and cluster.dice.random() < share:
            raise ApiError(429, "", "Too many requests, please try again later.", retry_after=1.0)
        if _found(cluster.collection, name)["metadata"]["uid"] != uid:
            raise ApiError(409, "Conflict", "another pod of that name")
        if stays > 0:
            if stays > cluster.policy.plan_timeout - 6.0:  # it is asked again every 5 s
                cluster.outcomes.kept_for_long(name, uid)
            raise ApiError(429, "TooManyRequests", "Evacuation in progress")
        if name in cluster.kept:
            if name in cluster.migrating:
                cluster.outcomes.outside(f"{name} was said to be on its way, and is kept", uid)
            cluster.refused.add(name)
            raise ApiError(403, "Forbidden", "it is kept")


def _found(known: StoredObjects, name: str) -> Json:
    if name not in known.objects:
        raise ApiError(404, "NotFound", f"no object {name}")
    return known.objects[name]


def _check_version(known: Json, wanted: Json) -> None:
    version = known["metadata"]["resourceVersion"]
    if wanted.get("resourceVersion", version) != version:
        raise ApiError(409, "Conflict", "it has changed")


def _spend(cluster: Cluster, pod: Json, *, dry: bool) -> bool:
    for budget in cluster.budgets.values():
        if not budget["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items():
            continue
        status, conditions = budget["status"], pod["status"].get("conditions", ())
        ready = all(row["status"] == "True" for row in conditions if row["type"] == "Ready")
        if not ready and status.get("currentHealthy", 0) >= status.get("desiredHealthy", 1):
            continue
        if status["disruptionsAllowed"] <= 0:
            cause = {"causes": [{"reason": "DisruptionBudget"}]}
            raise ApiError(429, "TooManyRequests", "the budget is used up", details=cause)
        if not dry:
            status["disruptionsAllowed"] -= 1
            status["disruptedPods"] = {
                **status.get("disruptedPods", {}),
                pod["metadata"]["name"]: rfc3339(START + now()),
            }
            cluster.show(POD_DISRUPTION_BUDGET, budget)
    return True
