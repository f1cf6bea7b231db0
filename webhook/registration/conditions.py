"""CEL for `matchConditions`: tests of what a request changes or carries that hold or do not, and fail on no object.

Fields that may be absent are selected as optionals, which Kubernetes knows from 1.30 on as giveway needs it anyway;
two of them are equal if both are absent, or both are there with equal values.
"""

from __future__ import annotations

from collections.abc import Iterable


def any_of(tests: Iterable[str]) -> str:
    """At least one of the tests holds."""
    return " || ".join(tests)


def changed(path: str) -> str:
    """The field differs. Parts of the path that may be absent are written `.?name`."""
    return f"object.{path} != oldObject.{path}"


def changed_metadata(field: str) -> str:
    """A field of the metadata differs as a whole."""
    return changed(f"metadata.?{field}")


def changed_key(field: str, key: str) -> str:
    """One label or annotation differs. Keys are those of Kubernetes, which need no escaping; policies are checked."""
    return changed(f"metadata.?{field}[?'{key}']")


def left_out(path: str) -> str:
    """The field was there and is not any more. Parts of the path that may be absent are written `.?name`."""
    return f"oldObject.{path}.hasValue() && !object.{path}.hasValue()"


def present_key(field: str, key: str) -> str:
    """One label or annotation is there, with whatever value."""
    return f"object.?metadata.?{field}[?'{key}'].hasValue()"
