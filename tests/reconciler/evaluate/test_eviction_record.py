"""The text in which evictions outlive a leader: what comes back of it, how long it is, what is not believed."""

import base64
import random
import zlib
from typing import Any

import msgspec
import pytest

from tests.reconciler.builders import START
from webhook.policy.model.limits import Limits, Rate
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter, PlannedEviction
from webhook.reconciler.evaluate.eviction_record import NOTHING, EvictionRecord, decode, encode, record_of
from webhook.reconciler.evaluate.victim_exclusions import ReturningOwner
from webhook.reconciler.evaluate.workload_history import MOST_WORKLOADS, PastEviction

WEB, API = "Deployment/default/web", "Deployment/default/api"
HOURLY = Limits(per_owner=Rate(evictions=2, window=3600.0))


def test_what_is_written_is_read():
    """Who was evicted, where, when, in which groups, for which plan; many of one owner at one time take one row."""
    limiter = EvictionLimiter()
    limiter.note([PlannedEviction(WEB, "n1", ("namespace default", "label team=x"), "p1")], 10.0)
    limiter.note([PlannedEviction("", "n2")], 20.0)
    limiter.note([PlannedEviction("Job/default/j", "n1")] * 500, 30.0)
    limiter.plan([PlannedEviction(API, "n1")], 30.0)
    limiter.history.note(WEB, 10.0, API)
    record = record_of(limiter, [ReturningOwner(WEB, 2, 150.0), ReturningOwner(API, 1, 160.0)], 100.0, START)
    text = encode(record)
    assert len(text) < 600
    assert decode(text) == EvictionRecord(
        START,
        [
            (START - 70.0, PlannedEviction("Job/default/j", "n1"), 500),
            (START - 80.0, PlannedEviction("", "n2"), 1),
            (START - 90.0, PlannedEviction(WEB, "n1", ("namespace default", "label team=x"), "p1"), 1),
        ],
        {WEB: [PastEviction(START - 90.0, API)]},
        [ReturningOwner(API, 1, START + 60.0), ReturningOwner(WEB, 2, START + 50.0)],
    )
    assert (encode(NOTHING), decode("")) == ("", NOTHING)


@pytest.mark.parametrize(("limits", "kept"), [(Limits(), 3600.0), (Limits(per_owner=Rate(2, 7200.0)), 7200.0)])
def test_what_no_rate_counts_is_not_written(limits: Limits, kept: float):
    """Nothing older than the longest window is remembered, and an hour at least: a plan may last as long."""
    limiter = EvictionLimiter()
    limiter.remember(limits)
    limiter.note([PlannedEviction(WEB, "n1")], 10.0)
    assert record_of(limiter, (), 9.0 + kept, START).recent
    assert not record_of(limiter, (), 11.0 + kept, START).recent


def test_it_is_bounded_and_leaves_out_what_is_oldest():
    """Of 10 000 workloads with long names the latest are written, as many as fit beside what the rates count."""
    dice, limiter = random.Random(1), EvictionLimiter()
    names = [f"Deployment/team-{n % 97}/{dice.getrandbits(60):x}-service-{n}" for n in range(MOST_WORKLOADS)]
    for at, name in enumerate(names):
        limiter.history.note(name, float(at), names[at - 1])
    limiter.note([PlannedEviction(names[-1], "n1")], 9999.0)
    text = encode(record_of(limiter, [ReturningOwner(API, 1, 20_000.0)], 10_000.0, START))
    assert len(text) <= 192 * 1024
    read = decode(text)
    assert len(read.workloads) > 4000
    assert list(read.workloads) == names[::-1][: len(read.workloads)]
    assert (len(read.recent), len(read.returning)) == (1, 1)


def test_more_than_fits_of_what_the_rates_count():
    """The latest evictions and the owners that are excluded for longest are written."""
    dice = random.Random(2)
    owners = [f"Job/default/{dice.randbytes(100).hex()}" for _ in range(5000)]
    limiter = EvictionLimiter()
    limiter.remember(HOURLY)
    for at, owner in enumerate(owners):
        limiter.note([PlannedEviction(owner, "n1")], at / 10)
    returning = [ReturningOwner(f"{owner}x", 1, 600.0 + at) for at, owner in enumerate(owners)]
    text = encode(record_of(limiter, returning, 600.0, START))
    assert len(text) <= 192 * 1024
    read = decode(text)
    assert [eviction.owner for _, eviction, _ in read.recent] == owners[::-1][: len(read.recent)]
    assert [known.owner for known in read.returning] == [f"{name}x" for name in owners[::-1][: len(read.returning)]]
    assert min(len(read.recent), len(read.returning)) > 300


def packed(**fields: Any) -> str:
    """What a leader would have written with these fields."""
    text = msgspec.json.encode({"at": "2026-01-01T00:00:00Z", "names": ["n"], **fields})
    return base64.b64encode(zlib.compress(text)).decode()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="no base64"),
        pytest.param(packed()[:-8], id="cut off"),
        pytest.param(packed(names=["x" * 17_000_000]), id="too long"),
        pytest.param("\ud800", id="no text"),
        pytest.param("e30=", id="not packed"),
        pytest.param("eJyrrgUAAXUA+Q==", id="empty"),
        pytest.param(packed(at="soon"), id="no instant"),
        pytest.param(packed(version=2), id="another version"),
        pytest.param(packed(recent=[[-1, 1, 0, 0, 1, []]]), id="later than now"),
        pytest.param(packed(recent=[[1, "n", 0, 0, 1, []]]), id="no number of a node"),
        pytest.param(packed(recent=[[1, 2, 0, 0, 1, []]]), id="a node that is not named"),
        pytest.param(packed(recent=[[1, 1, 0, 0, 10**9, []]]), id="too many"),
        pytest.param(packed(workloads=[[1, [["9" * 400, 0]]]]), id="no time"),
        pytest.param(packed(workloads=[[1, [[-1, 0]]]]), id="before all times"),
        pytest.param(packed(workloads=[[1, [[1, 7]]]]), id="for a workload that is not named"),
        pytest.param(packed(returning=[[1, 0, 60]]), id="an owner that has put nothing back"),
    ],
)
def test_what_giveway_never_writes_is_not_believed(text: str):
    """It is refused as a whole, and says what it is."""
    with pytest.raises(ValueError, match="the record of evictions"):
        decode(text)
