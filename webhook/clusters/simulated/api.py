"""The API server as the reconciler and kube-scheduler use it, and the kubelets behind it, in virtual time.

The verbs are those of `webhook.kube.client.Client`, on pods only. A pod that is bound runs at once; one that is asked
to leave is gone after its grace period, or after `termination` seconds if that is less.
"""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import unquote

import msgspec

from webhook.clusters.model.kubelet import is_starting, seconds_to_end, seconds_to_ready, seconds_to_removal
from webhook.clusters.simulated.budgets import Budgets
from webhook.clusters.simulated.clock import Timers
from webhook.clusters.simulated.history import SimulationHistory
from webhook.clusters.simulated.tracker import ObjectTracker
from webhook.kube.errors import ApiError
from webhook.kube.instants import epoch_or, rfc3339
from webhook.kube.objects.meta import Condition, key_of
from webhook.kube.objects.pod import Pod, PodStatus
from webhook.policy.model.values import READY
from webhook.preemption.snapshot.pod_view import grace_of

_replace = msgspec.structs.replace


class Api:
    """What can be done to the cluster; raises ApiError as the API server answers."""

    def __init__(
        self,
        tracker: ObjectTracker,
        budgets: Budgets,
        timers: Timers,
        history: SimulationHistory,
        termination: float | None,
    ) -> None:
        self.tracker = tracker
        self.clock = timers.clock
        self.history = history
        self.later = timers.later
        self._budgets = budgets
        self._termination = termination
        self._uids = itertools.count(1)

    def start(self) -> None:
        """Let the pods go on that are starting or leaving."""
        for key, pod in list(self.tracker.all("Pod").items()):
            if pod.metadata.deletion_timestamp:
                left = _seconds(pod.metadata.deletion_timestamp, self.clock.start)
                self._end_later(key, pod.metadata.uid, max(0.0, left))
            elif not pod.spec.node_name:
                since = next(
                    (
                        condition.last_transition_time
                        for condition in pod.status.conditions or ()
                        if _is_waiting(condition)
                    ),
                    None,
                )
                began = since or pod.metadata.creation_timestamp
                self.history.waiting(pod, _seconds(began, self.clock.start))
            elif is_starting(pod):
                self._run(key, pod.metadata.uid)
            else:
                self._end_by_itself(key, pod)
                self._answer_later(key, pod)

    def create(self, pod: Pod) -> Pod:
        """A new pod; it gets a uid."""
        key = key_of(pod)
        if self.tracker.pod(key) is not None:
            raise ApiError(409, "AlreadyExists", f"pods {key!r} already exists")
        now = rfc3339(self.clock.wall())
        meta = _replace(pod.metadata, uid=f"simulated-{next(self._uids)}", creation_timestamp=now)
        made: Pod = self.tracker.put("Pod", _replace(pod, metadata=meta, status=PodStatus(phase="Pending")))
        self.history.waiting(made, self.clock.monotonic(), made=True)
        if made.spec.node_name:
            self._run(key, made.metadata.uid)
        return made

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
        self._run(key, uid)

    def evict(self, key: str, uid: str, grace: int | None, by: str, *, dry_run: bool = False) -> None:
        """Ask a pod to leave through the Eviction API, which keeps budgets."""
        pod = self.read(key)
        if uid and pod.metadata.uid != uid:
            raise ApiError(409, "Conflict", f"the UID in the precondition ({uid}) does not match that of {key}")
        self._budgets.spend(pod, self.clock.wall(), dry_run=dry_run)
        if not dry_run:
            self.disrupt(key, "EvictionByEvictionAPI")
            self.delete(key, uid, grace, by)

    def disrupt(self, key: str, reason: str) -> None:
        """Say in a pod's conditions that it is made to leave: its Job may not count that as a failure."""
        pod, now = self.read(key), rfc3339(self.clock.wall())
        others = [condition for condition in pod.status.conditions or () if condition.type != "DisruptionTarget"]
        target = Condition(type="DisruptionTarget", status="True", reason=reason, last_transition_time=now)
        self.tracker.put("Pod", _replace(pod, status=_replace(pod.status, conditions=[*others, target])))

    def delete(self, key: str, uid: str, grace: int | None, by: str, version: str = "") -> None:
        """Ask a pod to leave; one without a node is gone at once. `by` is nobody if that is no eviction."""
        pod = self.read(key)
        meta = pod.metadata
        if (uid and meta.uid != uid) or (version and meta.resource_version != version):
            raise ApiError(409, "Conflict", f"{key} has changed")
        if not pod.spec.node_name:
            self.remove(key, meta.uid)
            return
        if meta.deletion_timestamp:
            return
        if by:
            self.history.evicted(pod, by, self.clock.monotonic())
        seconds = grace_of(pod) if grace is None else grace
        left = _replace(
            meta,
            deletion_timestamp=rfc3339(self.clock.wall() + seconds),
            deletion_grace_period_seconds=seconds,
        )
        self.tracker.put("Pod", _replace(pod, metadata=left))
        self._end_later(key, meta.uid, seconds)

    def remove(self, key: str, uid: str) -> None:
        """A pod is gone, if it is still this one."""
        pod = self.tracker.pod(key)
        if pod is not None and pod.metadata.uid == uid:
            self.history.gone(pod, self.clock.monotonic())
            self.tracker.remove("Pod", key)

    def read(self, key: str) -> Pod:
        """A pod. Raises ApiError (404)."""
        pod = self.tracker.pod(key)
        if pod is None:
            raise ApiError(404, "NotFound", f"pods {key!r} not found")
        return pod

    def patch_status(self, key: str, body: dict[str, Any]) -> Pod:
        """Change a pod's status, and its annotations with it; conditions are merged by type."""
        pod = self.read(key)
        given: dict[str, Any] = body.get("metadata") or {}
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
        if "conditions" in told:
            fresh = [msgspec.convert(condition, Condition) for condition in told["conditions"]]
            types = {condition.type for condition in fresh}
            others = [condition for condition in status.conditions or () if condition.type not in types]
            status = _replace(status, conditions=[*others, *fresh])
            why = next((condition.message for condition in fresh if _is_waiting(condition)), "")
            if why:
                self.history.story(pod).why = why
        changed: Pod = self.tracker.put("Pod", _replace(pod, metadata=meta, status=status))
        if "conditions" in told:
            self._answer_later(key, changed)
        return changed

    def _answer_later(self, key: str, pod: Pod) -> None:
        """Let a pod that was told to leave say in its time that it is ready, if it does so."""
        seconds = seconds_to_ready(pod, self.clock.wall())
        if seconds is not None:
            self.later(seconds, self._say_ready, key, pod.metadata.uid)

    def _say_ready(self, key: str, uid: str) -> None:
        pod = self.tracker.pod(key)
        left = seconds_to_ready(pod, self.clock.wall()) if pod is not None and pod.metadata.uid == uid else None
        if pod is None or left is None:
            return
        if left > 0:  # this answers another notice, which came later
            self._answer_later(key, pod)
            return
        annotations = {**(pod.metadata.annotations or {}), READY: "true"}
        self.tracker.put("Pod", _replace(pod, metadata=_replace(pod.metadata, annotations=annotations)))

    def _run(self, key: str, uid: str) -> None:
        """The kubelet has started a pod: it is Running and Ready."""
        pod = self.tracker.pod(key)
        if pod is None or pod.metadata.uid != uid:
            return
        now = rfc3339(self.clock.wall())
        ready = Condition(type="Ready", status="True", last_transition_time=now)
        others = [condition for condition in pod.status.conditions or () if condition.type != "Ready"]
        status = _replace(pod.status, phase="Running", start_time=now, conditions=[*others, ready])
        self._end_by_itself(key, self.tracker.put("Pod", _replace(pod, status=status)))

    def _end_by_itself(self, key: str, pod: Pod) -> None:
        """Let a pod succeed in its time, if it ends by itself."""
        seconds = seconds_to_end(pod, self.clock.wall())
        if seconds is not None:
            self.later(seconds, self._succeed, key, pod.metadata.uid)

    def _succeed(self, key: str, uid: str) -> None:
        pod = self.tracker.pod(key)
        if pod is None or pod.metadata.uid != uid or pod.metadata.deletion_timestamp:
            return
        others = [condition for condition in pod.status.conditions or () if condition.type != "Ready"]
        ended = Condition(type="Ready", status="False", reason="PodCompleted")
        self.tracker.put(
            "Pod", _replace(pod, status=_replace(pod.status, phase="Succeeded", conditions=[*others, ended]))
        )

    def _end_later(self, key: str, uid: str, seconds: float) -> None:
        """A pod that was asked to leave is gone after that time, or after `termination` if that is less."""
        self.later(seconds_to_removal(seconds, self._termination), self.remove, key, uid)


