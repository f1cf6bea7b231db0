"""Recorded reviews, mutated, to a real server over TLS: `make fuzz`, `python -m tests.bench.mutated [COUNT [SEED]]`.

Every answer must be well formed and carry the review's uid; the server must log no exception and keep its memory.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import ssl
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
from jsonpatch import JsonPointer

from tests.bench.load import Connection
from tests.bench.measuring import memory, serving, verdict
from webhook.clusters.demo.recorded_reviews import recorded
from webhook.policy.model.values import MARK, PLAN
from webhook.serving.bodies import BODY_LIMIT

COUNT, CONNECTIONS, GROWTH_MB = 200_000, 8, 5.0
CODES = {200, 400, 413, 415}
_REVIEWS = [row.review for row in recorded()]
_WORDS = "true Never CREATE UPDATE high-priority system-node-critical team-a a/b"
_TEXTS = ["", "\0", "\u2028", *_WORDS.split()]
_NUMBERS = (0, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**63, 2**64, 1e308, 0.5)


def _places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document that is not nested deeper than reviews are by themselves."""
    if len(path) > 12:
        return [path]
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for key, value in items for place in _places(value, (*path, key)))]


_FIELDS = sorted(
    {path for review in _REVIEWS for path in _places(review) if all(isinstance(key, str) for key in path)}
    | {("request", "object", "metadata", "labels", MARK), ("request", "object", "metadata", "annotations", PLAN)}
)
"""Fields that some review has."""


def _value(random: random.Random, depth: int = 0) -> Any:
    """A value of any type."""
    match random.randrange(9 if depth < 3 else 6):
        case 0:
            return random.choice((None, True, False))
        case 1 | 2:
            return random.choice(_NUMBERS)
        case 3:
            return "x" * random.choice((1, 64, 300, 70_000 if random.random() < 0.05 else 5))
        case 4 | 5:
            return random.choice(_TEXTS)
        case 6:
            return [_value(random, depth + 1) for _ in range(random.randrange(4))]
        case 7:
            levels = random.choice((1, 10, 40))
            return json.loads('{"f:a":' * levels + "{}" + "}" * levels)
        case _:
            return {random.choice(_TEXTS): _value(random, depth + 1) for _ in range(random.randrange(4))}


def _change(random: random.Random, body: dict[str, Any]) -> None:
    """Replace, add, take away or copy one place; the uid stays."""
    known = _places(body)
    path = random.choice(_FIELDS) if random.random() < 0.5 else random.choice(known)
    if len(path) < 2 or path[1] == "uid":
        return
    part: Any = body
    with suppress(IndexError, KeyError, TypeError):  # an earlier change has put another type there
        for key in path[:-1]:
            part = part.setdefault(key, {}) if isinstance(part, dict) else part[key]
        chance = random.random()
        if chance < 0.3:
            del part[path[-1]]
        elif chance < 0.44:
            part[path[-1]] = deepcopy(JsonPointer.from_parts(random.choice(known)).resolve(body, None))
        else:
            part[path[-1]] = _value(random)


def damaged(random: random.Random, body: bytes) -> bytes:
    """Cut, change or put in a few bytes."""
    raw = bytearray(body)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(raw) + 1)
        raw[at : at + random.randrange(4)] = random.randbytes(random.randrange(5))
    return bytes(raw[: random.randrange(len(raw) + 1)] if random.random() < 0.2 else raw)


class Mutated(msgspec.Struct, frozen=True):
    """A request in the parts in which it is sent; `uid` is what the answer must carry, or None if it is unreadable."""

    path: str
    uid: str | None
    parts: list[bytes]


def changed(random: random.Random) -> Any:
    """One recorded review with a few places changed."""
    review = deepcopy(random.choice(_REVIEWS))
    for _ in range(random.randrange(5)):
        _change(random, review)
    return review


