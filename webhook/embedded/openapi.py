"""OpenAPI v3."""

from __future__ import annotations

from collections.abc import Mapping

from webhook.embedded import statuses
from webhook.embedded.calls import Reply

__all__ = ["reply"]


def reply(path: str, query: Mapping[str, str]) -> Reply:
    """A document below `/openapi`. Raises StatusError (404)."""
    del path, query
    raise statuses.path_not_found()
