"""Workload controllers: as many pods as are wanted, replacements for those that leave, a rollout step by step.

A ReplicaSet, ReplicationController or Job makes a replacement as soon as a pod is asked to leave; a StatefulSet and a
DaemonSet when it is gone, under its name or for its node. Of a controller that is not known, such as an operator's own,
the same is assumed as of a StatefulSet. Nothing replaces a pod without a controller.
"""

from __future__ import annotations

import copy
import hashlib
import math
from typing import Any

import msgspec

from webhook.kube.errors import ApiError
from webhook.kube.informer import Change
from webhook.kube.objects import ObjectMeta, OwnerReference, Pod, key_of
from webhook.simulation.cluster.admission import Admission, RefusedError, User
from webhook.simulation.cluster.api import Api
from webhook.simulation.cluster.budgets import Budgets
from webhook.simulation.cluster.owners import Owner, body_of
from webhook.simulation.snapshot.objects import PodTemplate, Workload, WorkloadSpec

__all__ = ["Controllers"]

_AT_ONCE = ("ReplicaSet", "ReplicationController", "Job")
_OVER = ("Succeeded", "Failed")
_HASH = "pod-template-hash"
_SURGE = 0.25
"""`maxSurge` and `maxUnavailable` of a Deployment, as Kubernetes sets them."""
Json = dict[str, Any]


