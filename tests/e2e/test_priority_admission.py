"""What the in-tree Priority plugin does without any webhook (docs/kubernetes-behaviour.md K1 to K4)."""

from __future__ import annotations

from tests.clusters.embedded.admission_chain.asking import refused
from webhook.kube.resources import PRIORITY_CLASS


async def test_class_decides_priority_and_policy(sandbox):
    """A pod has the priority and preemption policy of its class."""
    meek = await sandbox.priority_class("meek", 1234, preemptionPolicy="Never")
    spec = (await sandbox.pod("p", priorityClassName=meek))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1234, "Never")


async def test_disagreement_is_403_with_both_values(sandbox):
    """A priority that is not the class's is refused, as is an unknown class."""
    name = await sandbox.priority_class("some", 80)
    error = await refused(sandbox.pod("w", priorityClassName=name, priority=7))
    assert (error.status, error.reason) == (403, "Forbidden")
    assert error.message == (
        'pods "w" is forbidden: the integer value of priority (7) must not be provided in pod spec; '
        "priority admission controller computed 80 from the given PriorityClass name"
    )
    error = await refused(sandbox.pod("m", priorityClassName=f"{sandbox.id}-missing"))
    assert error.message == f'pods "m" is forbidden: no PriorityClass with name {sandbox.id}-missing was found'


async def test_class_rules_of_the_api_server(sandbox):
    """Values above a billion, system- names and changes of the value are refused."""
    error = await refused(sandbox.priority_class("huge", 1_000_000_001))
    assert "maximum allowed value of a user defined priority is 1000000000" in error.message
    body = {"metadata": {"name": f"system-{sandbox.id}"}, "value": 5}
    error = await refused(sandbox.client.create(PRIORITY_CLASS.path(), body))
    assert "priority class names with 'system-' prefix are reserved for system use only" in error.message
    name = await sandbox.priority_class("lowest", -2_147_483_648)
    error = await refused(sandbox.client.patch(PRIORITY_CLASS.path(None, name), {"value": 6}))
    assert (error.status, "may not be changed in an update" in error.message) == (422, True)


async def test_stored_priority_is_immutable(sandbox):
    """A pod's priority cannot be changed afterwards."""
    name = await sandbox.priority_class("some", 80)
    await sandbox.pod("p", priorityClassName=name)
    error = await refused(sandbox.client.patch(f"{sandbox.pods}/p", {"spec": {"priority": 9}}))
    assert (error.status, error.reason) == (422, "Invalid")
