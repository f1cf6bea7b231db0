"""giveway through ten failures, one after the other, and what `giveway doctor` says of each: what, why, and the fix."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from tests.clusters.embedded.webhook_server import WebhookServer
from tests.e2e.software import APPLIED, CONFIGURATIONS, IN_FORCE, WRITTEN, policy_map, rule
from tests.inspection.command import RBAC
from tests.workloads import Json, eventually, is_there
from webhook.component_base.own_names import RECONCILER, SYSTEM_NAMESPACE
from webhook.kube.client import Client
from webhook.kube.resources import CONFIG_MAP

POLICY = rule("none", priorityClasses={"deny": ["*-forbidden"]})
OWN = ("installed", "answers", "deployments", "leader", "policies-in-force", "own-rights", "registered")
"""The checks about giveway itself: what others find depends on the cluster under test."""
DAY = timedelta(days=1)


class Doctor:
    """`giveway doctor` as somebody runs it who knows nothing of the cluster."""

    def __init__(self, findings: Callable[..., Awaitable[list[Json]]]) -> None:
        self._findings = findings

    async def grave(self, *checks: str) -> list[Json]:
        """The errors and warnings of these checks."""
        return [row for row in await self._findings(*checks) if row["severity"] in ("error", "warning")]

    async def finds(self, check: str, what: str, why: str, fix: str) -> None:
        """There is one error or warning of this check, and it says these things."""
        [found] = await self.grave(check)
        assert what in found["what"], found
        assert why in found["why"], found
        assert fix in found["fix"], found


async def lead_to(client: Client, address: str, bundle: str) -> None:
    """Send reviews to an address of this machine, while no giveway runs that would put it right."""
    for path in CONFIGURATIONS:
        entries = (await client.get(path))["webhooks"]
        for entry in entries:
            entry["clientConfig"] = {"url": f"https://{address}/", "caBundle": bundle}
            entry["timeoutSeconds"] = 1
        await client.patch(path, {"webhooks": entries})


def answer(_: Json) -> Json:
    """A webhook of another version allows everything."""
    return {"allowed": True, "warnings": ["giveway 0.0.1 answers (validate)"]}


async def test_ten_failures(client, giveway, doctor, tmp_path):
    """Each failure has its finding, with the way out; between them all is well."""
    doctor = Doctor(doctor)
    # 1. Nothing is installed.
    await doctor.finds(
        "installed", "giveway is not installed in this cluster", "No policy is enforced", "giveway install"
    )
    server = await giveway.serve(POLICY)
    reconciler = await giveway.reconcile(POLICY)
    await eventually(lambda: is_there(client, WRITTEN[-1]), 20, "somebody leads")
    await client.create(CONFIG_MAP.path(SYSTEM_NAMESPACE), policy_map(POLICY))
    await eventually(lambda: is_there(client, IN_FORCE), 20, "the policies are kept")
    assert await doctor.grave(*OWN) == []
    # 2. Nobody leads.
    await reconciler.stop(signal.SIGKILL)
    await asyncio.sleep(2.5)
    await doctor.finds("leader", "No reconciler leads: ", "that find no room wait", "look at its log")
    # 3. The files have an error: whoever applies them is told, but not while no webhook is there.
    await server.stop(signal.SIGKILL)
    await client.patch(APPLIED, policy_map(POLICY.replace("deny", "denny")))
    await doctor.finds("policies-in-force", "has 1 error: giveway-policies/", "stay as they are", "giveway lint")
    # 4. A removal is held.
    await client.patch(APPLIED, policy_map(rule("other", priorityClasses={"deny": ["nothing"]})))
    await doctor.finds("policies-in-force", "e2e/none: the rule is gone", "stay as they are", "annotation")
    await client.patch(APPLIED, policy_map(POLICY))
    # 5. The webhook is dead.
    refused = "Every new pod is refused until it answers"
    await doctor.finds("answers", "connection refused", refused, "giveway.dev/exempt=")
    await doctor.finds("answers", "connection refused", refused, "Start the webhook that https://127.0.0.1:")
    # 6. The port swallows what is sent to it, as a firewall does.
    trusted = WebhookServer(tmp_path, answer).ca_bundle
    async with swallowing() as port:
        await lead_to(client, f"127.0.0.1:{port}", trusted)
        await doctor.finds("answers", "deadline exceeded", refused, "open its port to the control plane")
    # 7. The certificate has expired.
    async with WebhookServer(tmp_path, answer, made=datetime.now(UTC) - 3 * DAY) as expired:
        await lead_to(client, expired.address, expired.ca_bundle)
        await doctor.finds("answers", "certificate has expired", refused, "giveway certs issue makes a new one")
    async with WebhookServer(tmp_path, answer) as other:
        # 8. The API server trusts another authority.
        await lead_to(client, other.address, trusted)
        await doctor.finds("answers", "x509", refused, "does not trust the certificate that the webhook serves")
        # 9. A webhook of another version answers.
        await lead_to(client, other.address, other.ca_bundle)
        await doctor.finds("versions", "giveway 0.0.1 answers", "fields of policies", "giveway install")
    # 10. A right is missing.
    await giveway.deployment(1, RECONCILER)
    await client.delete(f"{RBAC}/namespaces/{SYSTEM_NAMESPACE}/rolebindings/{RECONCILER}")
    await doctor.finds("own-rights", "giveway-reconciler may not create leases", "fails with 403", "giveway install")
    await giveway.install()
    assert await doctor.grave("own-rights") == []


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
