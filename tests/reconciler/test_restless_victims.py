"""Whoever may change a pod, as its own container may, cannot keep it by changing it all the time."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.preemption.building import budget
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.notice_judge import NoticeJudge
from tests.reconciler.harness.scenarios import faultless, lived, two_victims
from webhook.kube.errors import ApiError
from webhook.policy.model.preemption import EvictionMode
from webhook.policy.model.values import NOTICE

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_errors")]


SECONDS = 20.0
lived = partial(lived, judge=NoticeJudge, seconds=120.0)


def count(where: str, made: Cluster, name: str) -> None:
    """Somebody counts in a label or an annotation of a pod."""
    pod = copy.deepcopy(made.pods[name])
    pod["metadata"][where]["count"] = str(int(pod["metadata"][where].get("count", "0")) + 1)
    made.put(pod)


def changing(where: str, *, covered: bool = False, **fields: Any) -> Callable[[], Cluster]:
    """Two victims, of which pod a changes in that way whenever a request for it arrives."""

    def make() -> Cluster:
        made = two_victims(**fields)
        if covered:
            made.budgets["b"] = budget("b", {"app": "v"}, 2)
        made.arriving.append(lambda _verb, name, _: count(where, made, "a") if name == "a" in made.pods else None)
        return made

    return make


@pytest.mark.parametrize("where", ["annotations", "labels"])
@pytest.mark.parametrize("covered", [False, True], ids=["no budget", "budget"])
@pytest.mark.parametrize("mode", EvictionMode)
@pytest.mark.parametrize("notice", [0.0, SECONDS])
def test_a_victim_that_changes_all_the_time(notice: float, mode: EvictionMode, covered: bool, where: str):
    """It is told, judged again a few times, and goes."""
    made, judge = lived(changing(where, covered=covered, eviction=mode, notice=notice))
    assert made.pods["p"]["spec"]["nodeName"] == "n1"
    assert sorted(made.evicted) == ["a", "b"]
    assert not made.outcomes.in_vain
    if notice:
        assert faultless(made, judge)


@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_a_notice_on_a_pod_that_changes_all_the_time(where: str):
    """It is taken off when the plan is over."""
    made, judge = lived(changing(where), at_8=lambda made: made.withdraw("p"))
    assert faultless(made, judge)
    assert (made.evicted, judge.withdrawn) == ([], 2)


def test_a_victim_whose_annotations_have_no_room():
    """The Event tells it, and it has the same time as others; with a notice a plan of others would end for it."""

    def full(verb: str, name: str, body: dict[str, Any]) -> None:
        if verb == "patch" and name == "a" and (body["metadata"].get("annotations") or {}).get(NOTICE):
            raise ApiError(422, "Invalid", "metadata.annotations: Too long: may not be more than 262144 bytes")

    def make() -> Cluster:
        made = two_victims()
        made.arriving.append(full)
        return made

    made, judge = lived(make)
    assert made.pods["p"]["spec"]["nodeName"] == "n1"
    assert sorted(made.evicted) == ["a", "b"]
    assert min(judge.asked.values()) >= SECONDS
    assert [line["victim"] for line in made.told if line["message"] == "notice"] == ["default/a", "default/b"]