class Controllers:
    """Follows every pod that has a controller; what it does it does in the next turn of the loop."""

    def __init__(self, api: Api, admission: Admission, budgets: Budgets) -> None:
        self._api = api
        self._store = api.store
        self._admission = admission
        self._budgets = budgets
        self._owners: dict[str, Owner] = {}
        """By uid."""
        self._by_key: dict[tuple[str, str], str] = {}
        """(Kind, `namespace/name`) to uid."""
        self._due: dict[str, None] = {}
        self._admitted: dict[bytes, Pod | str] = {}
        self._store.hook("Pod", self._pod_changed)
        for kind in ("PriorityClass", "Namespace"):
            self._store.hook(kind, lambda _: self._admitted.clear())

    def fill(self) -> None:
        """Take in the workloads and the pods there are."""
        for kind in ("ReplicaSet", "ReplicationController", "StatefulSet", "Job"):
            for key, workload in self._store.all(kind).items():
                self._owner(kind, key, workload.metadata.uid).wanted = _wanted(kind, workload)
        for key, pod in self._store.all("Pod").items():
            owner = self._owner_of(pod)
            if owner is not None and pod.status.phase not in _OVER:
                self._note(owner, key, pod)

    def forget_admitted(self) -> None:
        """Ask again what the webhook makes of pods: its policies have changed."""
        self._admitted.clear()

    def scale(self, key: str, replicas: int) -> bool:
        """Give the Deployment, ReplicaSet, StatefulSet or Job of this key as many pods; whether there is such a one."""
        deployment = self._store.get("Deployment", key)
        if deployment is not None:
            self._set_replicas("Deployment", deployment, replicas)
            newest = max(self._sets_of(key), key=lambda one: len(self._owners[one].active), default=None)
            if newest is not None:
                self._scale_owner(self._owners[newest], replicas)
            return newest is not None
        for kind in ("ReplicaSet", "StatefulSet", "ReplicationController", "Job"):
            uid = self._by_key.get((kind, key))
            if uid is not None:
                self._scale_owner(self._owners[uid], replicas)
                return True
        named = [
            uid
            for (kind, of), uid in self._by_key.items()
            if kind == "ReplicaSet" and _is_of(of, key, self._owners[uid])
        ]
        if named:
            self._scale_owner(self._owners[max(named, key=lambda uid: len(self._owners[uid].active))], replicas)
        return bool(named)

    def apply(self, kind: str, body: Json) -> None:
        """Take in a workload that is new or was changed. Raises RefusedError."""
        workload = msgspec.convert(body, Workload)
        key = key_of(workload)
        known = self._store.get(kind, key)
        uid = known.metadata.uid if known is not None else f"simulated-{kind}-{key}".lower().replace("/", ".")
        workload.metadata.uid = uid
        self._store.put(kind, workload)
        if kind == "Deployment":
            self._roll(key)
            return
        owner = self._owner(kind, key, uid)
        if kind == "DaemonSet":
            for node in list(self._store.all("Node")):
                self._daemon_on(owner, workload, node)
            return
        owner.wanted = _wanted(kind, workload)
        self._later(uid)

    def daemons_on(self, node: str) -> None:
        """Make the pods of DaemonSets for a new node, which kube-scheduler then places, or does not."""
        for key, workload in self._store.all("DaemonSet").items():
            self._daemon_on(self._owner("DaemonSet", key, workload.metadata.uid), workload, node)

    def _daemon_on(self, owner: Owner, workload: Workload, node: str) -> None:
        """Make a DaemonSet's pod for a node that it selects, unless it has one there."""
        there = {self._api.read(key).spec.node_name for key in owner.active}
        template = workload.spec.template
        if template is not None and node not in there and _selects(template, self._store.get("Node", node)):
            self._make(owner, body_of(owner, template, on=node))

    def _owner(self, kind: str, key: str, uid: str) -> Owner:
        found = self._owners.get(uid)
        if found is None:
            found = self._owners[uid] = Owner(kind, key, uid, None)
            self._by_key[kind, key] = uid
        return found

    def _owner_of(self, pod: Pod) -> Owner | None:
        found = next((one for one in pod.metadata.owner_references or () if one.controller), None)
        return self._owner(found.kind, f"{pod.metadata.namespace}/{found.name}", found.uid) if found else None

    def _note(self, owner: Owner, key: str, pod: Pod) -> None:
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
        if new is not None and old is not None and new.metadata.deletion_timestamp == old.metadata.deletion_timestamp:
            if new.status.phase == "Running" and old.status.phase != "Running":
                self._roll_on(owner)
            return
        if new is not None:
            self._note(owner, change.key, new)
            if new.metadata.deletion_timestamp and owner.kind in _AT_ONCE:
                self._replace(owner, new)
            return
        assert old is not None
        was_active = owner.active.pop(change.key, "") is None
        owner.leaving.pop(change.key, None)
        if was_active or owner.kind not in _AT_ONCE:
            self._replace(owner, old)
        self._roll_on(owner)

    def _replace(self, owner: Owner, pod: Pod) -> None:
        """Make up for one that leaves: by number if that is known, else by one like it."""
        if owner.wanted is not None:
            self._later(owner.uid)
            return
        if owner.kind == "Node" or not self._exists(owner):
            return
        body = self._again(owner, pod)
        self._api.clock.call_later(0.0, self._make, owner, body)

    def _exists(self, owner: Owner) -> bool:
        """Whether a controller is still there: one that is not in the snapshot is taken to be."""
        if owner.kind != "DaemonSet" or not self._store.all("DaemonSet"):
            return True
        return self._store.get("DaemonSet", owner.key) is not None

    def _later(self, uid: str) -> None:
        if not self._due:
            self._api.clock.call_later(0.0, self._sync_all)
        self._due[uid] = None

    def _sync_all(self) -> None:
        due, self._due = self._due, {}
        for uid in due:
            self._sync(self._owners[uid])

    def _sync(self, owner: Owner) -> None:
        """Bring the number of pods to what is wanted."""
        assert owner.wanted is not None
        for key in self._surplus(owner, len(owner.active) - owner.wanted):
            self._delete(key)
        if owner.kind == "StatefulSet":
            self._fill_ordinals(owner)
            return
        for _ in range(owner.wanted - len(owner.active)):
            if not self._make(owner, body_of(owner, self._template(owner))):
                return

    def _fill_ordinals(self, owner: Owner) -> None:
        """The pods of a StatefulSet by number, those under whose name one is still leaving later."""
        for number in range(owner.wanted or 0):
            key = f"{owner.key}-{number}"
            if key not in owner.active and key not in owner.leaving:
                body = body_of(owner, self._template(owner))
                body["metadata"].pop("generateName", None)
                body["metadata"]["name"] = key.partition("/")[2]
                self._make(owner, body)

    def _surplus(self, owner: Owner, count: int) -> list[str]:
        """Whom to delete if there are too many: first who waits, then the youngest (`ActivePodsWithRanks`)."""
        if count <= 0:
            return []
        if owner.kind == "StatefulSet":
            ordered = sorted(owner.active, key=lambda key: (len(key), key), reverse=True)
        else:
            pods = [(key, self._api.read(key)) for key in owner.active]
            pods.sort(
                key=lambda row: (not row[1].spec.node_name, row[1].status.start_time or "~", row[0]), reverse=True
            )
            ordered = [key for key, _ in pods]
        return ordered[:count]

    def _delete(self, key: str) -> None:
        """Delete a pod that is too many: no eviction."""
        pod = self._api.read(key)
        self._api.delete(key, pod.metadata.uid, None, "")

    def _make(self, owner: Owner, body: Json) -> bool:
        """Create a pod if admission lets it; whether it did."""
        owner.made += 1
        try:
            pod = self._admit(owner, body)
            meta = pod.metadata
            if not meta.name:
                name = f"{meta.generate_name}s{owner.made:04d}"
                pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(meta, name=name))
            self._api.create(pod)
        except RefusedError as error:
            self._api.history.refused.setdefault(f"{owner.kind}/{owner.key}", str(error))
            return False
        except ApiError:
            return False
        return True

    def _admit(self, owner: Owner, body: Json) -> Pod:
        """What the webhook makes of a pod: asked once for pods that differ in nothing."""
        key = msgspec.json.encode(body, order="sorted")
        found = self._admitted.get(key)
        if found is None:
            try:
                found = self._admission.pod(copy.deepcopy(body), User.controller(owner.kind))
            except RefusedError as error:
                found = str(error)
            self._admitted[key] = found
        if isinstance(found, str):
            raise RefusedError(found)
        return found

    def _template(self, owner: Owner) -> PodTemplate:
        """What the owner's pods are made of: its template, or one of its pods."""
        workload = self._store.get(owner.kind, owner.key)
        if workload is not None and workload.spec.template is not None:
            template: PodTemplate = workload.spec.template
            return template
        if owner.sample is None:
            raise RefusedError(
                f"{owner.kind} {owner.key} has no template here and no pod, so nothing is known of its pods"
            )
        return PodTemplate(metadata=owner.sample.metadata, spec=owner.sample.spec)

    def _again(self, owner: Owner, pod: Pod) -> Json:
        """A pod like one that left; under its name if its controller gives the same again."""
        workload = self._store.get(owner.kind, owner.key)
        template = workload.spec.template if workload is not None and owner.kind != "StatefulSet" else None
        on = pod.spec.node_name if owner.kind == "DaemonSet" else ""
        body = body_of(owner, template or PodTemplate(metadata=pod.metadata, spec=pod.spec), on=on)
        if owner.kind not in {*_AT_ONCE, "DaemonSet"}:
            body["metadata"].pop("generateName")
            body["metadata"]["name"] = pod.metadata.name
        return body

    def _scale_owner(self, owner: Owner, replicas: int) -> None:
        owner.wanted = replicas
        workload = self._store.get(owner.kind, owner.key)
        if workload is not None:
            self._set_replicas(owner.kind, workload, replicas)
        self._budgets.refresh(owner.namespace)
        self._later(owner.uid)

    def _set_replicas(self, kind: str, workload: Workload, replicas: int) -> None:
        field = "parallelism" if kind == "Job" else "replicas"
        spec = msgspec.structs.replace(workload.spec, **{field: replicas})
        self._store.put(kind, msgspec.structs.replace(workload, spec=spec))

    def _sets_of(self, deployment: str) -> list[str]:
        """The uids of the ReplicaSets of a Deployment."""
        name = deployment.partition("/")[2]
        return [
            one.metadata.uid
            for key, one in self._store.all("ReplicaSet").items()
            if key.partition("/")[0] == deployment.partition("/")[0]
            and any(of.kind == "Deployment" and of.name == name for of in one.metadata.owner_references or ())
            and one.metadata.uid in self._owners
        ]

    def _roll(self, deployment: str) -> None:
        """Let a Deployment have a ReplicaSet for its template, and take the others down as that comes up."""
        workload: Workload = self._store.get("Deployment", deployment)
        template = workload.spec.template
        if template is None:
            return
        known = {one: self._store.get("ReplicaSet", self._owners[one].key) for one in self._sets_of(deployment)}
        same = [uid for uid, one in known.items() if _is_same(one.spec.template, template)]
        if same:
            self._step(deployment, same[0])
            return
        digest = hashlib.sha256(msgspec.json.encode(template)).hexdigest()[:10]
        meta = workload.metadata
        labels = {**(template.metadata.labels or {}), _HASH: digest}
        made = Workload(
            metadata=ObjectMeta(
                name=f"{meta.name}-{digest}",
                namespace=meta.namespace,
                uid=f"simulated-{meta.namespace}.{meta.name}-{digest}",
                owner_references=[OwnerReference(kind="Deployment", name=meta.name, uid=meta.uid, controller=True)],
            ),
            spec=WorkloadSpec(
                replicas=0,
                selector={"matchLabels": labels},
                template=PodTemplate(
                    metadata=msgspec.structs.replace(template.metadata, labels=labels), spec=template.spec
                ),
            ),
        )
        self._store.put("ReplicaSet", made)
        self._owner("ReplicaSet", key_of(made), made.metadata.uid).wanted = 0
        self._step(deployment, made.metadata.uid)

    def _step(self, deployment: str, newest: str) -> None:
        """One step of a rollout (`rolling.go`): no more than a quarter too many, no more than a quarter missing."""
        workload: Workload = self._store.get("Deployment", deployment)
        wanted = 1 if workload.spec.replicas is None else workload.spec.replicas
        others = [self._owners[uid] for uid in self._sets_of(deployment) if uid != newest]
        old = sum(one.wanted or 0 for one in others)
        owner = self._owners[newest]
        room = wanted + math.ceil(wanted * _SURGE) - old
        if (target := max(0, min(wanted, room))) != owner.wanted and (target > (owner.wanted or 0) or not old):
            self._scale_owner(owner, target)
        ready = sum(self._is_running(key) for one in (owner, *others) for key in one.active)
        spare = ready - (wanted - math.floor(wanted * _SURGE))
        for one in others:
            running = sum(self._is_running(key) for key in one.active)
            fewer = min(one.wanted or 0, max(0, spare) + len(one.active) - running)
            if fewer > 0:
                spare -= min(fewer, running)
                self._scale_owner(one, (one.wanted or 0) - fewer)

    def _roll_on(self, owner: Owner) -> None:
        """A pod of a ReplicaSet came up or is gone: a rollout may go on."""
        workload = self._store.get("ReplicaSet", owner.key) if owner.kind == "ReplicaSet" else None
        above = next((one for one in workload.metadata.owner_references or ()), None) if workload else None
        if above is None or above.kind != "Deployment":
            return
        deployment = f"{owner.namespace}/{above.name}"
        found = self._store.get("Deployment", deployment)
        sets = self._sets_of(deployment)
        if found is None or found.spec.template is None or sum(bool(self._owners[one].wanted) for one in sets) < 2:
            return
        newest = next(
            (
                uid
                for uid in sets
                if _is_same(self._store.get("ReplicaSet", self._owners[uid].key).spec.template, found.spec.template)
            ),
            None,
        )
        if newest is not None:
            self._step(deployment, newest)

    def _is_running(self, key: str) -> bool:
        pod = self._store.pod(key)
        return pod is not None and pod.status.phase == "Running"


