"""The API server as a handful of verbs: JSON in, msgspec types out, no models in between.

Requests are made on aiohttp (`webhook.kube.transport`); the `kubernetes` package supplies credentials only
(`webhook.kube.endpoint`): its typed models cost twenty times the time and drop the fields that they do not know.
"""

import asyncio
import builtins
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import msgspec

from webhook.kube.deep_json import decode_deep
from webhook.kube.endpoint import Credentials, Endpoint, discover
from webhook.kube.errors import NO_ANSWER, UNDECODABLE, ApiError
from webhook.kube.resources import Resource
from webhook.kube.transport import Transport

Json = dict[str, Any]
if TYPE_CHECKING:  # what is not asked for as a type comes as a dictionary; Python has such defaults from 3.13 on
    import typing_extensions

    T = typing_extensions.TypeVar("T", default=Json)
else:
    T = TypeVar("T")
PatchKind = Literal["merge", "strategic", "json", "apply"]

_JSON = "application/json"
_DATA: Any = dict
"""As what an answer comes if no type is asked for."""
_PATCH_TYPES: dict[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_BUSY = (429, 503, 504)
"""Answers of a server that has too much to do."""
_PATIENCE = 5
"""How often in a row a page is asked for again."""
LONGEST_WAIT = 30.0
"""Seconds; a larger Retry-After is not waited for."""


class ChunkMeta(msgspec.Struct, rename="camel"):
    """Where a list stands, the token of its next page, and about how many objects follow this one, if it is told."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None


class Chunk(msgspec.Struct):
    """One page of a list, its objects left undecoded; Kubernetes writes an empty list as null."""

    items: list[msgspec.Raw] | None = None
    metadata: ChunkMeta = msgspec.field(default_factory=ChunkMeta)


class WatchEvent(msgspec.Struct):
    """One line of a watch, its object left undecoded."""

    type: str
    object: msgspec.Raw


_WATCH_EVENT = msgspec.json.Decoder(WatchEvent)


class Client:
    """A connection pool to one API server. Close it with `async with` or `close()`.

    Every method raises ApiError and nothing else; `timeout` is in seconds per request. A GET whose connection broke
    is tried once more; any other retry is the caller's to decide. Values of a query that are None are left out.
    """

    def __init__(self, endpoint: Endpoint, *, timeout: float = 30.0) -> None:
        self._transport = Transport(endpoint, timeout=timeout)

    @classmethod
    async def connect(cls, kubeconfig: str | None = None) -> Self:
        """A client for the cluster that `kubeconfig`, the environment or the pod names. Raises ConfigError."""
        return cls(await discover(kubeconfig))

    @classmethod
    def for_server(
        cls, url: str, *, token: str | None = None, ca_file: str | None = None, timeout: float = 30.0
    ) -> Self:
        """A client for a server given by its address."""
        authorization = f"Bearer {token}" if token else None
        return cls(Endpoint(url, Credentials(authorization, ca_file)), timeout=timeout)

    @property
    def url(self) -> str:
        """The server's address."""
        return self._transport.endpoint.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def get(self, path: str, as_: type[T] = _DATA, **query: Any) -> T:
        """Read one object."""
        return await self._ask(as_, "GET", path, query)

    async def list(self, path: str, as_: type[T] = _DATA, **query: Any) -> tuple[builtins.list[T], str]:
        """Read a collection: its objects and its resourceVersion."""
        items: builtins.list[T] = []
        version = ""
        async for page in self.pages(path, **query):
            items += [_decode(as_, raw, "GET", path) for raw in page.items or ()]
            version = page.metadata.resource_version
        return items, version

    async def pages(self, path: str, *, limit: int = 500, **query: Any) -> AsyncGenerator[Chunk, None]:
        """Read a collection page by page; all pages are of the first one's resourceVersion, or later.

        A list that has become too old to be finished (410) goes on from where it
        stopped, with the objects that are there now: nothing comes twice, and what
        was made meanwhile under a name before that place does not come at all. A
        page that the server is too busy to send is asked for again, a few times.
        """
        token, patience = "", _PATIENCE
        while True:
            asked = {**query, "limit": limit, "continue": token}
            try:
                page = await self._ask(Chunk, "GET", path, asked)
            except ApiError as error:
                if not patience:
                    raise
                if not error.continue_token and error.status not in _BUSY:
                    raise
                patience -= 1
                token = error.continue_token or token
                await asyncio.sleep(min(error.retry_after or 1.0, LONGEST_WAIT))
                continue
            yield page
            token, patience = page.metadata.continue_, _PATIENCE
            if not token:
                return

    async def pages_of(self, resource: Resource, *, limit: int = 500) -> AsyncIterator[Chunk]:
        """As `pages`, in all namespaces and the first API version that is served; ApiError 404 if none is."""
        paths = resource.paths()
        for path in paths:
            try:
                async for page in self.pages(path, limit=limit):
                    yield page
            except ApiError as error:
                if error.status != 404 or path == paths[-1]:
                    raise
            else:
                return

    async def create(self, path: str, body: Any, as_: type[T] = _DATA, **query: Any) -> T:
        """POST an object to its collection or to a sub-resource."""
        return await self._ask(as_, "POST", path, query, body=body)

    async def replace(self, path: str, body: Any, as_: type[T] = _DATA, **query: Any) -> T:
        """PUT an object; one that carries an outdated `metadata.resourceVersion` conflicts (409)."""
        return await self._ask(as_, "PUT", path, query, body=body)

    async def patch(
        self,
        path: str,
        body: Any,
        *,
        kind: PatchKind = "merge",
        warnings: builtins.list[str] | None = None,
        as_: type[T] = _DATA,
        **query: Any,
    ) -> T:
        """PATCH an object; `apply` needs `fieldManager` in the query. `warnings` gets the server's."""
        type_ = _PATCH_TYPES[kind]
        return await self._ask(as_, "PATCH", path, query, body=body, content_type=type_, warnings=warnings)

    async def delete(self, path: str, body: Any = None, **query: Any) -> Json:
        """DELETE an object; `body` is its DeleteOptions (preconditions, gracePeriodSeconds)."""
        return await self._ask(dict, "DELETE", path, query, body=body)

    async def user_name(self) -> str:
        """As whom the API server knows this client (`kubectl auth whoami`). Raises ApiError."""
        version = "authentication.k8s.io/v1"
        body = {"apiVersion": version, "kind": "SelfSubjectReview"}
        answer = await self.create(f"/apis/{version}/selfsubjectreviews", body)
        try:
            return str(answer["status"]["userInfo"]["username"])
        except (KeyError, TypeError) as error:
            text = f"SelfSubjectReview: the answer names no user: {error}"
            raise ApiError(200, UNDECODABLE, text) from error

    async def watch(self, path: str, *, resource_version: str, **query: Any) -> AsyncGenerator[tuple[str, bytes], None]:
        """Follow a collection: (event type, object as raw JSON) until the server ends the stream.

        The first is ("", b""): the server has accepted. ERROR events are passed on as they
        are. A line that was cut off at the end of the stream is dropped. The stream ends after
        the query's `timeoutSeconds`; how much longer to wait is the caller's to say.
        """
        asked = {"watch": True, "resourceVersion": resource_version, **query}
        try:
            async for line in self._transport.lines(path, asked):
                if not line:
                    yield "", b""
                    continue
                event = decode_deep(_WATCH_EVENT.decode, line)
                yield event.type, bytes(event.object)
        except msgspec.DecodeError as error:
            raise ApiError(NO_ANSWER, "BadWatchLine", f"watch {path}: {error}") from error

    async def _ask(
        self,
        as_: type[T],
        method: str,
        path: str,
        query: dict[str, Any],
        *,
        body: Any = None,
        content_type: str = _JSON,
        warnings: builtins.list[str] | None = None,
    ) -> T:
        data = None if body is None else msgspec.json.encode(body)
        answer = await self._transport.send(method, path, query, data, content_type, warnings=warnings)
        return _decode(as_, answer, method, path)


def _decode(as_: type[T], answer: bytes | msgspec.Raw, method: str, path: str) -> T:
    try:
        return decode_deep(msgspec.json.Decoder(as_).decode, answer)
    except msgspec.DecodeError as error:
        text = f"{method} {path}: the answer is not what was asked for: {error}"
        raise ApiError(200, UNDECODABLE, text) from error
