"""Serving the page on the loopback: a strict Content-Security-Policy, and no answer to names that are not local."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from aiohttp import web

from webhook.page import html
from webhook.page.model import Page

_PAUSE = 1.0
"""Seconds between two looks at what is shown; a page that is open asks as often."""
_HERE = Path(__file__).parent
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LOCAL = frozenset(("localhost", "127.0.0.1", "[::1]"))
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def local_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests for other hosts (403), and add the headers that every answer has.

    A web site can point a name of its own at 127.0.0.1 and have a browser read the page for it; the Host header then
    has that name.
    """
    host = request.headers.get("Host", "")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name.lower() not in _LOCAL:
        return web.Response(status=403, text="this port answers to localhost and 127.0.0.1 only\n", headers=_HEADERS)
    return await handler(request)


async def _headers(request: web.Request, response: web.StreamResponse) -> None:
    del request
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)


class _Part(msgspec.Struct, frozen=True):
    """One section: its markup, and what tells it from other states of it."""

    version: str
    html: str


class _Message(msgspec.Struct, frozen=True):
    """What a page that is open is told: a sentence for screen readers, and sections by their ids."""

    headline: str
    sections: dict[str, _Part]


class _LastLook:
    """What the page shows, made again at most every `pause` seconds, however many ask for it."""

    def __init__(self, look: Callable[[], Page], pause: float) -> None:
        self._look, self._pause = look, pause
        self._until, self._message = 0.0, _Message("", {})

    def message(self) -> _Message:
        """The newest state that may be shown."""
        now = time.monotonic()
        if now >= self._until:
            page = self._look()
            parts = {name: _Part(html.version_of(markup), markup) for name, markup in html.sections(page).items()}
            self._message, self._until = _Message(html.headline(page), parts), now + self._pause
        return self._message


def add_page(app: web.Application, look: Callable[[], Page], *, pause: float = _PAUSE) -> None:
    """Serve the page of `look` at `/`; at `/changes` the sections whose versions the query does not name."""
    last = _LastLook(look, pause)

    async def changes(request: web.Request) -> web.Response:
        known, message = request.query, last.message()
        news = {name: part for name, part in message.sections.items() if known.get(name) != part.version}
        body = msgspec.json.encode(msgspec.structs.replace(message, sections=news))
        return web.Response(body=body, content_type="application/json")

    async def show(request: web.Request) -> web.Response:
        del request
        return web.Response(text=html.document(look()), content_type="text/html")

    def file(name: str, content_type: str) -> Callable[[web.Request], Awaitable[web.Response]]:
        content = (_HERE / name).read_bytes()

        async def answer(request: web.Request) -> web.Response:
            del request
            return web.Response(body=content, content_type=content_type, charset="utf-8")

        return answer

    app.middlewares.append(local_only)
    app.on_response_prepare.append(_headers)
    app.add_routes(
        [
            web.get("/", show),
            web.get("/changes", changes),
            web.get("/page.css", file("page.css", "text/css")),
            web.get("/page.js", file("page.js", "text/javascript")),
        ]
    )
