"""Controllers of pods, in virtual time: as many pods as are wanted, and replacements for those that leave.

What they do is `webhook.clusters.model`. Of a controller that is not in the file, such as an operator's own, it is
assumed that it replaces each pod once that is gone, under its name, as a StatefulSet does. Nothing replaces a pod
without a controller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from webhook.clusters.model.daemon_sets import daemon_changes, pinned, takes
from webhook.clusters.model.jobs import JobProgress, has_ended, identify_job_pod, limits_of
from webhook.clusters.model.pods import is_ready, replica_changes
from webhook.clusters.model.stateful_sets import REVISION, identify_stateful_pod, stateful_changes
from webhook.clusters.model.workloads import PodTemplate, WorkloadSpec
from webhook.clusters.simulated.api import Api
from webhook.clusters.simulated.budgets import Budgets
from webhook.clusters.simulated.objects import SimulatedWorkload
from webhook.clusters.simulated.simulated_admission import RefusedError, SimulatedAdmission, User
from webhook.kube.errors import ApiError
from webhook.kube.object_cache import Change
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.meta import OwnerReference, key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import controller_of, is_terminal
from webhook.policy.model.values import MARK, POD_ANNOTATIONS

_AT_ONCE = ("ReplicaSet", "ReplicationController", "Job")
"""Who replaces a pod as soon as it is asked to leave."""
_IN_ORDER = ("StatefulSet", "DaemonSet")
"""Who waits for pods to be ready."""
_API = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1"}
_FILLED_IN = ("nodeName", "priority", "preemptionPolicy")
"""Fields of a pod that its controller does not send."""
_OF_ONE_POD = frozenset(row.key for row in POD_ANNOTATIONS)
"""Annotations that say something of one pod: the pod in its place does not get them."""
Json = dict[str, Any]


@dataclass(slots=True)
class PodOwner:
    """A controller with the keys of its pods: those that count, those that are leaving, those that have ended."""

    kind: str
    key: str
    uid: str
    wanted: int | None
    """How many pods; None if as many as there were, each replaced by itself."""
    active: dict[str, None] = field(default_factory=dict)
    leaving: dict[str, None] = field(default_factory=dict)
    ended: dict[str, None] = field(default_factory=dict)
    """Keys of its pods that have ended and are there still."""
    outdated: set[str] = field(default_factory=set)
    """uids of its pods that were made of an earlier template."""
    earlier: PodTemplate | Pod | None = None
    """Of what a StatefulSet's pods were made before its template changed, while not all are made of the new one."""
    sample: Pod | None = None
    made: int = 0

    @property
    def namespace(self) -> str:
        """The namespace of its pods."""
        return self.key.partition("/")[0]

    def pod_body(self, template: PodTemplate | Pod, name: str = "", on: str = "", ordinal: int | None = None) -> Json:
        """A pod as this controller sends it: named by the API server if `name` is empty, and for the node `on` only.

        `ordinal` is that of a StatefulSet's pod, or the index of a Job's.
        """
        meta, spec = template.metadata, msgspec.to_builtins(template.spec)
        for filled_in in _FILLED_IN if isinstance(template, Pod) else ():
            spec.pop(filled_in, None)
        if on:
            spec = pinned(spec, on)
        labels = {key: text for key, text in (meta.labels or {}).items() if key != MARK}
        annotations = {key: text for key, text in (meta.annotations or {}).items() if key not in _OF_ONE_POD}
        own_name, version = self.key.partition("/")[2], _API.get(self.kind, "v1")
        reference = OwnerReference(kind=self.kind, name=own_name, uid=self.uid, api_version=version, controller=True)
        body = {
            "metadata": {
                **({"name": name} if name else {"generateName": f"{own_name}-"}),
                "namespace": self.namespace,
                "labels": labels,
                **({"annotations": annotations} if annotations else {}),
                "ownerReferences": [msgspec.to_builtins(reference)],
            },
            "spec": spec,
        }
        if self.kind == "Job":
            identify_job_pod(body, own_name, ordinal)
        elif ordinal is not None:
            identify_stateful_pod(body, own_name, ordinal, "")
        return body


