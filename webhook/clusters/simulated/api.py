"""The API server as the reconciler, kube-scheduler and the controllers use it, in virtual time.

The verbs are those of `webhook.kube.client.Client`, as far as somebody uses them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import msgspec

from webhook.clusters.model.disruption import BLOCKED, BudgetRefusalError, budget_to_spend, spent
from webhook.clusters.simulated.clock import VirtualClock
from webhook.clusters.simulated.history import SimulationHistory
from webhook.clusters.simulated.objects import SimulatedWorkload
from webhook.clusters.simulated.simulated_admission import RefusedError, SimulatedAdmission, controller
from webhook.clusters.simulated.tracker import ObjectTracker
from webhook.kube.errors import ApiError
from webhook.kube.instants import epoch_or, rfc3339
from webhook.kube.objects.meta import Condition, key_of
from webhook.kube.objects.pod import Pod, PodDisruptionBudget, PodStatus
from webhook.kube.resources import DEPLOYMENT, JOB, POD, POD_DISRUPTION_BUDGET, REPLICA_SET
from webhook.preemption.snapshot.pod_view import grace_of

_replace = msgspec.structs.replace
_KINDS = {row.plural: row.kind for row in (DEPLOYMENT, REPLICA_SET, JOB, POD_DISRUPTION_BUDGET, POD)}
"""What controllers write, by its plural name."""
Json = dict[str, Any]


class Api:
    """What can be done to the cluster; raises ApiError as the API server answers."""

    def __init__(
        self, tracker: ObjectTracker, admission: SimulatedAdmission, clock: VirtualClock, history: SimulationHistory
    ) -> None:
        self.tracker = tracker
        self.clock = clock
        self.history = history
        self.covering: Callable[[Pod], list[PodDisruptionBudget]] = lambda _: []
        """The budgets that cover a pod."""
        self._admission = admission
        self._uids = itertools.count(1)
        self._made: Counter[str] = Counter()
        """How many pods were made for each controller, by its uid."""

    def start(self) -> None:
        """Note since when pods wait."""
        for pod in self.tracker.all("Pod").values():
            if not pod.spec.node_name and not pod.metadata.deletion_timestamp:
                told = [
                    row for row in pod.status.conditions or () if (row.type, row.status) == ("PodScheduled", "False")
                ]
                since = told[0].last_transition_time if told else None
                began = epoch_or(since or pod.metadata.creation_timestamp, self.clock.start) - self.clock.start
                self.history.story(pod).waits_since = began

    def create(self, pod: Pod) -> Pod:
        """A new pod; it gets a uid."""
        key = key_of(pod)
        if self.tracker.pod(key) is not None:
            raise ApiError(409, "AlreadyExists", f"pods {key!r} already exists")
        now = rfc3339(self.clock.wall())
        meta = _replace(pod.metadata, uid=f"simulated-{next(self._uids)}", creation_timestamp=now)
        made: Pod = self.tracker.put("Pod", _replace(pod, metadata=meta, status=PodStatus(phase="Pending")))
        self.history.story(made).waits_since = self.clock.monotonic()
        return made

    def make(self, namespace: str, body: Json) -> Pod:
        """Create a pod of a controller, if admission lets it. Raises ApiError (403)."""
        owner = body["metadata"]["ownerReferences"][0]
        self._made[owner["uid"]] += 1
        body["metadata"]["namespace"] = namespace
        try:
            pod = self._admission.pod(body, controller(owner["kind"]))
        except RefusedError as error:
            self.history.refused.setdefault(f"{owner['kind']}/{namespace}/{owner['name']}", str(error))
            raise ApiError(403, "Forbidden", str(error)) from error
        if not pod.metadata.name:
            name = f"{pod.metadata.generate_name}s{self._made[owner['uid']]:04d}"
            pod = _replace(pod, metadata=_replace(pod.metadata, name=name))
        return self.create(pod)

    def make_workload(self, kind: str, namespace: str, body: Json) -> None:
        """Create a workload of a controller."""
        name = body["metadata"]["name"]
        metadata = {**body["metadata"], "namespace": namespace, "uid": f"simulated-{namespace}.{name}"}
        self.tracker.put(kind, msgspec.convert({**body, "metadata": metadata}, SimulatedWorkload))

    def patch(self, kind: str, key: str, body: Json) -> Any:
        """Change an object's annotations, its number of pods or its status; conditions of pods are merged by type.

        Raises ApiError (404, 409).
        """
        known = self.read(kind, key)
        given, meta, status = body.get("metadata") or {}, known.metadata, known.status
        if given.get("uid", meta.uid) != meta.uid:
            raise ApiError(409, "Conflict", f"{key} is another one by now")
        if given.get("resourceVersion", meta.resource_version) != meta.resource_version:
            raise ApiError(409, "Conflict", f"{key} has changed")
        if "annotations" in given:
            annotations = _without_nulls({**(meta.annotations or {}), **given["annotations"]})
            meta = _replace(meta, annotations=annotations or None)
        if told := body.get("status"):
            before: Json = msgspec.to_builtins(status)
            if isinstance(known, Pod) and "conditions" in told:
                types = {condition["type"] for condition in told["conditions"]}
                others = [condition for condition in before.get("conditions") or () if condition["type"] not in types]
                told = {**told, "conditions": [*others, *told["conditions"]]}
            status = msgspec.convert(_without_nulls({**before, **told}), type(status))
        spec = _replace(known.spec, **body["spec"]) if "spec" in body else known.spec
        return self.tracker.put(kind, _replace(known, metadata=meta, spec=spec, status=status))

    def bind(self, key: str, uid: str, node: str) -> None:
        """Put a pod on a node, as `pods/binding`."""
        pod: Pod = self.read("Pod", key)
        if pod.metadata.uid != uid or pod.spec.node_name or pod.metadata.deletion_timestamp:
            raise ApiError(409, "Conflict", f"pod {key} cannot be bound any more")
        self.read("Node", node)
        scheduled = Condition(type="PodScheduled", status="True", last_transition_time=rfc3339(self.clock.wall()))
        status = _replace(pod.status, conditions=[scheduled], nominated_node_name="")
        self.history.placed(
            self.tracker.put("Pod", _replace(pod, spec=_replace(pod.spec, node_name=node), status=status))
        )

    def evict(self, key: str, uid: str, grace: int | None, by: str, *, dry_run: bool = False) -> None:
        """Ask a pod to leave through the Eviction API. Raises ApiError (403, 429, 500) if its budget keeps it."""
        pod: Pod = self.read("Pod", key)
        if uid and pod.metadata.uid != uid:
            raise ApiError(409, "Conflict", f"the UID in the precondition ({uid}) does not match that of {key}")
        try:
            budget = budget_to_spend(pod, self.covering(pod))
            status = spent(budget, pod.metadata.name, self.clock.wall()) if budget is not None else None
        except BudgetRefusalError as refusal:
            raise _refusal(refusal) from refusal
        if dry_run:
            return
        if budget is not None:
            self.tracker.put("PodDisruptionBudget", _replace(budget, status=status))
        self.disrupt(key, "EvictionByEvictionAPI")
        self.delete(key, uid, grace, by)

    def disrupt(self, key: str, reason: str) -> None:
        """Say in a pod's conditions that it is made to leave: its Job may not count that as a failure."""
        now = rfc3339(self.clock.wall())
        target = {"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": now}
        self.patch("Pod", key, {"status": {"conditions": [target]}})

    def delete(self, key: str, uid: str, grace: int | None, by: str, version: str = "") -> None:
        """Ask a pod to leave; without a node, or asked again without grace, it is gone at once.

        `by` is nobody if that is no eviction.
        """
        pod: Pod = self.read("Pod", key)
        meta = pod.metadata
        if (uid and meta.uid != uid) or (version and meta.resource_version != version):
            raise ApiError(409, "Conflict", f"{key} has changed")
        if not pod.spec.node_name or (meta.deletion_timestamp and grace == 0):
            self.remove(key, meta.uid)
            return
        if meta.deletion_timestamp:
            return
        if by:
            self.history.evicted(pod, by)
        seconds = grace_of(pod) if grace is None else grace
        ends = rfc3339(self.clock.wall() + seconds)
        left = _replace(meta, deletion_timestamp=ends, deletion_grace_period_seconds=seconds)
        self.tracker.put("Pod", _replace(pod, metadata=left))

    def remove(self, key: str, uid: str) -> None:
        """A pod is gone, if it is still this one."""
        pod = self.tracker.pod(key)
        if pod is not None and pod.metadata.uid == uid:
            if pod.spec.node_name:
                self.history.story(pod)  # something has happened to it
            self.tracker.remove("Pod", key)

    def read(self, kind: str, key: str) -> Any:
        """An object. Raises ApiError (404)."""
        item = self.tracker.get(kind, key)
        if item is None:
            raise ApiError(404, "NotFound", f"{kind} {key!r} not found")
        return item


