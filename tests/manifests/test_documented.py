"""What docs/install.md tells people to write, and the image it tells them to build."""

import os
import re
import shutil
import subprocess

import pytest
from ruamel.yaml import YAML

from tests.manifests.objects import BASE, ROOT, arguments, containers, documents, kustomization, pod_spec

BLOCKS = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE | re.DOTALL)
DOCKERFILE = (ROOT / "Dockerfile").read_text()
CONFIGURATIONS = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]


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
@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_the_documented_patches_reach_the_pods_webhooks(kind, rendered):
    """Further namespaces are left out, and pods run unjudged rather than not at all, where one asks for that."""
    first, *others = rendered[kind, "giveway"]["webhooks"]
    [expression] = first["namespaceSelector"]["matchExpressions"]
    assert first["name"].startswith("pods.")
    assert expression["values"] == ["giveway-system", "kube-system", "calico-system", "tigera-operator"]
    assert first["failurePolicy"] == "Ignore"
    assert "Fail" in {webhook["failurePolicy"] for webhook in others}


def test_the_image_can_be_built_from_its_context():
    """Whatever the Dockerfile copies from the checkout is in the build context, and exists."""
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copies = [line.split()[1:-1] for line in DOCKERFILE.splitlines() if line.startswith("COPY ")]
    sources = {source for copy in copies if not copy[0].startswith("--from") for source in copy}
    assert sources
    assert sources <= allowed
    assert all((ROOT / source).exists() for source in sources)


@pytest.mark.parametrize("deployment", ["giveway-webhook", "giveway-reconciler"])
def test_the_image_is_made_for_the_pods(deployment):
    """User and ports of the image are those of the pods."""
    context = pod_spec(deployment)["securityContext"]
    server = containers(deployment)[deployment.removeprefix("giveway-")]
    assert f"USER {context['runAsUser']}:{context['runAsGroup']}\n" in DOCKERFILE
    [exposed] = [line.split()[1:] for line in DOCKERFILE.splitlines() if line.startswith("EXPOSE ")]
    ports = {value for name, value in arguments(server).items() if name.endswith("-port")}
    assert ports <= set(exposed)
