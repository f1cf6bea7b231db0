"""Random and shipped policies in a real API server, beside what the webhook says of the same requests.

It makes namespaces and PriorityClasses of fixed names, lets everybody make pods for as long as it runs, and deletes all
of it: for clusters of your own. `GIVEWAY_RANDOM_REQUESTS=5000` asks as many; 200 by default. Run it with `-s` to read
how many requests ended in which way.
"""

import asyncio
import os
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.e2e.native import RESOURCES, need_admission_policies
from tests.e2e.users import granted, group
from tests.native.comparing import Both, Result, forged, pod_request, readable, told
from tests.native.strategies import CLASS_NAMES, NAMESPACES, annotation_sets, clusters, labels, pods, policy_sets, users
from tests.native.test_same_verdicts import KEPT
from tests.workloads import Json
from webhook.installation.install import TAKES_EFFECT
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.resources import NAMESPACE, PRIORITY_CLASS
from webhook.policy.files.loading import load_or_raise
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import GIVEN

REQUESTS = int(os.environ.get("GIVEWAY_RANDOM_REQUESTS", "200"))
EACH = 100
"""Requests to one policy set."""
ROOT = Path(__file__).parents[2] / "policies"
SHIPPED = [ROOT, *sorted(one for one in (ROOT / "examples").iterdir() if one.is_dir())]
SPACES = NAMESPACES[:3]
NAMES = [name for name in CLASS_NAMES if not name.startswith("system-")]
_DENIED = re.compile(r"denied request: (.*)", re.DOTALL)


def drawn(strategy: st.SearchStrategy[Any], count: int, number: int) -> list[Any]:
    """Examples of a strategy; the same number gives the same ones."""
    found: list[Any] = []
    checks = list(HealthCheck)

    @seed(number)
    @settings(max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=checks)
    @given(strategy)
    def collect(example: Any) -> None:
        found.append(example)

    collect()
    return found


@st.composite
def asked(draw: Any) -> Json:
    """A request to make a pod, a PriorityClass or a Binding, as an AdmissionRequest."""
    user, groups = draw(users)
    kind = draw(st.sampled_from(["Pod", "Pod", "Pod", "PriorityClass", "Binding"]))
    if kind == "Pod":
        obj = draw(pods())
        for one in obj["metadata"].get("ownerReferences", ()):
            one |= {"apiVersion": "apps/v1", "uid": "0"}
        for one in obj["metadata"]["managedFields"]:
            one |= {"apiVersion": "v1", "operation": "Update", "fieldsType": "FieldsV1", "time": "2026-01-01T00:00:00Z"}
    elif kind == "PriorityClass":
        obj = {"metadata": {"name": draw(st.sampled_from(NAMES))}, "value": draw(st.integers(-20, 180))}
    else:
        meta = {"name": "a", "namespace": draw(st.sampled_from(SPACES)), "labels": draw(labels)}
        target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
        obj = {"apiVersion": "v1", "metadata": {**meta, "annotations": draw(annotation_sets)}, "target": target}
    return pod_request({**obj, "kind": kind}, user=user, groups=groups)


class Cluster:
    """The cluster under test, asked in somebody's name."""

    def __init__(self, client: Client, session: aiohttp.ClientSession) -> None:
        self._client, self._session = client, session
        self._made: list[str] = []

    async def put(self, both: Both, objects: list[Json]) -> None:
        """Have these classes, namespaces and policies, and no others; wait until they are in force."""
        await self.clear()
        for one in objects:
            name, labels = one["metadata"]["name"], one["metadata"].get("labels") or {}
            if one["kind"] == "Namespace" and name in SPACES:
                path = NAMESPACE.path(name=name)
                now = (await self._client.get(path))["metadata"].get("labels") or {}
                gone = {key: None for key in now if not key.startswith("kubernetes.io/")}
                await self._client.patch(path, {"metadata": {"labels": gone | labels}}, kind="merge")
        for one in [*(one for one in objects if one["kind"] == PRIORITY_CLASS.kind), *both.compiled.objects]:
            path = {**RESOURCES, PRIORITY_CLASS.kind: PRIORITY_CLASS}[one["kind"]].path()
            await self._client.create(path, one)
            self._made.append(f"{path}/{one['metadata']['name']}")
        await asyncio.sleep(2 * TAKES_EFFECT)

    async def clear(self) -> None:
        while self._made:
            try:
                await unless_absent(self._client.delete(self._made[-1]))
            except ApiError as error:
                if error.status != 403:  # a policy that is gone judges the classes for a moment yet
                    raise
                await asyncio.sleep(TAKES_EFFECT)
            else:
                self._made.pop()
        await asyncio.sleep(TAKES_EFFECT)

    async def ask(self, request: Json) -> tuple[int, Json]:
        """The status and the object, or the Status, that the API server answers to a dry run."""
        obj, user = request["object"], request["userInfo"]
        where = f"/api/v1/namespaces/{request['namespace']}/pods"
        path = {"Pod": where, "Binding": f"{where}/a/binding", "PriorityClass": PRIORITY_CLASS.path()}[obj["kind"]]
        headers = [("Impersonate-User", user["username"]), *(("Impersonate-Group", one) for one in user["groups"])]
        async with self._session.post(f"{path}?dryRun=All", json=obj, headers=headers) as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def cluster(another_cluster: None, sandbox: Any) -> AsyncIterator[Cluster]:
    """Three namespaces, and everybody may make pods, classes and Bindings."""
    client: Client = sandbox.client
    await need_admission_policies(client)
    there = {one["metadata"]["name"] for one in (await client.list(NAMESPACE.path(), dict))[0]}
    if there.intersection(SPACES):
        pytest.skip(f"the cluster has a namespace {' or '.join(sorted(there.intersection(SPACES)))} already")
    rule = {"apiGroups": ["", "scheduling.k8s.io"], "resources": ["pods", "pods/binding", "priorityclasses"]}
    everybody = [group("system:authenticated")]
    await granted(sandbox, "giveway-random", everybody, rules=[{**rule, "verbs": ["create"]}])
    for space in SPACES:
        await sandbox.namespace(space)
    endpoint = client._transport.endpoint
    headers = await endpoint.headers()
    connector = aiohttp.TCPConnector(ssl=endpoint.tls) if endpoint.tls else None
    async with aiohttp.ClientSession(endpoint.url, headers=headers, connector=connector) as session:
        found = Cluster(client, session)
        try:
            yield found
        finally:
            await found.clear()


