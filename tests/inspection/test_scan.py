"""`giveway scan` on the embedded control plane: every kind, what is left out, expired lists, missing rights."""

import json

import msgspec
import pytest

from tests.admission.builders import make_policy, make_rule, manage
from tests.inspection.builders import policies
from tests.inspection.command import giveway, user
from tests.workloads import deployment, eventually, namespace, pod, priority_class
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.inspection import scan as scanning
from webhook.inspection.scan import scan
from webhook.kube import resources
from webhook.policy.model.policies import Policies
from webhook.policy.model.rules import PriorityClasses, Reserve

OWN = "giveway-system"
DENIES = policies(make_policy("p", make_rule("no-urgent", priority_classes=PriorityClasses(deny=("urgent",)))))
URGENT = {"priorityClassName": "urgent"}


@pytest.fixture
async def cluster():
    async with EmbeddedCluster(nodes=1) as started, started.client() as admin:
        started.admin = admin
        for made in (namespace("team-a"), namespace("free", **{"giveway.dev/exempt": ""}), namespace(OWN)):
            await admin.create(resources.NAMESPACE.path(), made)
        await admin.create(resources.PRIORITY_CLASS.path(), priority_class("urgent", 1000))
        yield started


async def closed(admin, **labels):
    """Make a budget that lets no pod with these labels go."""
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": labels}}
    await admin.create(resources.POD_DISRUPTION_BUDGET.path("team-a"), {"metadata": {"name": "closed"}, "spec": spec})


def rows(report):
    return {(row.kind, row.namespace, row.owner): row.objects for row in report.rows}


async def test_a_pod_whose_class_is_gone_is_judged(cluster):
    """Made again it would be refused, for its class does not exist any more; so the scan says it."""
    await cluster.admin.create(resources.PRIORITY_CLASS.path(), priority_class("gone", 10))
    await cluster.admin.create(resources.POD.path("team-a"), pod("bare", priorityClassName="gone"))
    await cluster.admin.delete(resources.PRIORITY_CLASS.path(name="gone"))
    report = await scan(cluster.admin, DENIES, OWN)
    assert [(row.rule, row.verdict, row.examples) for row in report.rows] == [
        ("builtin/class-exists", "refused", ["bare"])
    ]


async def test_a_budget_that_keeps_a_preemptible_pod_for_ever_is_told(cluster):
    """Pods that the policies may evict and a budget never lets go are a warning, with the budget and why."""
    admin = cluster.admin
    await closed(admin, app="batch")
    for name, annotations in (("goes", {"godel.bytedance.com/can-be-preempted": "true"}), ("stays", {})):
        made = pod(name, **URGENT)
        made["metadata"] |= {"annotations": annotations, "labels": {"app": "batch"}}
        await admin.create(resources.POD.path("team-a"), made)
    policies = Policies(preemption=(manage("other-*"),))
    (row,) = (await scan(admin, policies, OWN)).rows
    assert (row.rule, row.verdict, row.examples) == ("builtin/budget-never-allows", "warned", ["goes"])
    assert row.message == "PodDisruptionBudget closed never lets it be evicted, because its maxUnavailable is 0"


async def test_a_pod_that_cannot_be_read_does_not_end_the_scan(cluster):
    """What rules say of it stands; that nobody knows whether a budget keeps it is a problem, and the rest is judged."""
    await closed(cluster.admin)
    for name in ("other", "with-ports-of-tomorrow"):
        await cluster.admin.create(resources.POD.path("team-a"), pod(name, **URGENT))
    made = cluster.store.one("pods", "team-a", "with-ports-of-tomorrow")
    made["spec"]["containers"][0]["ports"] = [{"containerPort": 1, "hostPort": "any"}]
    cluster.store.put(cluster.store.collections["pods"].resource, made)
    report = await scan(cluster.admin, msgspec.structs.replace(DENIES, preemption=(manage("other-*"),)), OWN)
    assert rows(report) == {("Pod", "team-a", "no controller"): 2}
    [problem] = report.problems
    assert problem.startswith("Pod team-a/with-ports-of-tomorrow: cannot be read: ")


