"""giveway through ten failures, one after the other, and what `giveway doctor` says of each: what, why, and the fix."""

import asyncio
import base64
import signal
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from certs.authority import KeyPair, make_authority, make_serving, pem
from tests.e2e.software import PATHS, RECONCILER, SYSTEM, Software, installed
from tests.workloads import Json, eventually, is_there
from webhook.inspection.cluster_findings import ClusterFinding
from webhook.inspection.doctor import examine
from webhook.inspection.observed import observe
from webhook.inspection.reading import NoPoliciesError, read_policies
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.resources import CONFIG_MAP, DEPLOYMENT, LEASE
from webhook.policy.model.policies import Policies

HEAD = "apiVersion: giveway.dev/v1alpha1\nkind: PriorityPolicy\nmetadata: {name: e2e}\nspec:\n  rules:\n"
POLICY = HEAD + "  - {name: none, priorityClasses: {deny: ['*-forbidden']}}\n"
APPLIED, IN_FORCE = (CONFIG_MAP.path(SYSTEM, name) for name in ("giveway-policies", "giveway-policies-in-force"))
OWN = {"installed", "answers", "deployments", "leader", "policies-in-force", "own-rights", "registered"}
"""The checks about giveway itself: what others find depends on the cluster under test."""
DAY = timedelta(days=1)


class Doctor:
    """`giveway doctor` as somebody runs it who knows nothing of the cluster."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def findings(self) -> list[ClusterFinding]:
        unknown, policies = "", Policies()
        try:
            policies = await read_policies(self.client, None, SYSTEM)
        except NoPoliciesError as error:
            unknown = error.why
        return list(examine(await observe(self.client, policies, SYSTEM, time.time(), no_policies=unknown)))

    async def is_well(self) -> None:
        """Nothing about giveway itself is an error or a warning."""
        grave = [one for one in await self.findings() if one.severity in ("error", "warning") and one.check in OWN]
        assert grave == []

    async def finds(self, check: str, what: str, why: str, fix: str) -> None:
        """There is one error or warning of this check, and it says these things."""
        found = await self.findings()
        [one] = [one for one in found if one.check == check and one.severity in ("error", "warning")]
        assert what in one.what, one
        assert why in one.why, one
        assert fix in one.fix, one


class Failing:
    """Where the API server is led instead of giveway, while no giveway runs that would put it right."""

    def __init__(self, giveway: Software) -> None:
        self._giveway, self._authority = giveway, make_authority(datetime.now(UTC), DAY)

    async def lead_to(self, port: int, trust: KeyPair | None = None) -> None:
        """Send reviews to a port of this machine."""
        bundle = base64.b64encode(pem((trust or self._authority).certificate)).decode()
        for path in self._giveway.configurations:
            entries = (await self._giveway.client.get(path))["webhooks"]
            for entry in entries:
                phase = "mutate" if ".mutate." in entry["name"] else "validate"
                entry["clientConfig"] = {"url": f"https://127.0.0.1:{port}/{phase}", "caBundle": bundle}
                entry["timeoutSeconds"] = 1
            await self._giveway.client.patch(path, {"webhooks": entries})

    @asynccontextmanager
    async def webhook(self, directory: Path, made: datetime, version: str) -> AsyncIterator[int]:
        """A webhook that allows everything, with a certificate that is good for a day from `made` on; its port."""
        serving = make_serving(self._authority, ["127.0.0.1"], made, DAY)
        (directory / "tls.crt").write_bytes(pem(serving.certificate))
        (directory / "tls.key").write_bytes(serving.key_pem())
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(directory / "tls.crt", directory / "tls.key")

        async def answer(request: web.Request) -> web.Response:
            review: Json = await request.json()
            said = f"giveway {version} answers ({request.match_info['phase']})"
            response = {"uid": review["request"]["uid"], "allowed": True, "warnings": [said]}
            return web.json_response(
                {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
            )

        app = web.Application()
        app.add_routes([web.post("/{phase}", answer)])
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        try:
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()


@pytest.fixture
async def giveway(client, kubeconfig, tmp_path) -> AsyncIterator[Software]:
    """Giveway's rights and nothing else; nothing of an earlier run is there, and nothing of this one stays."""
    left = (APPLIED, IN_FORCE, LEASE.path(SYSTEM, RECONCILER), DEPLOYMENT.path(SYSTEM, RECONCILER))

    async def clean() -> None:
        for path in left:
            with suppress(ApiError):
                await client.delete(path)

    async with installed(client, kubeconfig, tmp_path) as software:
        await clean()
        yield software
        await clean()


