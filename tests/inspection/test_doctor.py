"""`giveway doctor` as a process against the embedded control plane: exit codes, missing rights, the canary's end."""

import asyncio
import json
import os
import signal
import sys
from functools import partial

import pytest
from ruamel.yaml import YAML

from tests.failing import fail
from tests.inspection.command import giveway, user
from tests.inspection.observing import entry
from tests.kube.server import write_kubeconfig
from tests.manifests.objects import POLICIES, ROOT
from tests.rights import unused, used_rights
from tests.workloads import eventually, namespace, pod
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.inspection.doctor import CHECKS, LABEL, examine_nominations
from webhook.inspection.observed import observe
from webhook.kube import resources
from webhook.policy.model.policies import Policies
from webhook.registration import stored

OWN = "giveway-system"
NOBODY = {
    "clientConfig": {"url": "https://127.0.0.1:1/validate"},
    "failurePolicy": "Ignore",
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}


@pytest.fixture
async def cluster():
    async with EmbeddedCluster(nodes=1) as started, started.client() as admin:
        started.admin = admin
        for name in ("team-a", OWN):
            await admin.create(resources.NAMESPACE.path(), namespace(name))
        yield started


def doctor(cluster, *arguments, kubeconfig=None):
    return giveway(*("doctor", "--policies", POLICIES, "--kubeconfig", kubeconfig or cluster.kubeconfig, *arguments))


async def canaries(admin):
    """Pods and classes of canaries that are still there."""
    found = []
    for path in (resources.POD.path(), resources.PRIORITY_CLASS.path()):
        items, _ = await admin.list(path, labelSelector=LABEL)
        found += [item["metadata"]["name"] for item in items]
    return found


async def test_findings_come_with_reason_and_fix(cluster):
    """Text for people, JSON for programs, and exit code 1."""
    await cluster.admin.create(resources.POD.path("team-a"), pod("p", priorityClassName="system-node-critical"))
    text = await doctor(cluster)
    assert text.exit_code == 1
    assert "error  reserved-ranges\n  1 pod of priority 2000001000 (PriorityClass system-node-critical)" in text.stdout
    assert text.stdout.count("Why it matters: ") == text.stdout.count("Fix: ")
    assert (await doctor(cluster, "--fail-on=never")).exit_code == 0
    result = json.loads((await doctor(cluster, "--format=json")).stdout)
    assert result["checks"] == [check.name for check in CHECKS]
    assert {"installed", "reserved-ranges", "policies"} == {finding["check"] for finding in result["findings"]}
    assert all(finding["why"] and finding["fix"] for finding in result["findings"])


async def test_nothing_is_said_of_checks_that_are_not_made(cluster):
    """Without any policies those that go by them are named as not checked, and not among those that found nothing."""
    text = await giveway("doctor", "--kubeconfig", cluster.kubeconfig)
    quiet = text.stdout.partition("Nothing found: ")[2].partition(".")[0].split(", ")
    by_policies = {check.name for check in CHECKS if check.by_policies}
    assert "leader" in quiet
    assert not by_policies & set(quiet)
    assert f"Not checked, because no policies are known: {', '.join(sorted(by_policies))}." in " ".join(
        text.stdout.split()
    )
    result = json.loads((await giveway("doctor", "--kubeconfig", cluster.kubeconfig, "--format=json")).stdout)
    assert result["checks"] == [check.name for check in CHECKS if check.name not in by_policies]


async def test_what_anybody_may_write_stays_text(cluster):
    """An annotation makes no line, colour or markup of its own, and only its beginning is shown."""
    key, hostile = "godel.bytedance.com/can-be-preempted", "\x1b[31m[red]\u202e\r\n  error  forged" + "x" * 3000
    batch = {"metadata": {"name": "batch", "annotations": {key: hostile}}, "value": 10}
    await cluster.admin.create(resources.PRIORITY_CLASS.path(), batch)
    await cluster.admin.create(resources.POD.path("team-a"), pod("p", priorityClassName="batch"))
    text = (await doctor(cluster)).stdout
    assert f'annotation {key} is absent, and the class says "' in " ".join(text.split())
    assert r"\u001b[31m[red]\u202e error" in text
    assert not {"\x1b", "\r", "\u202e"} & set(text)
    assert "xxx" * 30 not in text
    assert json.loads((await doctor(cluster, "--format=json")).stdout)["findings"]


async def test_missing_rights_are_findings(cluster):
    """Who may do next to nothing learns what was not checked, in exit code 2, and sees no stack trace."""
    kubeconfig = cluster.write_kubeconfig("viewer", cluster.add_user("viewer"))
    result = await doctor(cluster, kubeconfig=kubeconfig)
    assert result.exit_code == 2, result.stderr
    assert result.stdout.count("not checked  ") == len([check for check in CHECKS if check.needs])
    assert "Not checked: no right to list poddisruptionbudgets; no right to list pods." in result.stdout
    assert "Traceback" not in result.stderr


