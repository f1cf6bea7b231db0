"""The rights of the base are enough and no more: what its components used on a cluster, held against the rules."""

import asyncio
import shutil
import ssl

import aiohttp
import pytest

from tests.admission.builders import make_pod, make_review
from tests.manifests.objects import BASE, NAMESPACE, POLICIES, ROOT, base_objects, containers
from tests.manifests.test_install import (
    answers,
    eventually,
    in_force,
    pod,
    running,
    serving_changes,
)
from tests.ports import free_port
from tests.rights import UsedRights, unused
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster, node
from webhook.installation.kustomize import components, render
from webhook.kube import resources
from webhook.kube.errors import ApiError
from webhook.preemption.snapshot.kinds import SNAPSHOT_KINDS

POLICY = """
apiVersion: giveway.dev/v1alpha1
kind: PreemptionPolicy
metadata: {name: managed}
spec:
  preemptors: {priorityClasses: [high]}
"""
SELDOM = {
    "watch podgroups.scheduling.k8s.io": "tests/e2e/test_gangs.py::test_groups_go_whole",
    "get pods": "tests/reconciler/evict/test_writer.py::test_a_conflict_on_displacing_is_looked_into",
    "get replicasets.apps": "tests/reconciler/test_service.py::test_the_victims_deployment_is_told",
    "patch events.events.k8s.io": "tests/kube/test_events.py::test_repetitions_become_a_series",
}
"""Rights of the reconciler that one ordinary preemption does not exercise, each with the test that does."""
ABSENT = {f"watch {kind.resource.plural}.{kind.resource.group}" for kind in SNAPSHOT_KINDS if kind.optional}
"""Rights to watch kinds that the embedded control plane does not have: they are listed, and found missing."""


def rules_of(account):
    """The PolicyRules bound to a service account of the base; roles carry its name."""
    roles = [obj for obj in base_objects() if obj["kind"] in {"Role", "ClusterRole"}]
    return [rule for role in roles if role["metadata"]["name"] == account for rule in role["rules"]]


def test_the_reconciler_may_watch_what_it_watches():
    """Each kind of a snapshot can be listed and watched, and nothing else."""
    watching = [rule for rule in rules_of("giveway-reconciler") if "watch" in rule["verbs"] and "list" in rule["verbs"]]
    allowed = {(group, name) for rule in watching for group in rule["apiGroups"] for name in rule["resources"]}
    assert allowed == {(kind.resource.group, kind.resource.plural) for kind in SNAPSHOT_KINDS}


def test_every_role_is_tried():
    """No component gives an account of the base more than the base does; the other accounts have tests of their own."""
    more = {}
    for component in sorted(path.name for path in (ROOT / "manifests" / "components").iterdir()):
        for role in render(BASE, components((component,))):
            if role["kind"] not in {"Role", "ClusterRole"}:
                continue
            name = role["metadata"]["name"]
            rules = rules_of(name)
            if not all(any(_covers(rule, wanted) for rule in rules) for wanted in role["rules"]):
                more.setdefault(name, set()).add(component)
    assert more == {"giveway-native": {"native-policies"}, "giveway-scan": {"scan"}}
    tried = (ROOT / "tests/manifests/test_component_rights.py").read_text()
    assert "test_the_keeper_needs_its_rights_and_no_more" in tried
    assert "test_the_scan_needs_its_rights_and_no_more" in tried


def _covers(rule, wanted):
    """Whether a rule allows all that another one does."""
    parts = ("apiGroups", "resources", "verbs", "nonResourceURLs")
    names, asked = (set(one.get("resourceNames", ())) for one in (rule, wanted))
    of_names = not names or bool(asked and asked <= names)
    return of_names and all(set(wanted.get(part, ())) <= set(rule.get(part, ())) for part in parts)


@pytest.mark.parametrize("right", SELDOM)
def test_a_right_that_is_seldom_used_has_its_own_test(right):
    """What an ordinary preemption does not need is needed by another test, which is there."""
    path, _, name = SELDOM[right].partition("::")
    assert f"def {name}(" in (ROOT / path).read_text()


async def test_the_reconciler_needs_its_rights_and_no_more(tmp_path):
    """A preemption is refused nothing, and leaves only the named rights unused."""
    (tmp_path / "policies.yaml").write_text(POLICY)
    async with EmbeddedCluster(nodes=0) as cluster, cluster.client() as admin:
        await install_rights(admin)
        await admin.create(resources.NODE.path(), node("n1", "4", "8Gi"))
        port = free_port()
        changes = {
            "--health-port": f"--health-port={port}",
            "--debug-port": "--debug-port=0",
            "--policies": f"--policies={tmp_path}",
        }
        reconciler = containers("giveway-reconciler")["reconciler"]
        async with running(cluster, "giveway-reconciler", reconciler, changes):
            await eventually(lambda: answers(f"http://127.0.0.1:{port}/readyz"))
            await preempt(admin)
        refused, left = rights_of(cluster, "giveway-reconciler")
        assert not refused
        assert left <= SELDOM.keys() | ABSENT


