"""Which records a list or a watch wants: namespace, labels, fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from webhook.embedded.protocol import statuses
from webhook.embedded.protocol.api_resources import BY_STORAGE, ApiResource
from webhook.embedded.storage.store import StoredObject
from webhook.kube.selectors import Matcher, SelectorError, parse_selector

__all__ = ["Selection"]

_Check = Callable[[StoredObject], bool]
_TERM = re.compile(r"([A-Za-z0-9_.\-/]+)(!=|==|=)(.*)", re.DOTALL)


class Selection:
    """A compiled selection; raises StatusError (400) for a selector that does not parse."""

    def __init__(self, resource: ApiResource, namespace: str, query: Mapping[str, str]) -> None:
        self.resource = resource
        self.namespace = namespace
        self.selective = bool(query.get("labelSelector") or query.get("fieldSelector"))
        self._labels = _labels(query.get("labelSelector", ""))
        self._fields = _fields(resource, query.get("fieldSelector", ""))

    def matches(self, record: StoredObject) -> bool:
        """Whether the record is wanted."""
        if self.namespace and record.namespace != self.namespace:
            return False
        if self._labels is not None and not self._labels(record.labels):
            return False
        return all(check(record) for check in self._fields)


def _labels(text: str) -> Matcher | None:
    if not text.strip():
        return None
    try:
        return parse_selector(text)
    except SelectorError as error:
        raise statuses.bad_request(str(error)) from error


def _fields(resource: ApiResource, text: str) -> list[_Check]:
    return [_check(resource, text, part) for part in re.split(r"(?<!\\),", text) if part.strip()]


def _check(resource: ApiResource, text: str, part: str) -> _Check:
    """Compile one term, `part`, of the field selector `text`. Raises StatusError (400)."""
    match = _TERM.fullmatch(part.strip())
    if match is None:
        raise statuses.bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
    name, operator, wanted = match[1], match[2], re.sub(r"\\(.)", r"\1", match[3])
    value = _getter(resource, name)
    if value is None:
        group, _, version = resource.api_version.rpartition("/")
        raise statuses.bad_request(
            f'Unable to find "{group}/{version}, Resource={resource.plural}" that match label selector "", '
            f'field selector "{text}": field label not supported: {name}'
        )
    if operator == "!=":
        return lambda record: value(record) != wanted
    return lambda record: value(record) == wanted


def _getter(resource: ApiResource, name: str) -> Callable[[StoredObject], str] | None:
    if name == "metadata.name":
        return lambda record: record.name
    if name == "metadata.namespace" and resource.namespaced:
        return lambda record: record.namespace
    path = (resource.fields or {}).get(name)
    if path is None:
        return None
    index = list((BY_STORAGE[resource.key].fields or {}).values()).index(path)
    return lambda record: record.fields[index]
