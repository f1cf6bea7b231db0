"""The components that change the webhook, with a real server, its rights and kubectl."""

import base64
import shutil
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from certs.authority import service_names
from certs.files import maintain_files
from certs.rotation import CertificateSettings
from tests.manifests.objects import BASE, NAMESPACE
from tests.manifests.rendering import find, pod_of, rendered
from tests.manifests.test_install import CONFIGURATIONS, answers, eventually, in_force, pod, running
from tests.manifests.test_staged import ACCOUNT, Installed
from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster
from webhook.kube import resources
from webhook.kube.errors import ApiError

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

NAMES = tuple(service_names("giveway-webhook", NAMESPACE))


@asynccontextmanager
async def cluster_with_base(directory, **options):
    """A control plane with the base, as `kubectl apply -k` leaves it."""
    async with EmbeddedCluster(nodes=0, **options) as cluster, cluster.client() as admin:
        found = Installed(cluster, admin, directory)
        await found.kubectl("apply", "-k", str(BASE))
        await admin.create(resources.NAMESPACE.path(), {"metadata": {"name": "team-a"}})
        yield found


@asynccontextmanager
async def serving(installed, component):
    """The server as the component has it, once it has filled in the configurations."""
    objects = rendered(component)
    [server] = [one for one in pod_of(objects, "giveway-webhook")["containers"] if one["name"] == "webhook"]
    role = find(objects, "Role", "giveway-webhook")
    resource = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/giveway-webhook"
    await installed.admin.patch(resource, {"rules": role["rules"]})
    async with running(installed.cluster, ACCOUNT, server, installed.changes) as process:
        await eventually(lambda: answers(f"http://127.0.0.1:{installed.ports[1]}/readyz"))
        await eventually(lambda: in_force(installed.admin))
        yield process


async def test_the_server_follows_the_secret_of_cert_manager(tmp_path):
    """It serves and trusts what is mounted, without rights on Secrets, and follows a new authority and certificate."""
    directory = tmp_path / "certs"

    def renew(**what):
        maintain_files(directory, CertificateSettings(NAMES), datetime.now(UTC), **what)
        return base64.b64encode((directory / "ca.crt").read_bytes()).decode()

    async with cluster_with_base(tmp_path) as installed:
        trust = renew()

        async def trusted():
            return await trust_of(installed) == {trust}

        async with serving(installed, "cert-manager"):
            assert await trusted()
            trust = renew(rotate_authority=True)
            await eventually(trusted)
            assert await installed.can_make_pods()
            assert renew(rotate=True) == trust
            assert await installed.can_make_pods()


async def test_moving_to_cert_manager(tmp_path):
    """As docs/install.md says: without replicas the cluster is open, and the new authority is trusted from then on."""
    async with cluster_with_base(tmp_path) as installed:
        async with installed.serving():
            before = await trust_of(installed)
            await installed.kubectl("-n", NAMESPACE, "scale", "deployment", "giveway-webhook", "--replicas=0")
        assert await installed.can_make_pods()
        shutil.rmtree(tmp_path / "certs")
        maintain_files(tmp_path / "certs", CertificateSettings(NAMES), datetime.now(UTC))
        await installed.kubectl("apply", "-k", str(BASE))
        async with serving(installed, "cert-manager"):
            after = await trust_of(installed)
            assert (len(after), after & before) == (1, set())
            assert await installed.can_make_pods()


async def trust_of(installed):
    """What the API server trusts: every `caBundle` of the configurations."""
    found = [(await installed.admin.get(path))["webhooks"] for path in CONFIGURATIONS]
    return {entry["clientConfig"]["caBundle"] for entries in found for entry in entries}


async def test_without_the_priority_plugin_the_system_has_its_priorities(tmp_path):
    """Pods of kube-system and giveway get priority and policy or are refused as the plugin does, and nothing waits."""
    async with cluster_with_base(tmp_path, disabled_plugins=["Priority"]) as installed:
        maintain_files(tmp_path / "certs", CertificateSettings(NAMES), datetime.now(UTC))
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
