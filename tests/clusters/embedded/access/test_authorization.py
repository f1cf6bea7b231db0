"""RBAC from stored objects: who may do what, in Kubernetes' words, and which rights were used."""

from __future__ import annotations

import pytest

from tests.workloads import Json, namespace, pod
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube.errors import ApiError
from webhook.kube.resources import NAMESPACE, POD
from webhook.policy.evaluation.request import UserInfo

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ALICE = UserInfo("alice", ("dev", "system:authenticated"), "alice")


def rule(verbs: str, resources: str, group: str = "", **more: list[str]) -> Json:
    return {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split(), **more}


def binding(kind: str, name: str, role_kind: str, role_name: str, *subjects: Json) -> Json:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role_name}
    return {"kind": kind, "metadata": {"name": name}, "roleRef": reference, "subjects": list(subjects)}


@pytest.fixture
async def cluster():
    async with EmbeddedCluster(nodes=1, without=("scheduler", "kubelet")) as running:
        admin = running.api.local()
        await admin.create(NAMESPACE.path(), namespace("team-a"))
        await admin.create(POD.path("default"), pod("one"))
        await admin.create(POD.path("team-a"), pod("one"))
        yield running


async def allow(cluster: EmbeddedCluster, where: str, rules: list[Json], *subjects: Json) -> None:
    """Bind the rules to the subjects, in a namespace or (`where` empty) everywhere."""
    admin, prefix = cluster.api.local(), f"{RBAC}/namespaces/{where}" if where else RBAC
    cluster_wide = "" if where else "Cluster"
    kind = f"{cluster_wide}Role"
    await admin.create(f"{prefix}/{kind.lower()}s", {"kind": kind, "metadata": {"name": "tested"}, "rules": rules})
    await admin.create(
        f"{prefix}/{kind.lower()}bindings", binding(f"{kind}Binding", "tested", kind, "tested", *subjects)
    )


USER = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}
GROUP = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "dev"}


EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}}


async def allowed(cluster: EmbeddedCluster, verb: str, path: str) -> bool:
    client = cluster.api.local(ALICE)
    calls = {
        "get": lambda: client.get(path),
        "list": lambda: client.list(path, dict),
        "create": lambda: client.create(path, EVICTION),
    }
    try:
        await calls[verb]()
    except ApiError as error:
        if error.status != 403:
            raise
        return False
    return True


EVICT = f"create {POD.path('team-a', 'one', 'eviction')}"
LIST_A, LIST_DEFAULT, LIST_ALL = (f"list {POD.path(where)}" for where in ("team-a", "default", None))
GET_ONE, GET_TWO = (f"get {POD.path('team-a', name)}" for name in ("one", "two"))
ONE = rule("get list", "pods", resourceNames=["one"])


@pytest.mark.parametrize(
    ("where", "rules", "subject", "asked"),
    [
        ("team-a", rule("get list", "pods"), USER, {LIST_A: True, LIST_DEFAULT: False, LIST_ALL: False}),
        ("", rule("list", "pods"), GROUP, {LIST_DEFAULT: True, LIST_ALL: True, GET_ONE: False}),
        ("team-a", ONE, USER, {GET_ONE: True, GET_TWO: False, LIST_A: False}),
        ("team-a", rule("create", "pods"), USER, {EVICT: False}),
        ("", rule("create", "*/eviction"), USER, {EVICT: True}),
    ],
    ids=["in a namespace", "everywhere, of a group", "one name", "no sub-resource", "sub-resources"],
)
async def test_what_a_binding_grants(cluster, where, rules, subject, asked):
    """Its rules, in its namespace or everywhere, to its subjects; nothing else."""
    await allow(cluster, where, [rules], subject)
    assert {text: await allowed(cluster, *text.split()) for text in asked} == asked


async def test_service_account_subject_means_its_user(cluster):
    """A ServiceAccount subject grants the rights to whoever bears its token."""
    await cluster.api.local().create(
        "/api/v1/namespaces/team-a/serviceaccounts", {"kind": "ServiceAccount", "metadata": {"name": "bot"}}
    )
    await allow(cluster, "", [rule("list", "pods")], {"kind": "ServiceAccount", "name": "bot", "namespace": "team-a"})
    client = cluster.client(cluster.service_account_token("team-a", "bot"))
    assert len((await client.list(POD.path("team-a"), dict))[0]) == 1
    await client.close()


@pytest.mark.parametrize(("role_name", "expected"), [("view", False), ("edit", True)])
async def test_view_reads_and_edit_writes(cluster, role_name, expected):
    """Whoever is bound to `view` reads a namespace's pods; `edit` evicts them, too."""
    admin = cluster.api.local()
    await admin.create(
        f"{RBAC}/namespaces/team-a/rolebindings", binding("RoleBinding", "b", "ClusterRole", role_name, USER)
    )
    assert await allowed(cluster, "list", POD.path("team-a"))
    assert await allowed(cluster, *EVICT.split()) is expected


async def test_rights_end_with_the_binding(cluster):
    """Deleting the binding takes the rights away at once."""
    await allow(cluster, "team-a", [rule("list", "pods")], USER)
    assert await allowed(cluster, "list", POD.path("team-a"))
    await cluster.api.local().delete(f"{RBAC}/namespaces/team-a/rolebindings/tested")
    assert not await allowed(cluster, "list", POD.path("team-a"))
