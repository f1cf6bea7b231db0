"""What was evicted counts for the rates whichever step is the last of a leader, and whatever becomes of its record."""

import asyncio
import math
from functools import partial
from typing import Any

import pytest

from tests.preemption.building import node
from tests.reconciler.builders import policy
from tests.reconciler.harness import api_server
from tests.reconciler.harness.cluster import Cluster, Process
from tests.reconciler.harness.pods import Json, fixed, preemptor, victim
from tests.reconciler.harness.scenarios import later, lived, simulated
from webhook.kube.errors import ApiError
from webhook.kube.resources import LEASE
from webhook.policy.model.limits import LabelRate, Limits, Rate
from webhook.policy.model.victims import Victims

ONCE_AN_HOUR = Rate(1, 3600.0)


def two_nodes(limits: Limits, *, second_at: float = 40.0, **fields: Any) -> Cluster:
    """A victim on each of two nodes, a preemptor p now and a preemptor q later; the rate lets one go."""
    made = simulated(node("n1", "8"), node("n2", "8"), under=policy(limits=limits, **fields))
    made.put(victim("v1", "n1", "8", priority=5, team="x"))
    made.put(victim("v2", "n2", "8", priority=10, team="x"))
    made.ends_after |= {"v1": 0.0, "v2": 0.0}
    made.put(preemptor("p", "8"))
    later(second_at, lambda: made.put(preemptor("q", "8", since=second_at)))
    return made


def times(made: Cluster) -> list[tuple[float, str]]:
    """When who was asked to leave."""
    seen: list[tuple[float, str]] = []
    made.asked.append(lambda name: seen.append((asyncio.get_running_loop().time(), name)))
    return seen


def gone_for_a_filler(made: Cluster) -> None:
    """The preemptor p is deleted, and a pod that may not go takes the room that was made for it."""
    made.withdraw("p")
    later(5.0, lambda: made.put(fixed("filler", "n1", "8")))


def slow_evictions(monkeypatch: pytest.MonkeyPatch, seconds: float, *, before: bool) -> None:
    """An eviction takes so long until it is done, or is done at once and answered so late."""
    remove = api_server.ApiClient._remove

    async def slowly(self: Any, name: str, options: Json, **more: Any) -> None:
        if before:
            await asyncio.sleep(seconds)
        await remove(self, name, options, **more)
        if not before:
            await asyncio.sleep(seconds)

    monkeypatch.setattr(api_server.ApiClient, "_remove", slowly)


@pytest.mark.parametrize("leaders", [1, 2])
@pytest.mark.parametrize("before", [True, False], ids=["done late", "answered late"])
def test_an_eviction_whose_plan_ends_while_it_is_asked(leaders: int, before: bool, monkeypatch: pytest.MonkeyPatch):
    """The preemptor goes while the server takes its time for the eviction: it counts, also for the next leader."""
    slow_evictions(monkeypatch, 4.0, before=before)

    def make() -> Cluster:
        made = two_nodes(Limits(per_cluster=ONCE_AN_HOUR), second_at=60.0)

        def withdraw(verb: str, *_: object) -> None:
            if verb == "evict" and made.arriving:
                made.arriving.clear()
                later(2.0, gone_for_a_filler, made)

        if before:  # the request arrives after the sleep, so the time is told
            later(2.0, gone_for_a_filler, made)
        else:
            made.arriving.append(withdraw)
        if leaders == 2:
            made.terms = [(0.0, 50.0, 0.0), (51.0, math.inf, 0.0)]
        return made

    made, _ = lived(make, 200.0)
    assert made.evicted == ["v1"]


def test_an_eviction_of_which_the_answer_is_lost_while_its_plan_ends():
    """The server evicts, its answer is an error, and the preemptor goes before the next try."""

    def make() -> Cluster:
        made = two_nodes(Limits(per_cluster=ONCE_AN_HOUR))
        made.answers_lost = 1
        made.collection._lag = lambda: 0.0
        made.answered.append(lambda verb, *_: verb == "evict" and gone_for_a_filler(made))
        return made

    made, _ = lived(make, 200.0)
    assert made.evicted == ["v1"]


