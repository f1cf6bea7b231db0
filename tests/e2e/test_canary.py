"""The canary of `giveway doctor` on this cluster (docs/kubernetes-behaviour.md K8, K12)."""

from webhook.inspection.doctor import LABEL, examine_nominations
from webhook.kube.resources import POD, PRIORITY_CLASS


async def test_the_scheduler_keeps_an_outside_nomination(sandbox):
    """A pod of our own keeps its nomination over a failed attempt; neither pod nor class stays behind."""
    await sandbox.node("n1")
    assert await examine_nominations(sandbox.client, sandbox.id) == []
    for path in (POD.path(sandbox.id), PRIORITY_CLASS.path()):
        found, _ = await sandbox.client.list(path, labelSelector=LABEL)
        assert not found
