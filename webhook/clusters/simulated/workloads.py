"""Workloads as people change them, and those that a cluster file lacks."""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.clusters.acting.controller import ControlledPods
from webhook.clusters.model.jobs import job_labels
from webhook.clusters.model.pods import is_active
from webhook.clusters.model.workloads import PodTemplate, TemplateSpec
from webhook.clusters.simulated.objects import SimulatedSpec, SimulatedWorkload
from webhook.clusters.simulated.tracker import ObjectTracker
from webhook.clusters.simulated.unknown_owners import UnknownOwners
from webhook.kube.objects.meta import ObjectMeta, OwnerReference, key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import TEMPLATE_HASH, controller_of

_replace = msgspec.structs.replace
_SCALED = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job")
"""What can be given another number of pods, in the order in which a name is looked for."""


class Workloads:
    """Changes workloads; controllers hear of it and do the rest."""

    def __init__(self, tracker: ObjectTracker, unknown: UnknownOwners, pods: ControlledPods) -> None:
        self._tracker, self._unknown, self._pods = tracker, unknown, pods

    def fill(self) -> list[str]:
        """Give Deployments the ReplicaSets that a cluster file lacks, by their pods; the keys of those Deployments.

        The newest of them has the Deployment's template.
        """
        owned = {
            f"{row.metadata.namespace}/{above.name}"
            for row in self._tracker.all("ReplicaSet").values()
            if (above := controller_of(row.metadata)) is not None and above.kind == "Deployment"
        }
        unknown, filled = self._unknown_sets(), []
        for key, deployment in self._tracker.all("Deployment").items():
            template = deployment.spec.template
            if template is None or key in owned:
                continue
            filled.append(key)
            sets = sorted(unknown.get(key, ()), key=lambda row: self._latest(row[0].uid))
            for reference, sample in sets:
                made_of = template
                if (reference, sample) != sets[-1]:
                    spec = msgspec.convert(msgspec.to_builtins(sample.spec), TemplateSpec)
                    made_of = PodTemplate(metadata=sample.metadata, spec=spec)
                labels = {
                    **(made_of.metadata.labels or {}),
                    TEMPLATE_HASH: (sample.metadata.labels or {})[TEMPLATE_HASH],
                }
                meta = deployment.metadata
                above = OwnerReference(kind="Deployment", name=meta.name, uid=meta.uid, controller=True)
                spec_of_set = SimulatedSpec(
                    replicas=self._active(reference.uid),
                    selector={"matchLabels": labels},
                    template=PodTemplate(metadata=_replace(made_of.metadata, labels=labels), spec=made_of.spec),
                )
                self._put("ReplicaSet", meta.namespace, reference, spec_of_set, [above])
        return filled

    def _unknown_sets(self) -> dict[str, list[tuple[OwnerReference, Pod]]]:
        """By the key of their Deployment the ReplicaSets that are known by their pods alone, each with a pod."""
        sets: dict[str, list[tuple[OwnerReference, Pod]]] = {}
        for owner, pod in self._unknown.samples.values():
            digest, namespace = (pod.metadata.labels or {}).get(TEMPLATE_HASH), pod.metadata.namespace
            is_of_deployment = owner.kind == "ReplicaSet" and digest and owner.name.endswith(f"-{digest}")
            if is_of_deployment and self._tracker.get("ReplicaSet", f"{namespace}/{owner.name}") is None:
                sets.setdefault(f"{namespace}/{owner.name.removesuffix(f'-{digest}')}", []).append((owner, pod))
        return sets

    def apply(self, kind: str, body: dict[str, Any]) -> None:
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
            template = PodTemplate(metadata=_replace(template.metadata, labels=labels), spec=template.spec)
            workload.spec.template = template
        self._tracker.put(kind, workload)

    def scale(self, key: str, replicas: int) -> bool:
        """Give the Deployment, ReplicaSet, StatefulSet or Job of this key as many pods; whether there is such a one."""
        for kind in _SCALED:
            workload = self._tracker.get(kind, key)
            if workload is not None:
                number = {"parallelism" if kind == "Job" else "replicas": replicas}
                self._tracker.put(kind, _replace(workload, spec=_replace(workload.spec, **number)))
                return True
        # One that is not in the cluster file is known by its pods, a Deployment by the names of its ReplicaSets
        namespace, _, name = key.partition("/")
        owners = [
            owner
            for owner, pod in self._unknown.samples.values()
            if owner.kind in _SCALED and (owner.name, pod.metadata.namespace) == (name, namespace)
        ]
        owners = owners or [owner for owner, _ in self._unknown_sets().get(key, ())]
        if not owners:
            return False
        largest = max(owners, key=lambda owner: self._active(owner.uid))
        self._put(largest.kind, namespace, largest, SimulatedSpec(replicas=replicas, parallelism=replicas), None)
        return True

    def _put(
        self,
        kind: str,
        namespace: str,
        named: OwnerReference,
        spec: SimulatedSpec,
        owners: list[OwnerReference] | None,
    ) -> None:
        meta = ObjectMeta(name=named.name, namespace=namespace, uid=named.uid, owner_references=owners)
        self._tracker.put(kind, SimulatedWorkload(metadata=meta, spec=spec))

    def _active(self, uid: str) -> int:
        return sum(map(is_active, self._pods.of(uid)))

    def _latest(self, uid: str) -> str:
        """When the youngest active pod of a controller was made."""
        return max((pod.metadata.creation_timestamp or "" for pod in self._pods.of(uid) if is_active(pod)), default="")