@pytest.mark.parametrize("reads_fail", [False, True])
def test_an_eviction_whose_answer_is_lost_late(reads_fail: bool, monkeypatch: pytest.MonkeyPatch):
    """Its plan has ended, and the watch may show by then that the pod is gone, or nobody can read it: it counts."""
    remove = api_server.ApiClient._remove

    async def lost(self: Any, name: str, options: Json, **more: Any) -> None:
        await remove(self, name, options, **more)
        if "dryRun" not in more and self.cluster is not None and len(self.cluster.evicted) == 1:
            await asyncio.sleep(4.0)
            raise ApiError(500, "InternalError", "lost")

    monkeypatch.setattr(api_server.ApiClient, "_remove", lost)

    def make() -> Cluster:
        made = two_nodes(Limits(per_cluster=ONCE_AN_HOUR))

        def fail(verb: str, name: str, _: Json) -> None:
            if (verb, name) == ("get", "v1") and asyncio.get_running_loop().time() < 20.0:
                raise ApiError(503, "ServiceUnavailable", "away")

        def answered(verb: str, *_: object) -> None:
            if verb == "evict":
                later(2.0, gone_for_a_filler, made)

        made.answered.append(answered)
        if reads_fail:
            made.arriving.append(fail)
            later(0.5, made.hold_watch, 8.0)
        return made

    made, _ = lived(make, 200.0)
    assert made.evicted == ["v1"]


async def stop(process: Process) -> None:
    """Stop a process as Kubernetes does it: it may write what there is to say, and then forgets it."""
    process.work.cancel()
    await asyncio.gather(process.work, return_exceptions=True)
    assert not process.service.reconciler.plan_manager.planned()
    process.client.cluster = None


def test_a_process_that_is_stopped_while_an_eviction_is_asked(monkeypatch: pytest.MonkeyPatch):
    """The server evicts, and the process ends before the answer: the next leader counts it."""
    slow_evictions(monkeypatch, 4.0, before=False)
    monkeypatch.setattr(Process, "end", stop)

    def make() -> Cluster:
        made = two_nodes(Limits(per_cluster=ONCE_AN_HOUR))
        made.terms = [(0.0, 3.0, 0.0), (4.0, math.inf, 0.0)]
        return made

    made, _ = lived(make, 200.0)
    assert made.evicted == ["v1"]


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(Limits(per_cluster=ONCE_AN_HOUR), id="perCluster"),
        pytest.param(Limits(per_namespace=ONCE_AN_HOUR), id="perNamespace"),
        pytest.param(Limits(per_label=LabelRate("team", 1, 3600.0)), id="perLabel"),
    ],
)
def test_whichever_step_is_the_last_of_a_process(limits: Limits):
    """A rate holds if the victim is gone before the record was written."""
    exceeded = {}
    for step in range(1, lived(lambda: two_nodes(limits), 100.0)[0].steps + 1):
        made, _ = lived(lambda: two_nodes(limits), 100.0, killed_at=step)
        if len(made.evicted) > 1:
            exceeded[step] = made.evicted
    assert not exceeded


def test_an_eviction_after_a_long_notice():
    """The next leader counts an eviction of a moment ago as that, however long its victim had been told before."""
    limits = Limits(per_cluster=Rate(1, 300.0))

    # q would wait for its own notice anyway: a policy without notice for q shows the gap
    def make() -> Cluster:
        made = two_nodes(limits, second_at=605.0, victims=Victims(notice=600.0))
        later(604.0, made.use, policy(limits=limits))
        return made

    wrong = {}
    for step in range(1, lived(make, 800.0, judge=times)[0].steps + 1):
        made, seen = lived(make, 800.0, judge=times, killed_at=step)
        granted = {name: at for at, name in seen}
        if len(made.evicted) == 2 and granted["v2"] - granted["v1"] < 295.0:
            wrong[step] = seen
    assert not wrong


def test_the_preemptor_goes_while_nobody_leads():
    """Neither the deletion of a preemptor nor a change of leader gives a rate back, nor do both together."""
    exceeded = {}

    def make() -> Cluster:
        made = two_nodes(Limits(per_cluster=ONCE_AN_HOUR))
        ends = made.api.free_the_lease

        def then() -> None:
            gone_for_a_filler(made)
            ends()

        made.api.free_the_lease = then  # type: ignore[method-assign]
        return made

    for step in range(1, lived(partial(two_nodes, Limits(per_cluster=ONCE_AN_HOUR)), 30.0)[0].steps + 1):
        made, _ = lived(make, 100.0, killed_at=step)
        if len(made.evicted) > 1:
            exceeded[step] = made.evicted
    assert not exceeded


def with_a_lease(uid: str, made: Cluster) -> None:
    """The Lease is another object of that name."""
    leases = made.api.collections[LEASE.path()]
    known = leases.objects.get("giveway-reconciler", {"spec": {}, "apiVersion": LEASE.api_version, "kind": LEASE.kind})
    leases.put("giveway-reconciler", {**known, "metadata": {"name": "giveway-reconciler", "uid": uid}})


