"""Bearer tokens, those of service accounts above all, and what the first roles let them do."""

from __future__ import annotations

import pytest

from tests.workloads import namespace, pod, refusal
from webhook.clusters.embedded.access.users import Authentication, service_account
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.protocol.api_resources import BY_PLURAL
from webhook.clusters.embedded.storage.object_store import ObjectStore
from webhook.kube.resources import NAMESPACE, POD
from webhook.policy.evaluation.request import UserInfo

ACCOUNTS = "/api/v1/namespaces/team-a/serviceaccounts"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings"
PODS = POD.path("team-a")


@pytest.fixture
def authentication():
    store = ObjectStore()
    store.put(BY_PLURAL["serviceaccounts"], {"metadata": {"name": "bot", "namespace": "ns", "uid": "uid-1"}})
    return Authentication(store)


def test_a_token_is_its_user(authentication):
    """A token that was issued is its user; that of a service account is in its groups, as webhooks see it."""
    alice = UserInfo("alice", ("dev",), "1")
    assert authentication.authenticate({"authorization": f"Bearer {authentication.issue(alice)}"}) == alice
    token = authentication.issue_to_account("ns", "bot")
    groups = ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
    bot = UserInfo("system:serviceaccount:ns:bot", groups, "uid-1")
    assert authentication.authenticate({"authorization": f"Bearer {token}"}) == bot


@pytest.mark.parametrize("user", [("ns", "bot", "uid-0"), ("ns", "gone", "uid-1")], ids=["made again", "deleted"])
def test_stale_service_account_token_is_refused(authentication, user):
    """A token ends with its account."""
    token = authentication.issue(service_account(*user))
    assert authentication.authenticate({"authorization": f"Bearer {token}"}) is None


@pytest.mark.parametrize("header", [None, "Basic abc", "Bearer wrong", "Bearer a.b.\u00e9", "Bearer \udc80", "Bearer "])
def test_other_credentials_are_wrong(authentication, header):
    """Whatever bytes a caller sends, or none at all, is no user and no error."""
    assert authentication.authenticate({} if header is None else {"authorization": header}) is None


@pytest.mark.parametrize(("role", "evicts"), [("view", False), ("edit", True)])
async def test_an_account_does_what_it_is_bound_to(role, evicts):
    """With a token that was asked for it reads pods by `view`; by `edit` it evicts them, too."""
    async with EmbeddedCluster(nodes=1, without=("scheduler", "kubelet")) as cluster:
        admin = cluster.api.local()
        await admin.create(NAMESPACE.path(), namespace("team-a"))
        await admin.create(PODS, pod("one"))
        await admin.create(ACCOUNTS, {"metadata": {"name": "bot"}})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        bot = {"kind": "ServiceAccount", "name": "bot", "namespace": "team-a"}
        await admin.create(BINDINGS, {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [bot]})
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        answer = await admin.create(f"{ACCOUNTS}/bot/token", asked)
        async with cluster.client(answer["status"]["token"]) as client:
            assert len((await client.list(PODS, dict))[0]) == 1
            eviction = client.create(f"{PODS}/one/eviction", {"metadata": {"name": "one"}})
            assert ("cannot create" in await refusal(eviction)) is not evicts
