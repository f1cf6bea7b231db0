"""The evictions that are written on the Lease: what comes back of them, how much is written, what is not believed."""

import asyncio
import base64
import zlib

import msgspec
import pytest

from tests.reconciler.builders import START, Setting, node, planned, policy, preemptor
from webhook.kube.instants import rfc3339
from webhook.policy.model.limits import Limits, Rate
from webhook.reconciler.evaluate.eviction_limiter import EvictionLimiter, PlannedEviction
from webhook.reconciler.evaluate.victim_exclusions import ReturningOwner
from webhook.reconciler.plans.adoption import recall_evictions
from webhook.reconciler.plans.eviction_ledger import (
    NO_STORE,
    NOTHING,
    EvictionLedger,
    LedgerStore,
    read_ledger,
    write_ledger,
)
from webhook.reconciler.plans.plan import Plan
from webhook.reconciler.state.annotations import DecidedVictim, DecisionRecord, PlanRecord
from webhook.reconciler.state.plan_victims import PlanVictim

WEB = "Deployment/default/web"
HOURLY = Limits(per_owner=Rate(evictions=2, window=3600.0))


def limiter(*evictions: tuple[str, float], limits: Limits = HOURLY) -> EvictionLimiter:
    """Evictions by owner and monotonic time, on node n1."""
    made = EvictionLimiter()
    made.remember(limits)
    for owner, at in evictions:
        made.note([PlannedEviction(owner, "n1")], at)
    return made


def under_way(made: EvictionLimiter, *owners: str, gone: int = 0) -> Plan:
    """A plan whose victims are charged now, of which so many have been asked."""
    tickets = made.note([PlannedEviction(owner, "n1") for owner in owners], 100.0)
    return Plan(
        PlanRecord(id="p1", node="n1"),
        "default/p",
        "uid-p",
        100,
        0.0,
        300.0,
        tickets={f"uid-{number}": ticket for number, ticket in enumerate(tickets)},
        gone={f"uid-{number}" for number in range(gone)},
    )


def test_what_is_written_is_read():
    """Who was evicted, where and when; many of one owner at one time take one row."""
    made = limiter((WEB, 10.0), ("", 20.0), *[("Job/default/j", 30.0)] * 500)
    text = write_ledger(made, (), 100.0, START)
    assert len(text) < 400
    read = read_ledger(text)
    assert sorted(read.evictions)[:2] == [
        ("", START - 90.0, PlannedEviction(WEB, "n1")),
        ("", START - 80.0, PlannedEviction("", "n1")),
    ]
    assert len(read.evictions) == 502
    assert read_ledger("") == NOTHING


def test_what_no_rate_counts_is_not_written():
    """Nothing older than the longest window is remembered, and without rates nothing older than three minutes."""
    assert write_ledger(limiter((WEB, 10.0), limits=Limits()), (), 191.0, START) == ""
    assert read_ledger(write_ledger(limiter((WEB, 10.0), limits=Limits()), (), 189.0, START)).evictions
    assert write_ledger(limiter((WEB, 10.0)), (), 3610.0, START) == ""


def test_victims_that_are_not_asked_yet_are_not_evicted():
    """Of a plan under way only those count that were asked."""
    made = EvictionLimiter()
    made.remember(HOURLY)
    plan = under_way(made, WEB, WEB, WEB, gone=1)
    read = read_ledger(write_ledger(made, [plan], 100.0, START))
    assert read.evictions == (("p1", START, PlannedEviction(WEB, "n1")),)


@pytest.mark.parametrize("count", [100, 5000])
def test_it_is_bounded_and_keeps_the_latest(count: int):
    """However many owners with however long names: at most 32 KiB, and what it leaves out is the oldest."""
    long = f"Deployment/{'n' * 63}/{'d' * 200}"
    made = limiter(*((f"{long}{number}", float(number) / 10) for number in range(count)))
    text = write_ledger(made, (), 600.0, START)
    assert len(text) <= 32 * 1024
    kept = [eviction.owner for _, _, eviction in read_ledger(text).evictions]
    assert kept == [f"{long}{number}" for number in reversed(range(count))][: len(kept)]
    assert len(kept) == count if count == 100 else len(kept) > 500


def packed(**fields) -> str:
    """What a leader would have written with these fields."""
    text = msgspec.json.encode({"at": "2026-01-01T00:00:00Z", **fields})
    return base64.b64encode(zlib.compress(text)).decode()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="no base64"),
        pytest.param(packed()[:-8], id="cut off"),
        pytest.param("x" * 70_000, id="too long"),
        pytest.param("\ud800", id="no text"),
        pytest.param(packed(at="soon"), id="no instant"),
        pytest.param(packed(version=2), id="another version"),
        pytest.param(packed(evictions=[[-1, "n", "", "", 1]]), id="later than now"),
        pytest.param(packed(evictions=[[1, 0, "", "", 1]]), id="no name of a node"),
        pytest.param(packed(evictions=[[1, "n", "", "", 10**9]]), id="too many"),
        pytest.param(packed(returning=[["Job/default/j", 0, 60]]), id="an owner that has put nothing back"),
    ],
)
def test_what_giveway_never_writes_is_not_believed(text: str):
    """It is told, and nothing else happens: what plans on pods tell counts all the same."""
    with pytest.raises(ValueError, match=r"giveway\.dev/evictions"):
        read_ledger(text)
    setting = Setting(node("n1"))
    ledger = EvictionLedger(setting.evaluator, {}, LedgerStore(lambda: text, lambda: None))
    assert ledger.open() == NOTHING


