"""Where the manifests are, and their files as objects."""

from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
BASE = ROOT / "manifests" / "base"
COMPONENTS = ROOT / "manifests" / "components"
POLICIES = ROOT / "policies"
NAMESPACE = "giveway-system"


def documents(path):
    """All YAML documents of a file."""
    return [document for document in YAML(typ="safe", pure=True).load_all(path) if document]
