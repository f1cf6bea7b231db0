"""The manifests as kubectl renders them: the base with components, as objects."""

import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from tests.manifests.objects import BASE, ROOT, documents

COMPONENTS = ROOT / "manifests" / "components"
MODES = {"native-policies", "backstop", "native-only"}
"""Ways to run with the API server's own policies (tests/manifests/test_native.py): one takes the webhook away."""
NAMES = sorted({path.parent.name for path in COMPONENTS.glob("*/kustomization.yaml")} - MODES)


def key(obj):
    """What tells objects apart: API version, kind, namespace and name."""
    metadata = obj["metadata"]
    return obj["apiVersion"], obj["kind"], metadata.get("namespace", ""), metadata["name"]


def by_key(objects):
    """Objects by their key; each may be there once."""
    found = {}
    for obj in objects:
        assert key(obj) not in found, key(obj)
        found[key(obj)] = obj
    return found


@cache
def _rendered(components, base):
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        relative = {path: os.path.relpath(path, directory.resolve()) for path in (BASE, COMPONENTS)}
        kustomization = {
            "resources": [relative[BASE]] if base else [],
            "components": [f"{relative[COMPONENTS]}/{component}" for component in components],
        }
        (directory / "kustomization.yaml").write_text(json.dumps(kustomization))
        output = directory / "rendered.yaml"
        with output.open("wb") as file:
            subprocess.run(["kubectl", "kustomize", directory], stdout=file, check=True, timeout=60)
        return json.dumps(documents(output))


def rendered(*components, base=True):
    """What a kustomization with the base and these components holds, by key; skips without kubectl."""
    return by_key(json.loads(_rendered(components, base)))


def find(objects, kind, name):
    """The one object of a kind and a name."""
    [found] = [obj for (_, one, _, called), obj in objects.items() if (one, called) == (kind, name)]
    return found


def pod_of(objects, deployment):
    """The pod of a Deployment."""
    return find(objects, "Deployment", deployment)["spec"]["template"]["spec"]