def test_the_lease_is_deleted_and_made_again_while_a_plan_is_under_way():
    """What was evicted for it is counted by the next leader, and the plan goes on."""

    def make() -> Cluster:
        made = two_nodes(Limits(per_cluster=Rate(2, 3600.0)), second_at=1000.0, plan_timeout=600.0)
        made.put(victim("w1", "n1", "0", priority=5))
        with_a_lease("one", made)
        made.ends_after |= {"v1": 250.0}
        later(50.0, with_a_lease, "two", made)
        made.scheduler.away_until = 400.0
        made.terms = [(0.0, 200.0, 0.0), (201.0, math.inf, 0.0)]
        return made

    made, _ = lived(make, 500.0)
    ended = [(line["plan"], line["ending"]) for line in made.told if line["message"] == "plan ended"]
    plan = ended[0][0]
    assert (made.evicted, ended) == (["v1"], [(plan, "deposed"), (plan, "bound")])


def refuse_the_record(monkeypatch: pytest.MonkeyPatch, status: int, until: float) -> None:
    """The Lease with the evictions cannot be written until then."""
    for verb in ("replace", "create"):
        known = getattr(api_server.ApiClient, verb)

        async def refusing(self: Any, path: str, body: Any, as_: Any = dict, _known: Any = known, **query: Any) -> Any:
            record = "evictions" in getattr(getattr(body, "metadata", None), "name", "")
            if record and asyncio.get_running_loop().time() < until:
                raise ApiError(status, "x", "not now")
            return await _known(self, path, body, as_, **query)

        monkeypatch.setattr(api_server.ApiClient, verb, refusing)


def test_the_record_can_be_written_again_after_a_while(monkeypatch: pytest.MonkeyPatch):
    """The server was in trouble for a minute and is well: nobody is asked before that can be written."""
    refuse_the_record(monkeypatch, 503, until=65.0)

    def make_late() -> Cluster:
        made = simulated(
            *(node(f"n{n}", "8") for n in range(3)), under=policy(limits=Limits(per_cluster=Rate(2, 3600.0)))
        )
        for number in range(3):
            made.put(victim(f"v{number}", f"n{number}", "8", priority=5 + number))
            made.ends_after[f"v{number}"] = 0.0
        made.put(preemptor("first", "8"))
        later(66.0, lambda: made.put(preemptor("p", "8", since=66.0)))
        later(110.0, lambda: made.put(preemptor("q", "8", since=110.0)))
        made.terms = [(0.0, 100.0, 0.0), (101.0, math.inf, 0.0)]
        return made

    _, seen = lived(make_late, 200.0, judge=times)
    assert [name for _, name in seen] == ["v0", "v1"]
    assert seen[0][0] > 65.0


def test_a_record_that_nobody_may_write(monkeypatch: pytest.MonkeyPatch):
    """Without the right to write it the next plan for a pod is not held up."""
    refuse_the_record(monkeypatch, 403, until=math.inf)
    seen: list[float] = []

    def make() -> Cluster:
        made = two_nodes(Limits(), second_at=1000.0)

        def patched(verb: str, name: str, body: Json) -> None:
            if verb == "patch" and name == "p" and body["status"].get("nominatedNodeName"):
                seen.append(asyncio.get_running_loop().time())

        made.answered.append(patched)
        made.answered.append(
            lambda verb, *_: verb == "evict" and len(made.evicted) == 1 and later(1.0, made.drop_node, "n1")
        )
        made.ends_after["v1"] = 30.0
        return made

    _made, _ = lived(make, 100.0)
    assert len(seen) >= 2, seen
    assert seen[1] - seen[0] < 5.0, seen


def test_answers_about_the_record_that_take_as_long_as_a_renewal_may(monkeypatch: pytest.MonkeyPatch):
    """A leader whose server answers after six seconds begins to lead."""
    known = api_server.ApiClient.get

    async def slowly(self: Any, path: str, as_: Any = dict, **query: Any) -> Any:
        if path.endswith("evictions"):
            await asyncio.sleep(6.0)
        return await known(self, path, as_, **query)

    monkeypatch.setattr(api_server.ApiClient, "get", slowly)
    made, _ = lived(lambda: two_nodes(Limits(), second_at=1000.0), 300.0)
    assert made.evicted == ["v1"]


@pytest.mark.parametrize("ahead", [60.0, 300.0, -300.0])
def test_a_rate_holds_whatever_the_next_leaders_clock_says(ahead: float):
    """The window of a rate is no shorter if the next leader's clock is ahead."""

    def make() -> Cluster:
        made = two_nodes(Limits(per_cluster=Rate(1, 300.0)), second_at=20.0)
        made.terms = [(0.0, 10.0, 0.0), (11.0, math.inf, ahead)]
        return made

    _, seen = lived(make, 700.0, judge=times)
    assert len(seen) == 1 or seen[1][0] - seen[0][0] >= 299.0, seen
