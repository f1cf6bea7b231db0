"""The Helm chart as helm renders it, as objects."""

import json
import subprocess
import tempfile

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


def _rendering(values, chart=CHART, namespace=NAMESPACE):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(json.dumps(values))
        file.flush()
        return helm("template", "giveway", str(chart), "--namespace", namespace, "--values", file.name)


def template(values, **where):
    """What the chart renders with these values, by key; another `chart` or `namespace` may be given."""
    result = _rendering(values, **where)
    assert result.returncode == 0, result.stderr
    documents = YAML(typ="safe", pure=True).load_all(result.stdout)
    return by_key([document for document in documents if document])


def refusal(values):
    """Why helm does not take these values."""
    result = _rendering(values)
    assert result.returncode != 0
    return result.stderr
