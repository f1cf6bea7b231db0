"""Which template the pods of a StatefulSet or a DaemonSet were made of: a label says it."""

from __future__ import annotations

from typing import Any

from webhook.clusters.model.new_pods import template_like
from webhook.clusters.model.pods import template_hash
from webhook.clusters.model.workloads import Workload
from webhook.kube.objects.pod import Pod

REVISION = "controller-revision-hash"
"""The label that tells the pods of one template from those of another."""
Json = dict[str, Any]


class Revisions:
    """The templates that one owner has had, as far as they were seen."""

    def __init__(self, owner: Workload, kind: str) -> None:
        self._kind = kind
        self._first = self._newest = self._revision(owner)
        self._labelled_as = str(owner.told.get("updateRevision") or "")
        """What pods of the first template are labelled, if others had made them before and the owner tells."""
        self._seen: set[str] = set()
        self._gone: dict[str, Pod] = {}
        """The last pod of each name, if it was of an earlier template."""

    def note(self, owner: Workload) -> None:
        """Take in the template of the owner, which is new or was changed."""
        self._newest = self._revision(owner)
        self._seen.add(self._newest)

    def note_gone(self, pod: Pod) -> None:
        """Keep what a pod that is gone was like, if it was of an earlier template."""
        if self.is_outdated(pod):
            self._gone[pod.metadata.name] = pod

    def is_outdated(self, pod: Pod) -> bool:
        """Whether a pod was made of another template than the newest."""
        label = (pod.metadata.labels or {}).get(REVISION, "")
        if label == self._newest:
            return False
        if self._newest != self._first or label in self._seen:
            return True
        return bool(label and self._labelled_as) and label != self._labelled_as

    def earlier(self, name: str) -> Json | None:
        """A template of pods like the last one of that name, if that was of an earlier template."""
        pod = self._gone.get(name)
        return template_like(pod) if pod is not None and self.is_outdated(pod) else None

    def labelled(self, template: Json) -> Json:
        """The newest template with the label of its revision."""
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), REVISION: self._newest}
        return {**template, "metadata": {**metadata, "labels": labels}}

    def _revision(self, owner: Workload) -> str:
        digest = template_hash(owner.spec.template)
        return digest if self._kind == "DaemonSet" else f"{owner.metadata.name}-{digest}"