@pytest.mark.parametrize(
    ("victims", "charged"),
    [
        pytest.param(None, 2, id="the preemptors are gone, and the ledger remembers"),
        pytest.param(("a",), 2, id="what the ledger has of a plan is not counted again"),
        pytest.param(("a", "b"), 3, id="of a plan under way the pod tells more"),
    ],
)
def test_rates_after_a_change_of_leader(victims: tuple[str, ...] | None, charged: int):
    """Nothing is forgotten by the deletion of a preemptor, and nothing counts twice."""
    under, before = policy(limits=HOURLY), limiter((WEB, -200.0))
    text = write_ledger(before, [under_way(before, WEB, WEB, gone=1)], 100.0, START - 100)

    def counted(text: str) -> tuple[EvictionLedger, dict[str, dict[str, int]]]:
        setting = Setting(node("n1"), under=under)
        if victims is not None:
            setting.add(planned(preemptor(), *told_plan(*victims)))
        ledger = EvictionLedger(setting.evaluator, {}, LedgerStore(lambda: text, lambda: None))
        ledger.recalled = recall_evictions(setting.evaluator, setting.policy_set, ledger.open())
        return ledger, setting.evaluator.limiter.remaining(HOURLY, setting.clock.monotonic()).left

    ledger, left = counted(text)
    assert 2 - left["perOwner"][f"owner {WEB}"] == charged
    # The same at the leader after that, which reads what this one has written
    assert counted(ledger.text() or "")[1] == left


def told_plan(*victims: str) -> tuple[PlanRecord, DecisionRecord]:
    """The plan p1 for pods of the Deployment web, and its decision."""
    pods = tuple(PlanVictim("default", name, f"uid-{name}") for name in victims)
    rows = tuple(DecidedVictim(pod=f"default/{name}", priority=80, owner=WEB) for name in victims)
    at = rfc3339(START - 200)
    record = DecisionRecord(plan="p1", at=at, node="n1", policy="test", attempt=1, victims=rows)
    return PlanRecord(id="p1", node="n1", victims=pods, begun=at), record


async def test_a_plan_stays_until_its_evictions_are_written():
    """Whoever takes it off waits until the Lease has a text that was made since, and no earlier one."""
    setting, lease, asked = Setting(node("n1"), under=policy(limits=HOURLY)), [""], []
    ledger = EvictionLedger(setting.evaluator, {}, LedgerStore(lambda: lease[0], lambda: asked.append(True)))
    ledger.open()
    before = ledger.text()
    setting.evaluator.limiter.note([PlannedEviction(WEB, "n1")], setting.clock.monotonic())
    waiting = asyncio.create_task(ledger.wait_until_written())
    for text, done in ((before, False), (ledger.text, True)):
        await asyncio.sleep(0.1)
        assert (waiting.done(), asked) == (False, [True])
        lease[0] = text() if callable(text) else text
        await asyncio.sleep(0.1)
        assert waiting.done() is done


def test_a_term_writes_what_is_its_own():
    """Before it has read what is there it writes nothing; after its end, what was then."""
    setting = Setting(node("n1"), under=policy(limits=HOURLY))
    ledger = EvictionLedger(setting.evaluator, {}, NO_STORE)
    ledger.begin()
    assert ledger.text() is None
    ledger.open()
    assert ledger.text() == ""
    setting.evaluator.limiter.remember(HOURLY)
    setting.evaluator.limiter.note([PlannedEviction(WEB, "n1")], setting.clock.monotonic())
    written = ledger.text()
    assert [eviction.owner for _, _, eviction in read_ledger(written).evictions] == [WEB]
    ledger.close()
    setting.evaluator.limiter.clear()
    assert ledger.text() == written
    ledger.begin()
    assert ledger.text() is None


def test_owners_that_put_their_pods_back():
    """The next leader excludes their pods for what is left of the time, and for twice as long the next time."""
    before, after = Setting(node("n1")), Setting(node("n1"))
    for _ in range(2):
        before.evaluator.eviction_backoff.returned(WEB, before.clock.monotonic() - 50)
    earlier = EvictionLedger(before.evaluator, {}, NO_STORE)
    earlier.open()
    ledger = EvictionLedger(after.evaluator, {}, LedgerStore(lambda: earlier.text() or "", lambda: None))
    recall_evictions(after.evaluator, after.policy_set, ledger.open())
    backoff, now = after.evaluator.eviction_backoff, after.clock.monotonic()
    assert backoff.excluded(now + 69)[1] == [WEB]
    assert backoff.excluded(now + 71)[1] == []
    backoff.returned(WEB, now)
    assert backoff.excluded(now + 239)[1] == [WEB]


@pytest.mark.parametrize("name", ["d", "\x01"])
def test_many_owners_that_put_their_pods_back(name: str):
    """They have half of the room at most; those excluded for longest stay."""
    owners = [ReturningOwner(f"Job/default/{name * 200}{number}", 1, 100.0 + number) for number in range(1000)]
    text = write_ledger(limiter(*((f"{number}", 10.0) for number in range(1000))), (), 100.0, START, owners)
    read = read_ledger(text)
    assert len(text) <= 32 * 1024
    assert read.returning[0] == owners[-1]._replace(until=START + 999.0)
    assert read.evictions
