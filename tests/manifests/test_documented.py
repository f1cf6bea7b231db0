"""What docs/install.md tells people to write, and the image it tells them to build."""

import os
import re
import shutil
import subprocess

import pytest
from ruamel.yaml import YAML

from tests.manifests.objects import BASE, ROOT, documents, kustomization
from webhook.cli.main import main
from webhook.clusters.embedded.admission_chain.registered_webhooks import conditions_hold
from webhook.registration.entries import EXEMPT

BLOCKS = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """All YAML of install.md as one kustomization, rendered: objects by kind and name."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    directory = tmp_path_factory.mktemp("cluster")
    merged = {}
    for block in BLOCKS:
        for key, value in YAML(typ="safe", pure=True).load(block).items():
            merged[key] = [*merged.get(key, []), *value]
    assert merged["resources"] == ["path/to/giveway/manifests/base"]
    merged["resources"] = [os.path.relpath(BASE, directory)]
    shipped = [(path, ROOT / path.removeprefix("path/to/giveway/")) for path in merged["components"]]
    merged["components"] = [os.path.relpath(path, directory) for _, path in shipped]
    with (directory / "kustomization.yaml").open("w") as file:
        YAML().dump(merged, file)
    output = directory / "rendered.yaml"
    with output.open("wb") as file:
        subprocess.run(["kubectl", "kustomize", directory], stdout=file, check=True, timeout=60)
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in documents(output)}


@pytest.mark.kubectl
def test_the_image_is_taken_from_where_it_was_pushed(rendered):
    """A kustomization of one's own changes the image's name, and every container has it."""
    tag = kustomization()["images"][0]["newTag"]
    for deployment in ("giveway-webhook", "giveway-reconciler"):
        spec = rendered["Deployment", deployment]["spec"]["template"]["spec"]
        images = {c["image"] for c in [*spec.get("initContainers", []), *spec["containers"]]}
        assert images == {f"registry.example.com/giveway:{tag}"}


@pytest.mark.kubectl
def test_pods_may_rather_run_unjudged(rendered):
    """The documented patch gives the server an option that it takes."""
    [server] = [
        container
        for container in rendered["Deployment", "giveway-webhook"]["spec"]["template"]["spec"]["containers"]
        if container["name"] == "webhook"
    ]
    context = main.get_command(None, "serve").make_context("serve", list(server["args"][1:]))
    assert context.params["failure_policy"] == "Ignore"


@pytest.mark.kubectl
def test_who_may_exempt_is_the_api_servers_to_decide(rendered):
    """The component brings a policy and its binding, which speak of the label that the entries leave out."""
    policy = rendered["ValidatingAdmissionPolicy", "giveway-exempt-label"]["spec"]
    assert rendered["ValidatingAdmissionPolicyBinding", "giveway-exempt-label"]["spec"] == {
        "policyName": "giveway-exempt-label",
        "validationActions": ["Deny"],
    }
    assert EXEMPT in policy["matchConditions"][0]["expression"]
    assert "authorizer" in policy["validations"][0]["expression"]


@pytest.mark.parametrize(
    ("labels", "old", "asked"),
    [
        pytest.param({EXEMPT: ""}, None, True, id="made-with-it"),
        pytest.param({"a": "b"}, None, False, id="made-without"),
        pytest.param(None, None, False, id="made-without-labels"),
        pytest.param({EXEMPT: ""}, {"a": "b"}, True, id="set"),
        pytest.param({EXEMPT: "x"}, {EXEMPT: ""}, True, id="changed"),
        pytest.param(None, {EXEMPT: ""}, True, id="removed"),
        pytest.param({EXEMPT: "", "a": "b"}, {EXEMPT: ""}, False, id="another-label"),
    ],
)
def test_only_changes_of_the_label_need_the_right(labels, old, asked):
    """Everybody else goes on to change their namespaces."""
    [condition] = documents(ROOT / "manifests/components/exempt-label/policy.yaml")[0]["spec"]["matchConditions"]

    def namespace(labels):
        return {"metadata": {"name": "n"} | ({} if labels is None else {"labels": labels})}

    operation = "CREATE" if old is None else "UPDATE"
    request = {"operation": operation, "object": namespace(labels), "oldObject": old and namespace(old)}
    assert conditions_hold([(condition["name"], condition["expression"])], request) is asked
