"""PodGroups and Workloads on an API server that serves them: who may use a class has no way round it by a group.

Kubernetes 1.36 serves them with the gates GenericWorkload, GangScheduling and WorkloadAwarePreemption and
`--runtime-config=scheduling.k8s.io/v1alpha2=true`; elsewhere these tests are skipped.
"""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.e2e.conftest import LABEL
from tests.e2e.native import natively
from tests.e2e.software import Software, manifest, policies
from tests.e2e.test_protected import shields
from tests.e2e.users import granted
from tests.inspection.command import RBAC
from tests.policy.builders import engine, rules
from tests.workloads import eventually, pod, refused, served, until_refused
from webhook.component_base.own_names import WEBHOOK
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.resources import POD, POD_GROUP

WORKLOAD = replace(POD_GROUP, plural="workloads", kind="Workload")
RESERVED, LOW, MANAGED = 876_544_000, 876_543_000, 876_543_500


@pytest.fixture(autouse=True)
async def groups(client: Client) -> None:
    """Skip where PodGroups are not served."""
    await served(client.list(POD_GROUP.path(), dict), "PodGroups")


@pytest.fixture
async def classes(sandbox: Any, giveway: Software) -> tuple[str, str, str]:
    """The webhook at work: a reserved class that nobody may use, a low one, and a managed one; their names."""
    band = {"name": "band", "reserve": {"from": RESERVED, "to": RESERVED, "define": {"names": [f"{sandbox.id}-*"]}}}
    judged = {"match": {"namespaces": [sandbox.id]}, "rules": [band]}
    manage = {"preemptors": {"priorityClasses": [f"{sandbox.id}-managed"]}}
    high = await sandbox.priority_class("high", RESERVED)
    low = await sandbox.priority_class("low", LOW)
    managed = await sandbox.priority_class("managed", MANAGED, preemptionPolicy="Never")
    await giveway.serve(manifest(PriorityPolicy=judged, PreemptionPolicy=manage))
    await eventually(lambda: shields(sandbox), 20, "the webhook is at work")
    return high, low, managed


def group(name: str, **spec: Any) -> dict[str, Any]:
    """A gang of two."""
    body = {"schedulingPolicy": {"gang": {"minCount": 2}}, **spec}
    return {"metadata": {"name": name}, "spec": body}


def workload(name: str, **spec: Any) -> dict[str, Any]:
    """A Workload with one template."""
    body = {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}, **spec}]}
    return {"metadata": {"name": name}, "spec": body}


def member(sandbox: Any, name: str, of: str, class_name: str) -> dict[str, Any]:
    """A pod of a group."""
    spec = {"priorityClassName": class_name, "schedulingGroup": {"podGroupName": of}}
    return pod(name, nodeSelector={LABEL: sandbox.id}, **spec)


async def test_a_group_is_no_way_round_a_reserved_class(sandbox, classes):
    """Neither a PodGroup nor a Workload of a class that the tenant may not use is stored; of another class it is."""
    high, low, _ = classes
    for make, path in ((group, POD_GROUP.path(sandbox.id)), (workload, WORKLOAD.path(sandbox.id))):
        await refused(sandbox.client.create(path, make("wrong", priorityClassName=high)), "e2e/band")
        made = await sandbox.client.create(path, make("right", priorityClassName=low))
        assert low in json.dumps(made["spec"])
    with pytest.raises(ApiError, match="priority"):
        await sandbox.client.create(POD_GROUP.path(sandbox.id), group("raw", priority=RESERVED))


async def test_a_pod_has_the_priority_of_its_group(sandbox, classes):
    """A pod of another class than its group is refused, one of the same class is let in.

    The group is stored with class and value, in spite of a field that its API server may not have.
    """
    _, low, managed = classes
    stored = await sandbox.client.create(POD_GROUP.path(sandbox.id), group("gang", priorityClassName=managed))
    assert (stored["spec"]["priorityClassName"], stored["spec"]["priority"]) == (managed, MANAGED)
    assert stored["spec"].get("preemptionPolicy", "Never") == "Never"
    await refused(sandbox.client.create(sandbox.pods, member(sandbox, "a", "gang", low)), "builtin/group-priority")
    made = await sandbox.client.create(sandbox.pods, member(sandbox, "b", "gang", managed))
    assert made["spec"]["preemptionPolicy"] == "Never"
    await sandbox.client.create(sandbox.pods, member(sandbox, "c", "not-made-yet", low))


@pytest.mark.parametrize("watched", [True, False])
async def test_invented_groups_hold_up_nobody_else(sandbox, giveway, watched):
    """A tenant asks for pods of 300 groups that nobody made, by dry runs; pods of another one's gang are let in."""
    low, other = await sandbox.priority_class("low", LOW), f"{sandbox.id}-other"
    await sandbox.namespace(other)
    role = f"{RBAC}/clusterroles/{WEBHOOK}"
    if not watched:
        rules = (await sandbox.client.get(role))["rules"]
        verbs = [{**rule, "verbs": ["get"]} if rule["resources"] == ["podgroups"] else rule for rule in rules]
        await sandbox.client.patch(role, {"rules": verbs})
    process = await giveway.serve(policies(f"{sandbox.id}-managed"))
    await eventually(lambda: shields(sandbox), 20, "the webhook is at work")
    assert process.says("counts as empty") is not watched
    account = await giveway.account("e2e-tenant")
    await granted(sandbox, f"{sandbox.id}-editor", [account], role="edit", where=sandbox.id)
    names = [f"invented-{number}" for number in range(300)]
    async with await Client.connect(await giveway.kubeconfig_of("e2e-tenant")) as tenant:

        async def ask() -> None:
            while names:
                name = names.pop()
                await tenant.create(sandbox.pods, member(sandbox, name, name, low), dryRun="All")

        flood = [asyncio.create_task(ask()) for _ in range(50)]
        await eventually(lambda: len(names) < 200, 30)
        await sandbox.client.create(POD_GROUP.path(other), group("gang", priorityClassName=low))
        for number in range(5):
            await sandbox.client.create(POD.path(other), member(sandbox, f"honest-{number}", "gang", low))
        await asyncio.gather(*flood)


async def test_native_policies_judge_groups_as_well(sandbox):
    """Without a webhook the API server refuses a group of a class that the tenant may not use."""
    high, low = await sandbox.priority_class("high", RESERVED), await sandbox.priority_class("low", LOW)
    spec = rules(
        f"{{name: band, reserve: {{from: {RESERVED}, to: {RESERVED}}}}}", match=f"{{namespaces: [{sandbox.id}]}}"
    )
    path = POD_GROUP.path(sandbox.id)
    async with natively(sandbox, engine(spec).policies):
        wrong = group("wrong", priorityClassName=high)
        await until_refused(lambda: sandbox.client.create(path, wrong, dryRun="All"), "p/band", 20)
        made = await sandbox.client.create(path, group("right", priorityClassName=low))
        assert made["spec"]["priority"] == LOW
