"""The text in which evictions outlive a leader: what comes back of it, how long it is, what is not believed."""

import base64
import math
import random
import time
import uuid
import zlib
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.cases import table
from tests.reconciler.builders import START, evicted, pod
from webhook.policy.model.limits import LabelRate, Limits, Rate
from webhook.policy.model.values import CREATION
from webhook.reconciler.clock import Now
from webhook.reconciler.evictions.log import MOST_KEPT, EvictionLog, InVain, PodEviction
from webhook.reconciler.evictions.store import NOTHING, EvictionRecord, decode, encode, record_of

WEB, API = "Deployment/default/web", "Deployment/default/api"
LABELS = (("team", "x"),)
NEXT = PodEviction(math.inf, WEB, "n1", "default", LABELS, API)


def record(log: EvictionLog, now: float) -> EvictionRecord:
    """What is written then."""
    return record_of(log, Now(now, START + now))


def test_what_is_written_is_read():
    """Who was evicted or is going to be, where, when, in which groups, for whom; the plans; who put pods back."""
    log = EvictionLog()
    for _ in range(500):
        evicted(log, "Job/default/j", 5.0)
    for uid, at in (("old", 10.0), ("new", 90.0)):
        log.asked(uid, NEXT, at)
    log.intend("p1", {"next": NEXT})
    log.plans["p1"] = frozenset({"digest"})
    log.returned(API, 100.0)
    made = record(log, 100.0)
    text = encode(made)
    assert len(text) < 700, "the same is not said again and again"
    read = decode(text)
    assert read == made
    assert (read.wall, read.plans, read.returning) == (START + 100.0, {"p1": {"digest"}}, {API: InVain(1, 160.0)})
    assert read.intended == {"next": NEXT._replace(at=100.0)}
    assert [read.when(row) for row in read.evictions if row.workload == WEB] == [START + 90.0, START + 10.0]
    assert (encode(NOTHING), decode("")) == ("", NOTHING)


def owners_that_return() -> tuple[EvictionLog, float]:
    """5000 owners of random names that rates count, and as many that put their pods back."""
    dice, log = random.Random(2), EvictionLog()
    log.remember([Limits(per_owner=Rate(evictions=2, window=3600.0))])
    for at in range(5000):
        owner = f"Job/default/{dice.randbytes(100).hex()}"
        evicted(log, owner, at / 10)
        log.returning[f"{owner}x"] = InVain(1, 600.0 + at)
    return log, 600.0


def busy(count: int, seconds: float, intended: int = 0) -> tuple[EvictionLog, float]:
    """So many evictions within so many seconds, of 500 workloads on 1000 nodes; one plan intends others."""
    dice, log = random.Random(3), EvictionLog()
    for number in range(count):
        who, whom = dice.randrange(500), dice.randrange(6000)
        eviction = PodEviction(
            math.inf, f"Deployment/team-{who % 40}/app-{who}-service", f"node-{dice.randrange(1000):04}",
            f"team-{who % 40}", (("team", f"t{who % 40}"),), f"Job/batch-{whom % 20}/run-{whom // 20}",
        )  # fmt: skip
        log.asked(str(uuid.UUID(int=dice.getrandbits(128))), eviction, 1e5 + number * seconds / count)
    log.intend("p", {f"{dice.getrandbits(128):032x}": NEXT for _ in range(intended)})
    return log, 1e5 + seconds


@table(
    "make, evictions, intended, returning",
    ("owners that return", owners_that_return, 150, 0, 150),
    ("a busy hour", partial(busy, 10_000, 3500.0), 7000, 0, 0),
    ("a busy minute", partial(busy, 10_000, 50.0), 7000, 0, 0),
    ("one large plan", partial(busy, 16_000, 3500.0, 7000), 0, 1000, 0),
)
def test_it_is_bounded_and_leaves_out_what_is_oldest(make, evictions, intended, returning, monkeypatch):
    """All plans, and the latest of what they intend and of what was evicted; who returned as far as it is longest.

    That holds nobody up, and it is found in a few tries what has room.
    """
    log, now = make()
    made, took, tries, compress = record(log, now), [], list[int](), zlib.compress
    monkeypatch.setattr(zlib, "compress", lambda text: tries.append(len(text)) or compress(text))
    for _ in range(3):
        began = time.process_time()
        text = encode(made)
        took.append(time.process_time() - began)
    assert min(took) < 0.5
    assert len(tries) < 8 * len(took)
    assert len(text) <= 192 * 1024
    read = decode(text)
    assert (read.plans, list(read.intended)) == (made.plans, list(made.intended)[-len(read.intended) or None :])
    for known, row in zip(made.evictions, read.evictions, strict=False):
        assert row._replace(at=0.0) == known._replace(at=0.0)
        assert 0.0 <= row.at - known.at < 0.002
    longest = sorted(made.returning, key=lambda owner: -made.returning[owner].until)
    assert list(read.returning) == longest[: len(read.returning)]
    kept = [len(part) for part in (read.evictions, read.intended, read.returning)]
    assert [*map(min, kept, (evictions, intended, returning))] == [evictions, intended, returning]


def test_a_forged_label_leaves_room_for_the_others():
    """Who may write a pod's annotations says what labels it had, at any length: the record keeps the beginning."""
    log, dice = EvictionLog(), random.Random(4)
    log.remember([Limits(per_label=LabelRate("team", 9, 3600.0))])
    victim = pod("forged", node="n1")
    said = {"labels": {"team": dice.randbytes(120_000).hex()}}
    victim.metadata.annotations = {CREATION: msgspec.json.encode(said).decode()}
    evicted(log, WEB, 5.0)
    log.asked("forged", log.eviction_of(victim), 6.0)
    log.intend("p", {"next": log.eviction_of(victim)})
    text = encode(record(log, 10.0))
    assert len(text) < 2000
    assert len(decode(text).evictions) == 2


def packed(*evictions: list[Any], **fields: Any) -> str:
    """What a leader would have written with these evictions and fields."""
    text = msgspec.json.encode({"wall": START, "evictions": evictions, "version": 3, **fields})
    return base64.b64encode(zlib.compress(text)).decode()


@table(
    "text",
    ("no base64", "{"),
    ("cut off", packed()[:-8]),
    ("too long", packed(later="x" * 17_000_000)),
    ("no text", "\ud800"),
    ("not packed", "e30="),
    ("empty", base64.b64encode(zlib.compress(b"")).decode()),
    ("no instant", packed(wall="soon")),
    ("another version", packed(version=1)),
    ("no time", packed(["1", WEB, "n1"])),
    ("no name", packed([1, WEB, 1])),
    ("too many", packed(*[[1, WEB, "n1"]] * (MOST_KEPT + 1))),
    ("one on no node", packed([1, WEB])),
    ("no evictions", packed(evictions={})),
    ("an owner that has put nothing back", packed(returning={"a": [0, 60]})),
)
def test_what_giveway_never_writes_is_not_believed(text: str):
    """It is refused as a whole, and says what it is."""
    with pytest.raises(ValueError, match="the record of evictions"):
        decode(text)


def test_a_field_of_a_later_version_is_passed_over():
    """As long as the version is the same."""
    assert decode(packed([1, WEB, "n1"], later=1)).evictions == (PodEviction(1.0, WEB, "n1"),)
