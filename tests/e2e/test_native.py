"""Compiled policies in a real API server, with no webhook: the same verdicts, the attacks, the cost; an old table."""

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from tests.e2e.conftest import Sandbox, class_is_usable
from tests.e2e.native import RESOURCES, SETTINGS, applied, limited, natively, need_admission_policies
from tests.policy.builders import engine, rules
from tests.workloads import eventually, pod, priority_class, refusal, refused, until_refused
from webhook.kube.errors import ApiError
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.resources import PRIORITY_CLASS
from webhook.native.compiler import compile_policies
from webhook.native.objects import MUTATING
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import CAN_BE_PREEMPTED, DECISION, GIVEN, MANAGED, MARK, PLAN

FORGED = '{"id":"x","node":"n","attempt":-1000000}'


@pytest.fixture(autouse=True)
async def api(client):
    """These tests need MutatingAdmissionPolicies."""
    await need_admission_policies(client)


def policies(sandbox: Any) -> Policies:
    """A band, a default, copies and a managed class."""
    spec = rules(
        "{name: band, reserve: {from: 500000, to: 600000, use: {namespaces: [nobody]}}}",
        f"{{name: default, defaultPriorityClass: {sandbox.id}-standard}}",
        f"{{name: copy, copyAnnotations: [{CAN_BE_PREEMPTED}]}}",
        "{name: named, validate: {expression: \"object.metadata.name != 'bad'\", message: call it good}}",
        match=f"{{namespaces: [{sandbox.id}]}}",
    )
    return engine(spec, preemption=f"preemptors: {{priorityClasses: ['{sandbox.id}-managed*']}}").policies


async def test_without_a_webhook(sandbox):
    """Ranges, defaults, copies, the mark, the shield through status and Binding, `Never`: all by the API server."""
    client = sandbox.client
    standard = await sandbox.priority_class("standard", 100, {CAN_BE_PREEMPTED: "true"})
    high = await sandbox.priority_class("high", 550000)
    known = PriorityClass(metadata=ObjectMeta(name=standard, annotations={CAN_BE_PREEMPTED: "true"}), value=100)
    async with natively(sandbox, policies(sandbox), [known], whole=True):
        bad = pod("bad")
        bad["metadata"]["annotations"] = {PLAN: FORGED}  # refused in other words, until what takes it off is in force
        await until_refused(lambda: sandbox.dry(bad), "call it good (rule p/named)", 60)
        trial = priority_class(f"{sandbox.id}-managed-trial", 200)

        async def becomes_never() -> bool:  # what mutates classes may come into use last
            return (await client.create(PRIORITY_CLASS.path(), trial, dryRun="All"))["preemptionPolicy"] == "Never"

        await eventually(becomes_never, 60, "a class that policies manage is Never")
        managed = await sandbox.priority_class("managed", 200)
        assert (await client.get(PRIORITY_CLASS.path(name=managed)))["preemptionPolicy"] == "Never"
        await refused(
            sandbox.pod("p", priorityClassName=high),
            "its priority lies in the range 500000 to 600000, which rule p/band reserves",
        )
        found = await sandbox.pod("p", schedulerName="nobody")
        assert (found["spec"]["priorityClassName"], found["spec"]["priority"]) == (standard, 100)
        assert found["metadata"]["annotations"][CAN_BE_PREEMPTED] == "true"
        said = {PLAN: FORGED, DECISION: FORGED, GIVEN: "{}"}
        made = await sandbox.pod("q", annotations=said, priorityClassName=managed, schedulerName="nobody")
        assert made["metadata"]["labels"][MARK] == MANAGED
        assert not {PLAN, DECISION} & made["metadata"].get("annotations", {}).keys()
        for key in (PLAN, CAN_BE_PREEMPTED):
            change = {"metadata": {"annotations": {key: "x"}}}
            for path in (f"{sandbox.pods}/p", f"{sandbox.pods}/p/status"):
                await refused(client.patch(path, change), f"annotation {key} ")
        node = await sandbox.node("n1")
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        meta = {"name": "p", "namespace": sandbox.id}
        stolen = {"metadata": {**meta, "annotations": {CAN_BE_PREEMPTED: "true"}}, "target": target}
        await refused(client.create(f"{sandbox.pods}/p/binding", stolen), "builtin/shield")
        await client.create(f"{sandbox.pods}/p/binding", {"metadata": meta, "target": target})


