"""From a live cluster to a file, page by page: reads only, and holds no more than a page in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from importlib.metadata import PackageNotFoundError, version
from typing import IO, Any

import msgspec

from webhook.kube.client import ApiError, Client
from webhook.kube.instants import rfc3339
from webhook.simulation.snapshot.anonymizing import Anonymizer
from webhook.simulation.snapshot.format import FORMAT, VERSION, Header, SnapshotError, SnapshotWriter
from webhook.simulation.snapshot.objects import KINDS, Kind
from webhook.simulation.snapshot.redacting import redact

__all__ = ["collect"]

_PAGE = 500
_OVER = ("Succeeded", "Failed")
Tell = Callable[[str, int, int | None], None]
"""Gets a plural, how many were read, and of how many if that is known."""


async def collect(
    client: Client, stream: IO[bytes], annotations: Collection[str], anonymizer: Anonymizer | None, tell: Tell
) -> tuple[int, dict[str, str]]:
    """Write a snapshot; returns how many objects it has, and by kind why it is absent.

    Pods that have ended are left out: they decide nothing. Raises SnapshotError if a kind that is needed cannot be
    read, ApiError if the cluster cannot be reached.
    """
    absent = {kind.name: why for kind in KINDS if (why := await _why_absent(client, kind))}
    header = Header(
        format=FORMAT,
        version=VERSION,
        taken_at=rfc3339(time.time()),
        giveway=_version(),
        anonymized=anonymizer is not None,
        annotations=sorted(annotations),
        absent=absent,
    )
    writer = SnapshotWriter(stream, header)
    for kind in KINDS:
        if kind.name not in absent:
            await _write(client, kind, writer, annotations, anonymizer, tell)
    writer.close()
    return writer.objects, absent


async def _why_absent(client: Client, kind: Kind) -> str:
    """Ask for one object, so that what is missing can stand in the first line."""
    try:
        async for _ in client.pages(kind.resource.path(), msgspec.Raw, limit=1):
            break
    except ApiError as error:
        if error.status not in {403, 404}:
            raise
        why = "no right to list" if error.status == 403 else "not served by this cluster"
        if kind.needed:
            raise SnapshotError(f"{kind.resource.plural}: {why}, and without them nothing can be said") from error
        return why
    return ""


async def _write(  # noqa: PLR0917 - one caller
    client: Client,
    kind: Kind,
    writer: SnapshotWriter,
    annotations: Collection[str],
    anonymizer: Anonymizer | None,
    tell: Tell,
) -> None:
    done = 0
    async for page in client.pages(kind.resource.path(), kind.type, limit=_PAGE, resume=True):
        items = [redact(_decoded(kind, item), annotations) for item in page.items or () if not _is_over(kind, item)]
        if anonymizer is not None:
            items = [anonymizer(kind, item) for item in items]
        writer.write(kind, items)
        done += len(page.items or ())
        left = page.metadata.remaining_item_count if page.metadata.continue_ else 0
        tell(kind.resource.plural, done, None if left is None else done + left)


def _decoded(kind: Kind, item: Any) -> Any:
    """A page in which one object cannot be decoded comes undecoded."""
    if not isinstance(item, msgspec.Raw):
        return item
    try:
        return msgspec.json.decode(item, type=kind.type)
    except msgspec.DecodeError as error:
        raise SnapshotError(f"a {kind.name} of this cluster cannot be read: {error}") from error


def _is_over(kind: Kind, item: Any) -> bool:
    return kind.name == "Pod" and not isinstance(item, msgspec.Raw) and item.status.phase in _OVER


def _version() -> str:
    try:
        return version("giveway")
    except PackageNotFoundError:
        return ""
