"""From a live cluster to a file, page by page: reads only, and holds no more than a page in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import IO, Any

import msgspec

from webhook.clusters.simulated.objects import KINDS, Kind
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.instants import rfc3339
from webhook.kube.objects.pod import Pod
from webhook.kube.pods import is_terminal
from webhook.simulation.cluster_file.format import FORMAT, VERSION, ClusterFileError, ClusterFileWriter, Header
from webhook.simulation.cluster_file.redacting import Anonymizer, redact

_PAGE = 500
Tell = Callable[[str, int, int | None], None]
"""Gets a plural, how many were read, and of how many if that is known."""


async def collect(
    client: Client, stream: IO[bytes], annotations: Collection[str], anonymizer: Anonymizer | None, tell: Tell
) -> tuple[int, dict[str, str]]:
    """Write a cluster file; returns how many objects it has, and by kind why it is absent.

    Pods that have ended are left out: they decide nothing. Raises ClusterFileError if a kind that is needed cannot be
    read, ApiError if the cluster cannot be reached.
    """
    absent = {kind.name: why for kind in KINDS if (why := await _why_absent(client, kind))}
    try:
        giveway = version("giveway")
    except PackageNotFoundError:
        giveway = ""
    header = Header(
        format=FORMAT,
        version=VERSION,
        taken_at=rfc3339(time.time()),
        giveway=giveway,
        anonymized=anonymizer is not None,
        annotations=sorted(annotations),
        absent=absent,
    )
    writer = ClusterFileWriter(stream, header)
    for kind in KINDS:
        if kind.name in absent:
            continue
        done = 0
        async for page in client.pages_of(kind.resource, kind.type, limit=_PAGE, resume=True):
            items = [redact(obj, annotations) for obj in _decoded(kind, page.items or [])]
            writer.write(kind, items if anonymizer is None else [anonymizer(kind, item) for item in items])
            done += len(page.items or ())
            left = page.metadata.remaining_item_count if page.metadata.continue_ else 0
            tell(kind.resource.plural, done, None if left is None else done + left)
    writer.close()
    return writer.objects, absent


async def _why_absent(client: Client, kind: Kind) -> str:
    """Ask for one object, so that what is missing can stand in the first line."""
    try:
        async for _ in client.pages_of(kind.resource, msgspec.Raw, limit=1):
            break
    except ApiError as error:
        if error.status not in {403, 404}:
            raise
        why = "no right to list" if error.status == 403 else "not served by this cluster"
        if kind.needed:
            raise ClusterFileError(f"{kind.resource.plural}: {why}, and without them nothing can be said") from error
        return why
    return ""


def _decoded(kind: Kind, page: list[Any]) -> Iterator[Any]:
    """The objects of a page without pods that have ended; a page in which one cannot be decoded comes undecoded."""
    for item in page:
        try:
            obj = msgspec.json.decode(item, type=kind.type) if isinstance(item, msgspec.Raw) else item
        except msgspec.DecodeError as error:
            raise ClusterFileError(f"a {kind.name} of this cluster cannot be read: {error}") from error
        if not isinstance(obj, Pod) or not is_terminal(obj):
            yield obj
