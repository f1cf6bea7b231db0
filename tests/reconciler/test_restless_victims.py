"""Whoever may change a pod, as its own container may, cannot keep it by changing it all the time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.preemption.building import budget
from tests.reconciler.simulated_api import SimulatedApi
from tests.reconciler.simulation import Simulation
from tests.reconciler.test_notices import SECONDS, faultless, lived, two_victims
from webhook.kube.errors import ApiError
from webhook.policy.model.preemption import EvictionMode
from webhook.policy.model.values import NOTICE

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_errors")]

Json = dict[str, Any]


def annotate(made: Simulation, name: str) -> None:
    pod = copy.deepcopy(made.pods[name])
    count = int(pod["metadata"]["annotations"].get("count", "0")) + 1
    made.put(
        {**pod, "metadata": {**pod["metadata"], "annotations": {**pod["metadata"]["annotations"], "count": str(count)}}}
    )


def relabel(made: Simulation, name: str) -> None:
    pod = copy.deepcopy(made.pods[name])
    count = int(pod["metadata"]["labels"].get("count", "0")) + 1
    made.put({**pod, "metadata": {**pod["metadata"], "labels": {**pod["metadata"]["labels"], "count": str(count)}}})


@pytest.fixture
def changing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Simulation, str], None]], None]:
    """Has pod a change, in that way, whenever a request for it arrives."""

    def begin(change: Callable[[Simulation, str], None]) -> None:
        for verb in ("get", "patch", "create", "delete"):
            ask = getattr(SimulatedApi, verb)

            async def first_changed(api: SimulatedApi, path: str, *body: Any, ask: Any = ask, **more: Any) -> Any:
                if "/pods/a" in path and "a" in api._cluster.pods and more.get("dryRun") != "All":
                    change(api._cluster, "a")
                return await ask(api, path, *body, **more)

            monkeypatch.setattr(SimulatedApi, verb, first_changed)

    return begin


@pytest.mark.parametrize("change", [annotate, relabel])
@pytest.mark.parametrize("covered", [False, True], ids=["no budget", "budget"])
@pytest.mark.parametrize("mode", EvictionMode)
@pytest.mark.parametrize("notice", [0.0, SECONDS])
def test_a_victim_that_changes_all_the_time(
    notice: float, mode: EvictionMode, covered: bool, change: Any, changing: Any
):
    """It is told, judged again a few times, and goes."""

    def make():
        made, judge = two_victims(eviction=mode, notice=notice)
        if covered:
            made.budgets["b"] = budget("b", {"app": "v"}, 2)
        return made, judge

    changing(change)
    made, judge = lived(make)
    assert made.pods["p"]["spec"]["nodeName"] == "n1"
    assert sorted(made.evicted) == ["a", "b"]
    assert not made.outcomes.in_vain
    if notice:
        assert faultless(made, judge)


@pytest.mark.parametrize("change", [annotate, relabel])
def test_a_notice_on_a_pod_that_changes_all_the_time(change: Any, changing: Any):
    """It is taken off when the plan is over."""
    changing(change)
    made, judge = lived(at_8=lambda made: made.withdraw("p"))
    assert faultless(made, judge)
    assert (made.evicted, judge.withdrawn) == ([], 2)


def test_a_victim_whose_annotations_have_no_room(monkeypatch: pytest.MonkeyPatch):
    """The Event tells it, and it has the same time as others; with a notice a plan of others would end for it."""
    write = SimulatedApi.patch

    async def full(api: SimulatedApi, path: str, body: Json, **more: Any) -> Any:
        if "/pods/a" in path and (body["metadata"].get("annotations") or {}).get(NOTICE):
            raise ApiError(422, "Invalid", "metadata.annotations: Too long: may not be more than 262144 bytes")
        return await write(api, path, body, **more)

    monkeypatch.setattr(SimulatedApi, "patch", full)
    made, judge = lived()
    assert made.pods["p"]["spec"]["nodeName"] == "n1"
    assert sorted(made.evicted) == ["a", "b"]
    assert min(judge.asked.values()) >= SECONDS
    assert [line["victim"] for line in made.told if line["message"] == "notice"] == ["default/a", "default/b"]
