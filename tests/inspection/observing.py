"""An `Observed` cluster, made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.admission.builders import make_class, manage
from tests.inspection.builders import policies
from webhook.inspection.cluster_findings import ClusterFinding
from webhook.inspection.observed import _AS_DATA, Observed
from webhook.inspection.reading import in_reach
from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.kube.objects.meta import LabelSelector, ObjectMeta, OwnerReference
from webhook.kube.objects.pod import Pod, PodDisruptionBudget, PodDisruptionBudgetSpec, PodSpec, PodStatus

NOW = 1_800_000_000.0
PREEMPTIBLE = "godel.bytedance.com/can-be-preempted"
PROTECTION = "godel.bytedance.com/protection-duration-from-preemption"


def summary(
    name: str = "p",
    class_name: str = "low",
    priority: int = 10,
    *,
    namespace: str = "team-a",
    node: str = "n1",
    nominated: str = "",
    owner: tuple[str, str] = ("", ""),
    created: str = "2026-01-01T00:00:00Z",
    **meta: Any,
) -> Pod:
    """A pod of team-a; `owner` is its controller's apiVersion and kind, `meta` its labels and annotations."""
    made = ObjectMeta(name=name, namespace=namespace, creation_timestamp=created, **meta)
    if owner[1]:
        made.owner_references = [OwnerReference(api_version=owner[0], kind=owner[1], name="o", controller=True)]
    spec = PodSpec(priority_class_name=class_name, priority=priority, node_name=node)
    return Pod(metadata=made, spec=spec, status=PodStatus(nominated_node_name=nominated))


def observed(*found: Any, namespaces: dict[str, dict[str, str]] | None = None, **fields: Any) -> Observed:
    """A cluster with these pods, classes, budgets and policies; further fields by plural."""
    spaces = {
        name: Namespace(metadata=ObjectMeta(name=name, labels=labels))
        for name, labels in (namespaces or {"team-a": {}, "kube-system": {}}).items()
    }
    given = [one for one in found if not isinstance(one, Pod | PriorityClass | PodDisruptionBudget)]
    return Observed(
        policies=policies(*(given or [manage("giveway-*", online="giveway-online")])),
        own="giveway-system",
        now=NOW,
        namespaces=spaces,
        reach=in_reach(spaces.values(), "giveway-system"),
        classes={one.metadata.name: one for one in found if isinstance(one, PriorityClass)},
        pods=[one for one in found if isinstance(one, Pod)],
        budgets=[one for one in found if isinstance(one, PodDisruptionBudget)],
        objects={plural: fields.pop(plural, []) for plural in (resource.plural for resource in _AS_DATA)},
        **fields,
    )


def covering(name: str, **labels: str) -> PodDisruptionBudget:
    """A budget of team-a."""
    spec = PodDisruptionBudgetSpec(selector=LabelSelector(match_labels=labels))
    return PodDisruptionBudget(metadata=ObjectMeta(name=name, namespace="team-a"), spec=spec)


def entry(name: str = "pods.example.com", **fields: Any) -> dict[str, Any]:
    """An entry that is asked about new pods."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    return {"name": name, "rules": [rule], "failurePolicy": "Fail", "clientConfig": {}, **fields}


def configuration(name: str, *entries: dict[str, Any]) -> dict[str, Any]:
    """A webhook configuration."""
    return {"metadata": {"name": name}, "webhooks": list(entries)}


def found(check: Callable[[Observed], Iterable[ClusterFinding]], cluster: Observed) -> list[tuple[str, str]]:
    """What a check says of a cluster: severities and texts."""
    return [(str(one.severity), one.what) for one in check(cluster)]


def severities(check: Callable[[Observed], Iterable[ClusterFinding]], cluster: Observed) -> list[str]:
    """How much each thing that a check finds matters."""
    return [severity for severity, _ in found(check, cluster)]


LOW = make_class("low", 10)