class SimulatedClient:
    """One user of the API, with the verbs of `webhook.kube.client.Client` that it uses."""

    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        self._name = name

    async def get(self, path: str, as_: Any = dict, **query: Any) -> Any:
        """Read a pod."""
        del as_, query
        return self._api.read(_named(path)[0])

    async def patch(self, path: str, body: dict[str, Any], **options: Any) -> Any:
        """Change a pod's status."""
        del options
        return self._api.patch_status(_named(path)[0], body)

    async def create(self, path: str, body: dict[str, Any], as_: Any = dict, **query: Any) -> Any:
        """Bind or evict a pod."""
        del as_
        key, subresource = _named(path)
        if subresource == "binding":
            self._api.bind(key, body["metadata"]["uid"], body["target"]["name"])
        else:
            options = body.get("deleteOptions") or {}
            uid = (options.get("preconditions") or {}).get("uid", "")
            dry_run = query.get("dryRun") == "All"
            self._api.evict(key, uid, options.get("gracePeriodSeconds"), self._name, dry_run=dry_run)

    async def delete(self, path: str, body: dict[str, Any] | None = None, **query: Any) -> Any:
        """Delete a pod: for these users that is an eviction without budgets."""
        options = body or {}
        known = options.get("preconditions") or {}
        key = _named(path)[0]
        if query.get("dryRun") == "All":
            self._api.read(key)
            return
        grace, version = options.get("gracePeriodSeconds"), known.get("resourceVersion", "")
        self._api.delete(key, known.get("uid", ""), grace, self._name, version)


def _named(path: str) -> tuple[str, str]:
    """`namespace/name` and sub-resource of a pod's path."""
    parts = [unquote(part) for part in path.split("/")]
    return f"{parts[4]}/{parts[6]}", parts[7] if len(parts) > 7 else ""


def _is_waiting(condition: Condition) -> bool:
    return condition.type == "PodScheduled" and condition.status == "False"


def _seconds(instant: str | None, since: float) -> float:
    """From then to an instant; 0 if there is none that can be read."""
    return epoch_or(instant, since) - since
