"""What an administrator applies and giveway does not keep: entries of the webhook, native policies. Doctor tells."""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.e2e.native import applied, need_admission_policies
from tests.e2e.software import CONFIGURATIONS, FORBIDDEN_IMAGE, FORBIDDEN_POD, NO_IMAGE, manifest
from tests.inspection import command
from tests.inspection.command import RBAC
from tests.manifests.rendering import containers, find, rendered
from tests.ports import free_port
from tests.workloads import Json, eventually, pod, refusal, refused
from webhook.component_base.own_names import WEBHOOK
from webhook.kube.client import Client
from webhook.kube.resources import VALIDATING_ADMISSION_POLICY
from webhook.policy.model.values import CAN_BE_PREEMPTED

STATIC = "static-entries"
POLICY = """
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {{name: {name}}}
spec:
  match: {{namespaces: [{namespace}]}}
  rules:
  - name: named
    validate: {{expression: "object.metadata.name != '{bad}'"}}
  - {{name: copy, copyAnnotations: [godel.bytedance.com/can-be-preempted]}}
"""
MODE = "The policies are enforced by: native policies only."


async def compiled(*arguments: Any) -> list[Json]:
    """What `giveway compile` prints."""
    result = await command.giveway("compile", *arguments)
    assert result.exit_code == 0, result.stderr
    return list(YAML(typ="safe").load_all(result.stdout))


async def test_static_entries(sandbox, giveway, doctor):
    """They enforce; the server may not touch them; when policies need others, doctor says so."""
    policies, port = giveway.policies("served", FORBIDDEN_IMAGE).parent, free_port()
    args = containers(WEBHOOK, STATIC)["webhook"]["args"]
    options = [one for one in args if one.startswith(("--entries", "--system-namespace"))]
    assert "--entries=static" in options
    role = find(rendered(STATIC), "ClusterRole", WEBHOOK)
    await sandbox.client.patch(f"{RBAC}/clusterroles/{WEBHOOK}", {"rules": role["rules"]})
    await giveway.register()

    # The server has no authority to write: it may not change the entries
    *listening, authority = sorted(giveway.listening(port), key=lambda option: option.startswith("--ca-file"))
    server = await giveway.start("serve", f"--policies={policies}", *listening, *options, account=WEBHOOK)

    async def apply() -> None:
        """What an administrator does: print the entries, and put them into the configurations."""
        printed = await compiled(policies, "--webhook", f"--url=https://127.0.0.1:{port}", authority)
        for path, one in zip(CONFIGURATIONS, printed, strict=True):
            await sandbox.client.patch(path, {"webhooks": one["webhooks"]})

    async def refuses() -> bool:
        return "e2e/no-image" in await refusal(sandbox.dry(FORBIDDEN_POD))

    async def old_entries() -> list[str]:
        return [row["what"] for row in await doctor("entries")]

    await eventually(lambda: server.says("apply what giveway compile --webhook prints"), 30)
    await sandbox.dry(FORBIDDEN_POD)
    await apply()
    await eventually(lambda: server.says("in force, as an administrator applied them"), 30)
    await eventually(refuses, 30)
    async with await Client.connect(await giveway.kubeconfig_of(WEBHOOK)) as account:
        for path in CONFIGURATIONS:
            await refused(account.get(path), "cannot get")
            await refused(account.patch(path, {"webhooks": []}), "cannot patch")
    assert await old_entries() == []

    expressions = {"no-image": NO_IMAGE, "labels": "size(object.metadata.?labels.orValue({})) < 9"}
    rules = [{"name": name, "validate": {"expression": text}} for name, text in expressions.items()]
    giveway.policies("served", manifest(PriorityPolicy={"rules": rules}))
    [found] = await eventually(old_entries, 30, "the doctor knows what is in force now")
    assert await refuses()
    assert "ValidatingWebhookConfiguration giveway is not what the policies in force need" in found
    assert "pods.validate.giveway.dev" in found
    await apply()
    assert await old_entries() == []


async def test_native_policies(sandbox, kubeconfig, doctor, tmp_path):
    """After a change of the files or of a class doctor names what differs until it is applied again."""
    await need_admission_policies(sandbox.client)
    first, second = f"first-{sandbox.id}", f"second-{sandbox.id}"
    directory = tmp_path / "policies"
    directory.mkdir()

    def write(name: str, bad: str) -> Path:
        file = directory / f"{name}.yaml"
        file.write_text(POLICY.format(name=name, namespace=sandbox.id, bad=bad))
        return file

    async def told() -> dict[str, str]:
        """What doctor says of native policies that differ, by these files."""
        found = await doctor("native-policies", policies=directory)
        return {row["what"]: row["severity"] for row in found if row["what"] != MODE}

    async def refuses(name: str) -> bool:
        return "/named" in await refusal(sandbox.dry(pod(name)))

    file = write(first, "bad")
    async with applied(sandbox.client, await compiled(directory, "--cluster", "--kubeconfig", kubeconfig)):
        assert await told() == {}
        await eventually(lambda: refuses("bad"), 30)

        write(first, "worse")
        another = write(second, "worst")
        assert await told() == {
            f"ValidatingAdmissionPolicy giveway-{first}-pods-enforce is different.": "error",
            f"ValidatingAdmissionPolicy giveway-{second}-pods-enforce is missing.": "error",
            f"ValidatingAdmissionPolicyBinding giveway-{second}-pods-enforce is missing.": "error",
        }
        assert await refuses("bad")
        assert not await refuses("worse")

        another.unlink()
        again = await compiled(directory, "--cluster", "--kubeconfig", kubeconfig)
        objects = {(one["kind"], one["metadata"]["name"]): one for one in again}
        changed = objects["ValidatingAdmissionPolicy", f"giveway-{first}-pods-enforce"]
        path = VALIDATING_ADMISSION_POLICY.path(name=changed["metadata"]["name"])
        await sandbox.client.patch(path, {"spec": changed["spec"]})
        assert await told() == {}
        await eventually(lambda: refuses("worse"), 30)

        await sandbox.priority_class("late", 1000, {CAN_BE_PREEMPTED: "true"})
        assert await told() == {"MutatingAdmissionPolicy giveway-builtin-pods-mutate is different.": "error"}
        file.unlink()
        left = await told()
        assert left[f"ValidatingAdmissionPolicyBinding giveway-{first}-pods-enforce is left over."] == "warning"
