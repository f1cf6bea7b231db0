"""Controllers of pods: as many pods as are wanted, and replacements for those that leave.

A ReplicaSet, ReplicationController or Job makes a replacement as soon as a pod is asked to leave; a StatefulSet and a
DaemonSet when it is gone, under its name or for its node. Of a controller that is not known, such as an operator's own,
the same is assumed as of a StatefulSet. Nothing replaces a pod without a controller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import msgspec

from webhook.kube.errors import ApiError
from webhook.kube.object_cache import Change
from webhook.kube.objects import OwnerReference, Pod
from webhook.kube.pods import controller_of, is_terminal
from webhook.policy.model import MARK, OWN_ANNOTATIONS
from webhook.simulation.cluster.admission import RefusedError, SimulatedAdmission, User
from webhook.simulation.cluster.api import Api
from webhook.simulation.cluster.budgets import Budgets
from webhook.simulation.snapshot.objects import PodTemplate, SnapshotWorkload

__all__ = ["Controllers", "PodOwner", "pods_wanted", "with_replicas"]

_AT_ONCE = ("ReplicaSet", "ReplicationController", "Job")
_API = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1"}
_FILLED_IN = ("nodeName", "priority", "preemptionPolicy")
"""Fields of a pod that its controller does not send."""
Json = dict[str, Any]


@dataclass(slots=True)
class PodOwner:
    """A controller with the pods it has that are not leaving."""

    kind: str
    key: str
    uid: str
    wanted: int | None
    """How many pods; None if as many as there were, each replaced by itself."""
    active: dict[str, None] = field(default_factory=dict)
    leaving: dict[str, Pod] = field(default_factory=dict)
    sample: Pod | None = None
    made: int = 0

    @property
    def namespace(self) -> str:
        """The namespace of its pods."""
        return self.key.partition("/")[0]

    def pod_body(self, template: PodTemplate | Pod, name: str = "", on: str = "") -> Json:
        """A pod as this controller sends it: named by the API server if `name` is empty, and for the node `on` only."""
        meta, spec = template.metadata, msgspec.to_builtins(template.spec)
        for filled_in in _FILLED_IN:
            spec.pop(filled_in, None)
        if on:
            # As the DaemonSet controller confines a pod to a node, and lets it put up with a cordon
            row = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [on]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [row]}}
            spec["affinity"] = {**(spec.get("affinity") or {}), "nodeAffinity": required}
            cordon = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
            spec["tolerations"] = [*(spec.get("tolerations") or ()), cordon]
        labels = {key: text for key, text in (meta.labels or {}).items() if key != MARK}
        annotations = {key: text for key, text in (meta.annotations or {}).items() if key not in OWN_ANNOTATIONS}
        own_name, version = self.key.partition("/")[2], _API.get(self.kind, "v1")
        reference = OwnerReference(kind=self.kind, name=own_name, uid=self.uid, api_version=version, controller=True)
        return {
            "metadata": {
                **({"name": name} if name else {"generateName": f"{own_name}-"}),
                "namespace": self.namespace,
                "labels": labels,
                **({"annotations": annotations} if annotations else {}),
                "ownerReferences": [msgspec.to_builtins(reference)],
            },
            "spec": spec,
        }


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
        self._due: dict[str, PodOwner] = {}
        self._tracker.hook("Pod", self._pod_changed)

    def fill(self) -> None:
        """Take in the workloads and the pods there are."""
        for kind in ("ReplicaSet", "ReplicationController", "StatefulSet", "Job"):
            for key, workload in self._tracker.all(kind).items():
                self.owner(kind, key, workload.metadata.uid).wanted = pods_wanted(kind, workload)
        for key, pod in self._tracker.all("Pod").items():
            owner = self._owner_of(pod)
            if owner is not None and not is_terminal(pod):
                self._note(owner, key, pod)

    def owner(self, kind: str, key: str, uid: str) -> PodOwner:
        """The owner of that uid, made if it is new."""
        found = self.by_uid.get(uid)
        if found is None:
            found = self.by_uid[uid] = self.by_key[kind, key] = PodOwner(kind, key, uid, None)
        return found

    def scale(self, owner: PodOwner, replicas: int) -> None:
        """Let an owner have as many pods."""
        workload = self._tracker.get(owner.kind, owner.key)
        if workload is not None:
            self._tracker.put(owner.kind, with_replicas(owner.kind, workload, replicas))
        self._budgets.refresh(owner.namespace)
        self.sync(owner, replicas)

    def sync(self, owner: PodOwner, wanted: int) -> None:
        """Bring the number of pods to what is wanted, in the next turn of the loop."""
        owner.wanted = wanted
        self._later(owner)

    def run_daemon(self, key: str, workload: SnapshotWorkload, node: str) -> None:
        """Make a DaemonSet's pod for a node, unless it has one there; kube-scheduler then places it, or does not.

        Only the node selector is looked at: taints and affinity are kube-scheduler's to judge.
        """
        owner = self.owner("DaemonSet", key, workload.metadata.uid)
        template, found = workload.spec.template, self._tracker.get("Node", node)
        if template is None or node in {self._api.read(pod).spec.node_name for pod in owner.active}:
            return
        labels = (found.metadata.labels or {}) if found is not None else {}
        if (template.spec.node_selector or {}).items() <= labels.items():
            self._make(owner, template, on=node)

    def _owner_of(self, pod: Pod) -> PodOwner | None:
        found = controller_of(pod.metadata)
        return self.owner(found.kind, f"{pod.metadata.namespace}/{found.name}", found.uid) if found else None

    def _note(self, owner: PodOwner, key: str, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp:
            owner.active.pop(key, None)
            owner.leaving[key] = pod
        else:
            owner.active[key] = None
            owner.sample = pod

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        pod = new or old
        assert pod is not None
        owner = self._owner_of(pod)
        if owner is None:
            return
        if new is None:
            was_active = owner.active.pop(change.key, "") is None
            owner.leaving.pop(change.key, None)
            if was_active or owner.kind not in _AT_ONCE:
                self._replace(owner, pod)
        elif old is None or new.metadata.deletion_timestamp != old.metadata.deletion_timestamp:
            self._note(owner, change.key, new)
            if new.metadata.deletion_timestamp and owner.kind in _AT_ONCE:
                self._replace(owner, new)

    def _replace(self, owner: PodOwner, pod: Pod) -> None:
        """Make up for one that leaves: by number if that is known, else by one like it."""
        if owner.wanted is not None:
            self._later(owner)
            return
        workload = self._tracker.get(owner.kind, owner.key)
        # A DaemonSet that is not in a snapshot that has some is gone; any other controller is taken to be there
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
        """Bring the numbers of pods to what is wanted."""
        due, self._due = self._due, {}
        for owner in due.values():
            wanted = owner.wanted or 0
            is_stateful = owner.kind == "StatefulSet"
            if (surplus := len(owner.active) - wanted) > 0:
                # The last in order go; of a ReplicaSet first who waits, then the youngest (`ActivePodsWithRanks`)
                ranked: list[tuple[Any, Pod]] = []
                for key in owner.active:
                    pod = self._api.read(key)
                    by_age = not pod.spec.node_name, pod.status.start_time or "~", key
                    ranked.append(((len(key), key) if is_stateful else by_age, pod))
                for (*_, key), pod in sorted(ranked, key=itemgetter(0), reverse=True)[:surplus]:
                    self._api.delete(key, pod.metadata.uid, None, "")  # that is no eviction
            if is_stateful:
                # One under whose name another is still leaving is made when that is gone
                for key in (f"{owner.key}-{number}" for number in range(wanted)):
                    if key not in owner.active and key not in owner.leaving:
                        self._make(owner, None, key.partition("/")[2])
            else:
                for _ in range(wanted - len(owner.active)):
                    if not self._make(owner, None):
                        break

    def _make(self, owner: PodOwner, template: PodTemplate | Pod | None, name: str = "", on: str = "") -> bool:
        """Create a pod if admission lets it; whether it did. Without a template it is the owner's, or one of its pods.

        Without a name it is given one; `on` is the node of a DaemonSet's pod.
        """
        owner.made += 1
        if template is None:
            workload = self._tracker.get(owner.kind, owner.key)
            template = (workload.spec.template if workload is not None else None) or owner.sample
        if template is None:
            why = f"{owner.kind} {owner.key} has no template here and no pod, so nothing is known of its pods"
            self._api.history.refused.setdefault(f"{owner.kind}/{owner.key}", why)
            return False
        try:
            pod = self._admission.pod(owner.pod_body(template, name, on), User.controller(owner.kind))
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


def pods_wanted(kind: str, workload: SnapshotWorkload) -> int:
    """How many pods a workload wants; a Job that is done or suspended none."""
    spec = workload.spec
    if kind != "Job":
        return 1 if spec.replicas is None else spec.replicas
    conditions = workload.status.conditions or ()
    done = any(one.get("type") in {"Complete", "Failed"} and one.get("status") == "True" for one in conditions)
    wanted = 1 if spec.parallelism is None else spec.parallelism
    return 0 if done or spec.suspend else min(wanted, spec.completions or wanted)


def with_replicas(kind: str, workload: SnapshotWorkload, replicas: int) -> SnapshotWorkload:
    """The workload with another number of pods."""
    number = "parallelism" if kind == "Job" else "replicas"
    return msgspec.structs.replace(workload, spec=msgspec.structs.replace(workload.spec, **{number: replicas}))
