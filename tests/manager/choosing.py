"""Policy files in a directory, a process that chooses by them, and what it shows."""

from prometheus_client import CollectorRegistry

from webhook.admission.configmaps import ALLOW_REMOVAL
from webhook.kube.resources import CONFIG_MAP
from webhook.manager.kept_policies import KeptPolicies
from webhook.manager.policy_chooser import PolicyChooser
from webhook.policy.files.loading import PolicySource, texts_in

SYSTEM = "giveway-system"
KEPT = CONFIG_MAP.path(SYSTEM, "giveway-policies-in-force")
RANGE = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: kubernetes}
spec:
  rules:
  - {name: system, reserve: {from: 1000000001, to: 2147483647, use: [{namespaces: [kube-system]}]}}
"""
TEAMS = """\
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {name: teams}
spec:
  rules:
  - {name: allowed, priorityClasses: {allow: [standard]}}
"""


def put(directory, *texts):
    """Leave exactly these files in the directory."""
    for path in directory.iterdir():
        path.unlink()
    for number, text in enumerate(texts):
        (directory / f"{number}.yaml").write_text(text)


def files(directory, client=None, **more):
    """A process that judges the files, with its own metrics."""
    kept = KeptPolicies(client, SYSTEM) if client else None
    return PolicyChooser(
        PolicySource(str(directory), lambda: texts_in(directory)), CollectorRegistry(), kept=kept, **more
    )


async def chosen(directory, client=None, **more):
    """A process that has loaded the files and chosen by them."""
    one = files(directory, client, **more)
    await one.reload()
    return one


def names(one):
    return [policy.name for policy in one.engine.policies.priority]


def held(one):
    """The number that the metric shows."""
    return one._metrics.removals_held._value.get()


async def allow_removal(client, ids):
    """Say so on the ConfigMap that people apply."""
    meta = {"name": "giveway-policies", "namespace": SYSTEM, "annotations": {ALLOW_REMOVAL: ids}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {}}
    await client.create(CONFIG_MAP.path(SYSTEM), body)
