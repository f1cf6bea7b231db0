"""Ids of repeated values, and columns over them."""

import pytest

from tests.preemption.building import NOW, as_pod, node, pod, rules, snapshot_of
from webhook.policy.model.values import CAN_BE_PREEMPTED
from webhook.preemption.decision import decide
from webhook.preemption.snapshot import interning
from webhook.preemption.snapshot.interning import Interner, Table
from webhook.preemption.snapshot.kinds import PODS


@pytest.mark.parametrize("changes", [0, 1, 4, 5, 9, 40])
def test_table_knows_every_id(changes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is made late has the answers for all ids, however often the log of ids was cut before."""
    monkeypatch.setattr(interning, "_LONGEST_LOG", 4)
    interner: Interner[str, str] = Interner()
    early = Table(interner, int, len)
    kept = interner.take("kept", "kept")
    for number in range(changes):
        interner.drop(interner.take(f"change {number}", "c"))
        if number % 3 == 0:
            early.column()
    assert Table(interner, int, len).column()[kept] == 4
    assert early.column()[kept] == 4


@pytest.mark.parametrize("changes", [10, 4200])
def test_shielded_pod_after_many_changes(changes: int) -> None:
    """A pod that says that it must stay is no victim under policies that are read after many changes of pods."""
    shielded = pod("shielded", on="n1", cpu="4")
    shielded["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "false"}
    snapshot = snapshot_of({"nodes": [node("n1")], "pods": [shielded]})
    for number in range(changes):
        changing = pod("changing", on="n1", cpu="")
        changing["metadata"]["annotations"] = {CAN_BE_PREEMPTED: str(number)}
        snapshot.put(PODS, as_pod(changing))
    assert decide(snapshot, as_pod(pod("preemptor", priority=100, cpu="4")), rules(), NOW).selected is None
