"""The component static-entries: an administrator applies the entries, and giveway may not change them."""

import json
from io import StringIO

import pytest
from ruamel.yaml import YAML

from tests.e2e.software import BASE, FORBIDDEN_IMAGE, PATHS, SYSTEM, WEBHOOK, installed
from tests.inspection.command import giveway
from tests.ports import free_port
from tests.workloads import eventually, pod, refusal
from webhook.installation.kustomize import components, render
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.resources import CONFIG_MAP

LABELS = '  - name: labels\n    validate: {expression: "size(object.metadata.?labels.orValue({})) < 9"}\n'
IN_FORCE = CONFIG_MAP.path(SYSTEM, "giveway-policies-in-force")
ROLE = f"{PATHS['ClusterRole']}/{WEBHOOK}"
OBJECTS = render(BASE, components(("static-entries",)))


def of_component(kind, name):
    [found] = [one for one in OBJECTS if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


async def test_static_entries(sandbox, kubeconfig, tmp_path):
    """They enforce; the server may not touch them; when policies need others, doctor says so."""
    served = tmp_path / "served"
    served.mkdir()
    (served / "policies.yaml").write_text(FORBIDDEN_IMAGE)
    port = free_port()
    made = of_component("Deployment", WEBHOOK)["spec"]["template"]["spec"]["containers"][0]["args"]
    options = [one for one in made if one.startswith(("--entries", "--system-namespace"))]
    assert "--entries=static" in options
    async with installed(sandbox.client, kubeconfig, tmp_path) as software:
        before = (await sandbox.client.get(ROLE))["rules"]
        await sandbox.client.patch(ROLE, {"rules": of_component("ClusterRole", WEBHOOK)["rules"]})
        try:
            await software.register()

            async def apply():
                """What an administrator does: print the entries, and put them into the configurations."""
                result = await giveway(
                    "compile", str(served), "--webhook", f"--url=https://127.0.0.1:{port}",
                    f"--ca-file={tmp_path / 'certs' / 'ca.crt'}",
                )  # fmt: skip
                assert result.exit_code == 0, result.stderr
                for one in YAML(typ="safe").load_all(StringIO(result.stdout)):
                    path = f"{PATHS[one['kind']]}/giveway"
                    await sandbox.client.patch(path, {"webhooks": one["webhooks"]})

            # The server has no authority to write: it may not change the entries
            listening = [option for option in software.listening(port) if not option.startswith("--ca-file")]
            server = await software.start("serve", f"--policies={served}", *listening, *options, account=WEBHOOK)

            async def logged(text):
                return any(text in line.get("message", "") for line in server.lines())

            await eventually(lambda: logged("apply what giveway compile --webhook prints"), 30)
            await sandbox.client.create(sandbox.pods, image("forbidden"), dryRun="All")
            await apply()
            await eventually(lambda: logged("in force, as an administrator applied them"), 30)
            await eventually(lambda: refuses(sandbox), 30)
            async with await Client.connect(await software.kubeconfig_of(WEBHOOK)) as account:
                for path in software.configurations:
                    with pytest.raises(ApiError, match="cannot get"):
                        await account.get(path)
                    with pytest.raises(ApiError, match="cannot patch"):
                        await account.patch(path, {"webhooks": []})
            assert await old_entries(kubeconfig) == []

            (served / "policies.yaml").write_text(FORBIDDEN_IMAGE + LABELS)
            [found] = await eventually(lambda: old_entries(kubeconfig), 30, "the doctor knows what is in force now")
            assert await refuses(sandbox)
            assert "ValidatingWebhookConfiguration giveway is not what the policies in force need" in found
            assert "pods.validate.giveway.dev" in found
            await apply()
            assert await old_entries(kubeconfig) == []
        finally:
            await software.unregister()
            await sandbox.client.patch(ROLE, {"rules": before})
            await sandbox.client.delete(IN_FORCE)


def image(name):
    made = pod("tried")
    made["spec"]["containers"][0]["image"] = name
    return made


async def refuses(sandbox) -> bool:
    """Whether the policies hold by now."""
    return "e2e/no-image" in await refusal(sandbox.client.create(sandbox.pods, image("forbidden"), dryRun="All"))


async def old_entries(kubeconfig) -> list[str]:
    """What doctor says of entries."""
    result = await giveway("doctor", "--kubeconfig", kubeconfig, "--format=json")
    return [one["what"] for one in json.loads(result.stdout)["findings"] if one["check"] == "entries"]
