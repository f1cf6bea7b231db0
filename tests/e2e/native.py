"""Compiled policies on the cluster under test; skips, visibly, if its API server has none."""

import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.e2e.software import Software
from tests.native.comparing import SETTINGS
from tests.workloads import Json, eventually, fills_in_priorities, served
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.resources import (
    MUTATING_ADMISSION_POLICY,
    MUTATING_ADMISSION_POLICY_BINDING,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
)
from webhook.native.compiler import compile_policies
from webhook.policy.files.loading import load_texts
from webhook.policy.model.policies import Policies

RESOURCES = {
    resource.kind: resource
    for resource in (
        MUTATING_ADMISSION_POLICY,
        MUTATING_ADMISSION_POLICY_BINDING,
        VALIDATING_ADMISSION_POLICY,
        VALIDATING_ADMISSION_POLICY_BINDING,
    )
}


async def need_admission_policies(client: Client) -> None:
    """Skip the test if the API server has no MutatingAdmissionPolicy v1 (it came with 1.36), or no Priority plugin."""
    what = "MutatingAdmissionPolicy of admissionregistration.k8s.io/v1"
    await served(client.list(MUTATING_ADMISSION_POLICY.path(), dict), what)
    if not await fills_in_priorities(client):
        pytest.skip("the API server has no Priority plugin")


def limited(objects: Iterable[Json], namespace: str) -> list[Json]:
    """The objects for one namespace, and for PriorityClasses whose names begin with its name; named after it."""
    found = []
    for one in copy.deepcopy(list(objects)):
        one["metadata"]["name"] = f"{namespace}-{one['metadata']['name']}"[:253]
        spec = one["spec"]
        if "policyName" in spec:
            spec["policyName"] = f"{namespace}-{spec['policyName']}"[:253]
        elif spec["matchConstraints"]["resourceRules"][0]["scope"] == "Cluster":
            name = "(request.operation == 'DELETE' ? oldObject : object).metadata.name"
            begins = {"name": "of-this-test", "expression": f"{name}.startsWith('{namespace}')"}
            spec["matchConditions"] = [begins, *spec.get("matchConditions", [])]
        else:
            here = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
            spec["matchConstraints"]["namespaceSelector"]["matchExpressions"].append(here)
        found.append(one)
    return found


@asynccontextmanager
async def applied(client: Client, objects: list[Json]) -> AsyncIterator[None]:
    """The objects are there, and are taken away at the end, bindings first."""
    paths = []
    try:
        for one in objects:
            resource = RESOURCES[one["kind"]]
            await client.create(resource.path(), one)
            paths.append(resource.path(name=one["metadata"]["name"]))
        yield
    finally:
        for path in reversed(paths):
            with suppress(ApiError):
                await client.delete(path)


@asynccontextmanager
async def natively(
    sandbox: Any, policies: Policies, classes: Collection[PriorityClass] = (), *, whole: bool = False
) -> AsyncIterator[None]:
    """The policies are compiled and applied for the sandbox alone; if they go `whole`, nothing is inexpressible."""
    await need_admission_policies(sandbox.client)
    found = compile_policies(policies, classes, SETTINGS, time.time())
    assert not (whole and found.inexpressible)
    async with applied(sandbox.client, limited(found.objects, sandbox.id)):
        yield


@asynccontextmanager
async def enforced(
    sandbox: Any,
    giveway: Software,
    documents: str,
    holds: Callable[[], Awaitable[bool]],
    *,
    native: bool,
    classes: Collection[PriorityClass] = (),
) -> AsyncIterator[None]:
    """The policies hold for the sandbox, by the API server alone or by the webhook; `holds` says when."""
    if native:
        async with natively(sandbox, load_texts([("e2e.yaml", documents)]).policies, classes):
            await eventually(holds, 60, "the policies are in force")
            yield
        return
    await sandbox.nothing_holds()
    await giveway.serve(documents)
    await eventually(holds, 20, "the webhook is at work")
    yield
    await giveway.unregister()


BY = pytest.mark.parametrize("native", [False, True], ids=["webhook", "native"])
"""Who enforces the policies of a test."""
