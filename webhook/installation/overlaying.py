"""Patches of kustomizations: JSON Patch (RFC 6902), and strategic merges as far as the manifests need them. Pure."""

from __future__ import annotations

import copy
from typing import Any

from webhook.kube.json_patch import JsonPatchError, apply_json_patch

Json = dict[str, Any]

_MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""By which member the elements of a list of a pod are the same (`patchMergeKey`); other lists are replaced."""
_DIRECTIVE = "$patch"


class OverlayError(Exception):
    """A patch that does not fit its object, or needs something that is not known here."""


def strategic_merge(obj: Json, patch: Json) -> Json:
    """The object with a patch merged into it. Raises OverlayError."""
    if _DIRECTIVE in patch:
        raise OverlayError(f"{_DIRECTIVE}: {patch[_DIRECTIVE]} is known in lists only, as delete")
    merged = dict(obj)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            there = merged.get(key)
            merged[key] = strategic_merge(there if isinstance(there, dict) else {}, value)
        elif isinstance(value, list):
            merged[key] = _merged_list(merged.get(key), value, _MERGE_KEYS.get(key))
        else:
            merged[key] = value
    return merged


def json_patch(obj: Json, operations: list[Json]) -> Json:
    """The object after these operations. Raises OverlayError."""
    try:
        patched: Json = apply_json_patch(obj, operations)
    except JsonPatchError as error:
        raise OverlayError(f"the patch does not fit: {error}") from error
    return patched


def _merged_list(old: Any, patch: list[Any], key: str | None) -> list[Any]:
    """Elements of the patch are merged into those of the same key, put before them if they are new, or taken out."""
    if key is None or not all(isinstance(element, dict) for element in patch):
        return copy.deepcopy(patch)
    merged: list[Any] = copy.deepcopy(old) if isinstance(old, list) else []
    new = []
    for element in patch:
        if key not in element:
            raise OverlayError(f"an element of a list has no {key}, by which it is found")
        place = next((at for at, there in enumerate(merged) if there.get(key) == element[key]), None)
        directive = element.get(_DIRECTIVE)
        if directive not in (None, "delete"):
            raise OverlayError(f"{_DIRECTIVE}: {directive} is not known")
        if directive == "delete":
            if place is not None:
                del merged[place]
        elif place is None:
            new.append(copy.deepcopy(element))
        else:
            merged[place] = strategic_merge(merged[place], element)
    return new + merged
