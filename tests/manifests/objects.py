"""The manifests as objects, read without kustomize."""

from functools import cache
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
BASE = ROOT / "manifests" / "base"
POLICIES = ROOT / "policies"
NAMESPACE = "giveway-system"
_CLUSTER_WIDE = (
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingWebhookConfiguration",
    "Namespace",
    "ValidatingWebhookConfiguration",
)


def documents(path):
    """All YAML documents of a file."""
    return [document for document in YAML(typ="safe", pure=True).load_all(path) if document]


def kustomization():
    """The base's kustomization."""
    return documents(BASE / "kustomization.yaml")[0]


@cache
def base_objects():
    """What the base holds, with the namespace and the labels that its kustomization gives."""
    objects = [obj for name in kustomization()["resources"] if name.endswith(".yaml") for obj in documents(BASE / name)]
    objects.append(policies_config_map())
    for obj in objects:
        obj["metadata"].setdefault("labels", {})["app.kubernetes.io/name"] = "giveway"
        if obj["kind"] not in _CLUSTER_WIDE:
            obj["metadata"]["namespace"] = NAMESPACE
        if obj["kind"] == "Deployment":
            obj["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] = "giveway"
    return tuple(objects)


def policies_config_map():
    """The ConfigMap of the policies."""
    [generator] = documents(POLICIES / "Kustomization")[0]["configMapGenerator"]
    data = {name: (POLICIES / name).read_text() for name in generator["files"]}
    metadata = {"name": generator["name"], "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def find(kind, name):
    """One object of the base."""
    [found] = [obj for obj in base_objects() if (obj["kind"], obj["metadata"]["name"]) == (kind, name)]
    return found


def pod_spec(deployment):
    """The pod of a Deployment."""
    return find("Deployment", deployment)["spec"]["template"]["spec"]


def containers(deployment):
    """All containers of a Deployment's pod by name, in their order of start."""
    spec = pod_spec(deployment)
    return {c["name"]: c for c in [*spec.get("initContainers", []), *spec["containers"]]}


def arguments(container):
    """`--name=value` arguments as a dictionary."""
    return dict(argument.removeprefix("--").split("=", 1) for argument in container["args"] if "=" in argument)
