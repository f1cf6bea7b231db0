"""Plans whose victims are on several nodes are carried out, interrupted, looked at again, and not made in vain."""

from functools import partial

import pytest

from tests.preemption.building import budget, node
from tests.reconciler.builders import policy
from tests.reconciler.harness.cluster import Cluster
from tests.reconciler.harness.pods import Json, fixed, preemptor, victim
from tests.reconciler.harness.scenarios import lived, simulated
from webhook.policy.model.victims import Victims

pytestmark = pytest.mark.slow

ZONE, REQUIRED = "zone", "requiredDuringSchedulingIgnoredDuringExecution"


def with_a_zone_for_two(notice: float = 0.0, kept: str = "", owner: str = "", allowed: int = 9) -> Cluster:
    """A zone whose two nodes have a pod each that keeps the preemptor off; only on one of them is there room."""
    nodes = [node(name, "4", labels={ZONE: name[0]}) for name in ("a1", "a2", "b1")]
    under = policy(victims=Victims(across_nodes=True, notice=notice))
    made = simulated(*nodes, under=under, budgets=(budget("b", {"app": "x"}, allowed),))
    made.kept |= {kept} - {""}
    if owner:
        made.replacing[owner] = "anywhere"
    near, far = (victim(name, on, "1", app="x", owner=owner) for name, on in (("near", "a1"), ("far", "a2")))
    for pod in (near, far, fixed("full-a", "a2", "3"), fixed("full-b", "b1"), apart()):
        made.put(pod)
    return made


def apart() -> Json:
    """A preemptor that may not be in a zone with pods of app x."""
    pod = preemptor(cpu="3")
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "x"}}}
    pod["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: [term]}}
    return pod


def outcome(made: Cluster) -> tuple[str, list[str]]:
    """Where the preemptor is, and who was evicted."""
    return made.pods["p"]["spec"].get("nodeName", ""), sorted(made.evicted)


def with_skew() -> Cluster:
    """The same, but a hard spread constraint keeps the preemptor off, and the near pod stays."""
    made, skew = with_a_zone_for_two(), {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    spec = made.pods["p"]["spec"]
    spec["topologySpreadConstraints"] = [spec.pop("affinity")["podAntiAffinity"][REQUIRED][0] | skew]
    made.pods["near"]["metadata"]["annotations"] = {}
    return made


@pytest.mark.parametrize(("make", "gone"), [(with_a_zone_for_two, ["far", "near"]), (with_skew, ["far"])])
def test_killed_at_every_step(make, gone):
    """Whichever step is the last of a process, exactly those go who stand in the way, and the preemptor is bound."""
    whole, _ = lived(make)
    assert "to make room in zone a" in str(whole.told)
    for step in range(whole.steps + 1):
        made, judge = lived(make, 120.0, killed_at=step)
        assert outcome(made) == ("a1", gone), step
        assert not judge.faults(60.0), step


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(partial(with_a_zone_for_two, kept="far"), id="one would stay"),
        pytest.param(partial(with_a_zone_for_two, allowed=1), id="a budget lets one go"),
    ],
)
def test_nobody_goes_if_not_all_can(make):
    """If one of them would stay, nobody goes."""
    assert outcome(lived(make)[0]) == ("", [])


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

    made, _ = lived(partial(with_a_zone_for_two, notice=20.0), at_5=happens)
    assert outcome(made) == expected


def test_owners_that_put_their_pods_back():
    """A controller that puts its pods back into the zone is left alone: two evictions in a round, few rounds."""
    made, _ = lived(partial(with_a_zone_for_two, owner="o"), 600.0)
    assert len(made.evicted) <= 8, made.evicted
