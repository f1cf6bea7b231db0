"""Serving the page on the loopback: a strict Content-Security-Policy, and no answer to names that are not local."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from webhook.page import html
from webhook.page.model import Page
from webhook.page.stream import Part, Streams

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


def add_page(app: web.Application, look: Callable[[], Page], **options: float) -> Streams:
    """Serve the page of `look` at `/`, live by `/stream`; `options` are those of Streams."""

    def parts() -> tuple[str, dict[str, Part]]:
        page = look()
        made = {name: Part(html.version_of(markup), markup) for name, markup in html.sections(page).items()}
        return html.headline(page), made

    streams = Streams(parts, **options)  # type: ignore[arg-type]  # `most` is an int

    async def show(request: web.Request) -> web.Response:
        del request
        return web.Response(text=html.document(look()), content_type="text/html")

    def file(name: str, content_type: str) -> Callable[[web.Request], Awaitable[web.Response]]:
        content = (_HERE / name).read_bytes()

        async def answer(request: web.Request) -> web.Response:
            del request
            return web.Response(body=content, content_type=content_type, charset="utf-8")

        return answer

    async def stop(app: web.Application) -> None:
        del app
        await streams.close()

    app.middlewares.append(local_only)
    app.on_response_prepare.append(_headers)
    app.on_shutdown.append(stop)
    app.add_routes(
        [
            web.get("/", show),
            web.get("/stream", streams.serve),
            web.get("/page.css", file("page.css", "text/css")),
            web.get("/page.js", file("page.js", "text/javascript")),
        ]
    )
    return streams
