"""Compiled policies on the cluster under test; skips, visibly, if its API server has none."""

from __future__ import annotations

import copy
import time
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from tests.workloads import served
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
from webhook.native.objects import Settings
from webhook.policy.model.policies import Policies

Json = dict[str, Any]
SETTINGS = Settings(namespace="giveway-system", reconciler="system:serviceaccount:giveway-system:giveway-reconciler")
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
    """Skip the test if the API server has no MutatingAdmissionPolicy v1 (it came with 1.36)."""
    what = "MutatingAdmissionPolicy of admissionregistration.k8s.io/v1"
    await served(client.list(MUTATING_ADMISSION_POLICY.path(), dict), what)


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
