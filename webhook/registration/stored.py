"""A webhook configuration as it is stored: compared with what is wanted, and changed without what others own. Pure.

`caBundle` belongs to whoever renews the certificates, unknown fields to newer API servers. Both stay as they are.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from typing import Any

import msgspec

from webhook.registration.entries import PROBES, Entry

Json = dict[str, Any]

WRITTEN = "giveway.dev/entries"
"""The annotation with the digest of the entries as a replica wrote them: others' changes are told apart by it."""


class Trust(msgspec.Struct, frozen=True):
    """What the API server is to trust, as it stands in `caBundle`; empty if that is not known.

    With `fixed`, every entry is to have just that: nobody else renews it. Otherwise only those that have none get it.
    """

    bundle: str = ""
    fixed: bool = False

    def of(self, entry: Entry) -> str:
        """The `caBundle` that the entry is to have."""
        there = _bundle(entry)
        return (self.bundle or there) if self.fixed else (there or self.bundle)


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
    """A short name for what the entries mean; the same before and after the API server filled in its defaults."""
    means: list[Json] = []
    for entry in entries:
        client = _client(entry)
        service = client.get("service")
        means.append(
            {
                **{field: entry.get(field) for field in ("name", "sideEffects", "admissionReviewVersions")},
                **{field: entry.get(field) or default for field, default in _DEFAULTS.items()},
                "url": client.get("url"),
                "service": service and {"path": "", "port": 443, **service},
                "rules": [{"scope": "*", **rule} for rule in entry.get("rules") or ()],
            }
        )
    return hashlib.sha256(json.dumps(means, sort_keys=True).encode()).hexdigest()[:16]


def is_ours(configuration: Json) -> bool:
    """Whether the entries are as one of giveway's replicas, this one or another, wrote them."""
    return _annotations(configuration).get(WRITTEN) == digest(_entries(configuration))


def has_probes(configuration: Json, wanted: Iterable[Entry], trust: Trust) -> bool:
    """Whether the entries by which the server is probed are there, as they are wanted."""
    there = _probes(_entries(configuration))
    return digest(there) == digest(_probes(wanted)) and not any(_lacks(entry, trust) for entry in there)


def trusted(configurations: Iterable[Json]) -> str:
    """A `caBundle` that is in use in one of the configurations; empty if there is none."""
    bundles = (_bundle(entry) for configuration in configurations for entry in _entries(configuration))
    return next(filter(None, bundles), "")


def untrusted(configuration: Json, trust: Trust) -> bool:
    """Whether an entry has another `caBundle` than it is to have."""
    return any(_lacks(entry, trust) for entry in _entries(configuration))


def with_entries(configuration: Json, wanted: list[Entry], trust: Trust) -> Json:
    """The configuration with these entries."""
    marked = {**_annotations(configuration), WRITTEN: digest(wanted)}
    return _replaced(configuration, _merged(configuration, wanted, trust), marked)


def with_probes(configuration: Json, wanted: list[Entry], trust: Trust) -> Json:
    """The configuration as it is, but for the entries by which the server is probed."""
    others = [entry for entry in _entries(configuration) if entry.get("name") not in PROBES]
    return _replaced(
        configuration, [*others, *_merged(configuration, _probes(wanted), trust)], _annotations(configuration)
    )


def emptied(configuration: Json) -> Json:
    """The configuration without entries: nothing is sent to anybody any more."""
    kept = {key: value for key, value in _annotations(configuration).items() if key != WRITTEN}
    return _replaced(configuration, [], kept)


def pem_bundle(pem: bytes) -> str:
    """PEM as it stands in `caBundle`."""
    return base64.b64encode(pem).decode()


def _merged(configuration: Json, wanted: Iterable[Entry], trust: Trust) -> list[Entry]:
    stored = {entry.get("name"): entry for entry in _entries(configuration)}
    merged: list[Entry] = []
    for entry in wanted:
        before = stored.get(entry["name"]) or {}
        bundle = trust.of(before)
        client = {**entry["clientConfig"], **({"caBundle": bundle} if bundle else {})}
        merged.append({**before, **entry, "clientConfig": client})
    return merged


def _lacks(entry: Entry, trust: Trust) -> bool:
    return trust.of(entry) != _bundle(entry)


def _probes(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.get("name") in PROBES]


def _replaced(configuration: Json, entries: list[Entry], annotations: Json) -> Json:
    metadata = {**configuration["metadata"], "annotations": annotations}
    return {**configuration, "metadata": metadata, "webhooks": entries}


def _entries(configuration: Json) -> list[Entry]:
    return configuration.get("webhooks") or []


def _annotations(configuration: Json) -> Json:
    return configuration["metadata"].get("annotations") or {}


def _client(entry: Entry) -> Json:
    return entry.get("clientConfig") or {}


def _bundle(entry: Entry) -> str:
    return _client(entry).get("caBundle") or ""
