"""What docs/install.md tells people to write, and who may exempt a namespace."""

import os
import re
import subprocess

import pytest
from ruamel.yaml import YAML

from tests.cases import cases
from tests.manifests.objects import BASE, ROOT, documents
from tests.manifests.rendering import by_key, find, pod_of
from webhook.clusters.embedded.admission_chain.registered_webhooks import conditions_hold
from webhook.registration.entries import EXEMPT

BLOCKS = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.kubectl
def test_the_documented_kustomization(tmp_path):
    """All YAML of the page as one: images of one's own, a server that pods do not wait for, and who may exempt."""
    merged = {}
    for block in BLOCKS:
        for key, value in YAML(typ="safe", pure=True).load(block).items():
            merged[key] = [*merged.get(key, []), *value]
    assert merged["resources"] == ["path/to/giveway/manifests/base"]
    merged["resources"] = [os.path.relpath(BASE, tmp_path)]
    shipped = [ROOT / path.removeprefix("path/to/giveway/") for path in merged["components"]]
    merged["components"] = [os.path.relpath(path, tmp_path) for path in shipped]
    with (tmp_path / "kustomization.yaml").open("w") as file:
        YAML().dump(merged, file)
    with (tmp_path / "rendered.yaml").open("wb") as output:
        subprocess.run(["kubectl", "kustomize", tmp_path], stdout=output, check=True, timeout=60)
    objects = by_key(documents(tmp_path / "rendered.yaml"))
    images = re.findall(r"'image': '([^']*)'", str(objects))
    assert {image.rpartition(":")[0] for image in images} == {"registry.example.com/giveway"}
    [server] = [each for each in pod_of(objects, "giveway-webhook")["containers"] if each["name"] == "webhook"]
    assert "--failure-policy=Ignore" in server["args"]
    policy = find(objects, "ValidatingAdmissionPolicy", "giveway-exempt-label")["spec"]
    binding = find(objects, "ValidatingAdmissionPolicyBinding", "giveway-exempt-label")["spec"]
    assert binding == {"policyName": "giveway-exempt-label", "validationActions": ["Deny"]}
    assert EXEMPT in policy["matchConditions"][0]["expression"]
    assert "authorizer" in policy["validations"][0]["expression"]


@pytest.mark.parametrize(
    ("labels", "old", "asked"),
    cases(
        ("made-with-it", {EXEMPT: ""}, None, True),
        ("made-without", {"a": "b"}, None, False),
        ("made-without-labels", None, None, False),
        ("set", {EXEMPT: ""}, {"a": "b"}, True),
        ("changed", {EXEMPT: "x"}, {EXEMPT: ""}, True),
        ("removed", None, {EXEMPT: ""}, True),
        ("another-label", {EXEMPT: "", "a": "b"}, {EXEMPT: ""}, False),
    ),
)
def test_only_changes_of_the_label_need_the_right(labels, old, asked):
    """Everybody else goes on to change their namespaces."""
    [condition] = documents(ROOT / "manifests/components/exempt-label/policy.yaml")[0]["spec"]["matchConditions"]

    def namespace(labels):
        return {"metadata": {"name": "n"} | ({} if labels is None else {"labels": labels})}

    operation = "CREATE" if old is None else "UPDATE"
    request = {"operation": operation, "object": namespace(labels), "oldObject": old and namespace(old)}
    assert conditions_hold([(condition["name"], condition["expression"])], request) is asked
