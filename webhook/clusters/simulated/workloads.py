"""Workloads as people change them; and controllers that are not in a cluster file, of which only their pods are known.

Of a controller that Kubernetes does not have, such as an operator's own, it is assumed that it replaces each pod once
that is gone, under its name, as a StatefulSet does. Nothing replaces a pod without a controller.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from webhook.clusters.acting.controller import Controlled
from webhook.clusters.model.daemon_sets import pinned
from webhook.clusters.model.jobs import job_labels
from webhook.clusters.model.new_pods import template_like
from webhook.clusters.model.pods import is_active
from webhook.clusters.model.workloads import PodTemplate
from webhook.clusters.simulated.api import Api
from webhook.clusters.simulated.objects import SimulatedSpec, SimulatedWorkload
from webhook.kube.errors import ApiError
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import ObjectMeta, OwnerReference, key_of
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import TEMPLATE_HASH, controller_of

_replace = msgspec.structs.replace
_AT_ONCE = ("ReplicaSet", "ReplicationController", "Job")
"""Who replaces a pod as soon as it is asked to leave."""
_SCALED = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job")
"""What can be given another number of pods, in the order in which a name is looked for."""


class Workloads:
    """Changes workloads; controllers hear of it and do the rest. Plays the controllers that are not in the file."""

    def __init__(self, api: Api, pods: Controlled[Pod]) -> None:
        self._api, self._tracker, self._pods = api, api.tracker, pods
        self._samples: dict[str, tuple[OwnerReference, Pod]] = {}
        """By the uid of a controller: a reference to it, and the pod of it that was active last."""

    def template_of(self, kind: str, workload: SimulatedWorkload) -> dict[str, Any] | None:
        """What a workload's pods are made of: its template, or what one of its pods looks like."""
        template = workload.pod_template()
        if template is None and workload.metadata.uid in self._samples:
            template = template_like(self._samples[workload.metadata.uid][1])
        if template is None:
            name = f"{kind} {workload.metadata.namespace}/{workload.metadata.name}"
            why = f"{name} has no template here and no pod, so nothing is known of its pods"
            self._api.history.refused.setdefault(name.replace(" ", "/"), why)
        return template

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
            template, meta = deployment.spec.template, deployment.metadata
            if template is None or key in owned:
                continue
            filled.append(key)
            sets = sorted(unknown.get(key, ()), key=lambda row: self._latest(row[0].uid))
            for reference, sample in sets:
                is_newest, labels = reference is sets[-1][0], sample.metadata.labels or {}
                if is_newest:
                    labels = {**(template.metadata.labels or {}), TEMPLATE_HASH: labels[TEMPLATE_HASH]}
                made_of = PodTemplate(metadata=_replace(template.metadata, labels=labels), spec=template.spec)
                spec = SimulatedSpec(
                    replicas=sum(map(is_active, self._pods.of(reference.uid))),
                    selector={"matchLabels": labels},
                    template=made_of if is_newest else None,
                )
                above = OwnerReference(kind="Deployment", name=meta.name, uid=meta.uid, controller=True)
                owned_by = ObjectMeta(
                    name=reference.name, namespace=meta.namespace, uid=reference.uid, owner_references=[above]
                )
                self._tracker.put("ReplicaSet", SimulatedWorkload(metadata=owned_by, spec=spec))
        return filled

    def apply(self, kind: str, body: dict[str, Any]) -> None:
        """Take in a workload that is new or was changed."""
        workload = msgspec.convert(body, SimulatedWorkload)
        key = key_of(workload)
        known, template = self._tracker.get(kind, key), workload.spec.template
        uid = known.metadata.uid if known is not None else f"simulated-{kind}-{key}".lower().replace("/", ".")
        workload.metadata.uid = uid
        if known is not None:
            workload.status = known.status
        if kind == "Job" and workload.spec.selector is None and template is not None:
            labels = {**(template.metadata.labels or {}), **job_labels(workload.metadata.name, uid)}
            workload.spec.template = PodTemplate(
                metadata=_replace(template.metadata, labels=labels), spec=template.spec
            )
        self._tracker.put(kind, workload)

    def scale(self, key: str, replicas: int) -> bool:
        """Give the Deployment, ReplicaSet, StatefulSet or Job of this key as many pods; whether there is such a one."""
        for kind in _SCALED:
            workload = self._tracker.get(kind, key)
            if workload is not None:
                number = {"parallelism" if kind == "Job" else "replicas": replicas}
                self._tracker.put(kind, _replace(workload, spec=_replace(workload.spec, **number)))
                return True
        return False

    def _unknown_sets(self) -> dict[str, list[tuple[OwnerReference, Pod]]]:
        """By the key of their Deployment the ReplicaSets that are known by their pods alone, each with a pod."""
        sets: dict[str, list[tuple[OwnerReference, Pod]]] = {}
        for owner, pod in self._samples.values():
            digest, namespace = (pod.metadata.labels or {}).get(TEMPLATE_HASH), pod.metadata.namespace
            is_of_deployment = owner.kind == "ReplicaSet" and digest and owner.name.endswith(f"-{digest}")
            if is_of_deployment and self._tracker.get("ReplicaSet", f"{namespace}/{owner.name}") is None:
                sets.setdefault(f"{namespace}/{owner.name.removesuffix(f'-{digest}')}", []).append((owner, pod))
        return sets

    def _latest(self, uid: str) -> str:
        """When the youngest active pod of a controller was made."""
        return max((pod.metadata.creation_timestamp or "" for pod in self._pods.of(uid) if is_active(pod)), default="")

    def pod_changed(self, change: Change[Pod]) -> None:
        """Replace a pod that goes if its controller is not in the file."""
        old, new = change.old, change.new
        pod = new or old
        assert pod is not None
        owner = controller_of(pod.metadata)
        if owner is not None and new is not None and is_active(new):
            self._samples[owner.uid] = owner, new
        if owner is None or owner.kind == "Node":
            return
        replaces = new is None
        if owner.kind in _AT_ONCE:
            leaves = new is None or bool(new.metadata.deletion_timestamp)
            replaces = leaves and old is not None and is_active(old)
        if replaces and not self._is_known(owner, pod.metadata.namespace):
            self._api.clock.call_later(0.0, self._replace, owner, pod)

    def _is_known(self, owner: OwnerReference, namespace: str) -> bool:
        """Whether a controller is in the file, or gone, as a DaemonSet is that is missing in a file with others."""
        workload = self._tracker.get(owner.kind, f"{namespace}/{owner.name}")
        if owner.kind != "DaemonSet":
            return workload is not None
        return workload.spec.template is not None if workload is not None else bool(self._tracker.all("DaemonSet"))

    def _replace(self, owner: OwnerReference, pod: Pod) -> None:
        """Make a pod like it."""
        template = template_like(pod)
        if owner.kind == "DaemonSet":
            template["spec"] = pinned(template["spec"], pod.spec.node_name)
        keeps_name = owner.kind not in (*_AT_ONCE, "DaemonSet")
        name = {"name": pod.metadata.name} if keeps_name else {"generateName": f"{owner.name}-"}
        template["metadata"] |= {**name, "ownerReferences": [msgspec.to_builtins(owner)]}
        with suppress(ApiError):
            self._api.make(pod.metadata.namespace, template)
