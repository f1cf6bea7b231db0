"""Bearer tokens: static ones, and service account tokens."""

from __future__ import annotations

import pytest

from webhook.clusters.embedded.access.authentication import ANONYMOUS, Authentication, service_account
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.clusters.embedded.protocol.api_resources import BY_PLURAL
from webhook.clusters.embedded.storage.object_store import ObjectStore
from webhook.kube.errors import ApiError
from webhook.kube.resources import POD
from webhook.policy.evaluation.request import UserInfo


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def authentication():
    store = ObjectStore()
    store.put(BY_PLURAL["serviceaccounts"], {"metadata": {"name": "bot", "namespace": "ns", "uid": "uid-1"}})
    made = Authentication(store)
    made.tokens["secret"] = UserInfo("alice", ("dev",), "1")
    return made


def test_known_wrong_and_missing_credentials(authentication):
    """A known token is its user, a wrong one a refusal, none at all the anonymous user."""
    assert authentication.authenticate(bearer("secret")).username == "alice"
    assert authentication.authenticate(bearer("wrong")) is None
    assert authentication.authenticate({"authorization": "Basic abc"}) is None
    assert authentication.authenticate({}) == ANONYMOUS


def test_service_account_token_carries_groups(authentication):
    """A minted token is the service account's user, as webhooks see it."""
    user = authentication.authenticate(bearer(authentication.issue_to_account("ns", "bot")))
    assert user.username == "system:serviceaccount:ns:bot"
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
    assert user.uid == "uid-1"


@pytest.mark.parametrize("user", [("ns", "bot", "uid-0"), ("ns", "gone", "uid-1")], ids=["made again", "deleted"])
def test_stale_service_account_token_is_refused(authentication, user):
    """A token ends with its account."""
    assert authentication.authenticate(bearer(authentication.issue(service_account(*user)))) is None


@pytest.mark.parametrize("token", ["a.b.\u00e9", "\u00e9.b.c", "a.b.\udc80", "\udc80", ".", ""])
def test_a_token_of_anything_is_refused(authentication, token):
    """Whatever bytes a caller sends as a token, it is a wrong one and no error."""
    assert authentication.authenticate(bearer(token)) is None


async def test_token_request_gives_a_working_token():
    """POST serviceaccounts/NAME/token returns a token that authenticates over TLS."""
    async with EmbeddedCluster(nodes=0, without=("scheduler", "kubelet")) as cluster:
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        admin = cluster.api.local()
        await admin.create(accounts, {"kind": "ServiceAccount", "metadata": {"name": "bot"}})
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        answer = await admin.create(f"{accounts}/bot/token", body)
        client = cluster.client(answer["status"]["token"])
        with pytest.raises(ApiError, match="system:serviceaccount:default:bot"):
            await client.list(POD.path("default"), dict)
        await client.close()
