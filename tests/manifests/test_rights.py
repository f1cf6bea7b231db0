"""The rights of the base are enough and no more: what its components used on a cluster, held against the rules."""

from tests.manifests.objects import NAMESPACE, base_objects, containers
from tests.manifests.test_install import answers, eventually, free_port, pod, running
from webhook.embedded.access.rights import unused
from webhook.embedded.cluster import EmbeddedCluster, node
from webhook.kube import paths
from webhook.kube.client import ApiError

POLICY = """
apiVersion: giveway.dev/v1alpha1
kind: PreemptionPolicy
metadata: {name: managed}
spec:
  preemptors: {priorityClasses: [high]}
"""
SELDOM = {
    "giveway-reconciler": {
        "get pods": "a pod is read again after a conflict",
        "patch events.events.k8s.io": "an event that repeats becomes a series",
    },
    "giveway-webhook": {
        "get priorityclasses.scheduling.k8s.io": "a class that the cache does not know is looked up live",
        "get namespaces": "so is a namespace",
        "list priorityclasses.scheduling.k8s.io": "giveway serve is not part of this test",
        "watch priorityclasses.scheduling.k8s.io": "see above; test_install.py shows it at work",
        "list namespaces": "see above",
        "watch namespaces": "see above",
        "update secrets": "certificates are renewed months later",
    },
}
"""Rights that one ordinary preemption and one installation do not exercise, each with what it is for."""

HOOK = {
    "name": "pods.giveway.dev",
    "clientConfig": {"service": {"namespace": NAMESPACE, "name": "giveway-webhook"}},
    "rules": [],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
"""A webhook that is never called but gets its caBundle."""


def rules_of(account):
    """The PolicyRules bound to a service account of the base; roles carry its name."""
    roles = [obj for obj in base_objects() if obj["kind"] in {"Role", "ClusterRole"}]
    return [rule for role in roles if role["metadata"]["name"] == account for rule in role["rules"]]


async def test_the_rights_are_enough_and_no_more(tmp_path):
    """A preemption and an installation are refused nothing, and leave only the named rights unused."""
    (tmp_path / "policies.yaml").write_text(POLICY)
    async with EmbeddedCluster(nodes=0) as cluster, cluster.client() as admin:
        await install_rights(admin)
        one = node("n1", "4", "8Gi")
        await admin.create(paths.NODE.path(), one)
        changes = {
            "--health-port": f"--health-port={free_port()}",
            "--policies": f"--policies={tmp_path}",
            "--dir": f"--dir={tmp_path / 'certs'}",
        }
        issue = containers("giveway-webhook")["issue-certificates"]
        async with running(cluster, "giveway-webhook", issue, changes) as issuing:
            assert await issuing.wait() == 0
        reconciler = containers("giveway-reconciler")["reconciler"]
        async with running(cluster, "giveway-reconciler", reconciler, changes):
            await eventually(lambda: answers(f"http://127.0.0.1:{changes['--health-port'].split('=')[1]}/readyz"))
            await preempt(admin)
        for account, seldom in SELDOM.items():
            user = f"system:serviceaccount:{NAMESPACE}:{account}"
            used = cluster.authorizer.used
            assert not used.refused(user)
            assert set(unused(rules_of(account), used.of(user))) <= seldom.keys()


async def install_rights(admin):
    """Apply the base without its Deployments; nobody is to answer its webhooks here."""
    where = {
        "Namespace": paths.NAMESPACE.path(),
        "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
        "Role": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles",
        "RoleBinding": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings",
        "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    }
    wanted = [obj for obj in base_objects() if obj["kind"] in where]
    for obj in sorted(wanted, key=lambda obj: list(where).index(obj["kind"])):
        await admin.create(where[obj["kind"]], obj)
    for resource in (paths.MUTATING_WEBHOOK_CONFIGURATION, paths.VALIDATING_WEBHOOK_CONFIGURATION):
        await admin.create(resource.path(), {"metadata": {"name": "giveway"}, "webhooks": [HOOK]})


async def preempt(admin):
    """Let a marked pod of a managed class take a victim's place."""
    await admin.create(
        paths.PRIORITY_CLASS.path(), {"metadata": {"name": "high"}, "value": 100, "preemptionPolicy": "Never"}
    )
    victims = {"metadata": {"name": "low", "annotations": {"godel.bytedance.com/can-be-preempted": "true"}}, "value": 1}
    await admin.create(paths.PRIORITY_CLASS.path(), victims)
    big = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]}
    victim = pod("victim", priorityClassName="low", **big)
    await admin.create(paths.POD.path("default"), victim)

    async def bound(name):
        try:
            return (await admin.get(paths.POD.path("default", name)))["spec"].get("nodeName")
        except ApiError:
            return None

    await eventually(lambda: bound("victim"))
    preemptor = pod("preemptor", priorityClassName="high", **big)
    preemptor["metadata"]["labels"] = {"giveway.dev/preemption": "managed"}
    await admin.create(paths.POD.path("default"), preemptor)
    await eventually(lambda: bound("preemptor"))
