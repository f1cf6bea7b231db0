"""A tenant that names another scheduler beside a node keeps no pod by that under opt-out."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import LABEL
from tests.e2e.software import policies
from tests.e2e.users import TENANT, may_edit
from tests.workloads import pod
from webhook.policy.model.values import MANAGED, MARK

pytestmark = pytest.mark.kubectl


async def test_a_pod_of_another_scheduler_goes_as_in_plain_kubernetes(sandbox, giveway, kubectl):
    """Nobody schedules the tenant's pod, because it names its node; a preemptor gets that node all the same."""
    await may_edit(sandbox, TENANT, sandbox.id)
    low, high = await sandbox.classes()
    node = await sandbox.node("n1", cpu="4")
    body = pod(
        "kept", cpu="4", priorityClassName=low, schedulerName="foo", nodeName=node, nodeSelector={LABEL: sandbox.id}
    )
    await kubectl("create", "-f", "-", "-n", sandbox.id, *TENANT, stdin=json.dumps(body))
    await sandbox.running("kept")
    await giveway.reconcile(policies(high, victims={"mode": "opt-out"}))
    await sandbox.pod("p", cpu="4", priorityClassName=high, labels={MARK: MANAGED})
    assert await sandbox.bound("p", 30) == node
