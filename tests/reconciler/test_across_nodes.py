"""Plans whose victims are on several nodes are carried out, interrupted, looked at again, and not made in vain."""

import pytest

from tests.cases import table
from tests.preemption.building import node
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import fixed, preemptor, victim
from tests.reconciler.harness.scenarios import Happens, Scene, at, does, having, killed_at_each_step, lived, scene
from webhook.policy.model.victims import Victims

pytestmark = pytest.mark.slow

ZONE = "zone"
OF_X = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "x"}}}
NODES = [node(name, "4", labels={ZONE: name[0]}) for name in ("a1", "a2", "b1")]
APART = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [OF_X]}}}
SPREAD = {"topologySpreadConstraints": [OF_X | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}


def zone_for_two(
    *parts: Happens, near: object = victim, owner: str = "", notice: float = 0.0, **wants: object
) -> Scene:
    """A zone whose two nodes have a pod each that keeps the preemptor off; only on one of them is there room."""
    waits = preemptor(cpu="3")
    waits["spec"] |= wants or APART
    pods = ((near, "near", "a1"), (victim, "far", "a2"))
    blockers = (make(name, on, "1", app="x", owner=owner) for make, name, on in pods)
    full = (fixed("full-a", "a2", "3"), fixed("full-b", "b1"), waits)
    told = Victims(across_nodes=True, notice=notice)
    return scene(*NODES, does("cover", "x", 9), *blockers, *full, *parts, victims=told)


def outcome(made: Cluster) -> tuple[str, list[str]]:
    """Where the preemptor is, and who was evicted."""
    return made.pods["p"]["spec"].get("nodeName", ""), sorted(made.evicted)


@table(
    "make, gone",
    ("anti-affinity", zone_for_two(), ["far", "near"]),
    ("spread, and the near pod stays", zone_for_two(near=fixed, **SPREAD), ["far"]),
)
def test_killed_at_every_step(make: Scene, gone: list[str]):
    """Whichever step is the last of a process, exactly those go who stand in the way, and the preemptor is bound."""
    for step, made in killed_at_each_step(make):
        assert outcome(made) == ("a1", gone), step
        assert (step > 0 or "to make room in zone a" in str(made.told), made.faults(60.0)) == (True, [])


LATE = victim("late", "a2", "0", priority=1000, app="x")
FAR_ENDS = at(5.0, lambda made: made.end(made.pods["far"], evicted=False))


@table(
    "make, expected",
    ("one would stay", zone_for_two(having(kept={"far"})), ("", [])),
    ("a budget lets one go", zone_for_two(does("cover", "x", 1)), ("", [])),
    ("one comes that stays, while the victims have notice", zone_for_two(at(5.0, LATE), notice=20.0), ("", [])),
    ("the far one leaves by itself meanwhile", zone_for_two(FAR_ENDS, notice=20.0), ("a1", ["near"])),
)
def test_who_goes(make: Scene, expected: tuple[str, list[str]]):
    """If one of them would stay, nobody goes; what happens in the zone counts until the victims are asked."""
    assert outcome(lived(make)) == expected


def test_owners_that_put_their_pods_back():
    """A controller that puts its pods back into the zone is left alone: two evictions in a round, few rounds."""
    assert len(lived(zone_for_two(having(replacing={"o": "anywhere"}), owner="o"), 600.0).evicted) <= 8
