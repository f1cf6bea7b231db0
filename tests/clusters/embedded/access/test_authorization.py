"""RBAC from stored objects: who may do what, in Kubernetes' words, and which rights were used."""

from __future__ import annotations

import pytest

from tests.rights import unused
from tests.workloads import Json, namespace, pod
from webhook.clusters.embedded.access.authorization import UsedRights
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.protocol.calls import Right
from webhook.kube.errors import ApiError
from webhook.kube.resources import NAMESPACE, NODE, POD
from webhook.policy.evaluation.request import UserInfo

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ALICE = UserInfo("alice", ("dev", "system:authenticated"), "alice")


def rule(verbs: str, resources: str, group: str = "", **more: list[str]) -> Json:
    return {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split(), **more}


def role(kind: str, name: str, rules: list[Json], **more: object) -> Json:
    return {"kind": kind, "metadata": {"name": name, **more.pop("metadata", {})}, "rules": rules, **more}


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
    await admin.create(f"{prefix}/{kind.lower()}s", role(kind, "tested", rules))
    await admin.create(
        f"{prefix}/{kind.lower()}bindings", binding(f"{kind}Binding", "tested", kind, "tested", *subjects)
    )


USER = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}
GROUP = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "dev"}


async def allowed(cluster: EmbeddedCluster, verb: str, path: str, body: Json | None = None) -> bool:
    client = cluster.api.local(ALICE)
    calls = {
        "get": lambda: client.get(path),
        "list": lambda: client.list(path, dict),
        "create": lambda: client.create(path, body or {}),
        "delete": lambda: client.delete(path),
        "patch": lambda: client.patch(path, body or {}),
    }
    try:
        await calls[verb]()
    except ApiError as error:
        if error.status != 403:
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param(
            POD.path("team-a"),
            'pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "team-a"',
            id="list-in-namespace",
        ),
        pytest.param(
            NODE.path(),
            'nodes is forbidden: User "alice" cannot list resource "nodes" in API group "" at the cluster scope',
            id="cluster-scope",
        ),
        pytest.param(
            "/apis/apps/v1/namespaces/team-a/deployments",
            'deployments.apps is forbidden: User "alice" cannot list resource "deployments" in API group "apps" '
            'in the namespace "team-a"',
            id="named-group",
        ),
    ],
)
async def test_refusal_is_kubernetes_sentence(cluster, path, text):
    """A user without rights is refused with the sentence kube-apiserver writes."""
    with pytest.raises(ApiError) as caught:
        await cluster.api.local(ALICE).list(path, dict)
    assert (caught.value.status, caught.value.reason, caught.value.message) == (403, "Forbidden", text)


async def test_role_binding_counts_in_its_namespace_only(cluster):
    """A RoleBinding grants its rules in its own namespace and nowhere else."""
    await allow(cluster, "team-a", [rule("get list", "pods")], USER)
    assert await allowed(cluster, "list", POD.path("team-a"))
    assert not await allowed(cluster, "list", POD.path("default"))
    assert not await allowed(cluster, "list", POD.path())


async def test_cluster_role_binding_counts_everywhere_and_for_groups(cluster):
    """A ClusterRoleBinding to a group grants its members the rules in every namespace."""
    await allow(cluster, "", [rule("list", "pods")], GROUP)
    assert await allowed(cluster, "list", POD.path("default"))
    assert await allowed(cluster, "list", POD.path())
    assert not await allowed(cluster, "get", POD.path("default", "one"))


async def test_resource_names_narrow_a_rule(cluster):
    """ResourceNames grant one object and no listing."""
    await allow(cluster, "team-a", [rule("get list", "pods", resourceNames=["one"])], USER)
    assert await allowed(cluster, "get", POD.path("team-a", "one"))
    assert not await allowed(cluster, "get", POD.path("team-a", "two"))
    assert not await allowed(cluster, "list", POD.path("team-a"))


async def test_sub_resource_needs_its_own_rule(cluster):
    """`pods` does not include `pods/eviction`, and `*/eviction` does."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}}
    path = POD.path("team-a", "one", "eviction")
    await allow(cluster, "team-a", [rule("create", "pods")], USER)
    assert not await allowed(cluster, "create", path, body)
    await allow(cluster, "", [rule("create", "*/eviction")], USER)
    assert await allowed(cluster, "create", path, body)


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
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}}
    assert await allowed(cluster, "create", POD.path("team-a", "one", "eviction"), body) is expected


async def test_rights_end_with_the_binding(cluster):
    """Deleting the binding takes the rights away at once."""
    await allow(cluster, "team-a", [rule("list", "pods")], USER)
    assert await allowed(cluster, "list", POD.path("team-a"))
    await cluster.api.local().delete(f"{RBAC}/namespaces/team-a/rolebindings/tested")
    assert not await allowed(cluster, "list", POD.path("team-a"))


@pytest.mark.parametrize(
    ("verb", "namespace_", "expected"),
    [("list", "team-a", True), ("delete", "team-a", False), ("list", "default", False)],
    ids=["granted", "other-verb", "other-namespace"],
)
async def test_access_review_answers_without_trying(cluster, verb, namespace_, expected):
    """SelfSubjectAccessReview says what a request would be told."""
    await allow(cluster, "team-a", [rule("list", "pods")], USER)
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": verb, "resource": "pods", "namespace": namespace_}},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = await cluster.api.local(ALICE).create(path, review)
    assert answer["status"]["allowed"] is expected


async def test_used_rights_show_what_was_granted_in_vain(cluster):
    """What was exercised, refused and granted but unused can be told apart afterwards."""
    rules = [rule("get list delete", "pods"), rule("create", "pods/eviction")]
    await allow(cluster, "team-a", rules, USER)
    cluster.authorizer.used = UsedRights()
    await allowed(cluster, "list", POD.path("team-a"))
    await allowed(cluster, "get", POD.path("team-a", "one"))
    await allowed(cluster, "list", NODE.path())
    used = cluster.authorizer.used
    assert unused(rules, used.of("alice")) == ["delete pods", "create pods/eviction"]
    assert used.of("alice", allowed=False) == {Right("list", resource="nodes")}