def mutated(random: random.Random) -> Mutated:
    """One recorded review with a few places changed, sometimes damaged, oversized or sent in an unusual way."""
    review = changed(random)
    uid = review["request"]["uid"]
    path = random.choice(("/mutate", "/validate")) + random.choice(("", "?timeout=5s", "?timeout=30s", "?timeout=x"))
    body = json.dumps(review, ensure_ascii=random.random() < 0.5, separators=(",", ":")).encode(errors="surrogatepass")
    chance, uid_there = random.random(), True
    if chance < 0.1:
        body, uid_there = damaged(random, body), False
    elif chance < 0.1005:
        body = body[:-1] + b',"padding":"' + b"\\u003c" * (BODY_LIMIT // 6) + b'"}'
    elif chance < 0.105:
        deep = random.choice((500, 5000, 100_000))
        body = body[:-1] + b',"deep":' + b'{"a":' * deep + b"1" + b"}" * (deep + 1)
    content_type = "text/plain" if 0.105 <= chance < 0.12 else "application/json"
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\n"
    if random.random() < 0.1:
        chunks = [body[at : at + 1000] for at in range(0, len(body), 1000)] + [b""]
        head += "Transfer-Encoding: chunked\r\n\r\n"
        body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    else:
        head += f"Content-Length: {len(body)}\r\n\r\n"
    whole = head.encode() + body
    step = -(-len(whole) // random.choice((1, 1, 1, 2, 5)))
    return Mutated(path, uid if uid_there else None, [whole[at : at + step] for at in range(0, len(whole), step)])


def verify(sent: Mutated, status: int, answer: bytes) -> str:
    """What became of it: the verdict. Raises AssertionError for a malformed answer."""
    assert status in CODES, (status, answer[:300])
    review = msgspec.json.decode(answer)
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = review["response"]
    assert set(response) <= {"uid", "allowed", "status", "patch", "patchType", "warnings", "auditAnnotations"}
    assert isinstance(response["uid"], str)
    assert all(0 < len(text) <= 256 for text in response.get("warnings", ()))
    if sent.uid is not None and status in {200, 400}:
        assert response["uid"] == sent.uid, response
    if response["allowed"]:
        assert status == 200
        if "patch" in response:
            assert response["patchType"] == "JSONPatch"
            assert sent.path.startswith("/mutate")
            patch = json.loads(base64.b64decode(response["patch"]))
            assert all(operation["path"].startswith("/") for operation in patch)
        return "patched" if "patch" in response else "allowed"
    assert response["status"]["code"] == (403 if status == 200 else status)
    assert response["status"]["message"]
    assert "patch" not in response
    return "denied" if status == 200 else str(status)


async def send_all(port: int, trust: ssl.SSLContext, count: int, seed: int) -> Counter[str]:
    """Send so many mutated reviews; what became of them. Raises AssertionError for a malformed answer."""
    found: Counter[str] = Counter()

    async def work(number: int) -> None:
        chance = random.Random(f"{seed}/{number}")
        with closing(Connection(port, trust)) as connection:
            for _ in range(number, count, CONNECTIONS):
                request = mutated(chance)
                found[verify(request, *await connection.send(*request.parts))] += 1

    async with asyncio.TaskGroup() as tasks:
        for number in range(CONNECTIONS):
            tasks.create_task(work(number))
    return found


def main() -> None:
    """Send COUNT reviews to `giveway serve` and print what became of them, and the server's memory."""
    count, seed = [*(int(word) for word in sys.argv[1:]), *(COUNT, 1)[len(sys.argv) - 1 :]]
    rounds = 5
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "log")
        with serving(log=log) as (process, port, trust):
            found, sizes, began = Counter[str](), [memory(process.pid)["VmRSS"]], time.monotonic()
            for number in range(rounds):
                found += asyncio.run(send_all(port, trust, count // rounds, seed * rounds + number))
                sizes.append(memory(process.pid)["VmRSS"])
            took = time.monotonic() - began
        lines = [line for line in log.read_bytes().splitlines() if not line.startswith(b"{") or b'"exception"' in line]
    print(f"{sum(found.values())} mutated reviews over {CONNECTIONS} TLS connections, seed {seed}, {took:.0f} s")
    print("  " + ", ".join(f"{name} {number}" for name, number in found.most_common()) + "; none malformed")
    print(f"  exceptions logged: {len(lines)} {verdict(not lines)}")
    for line in lines[:5]:
        print(f"    {line.decode(errors='replace')[:2000]}")
    growth = sizes[-1] - sizes[1]
    print(f"  resident memory {', '.join(f'{size:.1f}' for size in sizes)} MB (at the start, after each fifth)")
    print(f"  growth after the first fifth {growth:+.1f} MB (limit {GROWTH_MB:g}) {verdict(growth <= GROWTH_MB)}")
    sys.exit(1 if lines or growth > GROWTH_MB else 0)


if __name__ == "__main__":
    main()
