"""A small API server on a real socket: objects with resourceVersions, watches, and faults on demand."""

import asyncio
import json
import re
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from webhook.clusters.embedded.merging.patches import merge_patch

Action = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
"""Answers a request instead of the server, or does something first and returns None."""


def status(code: int, reason: str = "", message: str = "", **details: Any) -> dict[str, Any]:
    """A `Status` object."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return {**body, "message": message or reason, "details": details or None}


def answer(code: int, reason: str = "", *, headers: dict[str, str] | None = None, **details: Any) -> Action:
    """An action that answers with a `Status`."""

    async def act(_request: web.Request) -> web.StreamResponse:
        return web.json_response(status(code, reason, **details), status=code, headers=headers)

    return act


def reply(body: bytes, *, code: int = 200, content_type: str = "application/json") -> Action:
    """An action that answers with these bytes."""

    async def act(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=code, content_type=content_type)

    return act


async def cut(request: web.Request) -> web.StreamResponse | None:
    """Break the connection without an answer."""
    request.transport.close()
    return web.Response()


def delay(seconds: float) -> Action:
    """Answer late."""

    async def act(_request: web.Request) -> None:
        await asyncio.sleep(seconds)

    return act


@dataclass
class Fault:
    """An action for the next `times` requests of a method and with a text in their path and query."""

    method: str
    contains: str
    action: Action
    times: int

    def matches(self, request: web.Request) -> bool:
        return self.times > 0 and self.method in (request.method, "*") and self.contains in str(request.rel_url)


class Server:
    """Objects by path. `requests` keeps (method, path and query, headers, body) of all that was asked."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, version: int = 100) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = version
        self.log: list[tuple[int, str, str, dict[str, Any]]] = []
        self.compacted = 0
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.watches: list[asyncio.Queue[bytes | None]] = []
        self.url = ""
        self._tls = tls
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; after a stop, on the same port and with the state kept."""
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._tls)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """Close every connection."""
        self.cut_watches()
        if self._runner is not None:
            await self._runner.cleanup()

    def fault(self, action: Action, *, method: str = "*", contains: str = "", times: int = 1) -> None:
        """Let something go wrong with the next matching requests."""
        self.faults.append(Fault(method, contains, action, times))

    def put(self, path: str, **fields: Any) -> dict[str, Any]:
        """Create or change the object at a path; `metadata` is merged."""
        known = self.objects.get(path)
        return self._store(path, {**(known or {}), **fields}, "MODIFIED" if known else "ADDED")

    def remove(self, path: str) -> None:
        """Delete the object at a path."""
        self._store(path, self.objects.pop(path), "DELETED")

    def compact(self) -> None:
        """Forget the history, so that older resourceVersions are 410."""
        self.log.clear()
        self.compacted = self.version

    def cut_watches(self) -> None:
        """End all watches."""
        for queue in self.watches:
            queue.put_nowait(None)

    def tell(self, line: bytes) -> None:
        """Send bytes on every watch as they are."""
        for queue in self.watches:
            queue.put_nowait(line)

    def asked(self, method: str, contains: str = "") -> list[str]:
        """Paths and queries of the requests of a method."""
        return [path for asked, path, _, _ in self.requests if asked == method and contains in path]

    def _store(self, path: str, body: dict[str, Any], kind: str) -> dict[str, Any]:
        self.version += 1
        parts = path.split("/")
        meta: dict[str, Any] = {"name": parts[-1], "uid": f"uid-{self.version}"}
        if "namespaces" in parts[:-2]:
            meta["namespace"] = parts[parts.index("namespaces") + 1]
        meta |= self.objects.get(path, {}).get("metadata", {}) | (body.get("metadata") or {})
        meta["resourceVersion"] = str(self.version)
        stored = {**body, "metadata": meta}
        if kind != "DELETED":
            self.objects[path] = stored
        self.log.append((self.version, kind, path, stored))
        event = json.dumps({"type": kind, "object": stored}).encode() + b"\n"
        self.tell(event)
        return stored

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append((request.method, str(request.rel_url), dict(request.headers), body))
        for fault in self.faults:
            if fault.matches(request):
                fault.times -= 1
                answered = await fault.action(request)
                if answered is not None:
                    return answered
                break
        data = json.loads(body) if body else None
        return await getattr(self, f"_{request.method.lower()}")(request, request.path, data)

    async def _get(self, request: web.Request, path: str, _body: Any) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            return await self._watch(request, path)
        if path in self.objects:
            return web.json_response(self.objects[path])
        items = [obj for key, obj in sorted(self.objects.items()) if _within(key, path)]
        if not items and not path.endswith(("/pods", "/namespaces", "/leases", "/events", "reports")):
            return await answer(404, "NotFound", message=f"{path} not found")(request)
        start, limit = int(request.query.get("continue", 0)), int(request.query.get("limit", 0)) or len(items)
        meta = {"resourceVersion": str(self.version)}
        if start + limit < len(items):
            meta["continue"] = str(start + limit)
        return web.json_response({"kind": "List", "metadata": meta, "items": items[start : start + limit] or None})

    async def _post(self, request: web.Request, path: str, body: Any) -> web.StreamResponse:
        full = f"{path}/{body['metadata']['name']}"
        if full in self.objects:
            return await answer(409, "AlreadyExists")(request)
        return web.json_response(self._store(full, body, "ADDED"), status=201)

    async def _put(self, request: web.Request, path: str, body: Any) -> web.StreamResponse:
        known = self.objects.get(path)
        if known is None:
            return await answer(404, "NotFound")(request)
        if body["metadata"].get("resourceVersion") not in (None, known["metadata"]["resourceVersion"]):
            return await answer(409, "Conflict")(request)
        return web.json_response(self._store(path, body, "MODIFIED"))

    async def _patch(self, request: web.Request, path: str, body: Any) -> web.StreamResponse:
        if path not in self.objects and request.content_type != "application/apply-patch+yaml":
            return await answer(404, "NotFound")(request)
        return web.json_response(self._store(path, merge_patch(self.objects.get(path), body), "MODIFIED"))

    async def _delete(self, request: web.Request, path: str, _body: Any) -> web.StreamResponse:
        if path not in self.objects:
            return await answer(404, "NotFound")(request)
        self.remove(path)
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _watch(self, request: web.Request, path: str) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        if since < self.compacted:
            return await answer(410, "Expired", message=f"too old resource version: {since}")(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for version, kind, _key, obj in self.log:
            if version > since:
                queue.put_nowait(json.dumps({"type": kind, "object": obj}).encode() + b"\n")
        self.watches.append(queue)
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            await stream.prepare(request)
            while (line := await queue.get()) is not None:
                await stream.write(line)
        finally:
            self.watches.remove(queue)
        return stream


def write_kubeconfig(path: Path, url: str, user: dict[str, Any], **cluster: Any) -> str:
    """Write a kubeconfig with one context; its path as a text."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{"name": "c", "cluster": {"server": url, **cluster}}],
        "contexts": [{"name": "it", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(config))  # JSON is YAML
    return str(path)


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait for a condition that the code under test has to bring about by itself."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for knows nothing of events
            await asyncio.sleep(0.01)


def _within(key: str, collection: str) -> bool:
    """Whether an object's path is in a collection, be it of one namespace or of all."""
    parent = key.rpartition("/")[0]
    return collection in (parent, re.sub(r"/namespaces/[^/]+", "", parent))


def truth(server):
    """What the server holds: key to resourceVersion."""
    return {
        f"{obj['metadata']['namespace']}/{obj['metadata']['name']}": obj["metadata"]["resourceVersion"]
        for obj in server.objects.values()
    }


def held(cache):
    return {key: pod.metadata.resource_version for key, pod in cache.items().items()}


def event(kind, name, version, uid="u"):
    body = {"metadata": {"name": name, "namespace": "a", "resourceVersion": str(version), "uid": uid}}
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"
