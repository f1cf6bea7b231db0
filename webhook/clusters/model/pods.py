"""What counts as a pod of its controller, and which pods go first if there are too many."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import msgspec

from webhook.kube.objects.pod import Pod
from webhook.kube.pods import deletion_cost, is_terminal

_PHASES = {"": 0, "Pending": 0, "Unknown": 1, "Running": 2}


def is_active(pod: Pod) -> bool:
    """Whether a pod counts as one of its controller's replicas (`IsPodActive`)."""
    return not pod.metadata.deletion_timestamp and not is_terminal(pod)


def is_ready(pod: Pod) -> bool:
    """Whether a pod's condition Ready is True."""
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions or ())


def by_deletion_order(pods: list[Pod]) -> list[Pod]:
    """The pods, those that go first in front (`ActivePodsWithRanks`).

    First go pods without a node, then those that do not run, are not ready, cost least, share their node with most
    others, are ready for the shortest time, and are youngest. kube-controller-manager takes pods of about the same age
    at random; here the names decide.
    """
    sharing = Counter(pod.spec.node_name for pod in pods)
    ordered = sorted(pods, key=lambda pod: pod.metadata.name)
    ordered.sort(key=lambda pod: (_ready_since(pod), pod.metadata.creation_timestamp or ""), reverse=True)
    ordered.sort(
        key=lambda pod: (
            bool(pod.spec.node_name),
            _PHASES.get(pod.status.phase, 2),
            is_ready(pod),
            deletion_cost(pod.metadata.annotations or {}),
            -sharing[pod.spec.node_name],
        )
    )
    return ordered


def _ready_since(pod: Pod) -> str:
    """When it became ready, as text that sorts; one that is not ready comes last, so it goes first."""
    times = (condition.last_transition_time for condition in pod.status.conditions or () if condition.type == "Ready")
    return next(times, None) or pod.status.start_time or "~"


def template_hash(template: Any) -> str:
    """What tells the pods of one version of a template from those of another, in a label."""
    return hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()[:10]
