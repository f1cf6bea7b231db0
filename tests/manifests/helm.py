"""The Helm chart as helm renders it, as objects."""

import json
import subprocess
import tempfile
from pathlib import Path

from ruamel.yaml import YAML

from tests.manifests.objects import NAMESPACE, ROOT
from tests.manifests.rendering import by_key
from tests.tools import needed

CHART = ROOT / "manifests" / "chart"


def helm(*arguments):
    """Run helm, which knows of no cluster and keeps nothing; its result."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "PATH": "/usr/bin:/bin", "KUBECONFIG": f"{home}/none"}
        return subprocess.run(
            [needed("helm"), *arguments], check=False, capture_output=True, text=True, timeout=60, env=environment
        )


def template(values, *, chart=CHART, namespace=NAMESPACE):
    """What the chart renders with these values, by key."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(json.dumps(values))
        file.flush()
        result = helm("template", "giveway", str(chart), "--namespace", namespace, "--values", file.name)
    assert result.returncode == 0, result.stderr
    documents = YAML(typ="safe", pure=True).load_all(result.stdout)
    return by_key([document for document in documents if document])


def refusal(values):
    """Why helm does not take these values."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "values.json"
        file.write_text(json.dumps(values))
        result = helm("template", "giveway", str(CHART), "--namespace", NAMESPACE, "--values", str(file))
    assert result.returncode != 0
    return result.stderr
