"""An `Observed` cluster, made by hand."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace

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
Check = Callable[[Observed], Iterable[ClusterFinding]]
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


def covering(
    name: str, labels: dict[str, str], status: dict[str, Any] | None = None, **more: Any
) -> PodDisruptionBudget:
    """A budget of team-a, with what its spec says besides, and its status."""
    spec = PodDisruptionBudgetSpec(selector=LabelSelector(match_labels=labels), **more)
    budget = PodDisruptionBudget(metadata=ObjectMeta(name=name, namespace="team-a"), spec=spec)
    budget.status = replace(budget.status, **status or {})
    return budget


def entry(name: str = "pods.example.com", **fields: Any) -> dict[str, Any]:
    """An entry that is asked about new pods."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    return {"name": name, "rules": [rule], "failurePolicy": "Fail", "clientConfig": {}, **fields}


def configuration(name: str, *entries: dict[str, Any]) -> dict[str, Any]:
    """A webhook configuration."""
    return {"metadata": {"name": name}, "webhooks": list(entries)}


def assert_finds(check: Check, cluster: Observed, expected: str | list[str]) -> None:
    """A check finds these things, or one, or nothing: each as `severity: what`, with `*` for any text."""
    patterns = [expected] * bool(expected) if isinstance(expected, str) else expected
    texts = [f"{each.severity}: {each.what}" for each in check(cluster)]
    assert len(texts) == len(patterns), texts
    for text, pattern in zip(texts, patterns, strict=True):
        assert re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL), text


def finds(
    sentence: str, check: Check, *rows: tuple[Any, ...], given: Callable[..., Observed] | None = None, said: str = "{}"
) -> Any:
    """A test of a check by a table: the name of each row, a cluster, and what is found, as `assert_finds` has it.

    The cluster is made of the values between by `given`, if it is not there itself. What is found stands in `said`.
    """
    named = [
        pytest.param(values, said.format(expected) if isinstance(expected, str) and expected else expected, id=name)
        for name, *values, expected in rows
    ]

    @pytest.mark.parametrize(("values", "expected"), named)
    def test(values: list[Any], expected: str | list[str]) -> None:
        assert_finds(check, given(*values) if given else values[0], expected)

    test.__doc__ = sentence
    return test


LOW = make_class("low", 10)
AS_STATIC = {"spec": {"template": {"spec": {"containers": [{"args": ["serve", "--entries=static"]}]}}}}
"""A Deployment of a webhook that leaves the entries of its configurations to an administrator."""
