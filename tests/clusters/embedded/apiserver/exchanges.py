"""Exchanges with a Kubernetes 1.36 API server: how they are kept, sent again, and recorded.

A scenario is a sequence of exchanges that begins on an empty cluster. Its requests are written by hand, its responses
are what a real API server said, without ids, times and versions. `${2.metadata.uid}` in a request is what exchange 2
of the scenario (from 0) was answered. To record again from a control plane that is API server and etcd alone, without
the plugins ServiceAccount and TaintNodesByCondition:

    python -m tests.clusters.embedded.apiserver.exchanges URL CA_FILE admin=TOKEN alice=TOKEN nobody=wrong
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

Json = dict[str, Any]
FILES = sorted((Path(__file__).parent / "data" / "exchanges").glob("*.json"))
HEADERS = ("Cache-Control", "Content-Type", "Retry-After", "Warning")
_LAG = 0.2
"""Seconds until a real API server's own caches know of the last exchange."""
SET = "SET"
"""What stands for a value that differs from server to server."""
_DIFFER = {
    *("uid", "resourceVersion", "continue", "serverAddress"),
    *("creationTimestamp", "deletionTimestamp", "lastTransitionTime", "startTime", "time"),
}
_TEXTS = {
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}": "UID",
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ": "INSTANT",
    r"^(\d+[smhdy])+$": "AGE",
    r"Invalid value: \{.*\}: ": "Invalid value: STRUCT: ",
    r"\b(gen-|a\.)[a-z0-9]{5}\b": r"\1XXXXX",
    r"(current: |version: \d+ \(|in record \()\d+": r"\1N",
    r"(previously negative\))\n.*": r"\1",  # the rest is a difference of Go structs
}


def scenarios() -> dict[str, list[Json]]:
    """All scenarios by their names: exchanges of `request` and `response`."""
    return {name: exchanges for file in FILES for name, exchanges in json.loads(file.read_text()).items()}


def plain(value: Any, key: str = "") -> Any:
    """A body without what differs from server to server, or is told to people only."""
    if isinstance(value, dict):
        return {name: plain(one, name) for name, one in value.items() if name != "description"}
    if key == "managedFields":
        rows = [{name: one for name, one in row.items() if name != "time"} for row in value]
        return sorted(rows, key=lambda row: (row["manager"], row.get("subresource", "")))
    if key == "causes":  # some are told twice
        value = [row for place, row in enumerate(value) if row not in value[:place]]
    if isinstance(value, list):
        return [plain(one) for one in value]
    if key in _DIFFER and value is not None:
        return SET
    if isinstance(value, str):
        return reduce(lambda text, pattern: re.sub(pattern, _TEXTS[pattern], text, flags=re.DOTALL), _TEXTS, value)
    return value


class Replay:
    """One scenario on one server: `tokens` are bearer tokens by user, of whom `admin` sends what names nobody."""

    def __init__(self, session: aiohttp.ClientSession, tokens: Mapping[str, str]) -> None:
        self._session = session
        self._tokens = tokens
        self._bodies: list[Any] = []
        self._made: list[str] = []

    async def send(self, request: Json, events: int = sys.maxsize) -> Json:
        """The response to a request, in plain form; of a watch no more than so many events."""
        known = json.loads(re.sub(r"\$\{(\d+)\.([\w.]+)\}", self._said, json.dumps(request)))
        headers = {"Content-Type": "application/json", "User-Agent": "Python", **known.get("headers", {})}
        headers["Authorization"] = f"Bearer {self._tokens[known.get('user', 'admin')]}"
        data = known.get("text") or (json.dumps(known["body"]) if "body" in known else None)
        url = URL(known["path"], encoded=True)
        async with self._session.request(known["method"], url, data=data, headers=headers) as response:
            if response.status == 200 and "watch=" in known["path"]:
                self._bodies.append(None)
                stream = []
                while len(stream) < events and (line := await response.content.readline()):
                    stream.append(plain(json.loads(line)))
                return {"stream": stream}
            text = await response.text()
            body = json.loads(text) if response.content_type == "application/json" else {"text": text}
            given = {name: ", ".join(response.headers.getall(name)) for name in HEADERS if name in response.headers}
        self._bodies.append(body)
        if response.status == 201 and body.get("metadata", {}).get("resourceVersion"):
            path = known["path"].partition("?")[0]
            self._made.append(path if known["method"] == "PATCH" else f"{path}/{body['metadata']['name']}")
        return {"status": response.status, "headers": given, "body": plain(body)}

    def _said(self, match: re.Match[str]) -> str:
        value = reduce(lambda part, name: part[name], match[2].split("."), self._bodies[int(match[1])])
        return json.dumps(value).strip('"')

    async def clean_up(self) -> None:
        """Remove what the scenario made."""
        merge = {"Content-Type": "application/merge-patch+json"}
        for path in reversed(self._made):
            now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
            nothing = {"metadata": {"finalizers": None}}
            for request in (
                {"method": "DELETE", "path": path, "body": now},
                {"method": "PATCH", "path": path, "headers": merge, "body": nothing},
                {"method": "GET", "path": path},
            ):
                await self.send(request)
            left = self._bodies[-1]
            if left["kind"] == "Namespace":
                left["spec"]["finalizers"] = []
                await self.send({"method": "PUT", "path": f"{path}/finalize", "body": left})


async def record(url: str, ca_file: str, *tokens: str) -> None:
    """Let a real API server answer every request again; what it would have to forget first stays as it is."""
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca_file))
    async with aiohttp.ClientSession(url, connector=connector) as session:
        for file in FILES:
            known = json.loads(file.read_text())
            for exchanges in known.values() if file.stem != "expired" else ():
                replay = Replay(session, dict(token.split("=") for token in tokens))
                for exchange in exchanges:
                    await asyncio.sleep(_LAG)
                    exchange["response"] = await replay.send(exchange["request"])
                await replay.clean_up()
            blocks = [
                f"{json.dumps(name)}: [\n" + ",\n".join(map(_lines, exchanges)) + "\n]"
                for name, exchanges in known.items()
            ]
            file.write_text("{\n" + ",\n".join(blocks) + "\n}\n")


def _lines(exchange: Json) -> str:
    return (
        "".join(
            f"{start}{json.dumps(part)}: {json.dumps(exchange[part], ensure_ascii=False)}"
            for start, part in (("{", "request"), (",\n ", "response"))
        )
        + "}"
    )


if __name__ == "__main__":
    asyncio.run(record(*sys.argv[1:]))
