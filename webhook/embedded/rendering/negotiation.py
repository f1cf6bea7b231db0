"""What a client wants to get and what it sends: the `Accept` and `Content-Type` headers."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any, NamedTuple

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from webhook.embedded.protocol import statuses
from webhook.embedded.rendering import protobuf

__all__ = ["Media", "accepted", "decode"]

_PROTOBUF = "application/vnd.kubernetes.protobuf"
_SENDABLE = "application/json"
_WANTED = ("application/json", "application/*", "*/*")
_JSON_TYPES = ("", "application/json", "application/octet-stream")
_YAML_TYPES = ("application/yaml", "application/apply-patch+yaml")


class Media(NamedTuple):
    """One media range of an Accept header; `form` is Table, PartialObjectMetadata and so on, or empty."""

    form: str = ""
    include: str = ""
    """What a row of a table carries: None, Metadata or Object."""


def accepted(header: str, include: str = "") -> Media:
    """The first media range of the header that can be served. Raises StatusError (406) for none."""
    for media_range in (header or "*/*").split(","):
        kind, *parameters = (part.strip() for part in media_range.split(";"))
        if kind in _WANTED:
            named = dict(part.split("=", 1) for part in parameters if "=" in part)
            return Media(named.get("as", ""), include or "Metadata")
    raise statuses.not_acceptable(_SENDABLE)


def decode(body: bytes, content_type: str) -> Any:
    """A body as plain data; None for no body. Raises StatusError: 415 for another type, 400 for what does not parse."""
    kind = content_type.partition(";")[0].strip()
    if not body:
        return None
    if kind == _PROTOBUF:
        return protobuf.decode(body)
    if kind in _YAML_TYPES:
        return _yaml(body)
    if kind not in _JSON_TYPES and not kind.endswith("+json"):
        raise statuses.unsupported_media_type(f"application/json, application/yaml, {_PROTOBUF}")
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise statuses.bad_request(f"the object provided is not valid JSON: {error}") from error


def _yaml(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        pass
    reader = YAML(typ="safe", pure=True)
    reader.version = (1, 1)
    try:
        return json.loads(json.dumps(reader.load(StringIO(body.decode()))))
    except (YAMLError, UnicodeDecodeError, TypeError) as error:
        raise statuses.bad_request(f"error converting YAML to JSON: {error}") from error
