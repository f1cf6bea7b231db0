"""The base with components as `giveway install` renders it; `tests/installation` holds that against kubectl."""

import json
from functools import cache

from tests.manifests.objects import BASE, COMPONENTS
from webhook.installation.kustomize import render

MODES = {"native-policies", "backstop", "native-only"}
"""Ways to run with the API server's own policies: one takes the webhook away."""
NAMES = sorted({path.parent.name for path in COMPONENTS.glob("*/kustomization.yaml")} - MODES)


def by_key(objects):
    """Objects by API version, kind, namespace and name; each may be there once."""
    found = {}
    for obj in objects:
        metadata = obj["metadata"]
        key = obj["apiVersion"], obj["kind"], metadata.get("namespace", ""), metadata["name"]
        assert key not in found, key
        found[key] = obj
    return found


@cache
def _rendered(components):
    return json.dumps(render(BASE, [COMPONENTS / name for name in components]))


def rendered(*components):
    """What a kustomization with the base and these components holds, by key."""
    return by_key(json.loads(_rendered(components)))


def find(objects, kind, name):
    """The one object of a kind and a name."""
    [found] = [obj for (_, one, _, called), obj in objects.items() if (one, called) == (kind, name)]
    return found


def pod_of(objects, deployment):
    """The pod of a Deployment."""
    return find(objects, "Deployment", deployment)["spec"]["template"]["spec"]


def containers(deployment, *components):
    """All containers of a Deployment's pod by name, in their order of start."""
    spec = pod_of(rendered(*components), deployment)
    return {each["name"]: each for each in [*(spec.get("initContainers") or ()), *spec["containers"]]}


def arguments(container):
    """`--name=value` arguments as a dictionary."""
    return dict(argument.removeprefix("--").split("=", 1) for argument in container["args"] if "=" in argument)


def rules_of(account, *components):
    """The PolicyRules of the roles with an account's name."""
    roles = [obj for obj in rendered(*components).values() if obj["kind"] in ("Role", "ClusterRole")]
    return [rule for role in roles if role["metadata"]["name"] == account for rule in role["rules"]]
