"""Plans whose victims are on several nodes are carried out, interrupted, looked at again, and not made in vain."""

from functools import partial

import pytest

from tests.preemption.building import node
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import fixed, preemptor, victim
from tests.reconciler.harness.scenarios import killed_at_each_step, lived, simulated
from webhook.policy.model.victims import Victims

pytestmark = pytest.mark.slow

ZONE = "zone"
OF_X = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "x"}}}


def with_a_zone_for_two(notice: float = 0.0, kept: str = "", owner: str = "", allowed: int = 9) -> Cluster:
    """A zone whose two nodes have a pod each that keeps the preemptor off; only on one of them is there room."""
    nodes = [node(name, "4", labels={ZONE: name[0]}) for name in ("a1", "a2", "b1")]
    made = simulated(*nodes, victims=Victims(across_nodes=True, notice=notice))
    made.cover("x", allowed)
    made.kept |= {kept} - {""}
    made.replacing |= {owner: "anywhere"} if owner else {}
    made.add(*(victim(name, on, "1", app="x", owner=owner) for name, on in (("near", "a1"), ("far", "a2"))))
    waits = preemptor(cpu="3")
    waits["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [OF_X]}}
    made.add(fixed("full-a", "a2", "3"), fixed("full-b", "b1"), waits)
    return made


def outcome(made: Cluster) -> tuple[str, list[str]]:
    """Where the preemptor is, and who was evicted."""
    return made.pods["p"]["spec"].get("nodeName", ""), sorted(made.evicted)


def with_skew() -> Cluster:
    """The same, but a hard spread constraint keeps the preemptor off, and the near pod stays."""
    made, spread = with_a_zone_for_two(), OF_X | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    made.pods["p"]["spec"] |= {"affinity": {}, "topologySpreadConstraints": [spread]}
    made.pods["near"]["metadata"]["annotations"] = {}
    return made


@pytest.mark.parametrize(("make", "gone"), [(with_a_zone_for_two, ["far", "near"]), (with_skew, ["far"])])
def test_killed_at_every_step(make, gone):
    """Whichever step is the last of a process, exactly those go who stand in the way, and the preemptor is bound."""
    for step, made in killed_at_each_step(make):
        assert outcome(made) == ("a1", gone), step
        assert (step > 0 or "to make room in zone a" in str(made.told), made.faults(60.0)) == (True, [])


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(partial(with_a_zone_for_two, kept="far"), id="one would stay"),
        pytest.param(partial(with_a_zone_for_two, allowed=1), id="a budget lets one go"),
    ],
)
def test_nobody_goes_if_not_all_can(make):
    """If one of them would stay, nobody goes."""
    assert outcome(lived(make)) == ("", [])


@pytest.mark.parametrize(
    ("comes", "expected"),
    [
        pytest.param(victim("late", "a2", "0", priority=1000, app="x"), ("", []), id="one that stays"),
        pytest.param(None, ("a1", ["near"]), id="nobody, and the far one leaves by itself"),
    ],
)
def test_looked_at_again(comes, expected):
    """What happens in the zone while the victims have notice counts: in vain nobody goes, and nobody needlessly."""

    def happens(made: Cluster) -> None:
        if comes is None:
            made.end(made.pods["far"], evicted=False)
        else:
            made.put(comes)

    assert outcome(lived(partial(with_a_zone_for_two, notice=20.0), at_5=happens)) == expected


def test_owners_that_put_their_pods_back():
    """A controller that puts its pods back into the zone is left alone: two evictions in a round, few rounds."""
    assert len(lived(partial(with_a_zone_for_two, owner="o"), 600.0).evicted) <= 8
