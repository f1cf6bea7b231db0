"""The ServiceAccount plugin: every pod gets a volume of its own for its token, as on a real API server."""

from __future__ import annotations

import pytest

from tests.clusters.embedded.webhook_server import WebhookServer, configuration, patching, set_field
from tests.workloads import pod
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube.resources import MUTATING_WEBHOOK_CONFIGURATION, POD

PODS = POD.path("default")
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


@pytest.fixture
async def admin():
    async with EmbeddedCluster(nodes=0, without=("scheduler", "kubelet")) as cluster:
        client = cluster.api.local()
        meek = {"metadata": {"name": "meek"}, "automountServiceAccountToken": False}
        await client.create(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", **meek})
        yield client


def tokens(made) -> list[str]:
    """The names of the volumes with a token."""
    return [volume["name"] for volume in made["spec"].get("volumes", ()) if "projected" in volume]


async def test_every_pod_has_a_volume_of_its_own(admin):
    """Each container mounts the token from it; no two pods have the name of it in common."""
    init = {"initContainers": [{"name": "init", "image": "nginx"}]}
    one, other = [await admin.create(PODS, pod(name, **init)) for name in ("one", "other")]
    assert len({*tokens(one), *tokens(other)}) == 2
    assert one["spec"]["serviceAccountName"] == "default"
    for container in (*one["spec"]["containers"], *one["spec"]["initContainers"]):
        assert [mount["name"] for mount in container["volumeMounts"]] == tokens(one)


@pytest.mark.parametrize(
    ("spec", "annotations", "expected"),
    [
        pytest.param({"automountServiceAccountToken": False}, {}, 0, id="the pod wants none"),
        pytest.param({"serviceAccountName": "meek"}, {}, 0, id="its account wants none"),
        pytest.param({"serviceAccountName": "meek", "automountServiceAccountToken": True}, {}, 1, id="the pod decides"),
        pytest.param({"serviceAccount": "meek"}, {}, 0, id="an account by the old name of the field"),
        pytest.param({}, {"kubernetes.io/config.mirror": "x"}, 0, id="a mirror pod"),
    ],
)
async def test_who_gets_no_token(admin, spec, annotations, expected: int):
    """Pods that want none, by themselves or by their account, and mirror pods."""
    body = pod("p", **spec)
    body["metadata"]["annotations"] = annotations
    assert len(tokens(await admin.create(PODS, body))) == expected


async def test_once_more_after_a_webhook(admin, tmp_path):
    """A webhook's change brings no second volume."""
    async with WebhookServer(tmp_path, patching(set_field("/metadata/labels/seen", "yes"))) as server:
        await admin.create(MUTATING_WEBHOOK_CONFIGURATION.path(), configuration("Mutating", "m", server.hook()))
        made = await admin.create(PODS, pod("p"))
    assert made["metadata"]["labels"]["seen"] == "yes"
    assert len(tokens(made)) == 1