def brief(obj: Json) -> Json:
    """What giveway fills in of an object, and what it takes away."""
    meta, spec = obj.get("metadata", {}), obj.get("spec", {})
    found = {key: spec.get(key) for key in ("priorityClassName", "priority", "preemptionPolicy") if spec.get(key) != ""}
    if obj["kind"] == "PriorityClass":
        found = {"preemptionPolicy": obj.get("preemptionPolicy") or "PreemptLowerPriority"}
    return found | {"annotations": meta.get("annotations") or {}, "labels": meta.get("labels") or {}}


def difference(request: Json, webhook: Result, status: int, answer: Json) -> str | None:
    """How it ended, as a word, or None if the API server and the webhook say different things.

    Of a manifest that carries the record itself, or claims in managedFields that somebody set it, annotations are not
    compared: what is copied and whether a record is left may differ (docs/native-policies.md).
    """
    denied = _DENIED.search(answer.get("message", "")) if status in (403, 422) else None
    if denied is None and status in (403, 422):
        return "in-tree" if webhook.refused_in_tree or answer.get("reason") in ("Forbidden", "Invalid") else None
    if denied is not None:
        # The API server names the first reason
        said = denied[1].strip()
        if told(said) in webhook.denied:
            return "refused"
        return "failed" if webhook.failed and ("resulted in error" in said or "fails to evaluate" in said) else None
    if webhook.refused_in_tree or webhook.denied:
        return None
    if webhook.failed:
        return "failed elsewhere" if webhook.mixed else None
    if status in (404, 409):  # admission is over: there is no such pod to bind, or such a class already
        return "accepted"
    assert status == 201, answer
    if answer["kind"] == "Status":
        return "accepted"
    stored, wanted = brief(readable(answer)), brief(webhook.object)
    sent = request["object"]["metadata"].get("annotations") or {}
    for one in (stored, wanted) if GIVEN in sent or forged(request["object"]) else ():
        del one["annotations"]
    return "accepted" if stored == wanted else None


async def test_the_same_as_the_webhook(cluster):
    """Every policy of policies/, its examples, and random sets: the same refusals, the same words, the same pods."""
    shipped = [load_or_raise(one) for one in SHIPPED]
    count = max(1, REQUESTS // EACH - len(shipped))
    sets: list[Policies] = [*shipped, *drawn(policy_sets(), count, 1)]
    objects = drawn(clusters(), len(sets), 2)
    requests = drawn(asked(), EACH * 5, 3)
    ended: Counter[str] = Counter()
    differences: list[Any] = []
    for number, policies in enumerate(sets):
        there = [one for one in objects[number % len(objects)] if not one["metadata"]["name"].startswith("system-")]
        system = [{"kind": "PriorityClass", "metadata": {"name": name}, "value": value} for name, value in _SYSTEM]
        both = Both(policies, [*there, *system], settings=KEPT)
        await cluster.put(both, there)
        start = number * EACH % len(requests)
        for request in requests[start : start + EACH]:
            webhook = both.webhook(request)
            status, answer = await cluster.ask(request)
            how = difference(request, webhook, status, answer)
            if how is None:
                # A busy API server takes policies and classes into use later: what stays different is different
                early = f"{status} {answer.get('message') or brief(readable(answer))}"
                await asyncio.sleep(4 * TAKES_EFFECT)
                status, answer = await cluster.ask(request)
                how = "late" if difference(request, webhook, status, answer) else None
                print(f"set {number}: {how or 'different'}: at first {early}")  # noqa: T201
            if how is None:
                differences.append((policies, there, request, webhook, status, answer))
            ended[how or "different"] += 1
    print(f"{sum(ended.values())} requests to {len(sets)} policy sets: {dict(ended)}")  # noqa: T201
    assert not differences, differences[:3]
    assert min(ended["accepted"], ended["refused"]) > sum(ended.values()) / 20


_SYSTEM = [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)]