async def test_every_kind_is_judged_and_counted_by_owner(cluster):
    """Pods count for the workload that people wrote, templates for themselves; what is made from a template is not."""
    made = deployment("web", 2)
    made["spec"]["template"]["spec"].update(URGENT)
    await cluster.admin.create(resources.DEPLOYMENT.path("team-a"), made)
    for name in ("bare-1", "bare-2"):
        await cluster.admin.create(resources.POD.path("team-a"), pod(name, **URGENT))
    template = {"template": {"spec": {**pod("x")["spec"], **URGENT, "restartPolicy": "Never"}}}
    cron = {"metadata": {"name": "nightly"}, "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": template}}}
    await cluster.admin.create(resources.CRON_JOB.path("team-a"), cron)

    async def made_all():
        found, _ = await cluster.admin.list(resources.POD.path("team-a"))
        return len(found) == 4

    await eventually(made_all)
    report = await scan(cluster.admin, DENIES, OWN)
    assert rows(report) == {
        ("Pod", "team-a", "Deployment web"): 2,
        ("Pod", "team-a", "no controller"): 2,
        ("Deployment", "team-a", "Deployment web"): 1,
        ("CronJob", "team-a", "CronJob nightly"): 1,
    }
    assert {row.rule for row in report.rows} == {"p/no-urgent"}
    assert report.passed_over["made from another template"] == 1
    assert report.count("refused") == 6


async def test_what_giveway_is_not_asked_about_is_not_judged(cluster):
    """Exempt namespaces, kube-system and giveway's own are passed over and counted; so are pods that ended."""
    for name in ("free", "kube-system", OWN):
        await cluster.admin.create(resources.POD.path(name), pod("p", **URGENT))
    await cluster.admin.create(resources.POD.path("team-a"), pod("done", nodeName="nowhere", **URGENT))
    ended = {"status": {"phase": "Succeeded"}}
    await cluster.admin.patch(resources.POD.path("team-a", "done", "status"), ended)
    report = await scan(cluster.admin, DENIES, OWN)
    assert rows(report) == {}
    assert report.passed_over == {"in a namespace that giveway is not asked about": 3, "ended": 1}


def written_and_compacted(store):
    """A revision is newer than every list that was begun, and it is the oldest that is kept."""
    store.put(store.collections["pods"].resource, store.one("pods", "team-a", "p-9"))
    store.collections["pods"].floor = store.revision


async def test_a_list_that_expires_in_the_middle_goes_on(cluster, monkeypatch):
    """Nothing is counted twice and nothing is lost when the server forgets the revision between two pages."""
    monkeypatch.setattr("webhook.inspection.reading._PAGE", 3)
    for number in range(10):
        await cluster.admin.create(resources.POD.path("team-a"), pod(f"p-{number}", **URGENT))
    told = []

    def progress(kind, done, total):
        if kind == "pods":
            told.append((done, total))
            if done == 3:
                written_and_compacted(cluster.store)

    report = await scan(cluster.admin, DENIES, OWN, progress)
    assert rows(report) == {("Pod", "team-a", "no controller"): 10}
    assert [done for done, _ in told] == [3, 6, 9, 10]
    assert {total for _, total in told} == {10}


async def test_a_namespace_and_a_class_that_come_during_the_scan(cluster):
    """What the scan does not know yet is looked up, as the webhook does."""
    rule = make_rule("range", reserve=Reserve(from_=2000, to=5000, use=()))
    found = scanning._Scan(cluster.admin, policies(make_policy("p", rule)), OWN, lambda *_: None)
    await cluster.admin.create(resources.NAMESPACE.path(), namespace("late"))
    await cluster.admin.create(resources.PRIORITY_CLASS.path(), priority_class("late", 4000))
    await cluster.admin.create(resources.POD.path("late"), pod("p", priorityClassName="late"))
    await found.read(resources.POD)
    report = found.finish()
    assert rows(report) == {("Pod", "late", "no controller"): 1}
    assert {row.rule for row in report.rows} == {"p/range"}
    assert not report.problems


