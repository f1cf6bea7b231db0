"""A cluster's objects as the API server lists them, and judges over policies."""

import json
from typing import Any

from tests.admission.builders import make_class
from webhook.admission.context import Objects
from webhook.inspection.judge import Existing, Judge, Maker
from webhook.kube.objects.cluster_scoped import Namespace
from webhook.kube.objects.meta import ObjectMeta
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.priority import PriorityPolicy

NAMESPACES = [Namespace(metadata=ObjectMeta(name="team-a", labels={"urgent": "allowed"}))]
CLASSES = [make_class("standard", 1000), make_class("urgent", 500_000)]


def running(name: str = "web", class_name: str = "standard", **metadata: Any) -> dict[str, Any]:
    """A pod that runs, as a list has it: resolved, bound, with what the API server filled in."""
    value = next(one.value for one in CLASSES if one.metadata.name == class_name)
    return {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": "u",
            "resourceVersion": "7",
            "creationTimestamp": "2026-11-01T00:00:00Z",
            **metadata,
        },
        "spec": {
            "nodeName": "n1",
            "priority": value,
            "priorityClassName": class_name,
            "preemptionPolicy": "PreemptLowerPriority",
            "containers": [{"name": "c", "image": "nginx"}],
        },
        "status": {"phase": "Running"},
    }


def owned_by(kind: str, name: str = "web-1", api_version: str = "apps/v1") -> dict[str, Any]:
    """Metadata of a pod with that controller."""
    return {
        "ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": name, "uid": "o", "controller": True}]
    }


def policies(*given: PriorityPolicy | PreemptionPolicy) -> Policies:
    """A set of policies."""
    return Policies(
        priority=tuple(one for one in given if isinstance(one, PriorityPolicy)),
        preemption=tuple(one for one in given if isinstance(one, PreemptionPolicy)),
    )


def said(given: Policies, obj: dict[str, Any], maker: Maker, plural: str = "pods") -> dict[str, str]:
    """Verdicts by rule."""
    judge = Judge(given, Objects(CLASSES, NAMESPACES))
    meta = obj["metadata"]
    judged = judge.judge(Existing(json.dumps(obj).encode(), plural, meta.get("namespace", ""), meta["name"]), maker)
    assert not judged.problem
    return {one.rule: one.verdict for one in judged.said}
