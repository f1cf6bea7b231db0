"""Which template the pods of a StatefulSet or a DaemonSet were made of: a label says it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from webhook.clusters.acting.controller import ControllerContext, Json
from webhook.clusters.model.new_pods import template_like
from webhook.clusters.model.pods import template_hash
from webhook.clusters.model.stateful_sets import REVISION
from webhook.clusters.model.workloads import Workload
from webhook.kube.object_cache import Change
from webhook.kube.objects.pod import Pod


def revision_of(pod: Pod) -> str:
    """The revision that a pod's label names; empty without one."""
    return (pod.metadata.labels or {}).get(REVISION, "")


@dataclass
class Versions:
    """The templates that one owner has had, as far as they were seen."""

    first: str
    """The revision of the template that was seen first."""
    labelled_as: str
    """What the labels of that template's pods say, if others had made them before and the owner tells; else empty."""
    newest: str = ""
    current: str = ""
    """The revision that all pods had last."""
    templates: dict[str, Json] = field(default_factory=dict)
    sample: Pod | None = None
    """A pod of the template before the one that was seen first."""

    def is_outdated(self, pod: Pod) -> bool:
        """Whether a pod was made of another template than the newest."""
        label = revision_of(pod)
        if label == self.newest:
            return False
        if self.newest != self.first or label in self.templates:
            return True
        return bool(label and self.labelled_as) and label != self.labelled_as

    @property
    def earlier(self) -> Json | None:
        """The template before the last change, labelled, while not all pods are of the newest one."""
        if self.current != self.newest:
            known = self.templates.get(self.current)
            return _labelled(known, self.current) if known else None
        return template_like(self.sample) if self.sample is not None else None

    def labelled(self, template: Json) -> Json:
        """The newest template with the label of its revision."""
        return _labelled(template, self.newest)

    def settle(self) -> None:
        """All pods are of the newest template."""
        self.current, self.sample = self.newest, None


class Revisions:
    """The versions of every owner of a kind."""

    def __init__(self, context: ControllerContext, kind: str) -> None:
        self._context, self._kind = context, kind
        self._known: dict[str, Versions] = {}

    def note(self, change: Change[Any]) -> None:
        """Take in the template of an owner that is new or was changed."""
        owner: Workload | None = change.new
        if owner is None:
            return
        digest = template_hash(owner.spec.template)
        revision = digest if self._kind == "DaemonSet" else f"{owner.metadata.name}-{digest}"
        labelled_as = str(owner.told.get("updateRevision") or "")
        versions = self._known.setdefault(owner.metadata.uid, Versions(revision, labelled_as, current=revision))
        versions.newest = revision
        if revision not in versions.templates and (template := self._context.template_of(self._kind, owner)):
            versions.templates[revision] = template

    def of(self, owner: Workload, pods: Iterable[Pod]) -> Versions:
        """The versions of an owner with these pods."""
        versions = self._known[owner.metadata.uid]
        if versions.newest == versions.first:
            versions.sample = next(filter(versions.is_outdated, pods), versions.sample)
        return versions


def _labelled(template: Json, revision: str) -> Json:
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), REVISION: revision}
    return {**template, "metadata": {**metadata, "labels": labels}, "spec": dict(template["spec"])}