async def test_ten_failures(client, giveway, tmp_path):
    """Each failure has its finding, with the way out; between them all is well."""
    doctor, failing = Doctor(client), Failing(giveway)
    # 1. Nothing is installed.
    await doctor.finds(
        "installed", "giveway is not installed in this cluster", "No policy is enforced", "giveway install"
    )
    server = await giveway.serve(POLICY)
    reconciler = await giveway.reconcile(POLICY)
    await eventually(lambda: is_there(client, LEASE.path(SYSTEM, RECONCILER)), 20, "somebody leads")
    await client.create(CONFIG_MAP.path(SYSTEM), policy_map(POLICY))
    await eventually(lambda: is_there(client, IN_FORCE), 20, "the policies are kept")
    await doctor.is_well()
    # 2. Nobody leads.
    await reconciler.stop(signal.SIGKILL)
    await asyncio.sleep(2.5)
    await doctor.finds("leader", "No reconciler leads: ", "that find no room wait", "look at its log")
    # 3. The files have an error: whoever applies them is told, but not while no webhook is there.
    await server.stop(signal.SIGKILL)
    await client.patch(APPLIED, policy_map(POLICY.replace("deny", "denny")))
    await doctor.finds("policies-in-force", "has 1 error: giveway-policies/", "stay as they are", "giveway lint")
    # 4. A removal is held.
    await client.patch(APPLIED, policy_map(HEAD + "  - {name: other, priorityClasses: {deny: [nothing]}}\n"))
    await doctor.finds("policies-in-force", "e2e/none: the rule is gone", "stay as they are", "annotation")
    await client.patch(APPLIED, policy_map(POLICY))
    # 5. The webhook is dead.
    refused = "Every new pod is refused until it answers"
    await doctor.finds("answers", "connection refused", refused, "giveway.dev/exempt=")
    await doctor.finds("answers", "connection refused", refused, "Start the webhook that https://127.0.0.1:")
    # 6. The port swallows what is sent to it, as a firewall does.
    async with swallowing() as port:
        await failing.lead_to(port)
        await doctor.finds("answers", "deadline exceeded", refused, "open its port to the control plane")
    # 7. The certificate has expired.
    async with failing.webhook(tmp_path, datetime.now(UTC) - 3 * DAY, "0.0.1") as port:
        await failing.lead_to(port)
        await doctor.finds("answers", "certificate has expired", refused, "giveway certs issue makes a new one")
    async with failing.webhook(tmp_path, datetime.now(UTC), "0.0.1") as port:
        # 8. The API server trusts another authority.
        await failing.lead_to(port, make_authority(datetime.now(UTC), DAY))
        await doctor.finds("answers", "x509", refused, "does not trust the certificate that the webhook serves")
        # 9. A webhook of another version answers.
        await failing.lead_to(port)
        await doctor.finds("versions", "giveway 0.0.1 answers", "fields of policies", "giveway install")
    # 10. A right is missing.
    await client.create(DEPLOYMENT.path(SYSTEM), deployment(RECONCILER))
    await client.delete(f"{PATHS['RoleBinding']}/{RECONCILER}")
    await doctor.finds("own-rights", "giveway-reconciler may not create leases", "fails with 403", "giveway install")
    await giveway.install()
    assert "own-rights" not in {one.check for one in await doctor.findings()}


def policy_map(text: str) -> Json:
    """The policies as people apply them."""
    return {"metadata": {"name": "giveway-policies"}, "data": {"policies.yaml": text}}


def deployment(name: str) -> Json:
    """A Deployment of giveway whose pods run nowhere."""
    labels = {"app.kubernetes.io/name": "giveway", "app.kubernetes.io/component": name}
    spec = {"containers": [{"name": "c", "image": "none"}], "nodeSelector": {"giveway.dev/none": ""}}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name, "labels": labels}, "spec": body}


@asynccontextmanager
async def swallowing() -> AsyncIterator[int]:
    """A port that takes connections and never answers."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.close()
