"""A headless Chromium driven by the DevTools protocol, with nothing but aiohttp."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

from tests.workloads import eventually

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
"""Where Chromium is; None if it is not installed."""


class Tab:
    """One page of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self.session = ""
        self.said: list[str] = []
        """What the page has said on its console, violations of its Content-Security-Policy included."""

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; what it answers."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        await self._socket.send_json(message | ({"sessionId": self.session} if self.session else {}))
        async with asyncio.timeout(20):
            while True:
                answer = await self._socket.receive_json()
                if answer.get("id") == number:
                    assert "error" not in answer, answer
                    return answer["result"]
                if answer.get("method") == "Log.entryAdded":
                    self.said.append(answer["params"]["entry"]["text"])

    async def open(self, url: str, *, width: int = 1280, scheme: str = "light") -> None:
        """Open an address at this width, in this colour scheme, and wait until it is loaded."""
        await self.call("Log.enable")
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, expression: str, seconds: float = 15.0) -> None:
        """Wait until an expression holds."""
        await eventually(lambda: self.value(expression), seconds, expression)

    async def press(self, key: str) -> None:
        """Press and release a key."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)


@asynccontextmanager
async def tab() -> AsyncIterator[Tab]:
    """A fresh browser with one page; it ends with the block."""
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory(prefix="giveway-chromium-", ignore_cleanup_errors=True) as profile:
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
        process = await asyncio.create_subprocess_exec(
            PROGRAM,
            *arguments,
            f"--user-data-dir={profile}",
            "--remote-debugging-port=0",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with aiohttp.ClientSession() as session, session.ws_connect(await _address(process)) as socket:
                made = Tab(socket)
                target = (await made.call("Target.createTarget", url="about:blank"))["targetId"]
                attached = await made.call("Target.attachToTarget", targetId=target, flatten=True)
                made.session = attached["sessionId"]
                yield made
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    """Where the browser listens, which it says on standard error."""
    assert process.stderr is not None
    async with asyncio.timeout(30):
        async for line in process.stderr:
            _, found, address = line.decode().partition("DevTools listening on ")
            if found:
                return address.strip()
    raise AssertionError("Chromium has ended without saying where it listens")
