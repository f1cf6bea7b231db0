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
from webhook.clusters.simulated.simulated_admission import RefusedError, SimulatedAdmission, User
from webhook.clusters.simulated.tracker import ObjectTracker
from webhook.kube.errors import ApiError
from webhook.kube.instants import epoch_or, rfc3339
from webhook.kube.objects.meta import Condition, key_of
from webhook.kube.objects.pod import Pod, PodDisruptionBudget, PodStatus
from webhook.kube.resources import DEPLOYMENT, JOB, POD_DISRUPTION_BUDGET, REPLICA_SET
from webhook.preemption.snapshot.pod_view import grace_of

_replace = msgspec.structs.replace
_KINDS = {row.plural: row.kind for row in (DEPLOYMENT, REPLICA_SET, JOB, POD_DISRUPTION_BUDGET)}
"""What controllers write beside pods, by its plural name."""
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
                conditions = pod.status.conditions or ()
                since = next((row.last_transition_time for row in conditions if _is_waiting(row)), None)
                began = epoch_or(since or pod.metadata.creation_timestamp, self.clock.start) - self.clock.start
                self.history.waiting(pod, began)

    def create(self, pod: Pod) -> Pod:
        """A new pod; it gets a uid."""
        key = key_of(pod)
        if self.tracker.pod(key) is not None:
            raise ApiError(409, "AlreadyExists", f"pods {key!r} already exists")
        now = rfc3339(self.clock.wall())
        meta = _replace(pod.metadata, uid=f"simulated-{next(self._uids)}", creation_timestamp=now)
        made: Pod = self.tracker.put("Pod", _replace(pod, metadata=meta, status=PodStatus(phase="Pending")))
        self.history.waiting(made, self.clock.monotonic())
        return made

    def make(self, namespace: str, body: Json) -> Pod:
        """Create a pod of a controller, if admission lets it. Raises ApiError (403)."""
        owner = body["metadata"]["ownerReferences"][0]
        self._made[owner["uid"]] += 1
        body["metadata"]["namespace"] = namespace
        try:
            pod = self._admission.pod(body, User.controller(owner["kind"]))
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

    def patch(self, kind: str, key: str, body: Json) -> None:
        """Change a workload's number of pods, or the status of a workload or a budget. Raises ApiError (404)."""
        known: SimulatedWorkload | PodDisruptionBudget | None = self.tracker.get(kind, key)
        if known is None:
            raise ApiError(404, "NotFound", f"{kind} {key!r} not found")
        if "spec" in body:
            known = _replace(known, spec=_replace(known.spec, **body["spec"]))
        if "status" in body:
            merged = _without_nulls({**msgspec.to_builtins(known.status), **body["status"]})
            known = _replace(known, status=msgspec.convert(merged, type(known.status)))
        self.tracker.put(kind, known)

    def bind(self, key: str, uid: str, node: str) -> None:
        """Put a pod on a node, as `pods/binding`."""
        pod = self.read(key)
        if pod.metadata.uid != uid or pod.spec.node_name or pod.metadata.deletion_timestamp:
            raise ApiError(409, "Conflict", f"pod {key} cannot be bound any more")
        if self.tracker.get("Node", node) is None:
            raise ApiError(404, "NotFound", f"nodes {node!r} not found")
        scheduled = Condition(type="PodScheduled", status="True", last_transition_time=rfc3339(self.clock.wall()))
        status = _replace(pod.status, conditions=[scheduled], nominated_node_name="")
        self.tracker.put("Pod", _replace(pod, spec=_replace(pod.spec, node_name=node), status=status))
        self.history.placed(pod, node, self.clock.monotonic())

    def evict(self, key: str, uid: str, grace: int | None, by: str, *, dry_run: bool = False) -> None:
        """Ask a pod to leave through the Eviction API, which keeps budgets."""
        pod = self.read(key)
        if uid and pod.metadata.uid != uid:
            raise ApiError(409, "Conflict", f"the UID in the precondition ({uid}) does not match that of {key}")
        self._spend(pod, dry_run=dry_run)
        if not dry_run:
            self.disrupt(key, "EvictionByEvictionAPI")
            self.delete(key, uid, grace, by)

    def _spend(self, pod: Pod, *, dry_run: bool) -> None:
        """Take one disruption of the pod's budget, if it has one. Raises ApiError (403, 429, 500) if it may not go."""
        try:
            budget = budget_to_spend(pod, self.covering(pod))
            if budget is not None:
                status = spent(budget, pod.metadata.name, self.clock.wall())
                if not dry_run:
                    self.tracker.put("PodDisruptionBudget", _replace(budget, status=status))
        except BudgetRefusalError as refusal:
            raise _refusal(refusal) from refusal

    def disrupt(self, key: str, reason: str) -> None:
        """Say in a pod's conditions that it is made to leave: its Job may not count that as a failure."""
        pod, now = self.read(key), rfc3339(self.clock.wall())
        others = [condition for condition in pod.status.conditions or () if condition.type != "DisruptionTarget"]
        target = Condition(type="DisruptionTarget", status="True", reason=reason, last_transition_time=now)
        self.tracker.put("Pod", _replace(pod, status=_replace(pod.status, conditions=[*others, target])))

    def delete(self, key: str, uid: str, grace: int | None, by: str, version: str = "") -> None:
        """Ask a pod to leave; without a node, or asked again without grace, it is gone at once.

        `by` is nobody if that is no eviction.
        """
        pod = self.read(key)
        meta = pod.metadata
        if (uid and meta.uid != uid) or (version and meta.resource_version != version):
            raise ApiError(409, "Conflict", f"{key} has changed")
        if not pod.spec.node_name or (meta.deletion_timestamp and grace == 0):
            self.remove(key, meta.uid)
            return
        if meta.deletion_timestamp:
            return
        if by:
            self.history.evicted(pod, by, self.clock.monotonic())
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

    def read(self, key: str) -> Pod:
        """A pod. Raises ApiError (404)."""
        pod = self.tracker.pod(key)
        if pod is None:
            raise ApiError(404, "NotFound", f"pods {key!r} not found")
        return pod

    def patch_status(self, key: str, body: Json) -> Pod:
        """Change a pod's status, and its annotations with it; conditions are merged by type."""
        pod = self.read(key)
        given: Json = body.get("metadata") or {}
        meta = pod.metadata
        if given.get("uid", meta.uid) != meta.uid:
            raise ApiError(409, "Conflict", f"{key} is another pod by now")
        if given.get("resourceVersion", meta.resource_version) != meta.resource_version:
            raise ApiError(409, "Conflict", f"{key} has changed")
        if "annotations" in given:
            merged = {**(meta.annotations or {}), **given["annotations"]}
            kept = {name: text for name, text in merged.items() if text is not None}
            meta = _replace(meta, annotations=kept or None)
        status, told = pod.status, body.get("status") or {}
        if "nominatedNodeName" in told:
            status = _replace(status, nominated_node_name=told["nominatedNodeName"] or "")
        if "phase" in told:
            began = told.get("startTime", status.start_time)
            status = _replace(status, phase=told["phase"], start_time=began)
        if "conditions" in told:
            fresh = [msgspec.convert(condition, Condition) for condition in told["conditions"]]
            types = {condition.type for condition in fresh}
            others = [condition for condition in status.conditions or () if condition.type not in types]
            status = _replace(status, conditions=[*others, *fresh])
            why = next((condition.message for condition in fresh if _is_waiting(condition)), "")
            if why:
                self.history.story(pod).why = why
        changed: Pod = self.tracker.put("Pod", _replace(pod, metadata=meta, status=status))
        return changed


