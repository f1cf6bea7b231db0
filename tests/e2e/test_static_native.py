"""Native policies without the keeper: an administrator applies them, and `giveway doctor` tells when they are old."""

import json
from io import StringIO

import pytest
from ruamel.yaml import YAML

from tests.e2e.native import RESOURCES, applied, need_admission_policies
from tests.inspection.command import giveway
from tests.workloads import eventually, pod, priority_class, refusal
from webhook.kube.resources import PRIORITY_CLASS
from webhook.policy.model.values import CAN_BE_PREEMPTED

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


@pytest.fixture(autouse=True)
async def api(client):
    """These tests need MutatingAdmissionPolicies."""
    await need_admission_policies(client)


@pytest.fixture
def directory(tmp_path):
    """Where the policy files are."""
    made = tmp_path / "policies"
    made.mkdir()
    return made


async def compiled(directory, kubeconfig):
    """What `giveway compile` prints."""
    result = await giveway("compile", directory, "--cluster", "--kubeconfig", kubeconfig)
    assert result.exit_code == 0, result.stderr
    return list(YAML(typ="safe").load_all(StringIO(result.stdout)))


async def told(directory, kubeconfig):
    """What doctor says of native policies that differ, by these files."""
    result = await giveway("doctor", "--policies", directory, "--kubeconfig", kubeconfig, "--format=json")
    findings = json.loads(result.stdout)["findings"]
    found = {one["what"]: one["severity"] for one in findings if one["check"] == "native-policies"}
    assert result.exit_code == 1 or not found.keys() - {MODE}
    found.pop(MODE, None)
    return found


MODE = "The policies are enforced by: native policies only."


async def test_old_native_policies_are_told(sandbox, kubeconfig, directory):
    """After a change of the files or of a class doctor names what differs until it is applied again."""
    first, second = f"first-{sandbox.id}", f"second-{sandbox.id}"
    file = directory / "first.yaml"
    file.write_text(POLICY.format(name=first, namespace=sandbox.id, bad="bad"))
    objects = await compiled(directory, kubeconfig)
    async with applied(sandbox.client, objects):
        assert await told(directory, kubeconfig) == {}
        await eventually(lambda: refuses(sandbox, "bad"), 30)

        file.write_text(POLICY.format(name=first, namespace=sandbox.id, bad="worse"))
        (directory / "second.yaml").write_text(POLICY.format(name=second, namespace=sandbox.id, bad="worst"))
        old = await told(directory, kubeconfig)
        assert old == {
            f"ValidatingAdmissionPolicy giveway-{first}-pods-enforce is different.": "error",
            f"ValidatingAdmissionPolicy giveway-{second}-pods-enforce is missing.": "error",
            f"ValidatingAdmissionPolicyBinding giveway-{second}-pods-enforce is missing.": "error",
        }
        assert await refuses(sandbox, "bad")
        assert not await refuses(sandbox, "worse")

        (directory / "second.yaml").unlink()
        again = {(one["kind"], one["metadata"]["name"]): one for one in await compiled(directory, kubeconfig)}
        changed = again["ValidatingAdmissionPolicy", f"giveway-{first}-pods-enforce"]
        path = RESOURCES[changed["kind"]].path(name=changed["metadata"]["name"])
        await sandbox.client.patch(path, {"spec": changed["spec"]})
        assert await told(directory, kubeconfig) == {}
        await eventually(lambda: refuses(sandbox, "worse"), 30)

        made = priority_class(f"{sandbox.id}-late", 1000)
        made["metadata"]["annotations"] = {CAN_BE_PREEMPTED: "true"}
        await sandbox.client.create(PRIORITY_CLASS.path(), made)
        try:
            late = await told(directory, kubeconfig)
            assert late == {"MutatingAdmissionPolicy giveway-builtin-pods-mutate is different.": "error"}
        finally:
            await sandbox.client.delete(PRIORITY_CLASS.path(name=made["metadata"]["name"]))
        file.unlink()
        left = await told(directory, kubeconfig)
        assert left[f"ValidatingAdmissionPolicyBinding giveway-{first}-pods-enforce is left over."] == "warning"


async def refuses(sandbox, name):
    """Whether a pod of that name is refused."""
    return "/named" in await refusal(sandbox.client.create(sandbox.pods, pod(name), dryRun="All"))
