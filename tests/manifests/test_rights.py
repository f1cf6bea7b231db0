"""The rights of the base are enough and no more: what its components used on a cluster, held against the rules."""

import ssl

import aiohttp

from tests.admission.builders import make_pod, make_review
from tests.manifests.at_work import RECONCILER, WEBHOOK, with_base
from tests.manifests.objects import NAMESPACE
from tests.manifests.rendering import containers, rules_of
from tests.rights import unused, used_rights
from tests.workloads import eventually, pod, priority_class
from webhook.clusters.embedded.embedded_cluster import node
from webhook.kube import resources
from webhook.preemption.snapshot.kinds import SNAPSHOT_KINDS

SELDOM = {
    "watch podgroups.scheduling.k8s.io",  # groups that go whole
    "get pods",  # a conflict on displacing is looked into
    "get replicasets.apps",  # the victim's Deployment is told
    "patch events.events.k8s.io",  # repetitions become a series
}
"""Rights of the reconciler that one ordinary preemption does not exercise."""
ABSENT = {f"watch {kind.resource.plural}.{kind.resource.group}" for kind in SNAPSHOT_KINDS if kind.optional}
"""Rights to watch kinds that the embedded control plane does not have: they are listed, and found missing."""


def held_against(cluster, account, *, left):
    """Assert that an account was refused nothing, and used all of its rights but for those that are `left`."""
    user = f"system:serviceaccount:{NAMESPACE}:{account}"
    assert not used_rights(cluster, user, allowed=False)
    assert set(unused(rules_of(account), used_rights(cluster, user))) <= left


async def test_the_reconciler_needs_its_rights_and_no_more(tmp_path):
    """A preemption is refused nothing, and leaves only the named rights unused."""
    async with with_base(tmp_path, deployments=False) as installed:
        await installed.admin.create(resources.NODE.path(), node("n1", "4", "8Gi"))
        async with installed.reconciling():
            await preempt(installed.admin)
        held_against(installed.cluster, RECONCILER, left=SELDOM | ABSENT)


async def test_the_webhook_needs_its_rights_and_no_more(tmp_path):
    """Issuing, serving, keeping the configurations, asking live, and renewing use every right; nothing is refused."""
    issue = containers(WEBHOOK)["issue-certificates"]
    renew = {"args": ["certs", "issue", "--rotate", *(arg for arg in issue["args"][2:] if arg != "--log")]}
    async with with_base(tmp_path, deployments=False) as installed:
        async with installed.serving():
            assert "no PriorityClass with name unheard-of" in await review(installed)
            await give_up_a_rule(installed)
        await installed.finish(renew)
        held_against(installed.cluster, WEBHOOK, left=ABSENT)


async def give_up_a_rule(installed):
    """Take a policy out of the files and say that it is meant; wait until it is not kept, nor the next one allowed."""
    admin, applied = installed.admin, resources.CONFIG_MAP.path(NAMESPACE, "giveway-policies")
    await admin.patch(applied, {"metadata": {"annotations": {"giveway.dev/allow-removal": "*"}}})
    (installed.policies / "preemption.yaml").unlink()

    async def is_given_up():
        kept = await admin.get(resources.CONFIG_MAP.path(NAMESPACE, "giveway-policies-in-force"))
        annotations = (await admin.get(applied))["metadata"].get("annotations") or {}
        return "preemption.yaml" not in kept["data"] and "giveway.dev/allow-removal" not in annotations

    await eventually(is_given_up, 20)


async def review(installed):
    """What the webhook says to a pod of which it knows neither class, namespace nor group, as the API server asks."""
    context = ssl.create_default_context(cafile=installed.directory / "certs" / "ca.crt")
    unknown = make_pod(priorityClassName="unheard-of", schedulingGroup={"podGroupName": "unheard-of"})
    url, name = f"https://127.0.0.1:{installed.port}/validate?timeout=5s", f"giveway-webhook.{NAMESPACE}.svc"
    asked = {"json": make_review(unknown, namespace="unheard-of"), "ssl": context, "server_hostname": name}
    async with aiohttp.ClientSession() as session, session.post(url, **asked) as answer:
        return (await answer.json())["response"]["status"]["message"]


async def preempt(admin):
    """Let a marked pod of a managed class take a victim's place."""
    await admin.create(resources.PRIORITY_CLASS.path(), priority_class("giveway-high", 100, preemptionPolicy="Never"))
    victims = priority_class("low", 1)
    victims["metadata"]["annotations"] = {"godel.bytedance.com/can-be-preempted": "true"}
    await admin.create(resources.PRIORITY_CLASS.path(), victims)
    path = resources.POD.path("default")

    async def bound(name):
        pods, _ = await admin.list(path)
        return any(each["metadata"]["name"] == name and each["spec"].get("nodeName") for each in pods)

    await admin.create(path, pod("victim", cpu="3", priorityClassName="low"))
    await eventually(lambda: bound("victim"), 20)
    marked = {"giveway.dev/preemption": "managed"}
    await admin.create(path, pod("preemptor", cpu="3", labels=marked, priorityClassName="giveway-high"))
    await eventually(lambda: bound("preemptor"), 20)