def _wanted(kind: str, workload: Workload) -> int:
    spec = workload.spec
    if kind == "Job":
        done = any(
            one.get("type") in {"Complete", "Failed"} and one.get("status") == "True"
            for one in workload.status.conditions or ()
        )
        wanted = 1 if spec.parallelism is None else spec.parallelism
        return 0 if done or spec.suspend else min(wanted, spec.completions or wanted)
    return 1 if spec.replicas is None else spec.replicas


def _is_of(key: str, deployment: str, owner: Owner) -> bool:
    """Whether a ReplicaSet is of that Deployment by its name."""
    sample = owner.sample
    revision = (sample.metadata.labels or {}).get(_HASH) if sample else None
    return bool(revision) and key == f"{deployment}-{revision}"


def _is_same(one: PodTemplate | None, other: PodTemplate) -> bool:
    """Whether templates are equal, but for the label with their hash."""
    if one is None or one.spec != other.spec:
        return False
    labels = {key: text for key, text in (one.metadata.labels or {}).items() if key != _HASH}
    return labels == (other.metadata.labels or {}) and one.metadata.annotations == other.metadata.annotations


def _selects(template: PodTemplate, node: Any) -> bool:
    """Whether a template's node selector allows the node; taints and affinity are kube-scheduler's to judge."""
    labels = (node.metadata.labels or {}) if node is not None else {}
    return (template.spec.node_selector or {}).items() <= labels.items()
