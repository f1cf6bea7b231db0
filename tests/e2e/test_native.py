"""Compiled policies in a real API server, with no webhook: accepted, the same verdicts, the attacks, and the cost."""

import time
from contextlib import suppress
from typing import Any

from tests.e2e.conftest import LABEL
from tests.e2e.native import natively
from tests.policy.builders import engine, rules
from tests.workloads import eventually, pod, refused, until_refused
from webhook.kube.errors import ApiError
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.resources import PRIORITY_CLASS
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import CAN_BE_PREEMPTED, DECISION, GIVEN, MANAGED, MARK, PLAN

FORGED = '{"id":"x","node":"n","attempt":-1000000}'


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
    standard = await sandbox.priority_class("standard", 100)
    annotated = {"metadata": {"annotations": {CAN_BE_PREEMPTED: "true"}}}
    await client.patch(PRIORITY_CLASS.path(name=standard), annotated)
    high = await sandbox.priority_class("high", 550000)
    known = PriorityClass(metadata=ObjectMeta(name=standard, annotations={CAN_BE_PREEMPTED: "true"}), value=100)
    async with natively(sandbox, policies(sandbox), [known], whole=True):
        body = pod("bad", nodeSelector={LABEL: sandbox.id})
        body["metadata"]["annotations"] = {PLAN: FORGED}
        words = "call it good (rule p/named)"
        await until_refused(lambda: client.create(sandbox.pods, body, dryRun="All"), words, 60)
        managed = await sandbox.priority_class("managed", 200)
        assert (await client.get(PRIORITY_CLASS.path(name=managed)))["preemptionPolicy"] == "Never"
        await refused(
            sandbox.pod("p", priorityClassName=high),
            "its priority lies in the range 500000 to 600000, which rule p/band reserves",
        )
        await sandbox.pod("p", schedulerName="nobody")
        found = await sandbox.get("p")
        assert (found["spec"]["priorityClassName"], found["spec"]["priority"]) == (standard, 100)
        assert found["metadata"]["annotations"][CAN_BE_PREEMPTED] == "true"
        body = pod("q", priorityClassName=managed, schedulerName="nobody")
        body["metadata"]["annotations"] = {PLAN: FORGED, DECISION: FORGED, GIVEN: "{}"}
        made = await client.create(sandbox.pods, body)
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
    spec = rules(
        *rows, f"{{name: copy, copyAnnotations: [{CAN_BE_PREEMPTED}]}}", match=f"{{namespaces: [{sandbox.id}]}}"
    )
    took = {}
    for count in (5, 1000):
        async with natively(sandbox, engine(spec).policies, classes[:count]):
            body = pod("probe", nodeSelector={LABEL: sandbox.id})
            body["metadata"]["annotations"] = {PLAN: FORGED}

            async def mutated(body: Any = body) -> bool:
                with suppress(ApiError):  # what refuses the annotation may come into use first
                    made = await sandbox.client.create(sandbox.pods, body, dryRun="All")
                    return PLAN not in made["metadata"].get("annotations", {})
                return False

            await eventually(mutated, 60, "the policies are in force")
            began = time.perf_counter()
            for _ in range(100):
                await sandbox.client.create(sandbox.pods, body, dryRun="All")
            took[count] = (time.perf_counter() - began) * 10
    print(f"a pod's creation, 200 rules: {took[5]:.1f} ms with 5 classes, {took[1000]:.1f} ms with 1000")  # noqa: T201
    assert took[1000] < took[5] * 1.5
