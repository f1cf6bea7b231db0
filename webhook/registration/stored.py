"""A webhook configuration as it is stored: compared with what is wanted, and changed without what others own. Pure.

`caBundle` belongs to whoever renews the certificates, unknown fields to newer API servers. Both stay as they are.
"""

import hashlib
import json
from collections.abc import Callable, Iterable

from webhook.registration.entries import PROBES, Entry, Json

WRITTEN = "giveway.dev/entries"
"""The annotation with the digest of the entries as a replica wrote them: others' changes are told apart by it."""
Trust = Callable[[str], str]
"""The `caBundle` that an entry is to have, by the one that it has; empty if there is none."""

_GIVEN = ("name", "sideEffects", "admissionReviewVersions")
_DEFAULTS: Json = {
    "failurePolicy": "Fail",
    "matchConditions": [],
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "reinvocationPolicy": "Never",
    "timeoutSeconds": 10,
}
"""What the API server fills in."""


def digest(entries: Iterable[Entry]) -> str:
    """A short name for what entries mean, whether or not the API server filled in its defaults."""
    means: list[Json] = []
    for entry in entries:
        client = entry.get("clientConfig") or {}
        service = client.get("service")
        meant = {field: entry.get(field) for field in _GIVEN}
        for field, default in _DEFAULTS.items():
            meant[field] = entry.get(field) or default
        meant["url"] = client.get("url")
        meant["service"] = service and {"path": "", "port": 443, **service}
        meant["rules"] = [{"scope": "*", **rule} for rule in entry.get("rules") or ()]
        means.append(meant)
    return hashlib.sha256(json.dumps(means, sort_keys=True).encode()).hexdigest()[:16]


def is_ours(configuration: Json) -> bool:
    """Whether the entries are as one of giveway's replicas, this one or another, wrote them."""
    return _annotations(configuration).get(WRITTEN) == digest(_entries(configuration))


def has_probes(configuration: Json, wanted: Iterable[Entry], trust: Trust) -> bool:
    """Whether the entries by which the server is probed are there, as they are wanted."""
    there = _probes(_entries(configuration))
    if untrusted({"webhooks": there}, trust):
        return False
    return digest(there) == digest(_probes(wanted))


def trusted(configurations: Iterable[Json]) -> str:
    """A `caBundle` that is in use in one of the configurations; empty if there is none."""
    for configuration in configurations:
        for bundle in filter(None, _bundles(configuration)):
            return bundle
    return ""


def untrusted(configuration: Json, trust: Trust) -> bool:
    """Whether an entry has another `caBundle` than it is to have."""
    return any(trust(bundle) != bundle for bundle in _bundles(configuration))


def with_entries(configuration: Json, wanted: Iterable[Entry], trust: Trust) -> Json:
    """The configuration with these entries and no others."""
    there = {entry.get("name"): entry for entry in _entries(configuration)}
    merged: list[Entry] = []
    for entry in wanted:
        before = there.get(entry["name"]) or {"clientConfig": {}}
        client = dict(entry["clientConfig"])
        if bundle := trust(before["clientConfig"].get("caBundle", "")):
            client["caBundle"] = bundle
        merged.append({**before, **entry, "clientConfig": client})
    annotations = {**_annotations(configuration), WRITTEN: digest(merged)}
    return _changed(configuration, annotations, merged)


def with_probes(configuration: Json, wanted: Iterable[Entry], trust: Trust) -> Json:
    """The configuration as it is, but for the entries by which the server is probed."""
    there = _entries(configuration)
    entries = [entry for entry in there if entry.get("name") not in PROBES]
    entries += with_entries(configuration, _probes(wanted), trust)["webhooks"]
    return {**configuration, "webhooks": entries}


def emptied(configuration: Json) -> Json:
    """The configuration without entries: nothing is sent to anybody any more."""
    kept = dict(_annotations(configuration))
    kept.pop(WRITTEN, None)
    return _changed(configuration, kept, [])


def _changed(configuration: Json, annotations: Json, entries: list[Entry]) -> Json:
    metadata = {**configuration["metadata"], "annotations": annotations}
    return {**configuration, "metadata": metadata, "webhooks": entries}


def _probes(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.get("name") in PROBES]


def _entries(configuration: Json) -> list[Entry]:
    return configuration.get("webhooks") or []


def _annotations(configuration: Json) -> Json:
    return configuration["metadata"].get("annotations") or {}


def _bundles(configuration: Json) -> list[str]:
    return [entry["clientConfig"].get("caBundle", "") for entry in _entries(configuration)]
