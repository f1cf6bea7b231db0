"""The policies on a cluster: what cannot be used is refused when it is applied, a restart finds what was in force."""

from __future__ import annotations

import json
import signal
from contextlib import suppress

import aiohttp
import pytest

from tests.e2e.software import SYSTEM, installed
from tests.e2e.users import PIPELINE, TENANT, may_edit
from tests.workloads import eventually, pod, refusal
from webhook.admission.own_reviews import review_of
from webhook.kube.errors import ApiError
from webhook.kube.resources import CONFIG_MAP

HEAD = "apiVersion: giveway.dev/v1alpha1\nkind: PriorityPolicy\nmetadata: {name: e2e}\nspec:\n  rules:\n"
FORBIDDEN = HEAD + "  - {name: none, priorityClasses: {deny: ['*-forbidden']}}\n"
WITHOUT = HEAD + "  - {name: other, priorityClasses: {deny: [nothing]}}\n"
APPLIED, IN_FORCE = (CONFIG_MAP.path(SYSTEM, name) for name in ("giveway-policies", "giveway-policies-in-force"))


@pytest.fixture
async def no_policies(sandbox):
    """Neither ConfigMap is there before or after."""

    async def clean() -> None:
        for path in (APPLIED, IN_FORCE):
            with suppress(ApiError):
                await sandbox.client.delete(path)

    await clean()
    yield
    await clean()


async def test_what_is_in_force_outlives_broken_files(sandbox, giveway, no_policies):
    """A typo and a lost rule are refused when applied; a server restarted on such files goes by what was in force."""
    forbidden = await sandbox.priority_class("forbidden", 7)
    tried = pod("tried", priorityClassName=forbidden)

    server = await giveway.serve(FORBIDDEN)
    assert "e2e/none" in await refusal(sandbox.client.create(sandbox.pods, tried, dryRun="All"))
    body = {"metadata": {"name": "giveway-policies"}, "data": {"policies.yaml": FORBIDDEN}}
    await sandbox.client.create(CONFIG_MAP.path(SYSTEM), body)
    for text, words in (
        (FORBIDDEN.replace("deny", "denny"), "unknown field"),
        (WITHOUT, "e2e/none: the rule is gone"),
    ):
        with pytest.raises(ApiError, match=words):
            await sandbox.client.patch(APPLIED, {"data": {"policies.yaml": text}})

    assert await server.stop(signal.SIGKILL) == -signal.SIGKILL
    server = await giveway.serve(FORBIDDEN.replace("deny", "denny"))
    assert "e2e/none" in await refusal(sandbox.client.create(sandbox.pods, tried, dryRun="All"))

    async def told() -> bool:
        return any("the set in force stays" in line["message"] for line in server.lines())

    await eventually(told, what="the server's log says so")
    meant = {"metadata": {"annotations": {"giveway.dev/allow-removal": "e2e/none"}}}
    await sandbox.client.patch(APPLIED, {**meant, "data": {"policies.yaml": WITHOUT}})


async def reviewed(giveway, namespace, name):
    """What the port answers to somebody without credentials who sends a review of an emptied ConfigMap."""
    url = (await url_of(giveway)).removesuffix("/")
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {}}
    user = {"username": "system:admin", "groups": ["system:masters"]}
    body = review_of("ConfigMap", obj, user, operation="UPDATE", old_object=obj, namespace=namespace, name=name)
    async with aiohttp.ClientSession() as session, session.post(f"{url}/validate", json=body, ssl=False) as answer:
        return (await answer.json())["response"]


async def url_of(giveway):
    """Where the API server sends reviews."""
    found = await giveway.client.get(giveway.configurations[0])
    return found["webhooks"][0]["clientConfig"]["url"].rpartition("/")[0]


@pytest.mark.kubectl
async def test_another_namespaces_config_map_tells_nothing(sandbox, giveway, kubectl, no_policies):
    """Neither a tenant who makes one of that name nor whoever reaches the port learns what policies there are."""
    await may_edit(sandbox, TENANT, sandbox.id)
    await giveway.serve(FORBIDDEN)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "giveway-policies"}, "data": {}}
    said = await kubectl("create", "-f", "-", "-n", sandbox.id, *TENANT, stdin=json.dumps(body))
    assert said == "configmap/giveway-policies created\n"
    assert "cannot create resource" in await kubectl(
        "create", "-f", "-", "-n", SYSTEM, *TENANT, stdin=json.dumps(body), code=1
    )
    for namespace in (sandbox.id, "kube-system", ""):
        for name in ("giveway-policies", "giveway-probe"):
            answer = await reviewed(giveway, namespace, name)
            assert answer == {"uid": answer["uid"], "allowed": True}
    assert "e2e: the PriorityPolicy" in str(await reviewed(giveway, SYSTEM, "giveway-policies"))


EXCEPTION = "  exceptions:\n  - {match: {namespaces: [a]}, rules: [none], reason: r, owner: o, until: UNTIL}\n"
UNUSABLE = {
    "lies outside the years 0001 to 9999": FORBIDDEN + EXCEPTION.replace("UNTIL", "'9999-12-31T23:59:59-14:00'"),
    "needs at least one value": FORBIDDEN
    + "  - {name: band, reserve: {from: 1, to: 9, use:"
    + " [{namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}]}}\n",
}


@pytest.mark.kubectl
async def test_what_would_end_a_server_is_refused_to_whoever_may_write_the_policies(
    sandbox, kubeconfig, kubectl, tmp_path, no_policies
):
    """It is refused with its place; the last day that there is is a day, and the server that uses it stays healthy."""
    await may_edit(sandbox, PIPELINE, SYSTEM)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "giveway-policies", "namespace": SYSTEM}}
    async with installed(sandbox.client, kubeconfig, tmp_path) as giveway:
        server = await giveway.serve(FORBIDDEN)
        for words, text in UNUSABLE.items():
            applied = json.dumps({**body, "data": {"policies.yaml": text}})
            said = await kubectl("create", "-f", "-", *PIPELINE, stdin=applied, code=1)
            assert words in said
            assert "giveway-policies/policies.yaml:" in said
        last = FORBIDDEN + EXCEPTION.replace("UNTIL", "9999-12-31")
        meant = {**body["metadata"], "annotations": {"giveway.dev/allow-removal": "e2e"}}
        applied = json.dumps({**body, "metadata": meant, "data": {"policies.yaml": last}})
        await kubectl("create", "-f", "-", *PIPELINE, stdin=applied)
        assert await server.stop(signal.SIGTERM) == 0
        server = await giveway.serve(last)
        assert not any("ended and is started again" in line["message"] for line in server.lines())
