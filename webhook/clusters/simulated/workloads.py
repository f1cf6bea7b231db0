"""Workloads as people change them: applied, scaled, and Deployments that roll from one template to the next.

A Deployment has a ReplicaSet for each template; `webhook.clusters.model.deployments` says how it goes on.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec

from webhook.clusters.model.deployments import ReplicaCounts, rollout_step, scaled_step, strategy_of
from webhook.clusters.model.jobs import job_labels
from webhook.clusters.model.pods import is_ready, template_hash
from webhook.clusters.model.workloads import PodTemplate, TemplateSpec, WorkloadSpec
from webhook.clusters.simulated.controllers import Controllers, PodOwner, pods_wanted, with_replicas
from webhook.clusters.simulated.objects import SimulatedWorkload
from webhook.clusters.simulated.tracker import ObjectTracker
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import ObjectMeta, OwnerReference, key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import TEMPLATE_HASH, controller_of

_replace = msgspec.structs.replace
Json = dict[str, Any]


class Workloads:
    """Changes workloads, and hears of the pods by which a rollout goes on."""

    def __init__(self, tracker: ObjectTracker, controllers: Controllers) -> None:
        self._tracker = tracker
        self._controllers = controllers
        self._sets: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """The keys of ReplicaSets by that of their Deployment."""
        for key, replica_set in tracker.all("ReplicaSet").items():
            self._note_set(Change("added", key, None, replica_set))
        tracker.hook("ReplicaSet", self._note_set)
        tracker.hook("Pod", self._pod_changed)

    def _note_set(self, change: Change[SimulatedWorkload]) -> None:
        above = controller_of(change.new.metadata) if change.new is not None else None
        if above is not None and above.kind == "Deployment":
            self._sets[f"{change.key.partition('/')[0]}/{above.name}"][change.key] = None

    def fill(self) -> None:
        """Give Deployments the ReplicaSets that a cluster file lacks, by their pods; the newest has the template."""
        unknown = self._unknown_sets()
        for key, deployment in self._tracker.all("Deployment").items():
            template = deployment.spec.template
            if template is None or self._sets_of(key):
                continue
            sets = unknown.get(key, [])
            sets.sort(key=lambda owner: max(map(self._created, owner.active), default=""))
            for owner in sets:
                sample = owner.sample
                assert sample is not None
                spec = msgspec.convert(msgspec.to_builtins(sample.spec), TemplateSpec)
                made_of = template if owner is sets[-1] else PodTemplate(metadata=sample.metadata, spec=spec)
                name, digest = owner.key.partition("/")[2], (sample.metadata.labels or {})[TEMPLATE_HASH]
                self._replica_set(deployment, made_of, name, owner.uid, digest)
            self._roll(key, deployment)

    def _unknown_sets(self) -> dict[str, list[PodOwner]]:
        """By the key of their Deployment the ReplicaSets that are known by their pods alone."""
        sets: dict[str, list[PodOwner]] = {}
        for (kind, key), owner in self._controllers.by_key.items():
            digest = (owner.sample.metadata.labels or {}).get(TEMPLATE_HASH) if owner.sample is not None else None
            if kind == "ReplicaSet" and digest and key.endswith(f"-{digest}"):
                sets.setdefault(key.removesuffix(f"-{digest}"), []).append(owner)
        return sets

    def apply(self, kind: str, body: Json) -> None:
        """Take in a workload that is new or was changed."""
        workload = msgspec.convert(body, SimulatedWorkload)
        key = key_of(workload)
        known = self._tracker.get(kind, key)
        uid = known.metadata.uid if known is not None else f"simulated-{kind}-{key}".lower().replace("/", ".")
        workload.metadata.uid = uid
        if known is not None:
            workload.status = known.status
        template = workload.spec.template
        if kind == "Job" and workload.spec.selector is None and template is not None:
            labels = {**(template.metadata.labels or {}), **job_labels(workload.metadata.name, uid)}
            workload.spec.template = PodTemplate(
                metadata=_replace(template.metadata, labels=labels), spec=template.spec
            )
        self._tracker.put(kind, workload)
        if kind == "Deployment":
            self._roll(key, workload)
            return
        owner = self._controllers.owner(kind, key, uid)
        if known is not None and known.spec.template != workload.spec.template:
            self._controllers.outdate(owner, known.spec.template)
        self._controllers.sync(owner, None if kind == "DaemonSet" else pods_wanted(kind, workload))

    def scale(self, key: str, replicas: int) -> bool:
        """Give the Deployment, ReplicaSet, StatefulSet or Job of this key as many pods; whether there is such a one."""
        by_key = self._controllers.by_key
        deployment = self._tracker.get("Deployment", key)
        if deployment is not None:
            deployment = with_replicas("Deployment", deployment, replicas)
            self._tracker.put("Deployment", deployment)
            self._roll(key, deployment)
            return True
        kinds = ("ReplicaSet", "StatefulSet", "ReplicationController", "Job")
        owners = [by_key[kind, key] for kind in kinds if (kind, key) in by_key][:1]
        if not owners:
            # A Deployment that is not in the cluster file is known by the names of its ReplicaSets
            owners = self._unknown_sets().get(key, [])
        if owners:
            self._controllers.scale(max(owners, key=lambda owner: len(owner.active)), replicas)
        return bool(owners)

    def _sets_of(self, deployment: str) -> list[tuple[PodOwner, SimulatedWorkload]]:
        """The ReplicaSets of a Deployment."""
        sets = []
        for key in self._sets.get(deployment, ()):
            replica_set = self._tracker.get("ReplicaSet", key)
            owner = self._controllers.by_uid.get(replica_set.metadata.uid) if replica_set is not None else None
            if owner is not None:
                sets.append((owner, replica_set))
        return sets

    def _newest(self, deployment: str, template: PodTemplate) -> PodOwner | None:
        """The ReplicaSet whose template is this one, but for the label with its hash (`FindNewReplicaSet`)."""
        for owner, replica_set in self._sets_of(deployment):
            own = replica_set.spec.template or PodTemplate()
            labels = {key: text for key, text in (own.metadata.labels or {}).items() if key != TEMPLATE_HASH}
            same_labels = labels == (template.metadata.labels or {})
            if same_labels and own.metadata.annotations == template.metadata.annotations and own.spec == template.spec:
                return owner
        return None

    def _roll(self, key: str, deployment: SimulatedWorkload) -> None:
        """Let a Deployment have a ReplicaSet for its template, and take the others down as that comes up.

        One that is paused has no new ReplicaSet, and is only scaled.
        """
        template = deployment.spec.template
        if template is None:
            return
        newest = self._newest(key, template)
        if newest is None and not deployment.spec.paused:
            meta, digest = deployment.metadata, template_hash(template)
            uid = f"simulated-{meta.namespace}.{meta.name}-{digest}"
            newest = self._replica_set(deployment, template, f"{meta.name}-{digest}", uid, digest)
        self._step(key, deployment, newest)

    def _replica_set(
        self, deployment: SimulatedWorkload, template: PodTemplate, name: str, uid: str, digest: str
    ) -> PodOwner:
        """A ReplicaSet of a Deployment that is not in the cluster yet, or not in the cluster file."""
        meta = deployment.metadata
        labels = {**(template.metadata.labels or {}), TEMPLATE_HASH: digest}
        made = SimulatedWorkload(
            metadata=ObjectMeta(
                name=name,
                namespace=meta.namespace,
                uid=uid,
                owner_references=[OwnerReference(kind="Deployment", name=meta.name, uid=meta.uid, controller=True)],
            ),
            spec=WorkloadSpec(
                selector={"matchLabels": labels},
                template=PodTemplate(metadata=_replace(template.metadata, labels=labels), spec=template.spec),
            ),
        )
        owner = self._controllers.owner("ReplicaSet", key_of(made), uid)
        owner.wanted = made.spec.replicas = len(owner.active)
        self._tracker.put("ReplicaSet", made)
        return owner

    def _step(self, key: str, deployment: SimulatedWorkload, newest: PodOwner | None) -> None:
        """Let a rollout go as far as it goes now."""
        wanted = pods_wanted("Deployment", deployment)
        strategy = strategy_of(deployment.spec.strategy, wanted)
        others = [owner for owner, _ in self._sets_of(key) if owner is not newest]
        by_uid = {owner.uid: owner for owner in (*([newest] if newest else ()), *others)}
        available = {uid: sum(map(self._is_ready, owner.active)) for uid, owner in by_uid.items()}
        has_old_pods = any(other.active or other.leaving for other in others)
        while True:
            sets = [ReplicaCounts(uid, owner.wanted or 0, available[uid]) for uid, owner in by_uid.items()]
            if deployment.spec.paused:
                step = scaled_step(wanted, strategy, sets)
            else:
                step = rollout_step(wanted, strategy, sets[0], sets[1:], has_old_pods=has_old_pods)
            for uid, replicas in step.items():
                self._controllers.scale(by_uid[uid], replicas)
            if not step or deployment.spec.paused:
                break

    def _created(self, key: str) -> str:
        pod = self._tracker.pod(key)
        return (pod.metadata.creation_timestamp if pod is not None else None) or ""

    def _is_ready(self, key: str) -> bool:
        pod = self._tracker.pod(key)
        return pod is not None and is_ready(pod)

    def _pod_changed(self, change: Change[Pod]) -> None:
        """A pod of a ReplicaSet came up or is gone: a rollout may go on."""
        old, new = change.old, change.new
        pod = new or old
        assert pod is not None
        if new is not None and (not is_ready(new) or (old is not None and is_ready(old))):
            return
        owner, namespace = controller_of(pod.metadata), pod.metadata.namespace
        if owner is None or owner.kind != "ReplicaSet":
            return
        known = self._tracker.get("ReplicaSet", f"{namespace}/{owner.name}")
        above = controller_of(known.metadata) if known is not None else None
        if above is None or above.kind != "Deployment":
            return
        key = f"{namespace}/{above.name}"
        deployment = self._tracker.get("Deployment", key)
        is_rolling = sum(bool(pod_owner.wanted or pod_owner.leaving) for pod_owner, _ in self._sets_of(key)) != 1
        if deployment is None or deployment.spec.paused:
            return
        if deployment.spec.template is not None and is_rolling:
            newest = self._newest(key, deployment.spec.template)
            if newest is not None:
                self._step(key, deployment, newest)