async def test_the_documented_role_suffices(cluster):
    """The ClusterRole of docs/operations.md lets every check run, and holds nothing that is not used."""
    text = (ROOT / "docs" / "operations.md").read_text()
    block = text.partition("kind: ClusterRole\n")[2].partition("```")[0]
    role = YAML(typ="safe").load(block)
    probed = {"metadata": {"name": "giveway"}, "webhooks": [entry("pods.validate.giveway.dev", **NOBODY)]}
    await cluster.admin.create(resources.VALIDATING_WEBHOOK_CONFIGURATION.path(), probed)
    await cluster.admin.create(resources.CONFIG_MAP.path(OWN), {"metadata": {"name": "giveway-probe"}})
    kubeconfig = await user(cluster, cluster.admin, role["metadata"]["name"], role["rules"])
    result = await doctor(cluster, "--canary", kubeconfig=kubeconfig)
    assert "not checked" not in result.stdout
    assert not used_rights(cluster, "user", allowed=False)
    assert unused(role["rules"], used_rights(cluster, "user")) == []


async def test_entries_that_a_replica_keeps_are_told_apart(cluster):
    """What a replica wrote is known by the annotation on the configuration, which is read as well."""
    written = {"name": "giveway", "annotations": {stored.WRITTEN: "digest"}}
    await cluster.admin.create(resources.VALIDATING_WEBHOOK_CONFIGURATION.path(), {"metadata": written, "webhooks": []})
    read = (await observe(cluster.admin, Policies(), OWN, 0.0)).own_configuration("validatingwebhookconfigurations")
    assert read["metadata"]["annotations"] == written["annotations"]
    assert "managedFields" not in read["metadata"]


async def test_a_cluster_that_does_not_answer(tmp_path):
    """One sentence and exit code 2."""
    kubeconfig = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1", {})
    result = await giveway("doctor", "--policies", POLICIES, "--kubeconfig", kubeconfig)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: the cluster does not answer: ")


async def test_a_scheduler_that_clears_nominations_is_found():
    """A profile without PostFilter plugins clears the canary's nomination; nothing is left behind."""
    async with EmbeddedCluster(nodes=1, without=("preemption",)) as cluster, cluster.client() as admin:
        [finding] = await examine_nominations(admin, "default")
        assert (finding.severity, finding.check) == ("warning", "canary")
        assert "clears a nomination that it did not make" in finding.what
        assert await canaries(admin) == []


async def test_no_scheduler_is_inconclusive(monkeypatch):
    """Nobody tries the pod: that is said, after a while."""
    monkeypatch.setattr("webhook.inspection.doctor._TRIED", 0.5)
    async with EmbeddedCluster(nodes=1, without=("scheduler",)) as cluster, cluster.client() as admin:
        [finding] = await examine_nominations(admin, "default")
        assert finding.severity == "not checked"
        assert await canaries(admin) == []


async def test_a_refused_nomination_is_an_error(cluster):
    """If the API server does not let an outsider nominate, giveway cannot work."""
    fail(cluster, 10, "pods/status", verb="patch", name="giveway-canary-*")
    [finding] = await examine_nominations(cluster.admin, OWN)
    assert finding.severity == "error"
    assert await canaries(cluster.admin) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
async def test_the_canary_is_deleted_when_the_command_is_stopped(number):
    """In the middle of it, by Ctrl-C or SIGTERM."""
    async with EmbeddedCluster(nodes=1, without=("scheduler",)) as cluster, cluster.client() as admin:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "webhook.cli", "doctor", "--canary", "--policies", str(POLICIES)),
            *("--kubeconfig", str(cluster.kubeconfig)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # the shell of a job may ignore it
        )

        async def nominated():
            pods, _ = await admin.list(resources.POD.path(), labelSelector=LABEL)
            return pods and pods[0]["status"].get("nominatedNodeName")

        await eventually(nominated, 20)
        process.send_signal(number)
        _, errors = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 130
        assert errors.decode() == "stopped before the end\n"
        assert await canaries(admin) == []


async def test_what_a_killed_canary_left_goes_at_the_next_run(cluster, monkeypatch):
    """Ten minutes later; a canary that somebody else runs right now is left alone."""
    left = pod("giveway-canary-left", labels={LABEL: "left"}, nodeSelector={LABEL: "left"})
    await cluster.admin.create(resources.POD.path(OWN), left)
    assert await examine_nominations(cluster.admin, OWN) == []
    assert await canaries(cluster.admin) == ["giveway-canary-left"]
    monkeypatch.setattr("webhook.inspection.doctor._LEFT_BEHIND", -5.0)
    await examine_nominations(cluster.admin, OWN)
    assert await canaries(cluster.admin) == []
