"""What the API server fills in of a new pod, beside its priority. Pods are JSON data, changed in place.

Templates in the store have none of it: `SetDefaults_Pod` and the plugins LimitRanger, RuntimeClass and
DefaultTolerationSeconds see pods alone. Whatever makes pods of templates comes here. Limits that a LimitRange only
enforces (`min`, `max`, ratios) and quotas are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.objects.pod import Pod
from webhook.policy.model.values import MARK, POD_ANNOTATIONS

Json = dict[str, Any]
_OF_PODS = ("cpu", "memory", "hugepages-")
"""How the names of resources begin that a pod may ask for as a whole."""
_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATION_SECONDS = 300
_FILLED_IN = ("nodeName", "priority", "preemptionPolicy")
"""Fields of a pod that its controller does not send."""
_OF_ONE_POD = frozenset(row.key for row in POD_ANNOTATIONS)
"""Annotations that say something of one pod: the pod in its place does not get them."""


def template_like(pod: Pod) -> Json:
    """A template of pods like this one, without what was said of it alone."""
    spec = msgspec.to_builtins(pod.spec)
    for filled_in in _FILLED_IN:
        spec.pop(filled_in, None)
    return {"metadata": template_metadata(pod.metadata), "spec": spec}


def template_metadata(meta: ObjectMeta) -> Json:
    """The labels and annotations of a template, but for those that say something of one pod."""
    labels = {key: text for key, text in (meta.labels or {}).items() if key != MARK}
    annotations = {key: text for key, text in (meta.annotations or {}).items() if key not in _OF_ONE_POD}
    return {"labels": labels, **({"annotations": annotations} if annotations else {})}


def default_pod(pod: Json) -> None:
    """Let requests that are not given be the limits, and host ports the container's ports with `hostNetwork`.

    Pod-level requests are the limits of what no container asks for (`defaultPodRequests`). What the containers ask for
    is not added up there: it counts as their sum.
    """
    spec = pod["spec"]
    asked: set[str] = set()
    for container in _containers(spec):
        resources = container.get("resources") or {}
        if limits := resources.get("limits"):
            resources["requests"] = {**limits, **(resources.get("requests") or {})}
        asked.update(resources.get("requests") or ())
        for port in container.get("ports") or () if spec.get("hostNetwork") else ():
            port["hostPort"] = port.get("hostPort") or port.get("containerPort", 0)
    resources = spec.get("resources") or {}
    given = resources.get("requests") or {}
    limits = resources.get("limits") or {}
    added = {name: limits[name] for name in limits if name.startswith(_OF_PODS) and name not in asked}
    if added:
        resources["requests"] = {**added, **given}


def apply_limit_ranges(pod: Json, ranges: Iterable[Mapping[str, Any]]) -> None:
    """Give containers the amounts that they do not name; `ranges` are the specs of the namespace's LimitRanges.

    A LimitRange without defaults has those that its `max` and `min` stand for (`SetDefaults_LimitRangeItem`).
    """
    for spec in ranges:
        defaults: Json = {"limits": {}, "requests": {}}
        for item in spec.get("limits") or ():
            if item.get("type") == "Container":
                limits = {**(item.get("max") or {}), **(item.get("default") or {})}
                defaults["limits"] |= limits
                defaults["requests"] |= {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
        for container in _containers(pod["spec"]):
            resources = container.get("resources") or {}
            filled = {part: {**amounts, **(resources.get(part) or {})} for part, amounts in defaults.items()}
            container["resources"] = resources | {part: amounts for part, amounts in filled.items() if amounts}


def apply_runtime_class(pod: Json, overhead: Json | None, scheduling: Json | None) -> None:
    """Give a pod the overhead and the nodes of its RuntimeClass. Raises ValueError if it asks for other nodes."""
    spec = pod["spec"]
    if overhead:
        spec["overhead"] = overhead.get("podFixed")
    for key, value in ((scheduling or {}).get("nodeSelector") or {}).items():
        own = spec.get("nodeSelector") or {}
        if own.get(key, value) != value:
            where = f"runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own[key]}"
            raise ValueError(f"conflict: {where}")
        spec["nodeSelector"] = {**own, key: value}
    if tolerations := (scheduling or {}).get("tolerations"):
        present = spec.get("tolerations") or []
        spec["tolerations"] = present + [toleration for toleration in tolerations if toleration not in present]


def default_tolerations(pod: Json) -> None:
    """Let a pod tolerate a node that is not ready or unreachable for 300 s, unless it says otherwise."""
    spec = pod["spec"]
    present = list(spec.get("tolerations") or ())
    keys = [toleration.get("key") for toleration in present if toleration.get("effect") in ("NoExecute", None, "")]
    missing = [key for key in _TOLERATED if not any(tolerated in (key, None, "") for tolerated in keys)]
    if missing:
        spec["tolerations"] = present + [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_SECONDS}
            for key in missing
        ]


def _containers(spec: Json) -> Iterator[Json]:
    for name in ("initContainers", "containers"):
        yield from (container for container in spec.get(name) or () if isinstance(container, dict))
