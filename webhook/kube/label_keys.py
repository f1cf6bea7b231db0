"""`matchLabelKeys` and `mismatchLabelKeys` of a new pod, as the API server merges them into selectors at creation.

`applyLabelKeysToLabelSelector` of `pkg/registry/core/pod/strategy.go` (KEP-3633 for pod affinity, KEP-3243 for topology
spread). What stores new pods here (the embedded API server, the simulation) does the same; what reads stored pods has
nothing left to merge.
"""

from collections.abc import Iterable, Mapping
from typing import Any

Json = dict[str, Any]

_SIDES = ("podAffinity", "podAntiAffinity")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def merge_label_keys(pod: Json) -> None:
    """Add what its label keys stand for to the selectors of a new pod, in place; a term without a selector stays."""
    spec, labels = pod.get("spec") or {}, (pod.get("metadata") or {}).get("labels") or {}
    affinity = spec.get("affinity") or {}
    for side in filter(None, (affinity.get(name) for name in _SIDES)):
        preferred = [row.get("podAffinityTerm") or {} for row in side.get(_PREFERRED) or ()]
        for term in [*preferred, *(side.get(_REQUIRED) or ())]:
            _merge(term, "In", term.get("matchLabelKeys") or (), labels)
            _merge(term, "NotIn", term.get("mismatchLabelKeys") or (), labels)
    for constraint in spec.get("topologySpreadConstraints") or ():
        _merge(constraint, "In", constraint.get("matchLabelKeys") or (), labels)


def _merge(term: Json, operator: str, keys: Iterable[str], labels: Mapping[str, str]) -> None:
    selector = term.get("labelSelector")
    rows = [{"key": key, "operator": operator, "values": [labels[key]]} for key in keys if key in labels]
    if selector is not None and rows:
        term["labelSelector"] = {
            **selector,
            "matchExpressions": [*(selector.get("matchExpressions") or ()), *rows],
        }