async def test_the_webhook_needs_its_rights_and_no_more(tmp_path):
    """Issuing, serving, keeping the configurations, asking live, and renewing use every right; nothing is refused."""
    async with EmbeddedCluster(nodes=0) as cluster, cluster.client() as admin:
        await install_rights(admin)
        found, (port, health) = containers("giveway-webhook"), (free_port(), free_port())
        policies = shutil.copytree(POLICIES, tmp_path / "policies")
        changes = {**serving_changes(tmp_path, port, health), "--policies": f"--policies={policies}"}
        issue = found["issue-certificates"]
        renew = {"args": ["certs", "issue", "--rotate", *(one for one in issue["args"][2:] if one != "--log")]}
        cluster.services[f"{NAMESPACE}/giveway-webhook:443"] = f"127.0.0.1:{port}"
        await finish(cluster, issue, changes)
        async with running(cluster, "giveway-webhook", found["webhook"], changes):
            await eventually(lambda: answers(f"http://127.0.0.1:{health}/readyz"))
            assert "no PriorityClass with name unheard-of" in await review(port, tmp_path)
            await eventually(lambda: in_force(admin))
            await give_up_a_rule(admin, policies)
        await finish(cluster, renew, changes)
        refused, left = rights_of(cluster, "giveway-webhook")
        assert not refused
        assert left <= ABSENT


def rights_of(cluster, account):
    """The rights an account was refused, and those it did not use."""
    user = f"system:serviceaccount:{NAMESPACE}:{account}"
    used = UsedRights(cluster)
    return set(used.of(user, allowed=False)), set(unused(rules_of(account), used.of(user)))


async def finish(cluster, container, changes):
    """Let a container of the webhook run to its end."""
    async with running(cluster, "giveway-webhook", container, changes) as process:
        assert await asyncio.wait_for(process.wait(), 30) == 0


async def give_up_a_rule(admin, policies):
    """Take a policy out of the files and say that it is meant; wait until it is not kept, nor the next one allowed."""
    applied = resources.CONFIG_MAP.path(NAMESPACE, "giveway-policies")
    meant = {"metadata": {"annotations": {"giveway.dev/allow-removal": "*"}}}
    await admin.patch(applied, meant)
    (policies / "preemption.yaml").unlink()

    async def is_given_up():
        kept = await admin.get(resources.CONFIG_MAP.path(NAMESPACE, "giveway-policies-in-force"))
        annotations = (await admin.get(applied))["metadata"].get("annotations") or {}
        return "preemption.yaml" not in kept["data"] and "giveway.dev/allow-removal" not in annotations

    await eventually(is_given_up)


async def review(port, directory):
    """What the webhook says to a pod of which it knows neither class, namespace nor group, as the API server asks."""
    context = ssl.create_default_context(cafile=directory / "ca.crt")
    pod = make_pod(priorityClassName="unheard-of", schedulingGroup={"podGroupName": "unheard-of"})
    asked = make_review(pod, namespace="unheard-of")
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"https://127.0.0.1:{port}/validate?timeout=5s",
            json=asked,
            ssl=context,
            server_hostname=f"giveway-webhook.{NAMESPACE}.svc",
        ) as answer,
    ):
        return (await answer.json())["response"]["status"]["message"]


async def install_rights(admin, *more):
    """Apply the base without its Deployments, and further objects."""
    where = {
        "Namespace": resources.NAMESPACE.path(),
        "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
        "Role": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles",
        "RoleBinding": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings",
        "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "ConfigMap": resources.CONFIG_MAP.path(NAMESPACE),
        "Secret": resources.SECRET.path(NAMESPACE),
        "MutatingWebhookConfiguration": resources.MUTATING_WEBHOOK_CONFIGURATION.path(),
        "ValidatingWebhookConfiguration": resources.VALIDATING_WEBHOOK_CONFIGURATION.path(),
    }
    wanted = [obj for obj in (*base_objects(), *more) if obj["kind"] in where]
    for obj in sorted(wanted, key=lambda obj: list(where).index(obj["kind"])):
        await admin.create(where[obj["kind"]], obj)


async def preempt(admin):
    """Let a marked pod of a managed class take a victim's place."""
    await admin.create(
        resources.PRIORITY_CLASS.path(), {"metadata": {"name": "high"}, "value": 100, "preemptionPolicy": "Never"}
    )
    victims = {"metadata": {"name": "low", "annotations": {"godel.bytedance.com/can-be-preempted": "true"}}, "value": 1}
    await admin.create(resources.PRIORITY_CLASS.path(), victims)
    big = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]}
    victim = pod("victim", priorityClassName="low", **big)
    await admin.create(resources.POD.path("default"), victim)

    async def bound(name):
        try:
            return (await admin.get(resources.POD.path("default", name)))["spec"].get("nodeName")
        except ApiError:
            return None

    await eventually(lambda: bound("victim"))
    preemptor = pod("preemptor", priorityClassName="high", **big)
    preemptor["metadata"]["labels"] = {"giveway.dev/preemption": "managed"}
    await admin.create(resources.POD.path("default"), preemptor)
    await eventually(lambda: bound("preemptor"))
