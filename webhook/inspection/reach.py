"""What giveway is asked about: namespaces that are exempt are neither changed nor judged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from webhook.kube.objects import LabelSelector, Namespace
from webhook.kube.selectors import label_matcher
from webhook.policy.model import Policies
from webhook.registration.entries import VALIDATING, WebhookTarget, entries

__all__ = ["in_reach", "namespace_labels"]


def in_reach(namespaces: Iterable[Namespace], own: str) -> frozenset[str]:
    """The namespaces whose pods the API server asks about, by the selector that giveway registers.

    `own` is the namespace that giveway runs in.
    """
    pods: dict[str, Any] = entries(Policies(), WebhookTarget(namespace=own))[VALIDATING][0]
    selected = label_matcher(msgspec.convert(pods["namespaceSelector"], LabelSelector))
    return frozenset(one.metadata.name for one in namespaces if selected(namespace_labels(one.metadata.name, one)))


def namespace_labels(name: str, found: Namespace | None) -> dict[str, str]:
    """The labels by which selectors see a namespace: the API server adds its name, also to one that is not there."""
    return {"kubernetes.io/metadata.name": name, **((found.metadata.labels if found else None) or {})}
