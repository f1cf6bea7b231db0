"""A table of classes that is old, in a real API server: no pod is refused for it, and nobody writes past it."""

import time
from typing import Any

import pytest
from msgspec.structs import replace

from tests.e2e.conftest import LABEL, Sandbox, class_is_usable
from tests.e2e.native import RESOURCES, SETTINGS, applied, limited, need_admission_policies
from tests.policy.builders import engine, rules
from tests.workloads import eventually, pod, priority_class, refusal, until_refused
from webhook.kube.errors import ApiError
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.resources import PRIORITY_CLASS
from webhook.native.compiler import compile_policies
from webhook.native.objects import MUTATING
from webhook.policy.model.values import CAN_BE_PREEMPTED


@pytest.fixture(autouse=True)
async def api(client):
    """These tests need MutatingAdmissionPolicies."""
    await need_admission_policies(client)


def compiled(sandbox: Sandbox, said: str) -> list[dict[str, Any]]:
    """A default, copies and a shield at CREATE, compiled while the default class says this, for this sandbox alone."""
    spec = rules(
        f"{{name: default, defaultPriorityClass: {sandbox.id}-standard}}",
        f"{{name: copy, copyAnnotations: [{CAN_BE_PREEMPTED}]}}",
        f"{{name: keep, protectAnnotations: {{keys: [{CAN_BE_PREEMPTED}], operations: [CREATE],"
        " allow: [{namespaces: [nobody]}]}}",
        match=f"{{namespaces: [{sandbox.id}]}}",
    )
    known = [
        PriorityClass(
            metadata=ObjectMeta(name=f"{sandbox.id}-standard", annotations={CAN_BE_PREEMPTED: said}), value=100
        )
    ]
    preemption = f"preemptors: {{priorityClasses: [], twins: {{{sandbox.id}-high: {sandbox.id}-twin}}}}"
    found = compile_policies(engine(spec, preemption=preemption).policies, known, SETTINGS, time.time())
    assert not found.inexpressible
    return limited(found.objects, sandbox.id)


async def made(sandbox: Sandbox, said: str | None = None, **spec: Any) -> dict[str, Any]:
    """A pod as it would be stored, with its annotation and class at hand."""
    body = pod("probe", nodeSelector={LABEL: sandbox.id}, **spec)
    if said is not None:
        body["metadata"]["annotations"] = {CAN_BE_PREEMPTED: said}
    found = await sandbox.client.create(sandbox.pods, body, dryRun="All")
    annotations = found["metadata"].get("annotations") or {}
    named = found["spec"].get("priorityClassName", "").removeprefix(f"{sandbox.id}-")
    return {"said": annotations.get(CAN_BE_PREEMPTED), "class": named, "priority": found["spec"]["priority"]}


async def replaced(sandbox: Sandbox, name: str, value: int | None, **fields: Any) -> None:
    """Delete a class, and make it again with another value if there is one."""
    full = f"{sandbox.id}-{name}"
    await sandbox.client.delete(PRIORITY_CLASS.path(name=full))

    body = pod("probe", nodeSelector={LABEL: sandbox.id}, priorityClassName=full)
    await until_refused(lambda: sandbox.client.create(sandbox.pods, body, dryRun="All"), "no PriorityClass", 10)
    if value is not None:
        await sandbox.client.create(PRIORITY_CLASS.path(), priority_class(full, value, **fields))
        await class_is_usable(sandbox.client, full, sandbox.id)


async def test_a_table_that_is_old_refuses_nobody(sandbox):
    """Annotations that changed, classes made again with another value, and a default class and a twin that are gone."""
    client = sandbox.client
    standard = await sandbox.priority_class("standard", 100)
    await client.patch(PRIORITY_CLASS.path(name=standard), {"metadata": {"annotations": {CAN_BE_PREEMPTED: "true"}}})
    high = await sandbox.priority_class("high", 200)
    await sandbox.priority_class("twin", 200, preemptionPolicy="Never")
    async with applied(client, compiled(sandbox, "true")):

        async def in_force() -> bool:
            """What fills in and what judges are two policies, and may be taken into use one after the other."""
            if (await made(sandbox))["said"] != "true":
                return False
            return "rule p/keep" in await refusal(made(sandbox, "false"))

        await eventually(in_force, 60, "the policies are in force")
        assert await made(sandbox) == {"said": "true", "class": "standard", "priority": 100}
        assert (await made(sandbox, priorityClassName=high))["class"] == "twin"
        assert (await made(sandbox, "true"))["said"] == "true"
        with pytest.raises(ApiError, match="rule p/keep leaves that to"):
            await made(sandbox, "false")
        # What is copied changes, and only what copies has learned of it
        await client.patch(PRIORITY_CLASS.path(name=standard), {"metadata": {"annotations": {CAN_BE_PREEMPTED: "no"}}})
        assert await made(sandbox) == {"said": "true", "class": "standard", "priority": 100}
        newer = next(one for one in compiled(sandbox, "no") if one["kind"] == MUTATING)
        path = RESOURCES[MUTATING].path(name=newer["metadata"]["name"])
        await client.patch(path, {"spec": newer["spec"]}, kind="merge")

        async def copies() -> bool:
            return (await made(sandbox))["said"] == "no"

        await eventually(copies, 60, "what copies is newer than what judges")
        with pytest.raises(ApiError, match="rule p/keep leaves that to"):
            await made(sandbox, "no")
        # Made again with other values: what is given has those, and the entry of the table is not found any more
        await replaced(sandbox, "standard", 300)
        assert await made(sandbox) == {"said": None, "class": "standard", "priority": 300}
        await replaced(sandbox, "twin", 201, preemptionPolicy="Never")
        assert (await made(sandbox, priorityClassName=high))["class"] == "high"
        # Gone
        await replaced(sandbox, "twin", None)
        assert (await made(sandbox, priorityClassName=high))["class"] == "high"
        await replaced(sandbox, "standard", None)
        assert await made(sandbox) == {"said": None, "class": "", "priority": 0}


async def test_many_classes_of_one_author_freeze_nobodys_table(sandbox):
    """The API server takes the table that has no room for 450 long names, and an older class is still copied from."""
    older = await sandbox.priority_class("older", 100)
    await sandbox.client.patch(
        PRIORITY_CLASS.path(name=older), {"metadata": {"annotations": {CAN_BE_PREEMPTED: "true"}}}
    )
    stored = await sandbox.client.get(PRIORITY_CLASS.path(name=older), PriorityClass)
    meta = ObjectMeta(annotations={CAN_BE_PREEMPTED: "true"}, creation_timestamp="9999-01-01T00:00:00Z")
    spam = [PriorityClass(metadata=replace(meta, name=f"{n:0253d}"), value=n) for n in range(450)]
    spec = rules(f"{{name: copy, copyAnnotations: [{CAN_BE_PREEMPTED}]}}", match=f"{{namespaces: [{sandbox.id}]}}")
    found = compile_policies(engine(spec).policies, [*spam, stored], SETTINGS, time.time())
    assert [row.enforced for row in found.inexpressible] == [True]
    async with applied(sandbox.client, limited(found.objects, sandbox.id)):

        async def copied() -> bool:
            return (await made(sandbox, priorityClassName=older))["said"] == "true"

        await eventually(copied, 60, "the policies are in force")
