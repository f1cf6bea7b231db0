"""The kinds of patches on plain data: JSON patch (RFC 6902), JSON merge patch (RFC 7396) and strategic merge patch.

In a strategic merge patch (`apimachinery/pkg/util/strategicpatch`) lists merge by key, and directives start with `$`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webhook.clusters.embedded.merging.fieldsets import child
from webhook.clusters.embedded.object_types.schemas import Schema
from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.statuses import failure
from webhook.kube.json_patch import JsonPatchError, apply_json_patch


def merge_patch(target: Any, patch: Any) -> Any:
    """Merge: objects field by field, null removes, anything else replaces. The target is changed in place."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merge_patch(target.get(key), value)
    return target


def json_patch(document: Any, operations: Any) -> Any:
    """A patched copy of a document. Raises StatusError (422) for a patch that is malformed or does not fit."""
    try:
        return apply_json_patch(document, operations)
    except JsonPatchError as error:
        text = "the server rejected our request due to an error in our request"
        raise failure(422, "Invalid", text, {}) from error


_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"


def strategic_merge(schema: Schema | None, target: Object, patch: Object) -> Object:
    """Merge a patch into an object in place. Raises StatusError (500) for a directive that is not understood."""
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive not in (None, "merge"):
        raise failure(500, "", f"unknown patch type: {directive}")
    if _RETAIN in patch:
        for key in [key for key in target if key not in patch[_RETAIN]]:
            del target[key]
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        field, current = child(schema, key), target.get(key)
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            target[key] = strategic_merge(field, current if isinstance(current, dict) else {}, value)
        elif isinstance(value, list) and field is not None and field.kind == "list":
            order = patch.get(f"$setElementOrder/{key}") or ()
            target[key] = _in_order(field, _merge_list(field, current or [], value), order)
        else:
            target[key] = value
    return target


def _merge_list(field: Schema, current: list[Any], patch: list[Any]) -> list[Any]:
    """Merge two lists by the keys of their elements; new ones come first."""
    key = field.lists.merge_key
    if field.lists.is_set:
        return [*(value for value in patch if value not in current), *current]
    if not key or not all(isinstance(item, dict) for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and _DIRECTIVE in item)]
    if any(item.get(_DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if item.get(_DIRECTIVE) != "replace"]
    merged, added = list(current), []
    for item in patch:
        if key not in item:
            shown = " ".join(f"{name}:{value}" for name, value in item.items())
            raise failure(500, "", f"map: map[{shown}] does not contain declared merge key: {key}")
        place = next((index for index, mine in enumerate(merged) if mine.get(key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            merged = [mine for mine in merged if mine.get(key) != item[key]]
        elif place is None:
            added.append(strategic_merge(field.item, {}, item))
        else:
            merged[place] = strategic_merge(field.item, merged[place], item)
    return [*added, *merged]


def _in_order(field: Schema, items: list[Any], order: Sequence[Any]) -> list[Any]:
    """The items as `$setElementOrder` has them; those that it does not name come last."""
    key = field.lists.merge_key
    wanted = [item.get(key) if isinstance(item, dict) else item for item in order]
    places = {value: place for place, value in enumerate(wanted)}
    return sorted(items, key=lambda item: places.get(item.get(key) if isinstance(item, dict) else item, len(places)))
