"""`matchLabelKeys` and `mismatchLabelKeys` of a new pod, as the API server merges them into selectors at creation.

`applyLabelKeysToLabelSelector` of `pkg/registry/core/pod/strategy.go` (KEP-3633 for pod affinity, KEP-3243 for topology
spread). What stores new pods here (the embedded API server, the simulation) does the same.
"""

from typing import Any

Json = dict[str, Any]

_SIDES = ("podAffinity", "podAntiAffinity")
_KEYS = {"matchLabelKeys": "In", "mismatchLabelKeys": "NotIn"}
"""A constraint of topology spread has the first only."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def merge_label_keys(pod: Json) -> None:
    """Add what label keys stand for to the selectors of a new pod, in place, where there are any."""
    spec = pod.get("spec") or {}
    labels = (pod.get("metadata") or {}).get("labels") or {}
    affinity = spec.get("affinity") or {}
    terms = list(spec.get("topologySpreadConstraints") or ())
    for side in filter(None, map(affinity.get, _SIDES)):
        terms += side.get(_REQUIRED) or ()
        for row in side.get(_PREFERRED) or ():
            terms.append(row.get("podAffinityTerm") or {})
    for term in terms:
        selector, rows = term.get("labelSelector"), []
        for field, operator in _KEYS.items():
            for key in term.get(field) or ():
                if key in labels:
                    row = {"key": key, "operator": operator, "values": [labels[key]]}
                    rows.append(row)
        if selector is not None and rows:
            present = selector.get("matchExpressions") or ()
            term["labelSelector"] = {**selector, "matchExpressions": [*present, *rows]}
