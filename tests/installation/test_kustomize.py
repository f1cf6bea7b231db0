"""The renderer against `kubectl kustomize`: the base with every component, alone and all together, object by object."""

import os
import shutil
import subprocess

import pytest

from tests.cases import cases
from tests.manifests.objects import BASE, COMPONENTS, NAMESPACE, ROOT, documents
from tests.manifests.rendering import by_key
from webhook.installation.kustomize import ManifestsError, components, manifests, parse_image, render

SHIPPED = sorted(path.parent for path in COMPONENTS.glob("*/kustomization.yaml"))
KUBECTL = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]
IMAGE = "registry.example.com:5000/team/giveway:1.2.3"


def by_kubectl(directory, parts):
    """What kubectl makes of the same kustomization, by kind, namespace and name."""
    listed = ", ".join(os.path.relpath(path, directory) for path in parts)
    (directory / "kustomization.yaml").write_text(
        f"resources: [{os.path.relpath(BASE, directory)}]\ncomponents: [{listed}]\n"
        "images: [{name: giveway, newName: registry.example.com:5000/team/giveway, newTag: 1.2.3}]\n"
    )
    output = directory / "rendered.yaml"
    with output.open("wb") as file:
        subprocess.run(["kubectl", "kustomize", directory], stdout=file, check=True, timeout=60)
    return by_key(documents(output))


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([], id="base", marks=KUBECTL),
        *(pytest.param([path], id=path.name, marks=KUBECTL) for path in SHIPPED),
        pytest.param([path for path in SHIPPED if path.name != "native-only"], id="all", marks=KUBECTL),
    ],
)
def test_it_renders_what_kubectl_renders(parts, tmp_path):
    """Every object, and nothing else; and what belongs in a namespace says in which.

    All together are all but the component that takes away what others change.
    """
    rendered = by_key(render(BASE, parts, [parse_image(IMAGE)]))
    expected = by_kubectl(tmp_path, parts)
    assert rendered.keys() == expected.keys()
    for key, obj in expected.items():
        assert rendered[key] == obj, key


def test_the_shipped_components_are_found_by_name(tmp_path):
    """Others by their directory; what is neither is told with the names that there are."""
    assert manifests() == ROOT / "manifests"
    assert components(("scan", str(tmp_path))) == [COMPONENTS / "scan", tmp_path]
    with pytest.raises(ManifestsError, match=r"there is no component scam; there are .*network-policy.*scan"):
        components(("scam",))


@pytest.mark.parametrize(
    ("text", "expected"),
    cases(
        ("name", "giveway", {"newName": "giveway"}),
        ("tag", "r.example.com/giveway:1", {"newName": "r.example.com/giveway", "newTag": "1"}),
        ("port", "localhost:5000/giveway", {"newName": "localhost:5000/giveway"}),
        ("digest", "r/g@sha256:ab", {"newName": "r/g", "digest": "sha256:ab"}),
    ),
)
def test_images(text, expected):
    """Registry with port, tag and digest are told apart."""
    assert parse_image(text) == {"name": "giveway", **expected}


@pytest.mark.parametrize(
    ("content", "message"),
    cases(
        ("unknown-field", "namePrefix: x-\n", "does not know 'namePrefix' of kustomize"),
        ("no-file", "resources: [gone.yaml]\n", "gone.yaml"),
        ("no-object", "resources: [a]\n", "not a Kubernetes object"),
        ("name-with-hash", "configMapGenerator: [{name: x, files: []}]\n", "disableNameSuffixHash"),
        ("literals", "configMapGenerator: [{name: x, literals: [a=b]}]\n", "'literals'"),
        ("nothing-to-patch", "patches: [{target: {kind: X}, patch: '[]'}]\n", "there is no such object"),
        ("unknown-target", "patches: [{target: {labelSelector: x}, patch: '[]'}]\n", "labelSelector"),
        ("merge", "patches: [{target: {kind: Namespace}, patch: '{metadata: {}}'}]\n", "and no merges"),
        ("no-yaml", "a: [\n", "kustomization.yaml"),
    ),
)
def test_what_is_not_known_is_refused(tmp_path, content, message):
    """Nothing of a kustomization is passed over."""
    (tmp_path / "kustomization.yaml").write_text("kind: Component\n" + content)
    (tmp_path / "a").write_text("x: 1\n")
    with pytest.raises(ManifestsError, match=message):
        render(BASE, [tmp_path])


def test_a_directory_without_kustomization(tmp_path):
    """It is named."""
    with pytest.raises(ManifestsError, match=r"there is no kustomization\.yaml"):
        render(BASE, [tmp_path])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_object_of_a_component_lies_in_giveways_namespace(path):
    """A component is applied by itself as well: nothing lands in whatever namespace kubectl is set to."""
    cluster_wide = {"ClusterRole", "ClusterRoleBinding", "FlowSchema", "Namespace"}
    for obj in render(BASE, [path]):
        wide = obj["kind"] in cluster_wide or obj["kind"].startswith(("Validating", "Mutating"))
        assert obj["metadata"].get("namespace") == (None if wide else NAMESPACE), obj["metadata"]["name"]