class SimulatedClient:
    """One user of the API, with the verbs of `webhook.kube.client.Client` that it uses.

    Pods that go by a user with a name are evicted by it.
    """

    def __init__(self, api: Api, name: str = "") -> None:
        self._api = api
        self._name = name

    async def get(self, path: str, *_as: Any, **_query: Any) -> Any:
        """Read an object."""
        plural, key, _ = _named(path)
        return self._api.read(_KINDS[plural], key)

    async def patch(self, path: str, body: Json, **_options: Any) -> Any:
        """Change an object, or its status."""
        plural, key, _ = _named(path)
        return self._api.patch(_KINDS[plural], key, body)

    async def create(self, path: str, body: Json, *_as: Any, **query: Any) -> Any:
        """Bind or evict a pod; make a pod or a workload of a controller."""
        plural, key, subresource = _named(path)
        match plural, subresource:
            case "pods", "binding":
                return self._api.bind(key, body["metadata"]["uid"], body["target"]["name"])
            case "pods", "eviction":
                options = body.get("deleteOptions") or {}
                uid, grace = (options.get("preconditions") or {}).get("uid", ""), options.get("gracePeriodSeconds")
                return self._api.evict(key, uid, grace, self._name, dry_run=query.get("dryRun") == "All")
            case "pods", _:
                return self._api.make(key, body)
        return self._api.make_workload(_KINDS[plural], key, body)

    async def delete(self, path: str, body: Json | None = None, **query: Any) -> Any:
        """Delete a pod: for users with a name that is an eviction without budgets."""
        options = body or {}
        known = options.get("preconditions") or {}
        _, key, _ = _named(path)
        if query.get("dryRun") == "All":
            self._api.read("Pod", key)
            return
        grace, version = options.get("gracePeriodSeconds"), known.get("resourceVersion", "")
        self._api.delete(key, known.get("uid", ""), grace, self._name, version)


def _named(path: str) -> tuple[str, str, str]:
    """Plural name, key and sub-resource of an object's path; of a collection's, the namespace is the key."""
    parts = path.split("/") if "%" not in path else [unquote(part) for part in path.split("/")]
    at = parts.index("namespaces")
    namespace, plural, name, subresource = [*parts[at + 1 :], "", ""][:4]
    return plural, f"{namespace}/{name}" if name else namespace, subresource


def _without_nulls(part: Json) -> Json:
    return {
        key: _without_nulls(value) if isinstance(value, dict) else value
        for key, value in part.items()
        if value is not None
    }


def _refusal(refusal: BudgetRefusalError) -> ApiError:
    """As the API server answers it."""
    if reason := {403: "Forbidden", 500: "InternalError"}.get(refusal.code):
        return ApiError(refusal.code, reason, refusal.text)
    details = {"causes": [{"reason": "DisruptionBudget", "message": refusal.text}]}
    return ApiError(429, "TooManyRequests", f"{BLOCKED} {refusal.text}", details=details)