class Controllers:
    """Follows every pod that has a controller; what it does it does in the next turn of the loop."""

    def __init__(self, api: Api, admission: SimulatedAdmission, budgets: Budgets) -> None:
        self._api = api
        self._tracker = api.tracker
        self._admission = admission
        self._budgets = budgets
        self.by_uid: dict[str, PodOwner] = {}
        self.by_key: dict[tuple[str, str], PodOwner] = {}
        """(Kind, `namespace/name`) to owner."""
        self._progress: defaultdict[str, JobProgress] = defaultdict(JobProgress)
        """What has become of a Job's pods, by its uid."""
        self._due: dict[str, PodOwner] = {}
        self._tracker.hook("Pod", self._pod_changed)
        self._tracker.hook("Node", self._node_changed)

    def fill(self) -> None:
        """Take in the workloads and the pods there are."""
        for kind in ("ReplicaSet", "ReplicationController", "StatefulSet", "Job"):
            for key, workload in self._tracker.all(kind).items():
                owner = self.owner(kind, key, workload.metadata.uid)
                owner.wanted = pods_wanted(kind, workload)
        for key, pod in self._tracker.all("Pod").items():
            owner_of = self._owner_of(pod)
            if owner_of is not None and (owner_of.kind == "Job" or not is_terminal(pod)):
                _note(owner_of, key, pod)
        for (kind, key), owner in self.by_key.items():
            workload = self._tracker.get(kind, key)
            if kind == "Job" and workload is not None:
                progress = self._progress[owner.uid]
                progress.look(workload.spec, self._pods(owner), msgspec.to_builtins(workload.status))
            elif kind == "StatefulSet" and workload is not None and (newest := workload.status.update_revision):
                old = [pod for pod in self._pods(owner) if (pod.metadata.labels or {}).get(REVISION, newest) != newest]
                owner.outdated = {pod.metadata.uid for pod in old}
                owner.earlier = old[0] if old else None

    def owner(self, kind: str, key: str, uid: str) -> PodOwner:
        """The owner of that uid, made if it is new."""
        owner = self.by_uid.get(uid)
        if owner is None:
            owner = self.by_uid[uid] = self.by_key[kind, key] = PodOwner(kind, key, uid, None)
        return owner

    def scale(self, owner: PodOwner, replicas: int) -> None:
        """Let an owner have as many pods."""
        workload = self._tracker.get(owner.kind, owner.key)
        if workload is not None:
            self._tracker.put(owner.kind, with_replicas(owner.kind, workload, replicas))
        self._budgets.refresh(owner.namespace)
        self.sync(owner, replicas)

    def sync(self, owner: PodOwner, wanted: int | None) -> None:
        """Bring the number of pods to what is wanted, in the next turn of the loop."""
        owner.wanted = wanted
        self._later(owner)

    def outdate(self, owner: PodOwner, earlier: PodTemplate | None) -> None:
        """The owner's template has changed: its pods of now are of an earlier one."""
        owner.earlier = earlier
        owner.outdated = {self._api.read(key).metadata.uid for key in owner.active}

    def _owner_of(self, pod: Pod) -> PodOwner | None:
        owner = controller_of(pod.metadata)
        return self.owner(owner.kind, f"{pod.metadata.namespace}/{owner.name}", owner.uid) if owner else None

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        pod = new or old
        assert pod is not None
        owner = self._owner_of(pod)
        if owner is None:
            return
        was_active = change.key in owner.active
        if new is None:
            if owner.kind == "Job":
                self._progress[owner.uid].note(pod)
            for keys in (owner.active, owner.leaving, owner.ended):
                keys.pop(change.key, None)
        else:
            _note(owner, change.key, new)
        if self._is_known(owner):
            ready = new is not None and (old is None or is_ready(new) != is_ready(old))
            if new is None or was_active != (change.key in owner.active) or (ready and owner.kind in _IN_ORDER):
                self._later(owner)
        elif (new is None and (was_active or owner.kind not in _AT_ONCE)) or (
            new is not None and was_active and new.metadata.deletion_timestamp and owner.kind in _AT_ONCE
        ):
            self._replace(owner, pod)

    def _node_changed(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or (old.spec, old.metadata.labels) != (new.spec, new.metadata.labels):
            for key, workload in self._tracker.all("DaemonSet").items():
                self._later(self.owner("DaemonSet", key, workload.metadata.uid))

    def _is_known(self, owner: PodOwner) -> bool:
        """Whether it is known how many pods an owner wants."""
        return owner.wanted is not None or (owner.kind == "DaemonSet" and self._template(owner) is not None)

    def _template(self, owner: PodOwner) -> PodTemplate | None:
        workload = self._tracker.get(owner.kind, owner.key)
        return workload.spec.template if workload is not None else None

    def _replace(self, owner: PodOwner, pod: Pod) -> None:
        """Make one like it, for an owner of which nothing else is known."""
        workload = self._tracker.get(owner.kind, owner.key)
        # A DaemonSet that is not in a cluster file that has some is gone; any other controller is taken to be there
        is_gone = owner.kind == "DaemonSet" and workload is None and self._tracker.all("DaemonSet")
        if owner.kind == "Node" or is_gone:
            return
        template = workload.spec.template if workload is not None and owner.kind != "StatefulSet" else None
        on = pod.spec.node_name if owner.kind == "DaemonSet" else ""
        name = pod.metadata.name if owner.kind not in {*_AT_ONCE, "DaemonSet"} else ""
        self._api.clock.call_later(0.0, self._make, owner, template or pod, name, on)

    def _later(self, owner: PodOwner) -> None:
        if not self._due:
            self._api.clock.call_later(0.0, self._sync)
        self._due[owner.uid] = owner

    def _sync(self) -> None:
        """Let the owners for which something has changed do what they do next."""
        due, self._due = self._due, {}
        for owner in due.values():
            match owner.kind:
                case "StatefulSet":
                    self._sync_stateful_set(owner)
                case "DaemonSet":
                    self._sync_daemon_set(owner)
                case "Job":
                    self._sync_job(owner)
                case _ if len(owner.active) <= (wanted := owner.wanted or 0):
                    self._make_several(owner, wanted - len(owner.active))
                case _:
                    self._delete(replica_changes(map(self._api.read, owner.active), wanted).delete)

    def _sync_stateful_set(self, owner: PodOwner) -> None:
        workload, name = self._tracker.get(owner.kind, owner.key), owner.key.partition("/")[2]
        spec = workload.spec if workload is not None else WorkloadSpec(replicas=owner.wanted)
        pods = {pod.metadata.name: pod for pod in self._pods(owner)}
        changes = stateful_changes(name, spec, pods, is_outdated=lambda pod: pod.metadata.uid in owner.outdated)
        self._delete(changes.delete)
        if not changes.create and not owner.outdated & {pod.metadata.uid for pod in pods.values()}:
            owner.earlier = None
        for ordinal in changes.create:
            earlier = owner.earlier if ordinal < changes.partition else None
            made = self._make(owner, earlier, f"{name}-{ordinal}", ordinal=ordinal)
            if made and earlier is not None:
                owner.outdated.add(self._api.read(f"{owner.namespace}/{name}-{ordinal}").metadata.uid)

    def _sync_daemon_set(self, owner: PodOwner) -> None:
        workload, template = self._tracker.get(owner.kind, owner.key), self._template(owner)
        if template is None:
            return
        nodes = {name for name, node in self._tracker.all("Node").items() if takes(template.spec, node)}
        strategy = workload.spec.update_strategy
        changes = daemon_changes(
            nodes, self._pods(owner), strategy, is_outdated=lambda pod: pod.metadata.uid in owner.outdated
        )
        self._delete(changes.delete)
        for node in changes.create:
            self._make(owner, template, on=node)

    def _sync_job(self, owner: PodOwner) -> None:
        job = self._tracker.get(owner.kind, owner.key)
        if job is None or has_ended(job.status.conditions):
            return
        pods = self._pods(owner)
        progress = self._progress[owner.uid]
        progress.look(job.spec, pods, {})
        step = progress.step(job.spec, pods)
        progress.withdrawn |= {pod.metadata.uid for pod in step.delete}
        self._delete(step.delete)
        if step.ended:
            condition = {"type": step.ended, "status": "True"}
            status = msgspec.structs.replace(job.status, conditions=[*(job.status.conditions or ()), condition])
            self._tracker.put("Job", msgspec.structs.replace(job, status=status))
        for index in step.create:
            if not self._make(owner, None, ordinal=index):
                break

    def _pods(self, owner: PodOwner) -> list[Pod]:
        return [self._api.read(key) for key in (*owner.active, *owner.leaving, *owner.ended)]

    def _delete(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            self._api.delete(key_of(pod), pod.metadata.uid, None, "")  # that is no eviction

    def _make_several(self, owner: PodOwner, number: int) -> None:
        for _ in range(number):
            if not self._make(owner, None):
                break

    def _claim_volume(self, pod: Json, volume: str) -> None:
        """Give a StatefulSet's pod its own volume of that name, if its claim is there."""
        claim, spec = f"{volume}-{pod['metadata']['name']}", pod["spec"]
        if self._tracker.get("PersistentVolumeClaim", f"{pod['metadata']['namespace']}/{claim}") is not None:
            others = [row for row in spec.get("volumes") or () if row["name"] != volume]
            spec["volumes"] = [*others, {"name": volume, "persistentVolumeClaim": {"claimName": claim}}]

    def _make(
        self,
        owner: PodOwner,
        template: PodTemplate | Pod | None,
        name: str = "",
        on: str = "",
        ordinal: int | None = None,
    ) -> bool:
        """Create a pod if admission lets it; whether it did. Without a template it is the owner's, or one of its pods.

        Without a name it is given one; `on` is the node of a DaemonSet's pod, `ordinal` as in `PodOwner.pod_body`.
        """
        owner.made += 1
        workload = self._tracker.get(owner.kind, owner.key)
        if template is None:
            template = (workload.spec.template if workload is not None else None) or owner.sample
        if template is None:
            why = f"{owner.kind} {owner.key} has no template here and no pod, so nothing is known of its pods"
            self._api.history.refused.setdefault(f"{owner.kind}/{owner.key}", why)
            return False
        try:
            body = owner.pod_body(template, name, on, ordinal)
            for claim in (workload.spec.volume_claim_templates if workload is not None else None) or ():
                self._claim_volume(body, claim.metadata.name)
            pod = self._admission.pod(body, User.controller(owner.kind))
            if not pod.metadata.name:
                meta = msgspec.structs.replace(pod.metadata, name=f"{pod.metadata.generate_name}s{owner.made:04d}")
                pod = msgspec.structs.replace(pod, metadata=meta)
            self._api.create(pod)
        except RefusedError as error:
            self._api.history.refused.setdefault(f"{owner.kind}/{owner.key}", str(error))
            return False
        except ApiError:
            return False
        return True


def _note(owner: PodOwner, key: str, pod: Pod) -> None:
    """Put a pod where it counts."""
    for keys in (owner.active, owner.leaving, owner.ended):
        keys.pop(key, None)
    if pod.metadata.deletion_timestamp:
        owner.leaving[key] = None
    elif is_terminal(pod):
        owner.ended[key] = None
    else:
        owner.active[key] = None
        owner.sample = pod


def pods_wanted(kind: str, workload: SimulatedWorkload) -> int:
    """How many pods a workload wants at a time; a Job that has ended or is suspended none."""
    spec = workload.spec
    if kind != "Job":
        return 1 if spec.replicas is None else spec.replicas
    wanted, completions = limits_of(spec)
    return 0 if has_ended(workload.status.conditions) or spec.suspend else min(wanted, completions or wanted)


def with_replicas(kind: str, workload: SimulatedWorkload, replicas: int) -> SimulatedWorkload:
    """The workload with another number of pods."""
    number = "parallelism" if kind == "Job" else "replicas"
    return msgspec.structs.replace(workload, spec=msgspec.structs.replace(workload.spec, **{number: replicas}))