async def test_a_thousand_classes_and_two_hundred_rules(sandbox):
    """Accepted, inside the cost budget, and a pod's creation does not get slower with the classes."""
    classes = [
        PriorityClass(metadata=ObjectMeta(name=f"class-{n:040d}", annotations={CAN_BE_PREEMPTED: "true"}), value=n)
        for n in range(1000)
    ]
    rows = [
        f"{{name: r{n}, reserve: {{from: {n * 10 + 1000}, to: {n * 10 + 1009}, use: {{namespaces: [x]}}}}}}"
        for n in range(200)
    ]
    rows.append(f"{{name: copy, copyAnnotations: [{CAN_BE_PREEMPTED}]}}")
    spec = rules(*rows, match=f"{{namespaces: [{sandbox.id}]}}")
    took = {}
    for count in (5, 1000):
        async with natively(sandbox, engine(spec).policies, classes[:count]):
            body = pod("probe")
            body["metadata"]["annotations"] = {PLAN: FORGED}

            async def mutated(body: Any = body) -> bool:
                with suppress(ApiError):  # what refuses the annotation may come into use first
                    return PLAN not in (await sandbox.dry(body))["metadata"].get("annotations", {})
                return False

            await eventually(mutated, 60, "the policies are in force")
            await asyncio.sleep(2.0)  # An API server takes policies into use once a second: others may come after it
            times = []
            for _ in range(500):
                began = time.perf_counter()
                await sandbox.dry(body)
                times.append(time.perf_counter() - began)
            took[count] = min(times) * 1000  # whatever else the machine does
    print(f"a pod's creation, 200 rules: {took[5]:.1f} ms with 5 classes, {took[1000]:.1f} ms with 1000")  # noqa: T201
    assert took[1000] < took[5] * 1.5


def compiled(sandbox: Sandbox, said: str) -> list[dict[str, Any]]:
    """A default, copies and a shield at CREATE, compiled while the default class says this, for this sandbox alone."""
    spec = rules(
        f"{{name: default, defaultPriorityClass: {sandbox.id}-standard}}",
        f"{{name: copy, copyAnnotations: [{CAN_BE_PREEMPTED}]}}",
        f"{{name: keep, protectAnnotations: {{keys: [{CAN_BE_PREEMPTED}], operations: [CREATE],"
        " allow: [{namespaces: [nobody]}]}}",
        match=f"{{namespaces: [{sandbox.id}]}}",
    )
    meta = ObjectMeta(name=f"{sandbox.id}-standard", annotations={CAN_BE_PREEMPTED: said})
    known = [PriorityClass(metadata=meta, value=100)]
    preemption = f"preemptors: {{priorityClasses: [], twins: {{{sandbox.id}-high: {sandbox.id}-twin}}}}"
    found = compile_policies(engine(spec, preemption=preemption).policies, known, SETTINGS, time.time())
    assert not found.inexpressible
    return limited(found.objects, sandbox.id)


async def made(sandbox: Sandbox, said: str | None = None, **spec: Any) -> dict[str, Any]:
    """A pod as it would be stored, with its annotation and class at hand."""
    body = pod("probe", **spec)
    if said is not None:
        body["metadata"]["annotations"] = {CAN_BE_PREEMPTED: said}
    found = await sandbox.dry(body)
    annotations = found["metadata"].get("annotations") or {}
    named = found["spec"].get("priorityClassName", "").removeprefix(f"{sandbox.id}-")
    return {"said": annotations.get(CAN_BE_PREEMPTED), "class": named, "priority": found["spec"]["priority"]}


async def replaced(sandbox: Sandbox, name: str, value: int | None, **fields: Any) -> None:
    """Delete a class, and make it again with another value if there is one."""
    full = f"{sandbox.id}-{name}"
    await sandbox.client.delete(PRIORITY_CLASS.path(name=full))
    await until_refused(lambda: sandbox.dry(pod("probe", priorityClassName=full)), "no PriorityClass", 10)
    if value is not None:
        await sandbox.client.create(PRIORITY_CLASS.path(), priority_class(full, value, **fields))
        await class_is_usable(sandbox.client, full, sandbox.id)


async def test_a_table_that_is_old_refuses_nobody(sandbox):
    """And nobody writes past it: annotations that changed, classes made again with another value, or gone."""
    client = sandbox.client
    standard = await sandbox.priority_class("standard", 100, {CAN_BE_PREEMPTED: "true"})
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
        await refused(made(sandbox, "false"), "rule p/keep leaves that to")
        # What is copied changes, and only what copies has learned of it
        await client.patch(PRIORITY_CLASS.path(name=standard), {"metadata": {"annotations": {CAN_BE_PREEMPTED: "no"}}})
        assert await made(sandbox) == {"said": "true", "class": "standard", "priority": 100}
        newer = next(one for one in compiled(sandbox, "no") if one["kind"] == MUTATING)
        path = RESOURCES[MUTATING].path(name=newer["metadata"]["name"])
        await client.patch(path, {"spec": newer["spec"]}, kind="merge")

        async def copies() -> bool:
            return (await made(sandbox))["said"] == "no"

        await eventually(copies, 60, "what copies is newer than what judges")
        await refused(made(sandbox, "no"), "rule p/keep leaves that to")
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
    older = await sandbox.priority_class("older", 100, {CAN_BE_PREEMPTED: "true"})
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