class SimulatedClient:
    """One user of the API, with the verbs of `webhook.kube.client.Client` that it uses.

    Pods that go by a user with a name are evicted by it.
    """

    def __init__(self, api: Api, name: str = "") -> None:
        self._api = api
        self._name = name

    async def get(self, path: str, as_: Any = dict, **query: Any) -> Any:
        """Read a pod."""
        del as_, query
        return self._api.read(_named(path)[1])

    async def patch(self, path: str, body: Json, **options: Any) -> Any:
        """Change a pod's status, a budget's, or a workload."""
        del options
        plural, key, _ = _named(path)
        return self._api.patch_status(key, body) if plural == "pods" else self._api.patch(_KINDS[plural], key, body)

    async def create(self, path: str, body: Json, as_: Any = dict, **query: Any) -> Any:
        """Bind or evict a pod; make a pod or a workload of a controller."""
        del as_
        plural, key, subresource = _named(path)
        if plural in _KINDS:
            self._api.make_workload(_KINDS[plural], key, body)
        elif subresource == "binding":
            self._api.bind(key, body["metadata"]["uid"], body["target"]["name"])
        elif subresource == "eviction":
            options = body.get("deleteOptions") or {}
            uid = (options.get("preconditions") or {}).get("uid", "")
            dry_run = query.get("dryRun") == "All"
            self._api.evict(key, uid, options.get("gracePeriodSeconds"), self._name, dry_run=dry_run)
        else:
            return self._api.make(key, body)
        return None

    async def delete(self, path: str, body: Json | None = None, **query: Any) -> Any:
        """Delete a pod: for users with a name that is an eviction without budgets."""
        options = body or {}
        known = options.get("preconditions") or {}
        _, key, _ = _named(path)
        if query.get("dryRun") == "All":
            self._api.read(key)
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


def _is_waiting(condition: Condition) -> bool:
    return condition.type == "PodScheduled" and condition.status == "False"


def _refusal(refusal: BudgetRefusalError) -> ApiError:
    """As the API server answers it."""
    if refusal.code != 429:
        reason = {403: "Forbidden", 500: "InternalError"}[refusal.code]
        return ApiError(refusal.code, reason, refusal.text)
    details = {"causes": [{"reason": "DisruptionBudget", "message": refusal.text}]}
    return ApiError(429, "TooManyRequests", f"{BLOCKED} {refusal.text}", details=details)