async def test_rows_are_bounded(cluster, monkeypatch):
    """Beyond the bound objects are counted by rule, not by owner."""
    monkeypatch.setattr(scanning, "MOST_ROWS", 2)
    for name in ("a", "b", "c", "d"):
        made = deployment(name, 0)
        made["spec"]["template"]["spec"].update(URGENT)
        await cluster.admin.create(resources.DEPLOYMENT.path("team-a"), made)
    report = await scan(cluster.admin, DENIES, OWN)
    assert report.count("refused") == 4
    assert rows(report)["Deployment", "", "further owners"] == 2


POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: p}
spec:
  rules:
  - {name: no-urgent, enforcement: ENFORCEMENT, priorityClasses: {deny: [urgent]}}
"""
TABLE = """\
refused  p/no-urgent  1 Pod: refused if made again
  For example: PriorityClass "urgent" may not be used in namespace team-a: rule p/no-urgent denies urgent
  namespace  owner          what   for example
  team-a     no controller  1 Pod  p
"""


@pytest.fixture
def directory(tmp_path):
    """A directory with a policy that is enforced."""
    (tmp_path / "p.yaml").write_text(POLICY.replace("ENFORCEMENT", "enforce"))
    return tmp_path


async def test_the_command(cluster, directory):
    """People see rule, why and where, programs the rows; the exit code is 1 from the verdict on that is asked for."""
    await cluster.admin.create(resources.POD.path("team-a"), pod("p", **URGENT))
    arguments = ("scan", "--kubeconfig", cluster.kubeconfig)
    result = await giveway(*arguments, "--policies", directory)
    assert [line.rstrip() for line in result.stdout.splitlines()][:4] == TABLE.splitlines()
    assert "Judged: 3 PriorityClasses, 1 Pod." in result.stdout
    for enforcement, fail_on, code in (
        ("enforce", "refused", 1),
        ("enforce", "never", 0),
        ("audit", "refused", 0),
        ("audit", "audited", 1),
        ("warn", "warned", 1),
    ):
        (directory / "p.yaml").write_text(POLICY.replace("ENFORCEMENT", enforcement))
        result = await giveway(*arguments, "--policies", directory, "--fail-on", fail_on, "--format=json")
        assert result.exit_code == code, (enforcement, fail_on, result.stderr)
        [row] = json.loads(result.stdout)["rows"]
        assert (row["rule"], row["objects"], row["examples"]) == ("p/no-urgent", 1, ["p"])
    # Without files those in force are taken, which the webhook keeps; without any the command says what to do
    result = await giveway(*arguments)
    assert (result.exit_code, "name the files with --policies DIR" in result.stderr) == (2, True)
    kept = {"p.yaml": POLICY.replace("ENFORCEMENT", "enforce")}
    config_map = {"metadata": {"name": "giveway-policies-in-force"}, "data": kept}
    await cluster.admin.create(resources.CONFIG_MAP.path(OWN), config_map)
    assert (await giveway(*arguments)).exit_code == 1


async def test_a_right_that_is_missing_is_said(cluster, directory):
    """Who may not list pods is told so; a workload kind that may not be listed makes the scan incomplete."""
    nobody = cluster.write_kubeconfig("nobody", cluster.add_user("nobody"))
    result = await giveway("scan", "--kubeconfig", nobody, "--policies", directory)
    assert (result.exit_code, "a right is missing" in result.stderr) == (2, True)
    groups, plurals = ["", "scheduling.k8s.io"], ["pods", "namespaces", "priorityclasses"]
    rules = [{"apiGroups": groups, "resources": plurals, "verbs": ["list"]}]
    viewer = await user(cluster, cluster.admin, "viewer", rules)
    result = await giveway("scan", "--kubeconfig", viewer, "--policies", directory, "--format=json")
    assert result.exit_code == 2
    assert "deployments: not scanned, no right to list them" in json.loads(result.stdout)["problems"]
