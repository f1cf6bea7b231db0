"""Controllers that are not in a cluster file, and of which only their pods are known.

Of one that Kubernetes does not have, such as an operator's own, it is assumed that it replaces each pod once that is
gone, under its name, as a StatefulSet does. Nothing replaces a pod without a controller.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from webhook.clusters.model.daemon_sets import pinned
from webhook.clusters.model.new_pods import template_like
from webhook.clusters.model.pods import is_active
from webhook.clusters.simulated.api import Api
from webhook.clusters.simulated.objects import SimulatedWorkload
from webhook.kube.errors import ApiError
from webhook.kube.object_cache import Change
from webhook.kube.objects.meta import OwnerReference
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import controller_of

_AT_ONCE = ("ReplicaSet", "ReplicationController", "Job")
"""Who replaces a pod as soon as it is asked to leave."""
_API = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1"}


class UnknownOwners:
    """Replaces the pods of controllers that are not in the file, and knows of all controllers how their pods look."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._tracker = api.tracker
        self.samples: dict[str, tuple[OwnerReference, Pod]] = {}
        """By the uid of a controller: a reference to it, and the pod of it that was active last."""

    def fill(self) -> None:
        """Take in the pods there are, and those to come."""
        for pod in self._tracker.all("Pod").values():
            self._note(pod)
        self._tracker.hook("Pod", self._pod_changed)

    def template_of(self, kind: str, workload: SimulatedWorkload) -> dict[str, Any] | None:
        """What a workload's pods are made of: its template, or what one of its pods looks like."""
        template = workload.pod_template()
        if template is None and workload.metadata.uid in self.samples:
            template = template_like(self.samples[workload.metadata.uid][1])
        if template is None:
            name = f"{kind} {workload.metadata.namespace}/{workload.metadata.name}"
            why = f"{name} has no template here and no pod, so nothing is known of its pods"
            self._api.history.refused.setdefault(name.replace(" ", "/"), why)
        return template

    def _note(self, pod: Pod) -> OwnerReference | None:
        owner = controller_of(pod.metadata)
        if owner is not None and is_active(pod):
            self.samples[owner.uid] = owner, pod
        return owner

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        pod = new or old
        assert pod is not None
        owner = self._note(pod) if new is not None else controller_of(pod.metadata)
        if owner is None or owner.kind == "Node":
            return
        was_active, at_once = old is not None and is_active(old), owner.kind in _AT_ONCE
        if new is None:
            replaces = was_active or not at_once
        else:
            replaces = was_active and at_once and bool(new.metadata.deletion_timestamp)
        if replaces and not self._is_known(owner, pod.metadata.namespace):
            self._api.clock.call_later(0.0, self._replace, owner, pod)

    def _is_known(self, owner: OwnerReference, namespace: str) -> bool:
        """Whether a controller is in the file, or gone, as a DaemonSet is that is missing in a file with others."""
        workload = self._tracker.get(owner.kind, f"{namespace}/{owner.name}")
        if owner.kind != "DaemonSet":
            return workload is not None
        if workload is None:
            return bool(self._tracker.all("DaemonSet"))
        return workload.spec.template is not None

    def _replace(self, owner: OwnerReference, pod: Pod) -> None:
        """Make a pod like it."""
        template = template_like(pod)
        if owner.kind == "DaemonSet":
            template["spec"] = pinned(template["spec"], pod.spec.node_name)
        keeps_name = owner.kind not in (*_AT_ONCE, "DaemonSet")
        name = {"name": pod.metadata.name} if keeps_name else {"generateName": f"{owner.name}-"}
        version = _API.get(owner.kind, "v1")
        reference = {"kind": owner.kind, "name": owner.name, "uid": owner.uid, "apiVersion": version}
        template["metadata"] |= {**name, "ownerReferences": [{**reference, "controller": True}]}
        with suppress(ApiError):
            self._api.make(pod.metadata.namespace, template)
