"""The components that change the webhook, with a real server and its rights, and the Job of the scan."""

import asyncio
import base64
import shutil
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from certs.authority import service_names
from certs.files import maintain_files
from certs.rotation import CertificateSettings
from tests.manifests.at_work import WEBHOOK, with_base
from tests.manifests.objects import NAMESPACE, POLICIES
from tests.manifests.rendering import containers, find, rendered
from tests.workloads import eventually, pod
from webhook.kube import resources
from webhook.kube.errors import ApiError

NAMES = tuple(service_names("giveway-webhook", NAMESPACE))


@asynccontextmanager
async def serving(installed, component):
    """The server as the component has it, once it has filled in the configurations."""
    await installed.apply([find(rendered(component), "Role", WEBHOOK)])
    async with installed.running(WEBHOOK, containers(WEBHOOK, component)["webhook"]):
        await installed.up(WEBHOOK)
        await eventually(installed.in_force, 20)
        yield


def issue(directory, **what):
    """Certificates as cert-manager would put them there; their authorities, as in `caBundle`."""
    maintain_files(directory, CertificateSettings(NAMES), datetime.now(UTC), **what)
    return base64.b64encode((directory / "ca.crt").read_bytes()).decode()


async def trusted_by(installed):
    """What the API server trusts: every `caBundle` of the configurations."""
    return {entry["clientConfig"]["caBundle"] for entries in await installed.webhooks() for entry in entries}


async def test_the_server_follows_the_secret_of_cert_manager(tmp_path):
    """It serves and trusts what is mounted, without rights on Secrets, and follows a new authority and certificate."""
    directory = tmp_path / "certs"
    async with with_base(tmp_path) as installed:
        trust = issue(directory)

        async def trusted():
            return await trusted_by(installed) == {trust}

        async with serving(installed, "cert-manager"):
            assert await trusted()
            trust = issue(directory, rotate_authority=True)
            await eventually(trusted, 20)
            assert await installed.can_make_pods()
            assert issue(directory, rotate=True) == trust
            assert await installed.can_make_pods()


async def test_moving_to_cert_manager(tmp_path):
    """As docs/install.md says: without replicas the cluster is open, and the new authority is trusted from then on."""
    async with with_base(tmp_path) as installed:
        async with installed.serving():
            before = await trusted_by(installed)
            await installed.admin.patch(resources.DEPLOYMENT.path(NAMESPACE, WEBHOOK), {"spec": {"replicas": 0}})
        assert await installed.can_make_pods()
        shutil.rmtree(tmp_path / "certs")
        issue(tmp_path / "certs")
        await installed.apply(rendered().values())
        async with serving(installed, "cert-manager"):
            after = await trusted_by(installed)
            assert (len(after), after & before) == (1, set())
            assert await installed.can_make_pods()


async def test_without_the_priority_plugin_the_system_has_its_priorities(tmp_path):
    """Pods of kube-system and giveway get priority and policy or are refused as the plugin does, and nothing waits."""
    async with with_base(tmp_path, disabled_plugins=["Priority"]) as installed:
        issue(tmp_path / "certs")
        critical = pod("critical", priorityClassName="system-node-critical")
        async with serving(installed, "priority-plugin-off"):
            for namespace in ("kube-system", NAMESPACE):
                path = resources.POD.path(namespace)
                made = await installed.admin.create(path, critical)
                resolved = made["spec"]["priority"], made["spec"]["preemptionPolicy"]
                assert resolved == (2000001000, "PreemptLowerPriority")
                for field in ("priority", "preemptionPolicy"):
                    del made["spec"][field]
                del made["metadata"]["resourceVersion"]  # the scheduler writes the pod's status meanwhile
                again = await installed.admin.replace(f"{path}/critical", made)
                assert (again["spec"]["priority"], again["spec"]["preemptionPolicy"]) == resolved
                with pytest.raises(ApiError, match="no PriorityClass with name ghost"):
                    await installed.admin.create(path, pod("wrong", priorityClassName="ghost"))
                with pytest.raises(ApiError, match=r"leave spec\.priority out"):
                    await installed.admin.create(path, pod("wrong", priority=2_000_000_000))
        with pytest.raises(ApiError, match="may not change"):
            await installed.admin.replace(f"{path}/critical", made)
        later = await installed.admin.create(
            resources.POD.path("kube-system"), {**critical, "metadata": {"name": "later"}}
        )
        assert "priority" not in later["spec"]


async def test_the_job_of_the_scan(tmp_path):
    """It succeeds while nothing would be refused, and fails with the report once something slipped in."""
    job = find(rendered("scan"), "CronJob", "giveway-scan")["spec"]["jobTemplate"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    async with with_base(tmp_path, "scan", deployments=False) as installed:
        data = {file.name: file.read_text() for file in POLICIES.glob("*.yaml")}
        kept = {"metadata": {"name": "giveway-policies-in-force"}, "data": data}
        await installed.admin.create(resources.CONFIG_MAP.path(NAMESPACE), kept)
        async with installed.running("giveway-scan", container) as scanning:
            assert await asyncio.wait_for(scanning.wait(), 60) == 0
        slipped = pod("slipped", priorityClassName="system-node-critical")
        await installed.admin.create(resources.POD.path("team-a"), slipped)
        async with installed.running("giveway-scan", container, code=1) as scanning:
            output = await asyncio.wait_for(scanning.stdout.read(), 60)
        assert "refused  kubernetes/system-range  1 Pod" in output.decode()
