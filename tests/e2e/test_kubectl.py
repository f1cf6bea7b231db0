"""What people see: kubectl on nominations, budgets and waiting pods."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.kubectl


async def test_nomination_shows_in_wide_output(sandbox, kubectl):
    """`kubectl get pods -o wide` shows the nominated node of a waiting pod, and `describe` why it waits."""
    node = await sandbox.node("n1", cpu="1")
    meek = await sandbox.priority_class("meek", 1000, preemptionPolicy="Never")
    await sandbox.stuck("big", "2", priorityClassName=meek)
    await sandbox.nominate("big", node)
    heading, row = (await kubectl("get", "pods", "-n", sandbox.id, "-o", "wide")).splitlines()
    nominated = row[heading.index("NOMINATED NODE") :].split()[0]
    assert (row.split()[2], nominated) == ("Pending", node)
    described = await kubectl("describe", "pod", "big", "-n", sandbox.id)
    assert f"NominatedNodeName:    {node}" in described
    assert "preemption: not eligible due to preemptionPolicy=Never." in described


async def test_drain_stops_at_a_budget(sandbox, kubectl):
    """`kubectl drain` evicts what it may, and is told about the budget it would violate."""
    node = await sandbox.node("n1", cpu="4")
    await sandbox.pod("free")
    await sandbox.pod("kept", labels={"app": "kept"})
    await sandbox.budget("kept", {"app": "kept"}, minAvailable=1)
    await sandbox.running("free")
    await sandbox.running("kept")
    output = await kubectl("drain", node, "--force", "--timeout=2s", code=1)
    assert f"node/{node} cordoned" in output
    assert "Cannot evict pod as it would violate the pod's disruption budget." in output
    await sandbox.gone("free")
    assert (await sandbox.get("kept"))["status"]["phase"] == "Running"


async def test_can_i_answers_for_the_caller(sandbox, kubectl):
    """`kubectl auth can-i` says yes to the administrator and no to a user without rights."""
    arguments = ("auth", "can-i", "create", "pods/eviction", "-n", sandbox.id)
    assert (await kubectl(*arguments)).strip() == "yes"
    assert (await kubectl(*arguments, "--as", "nobody-known", code=1)).strip() == "no"
