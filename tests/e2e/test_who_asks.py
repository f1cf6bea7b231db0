"""Ways round a right: workloads that nobody judged, operators, ownerReferences, labels. The webhook is at work.

Tenants, operators and controllers are played by impersonation, which an administrator may do on any cluster.
"""

import json
from contextlib import suppress

import pytest

from tests.e2e.users import granted, group
from tests.workloads import deployment, eventually, pod, until_refused
from webhook.kube.resources import CONFIG_MAP, POD, REPLICA_SET

pytestmark = pytest.mark.kubectl

VALUE = 876_543_000
CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
POLICIES = """
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {{name: bands}}
spec:
  rules:
  - name: urgent
    reserve:
      from: 876543000
      to: 876543000
      use:
      - {{namespaces: ["{id}-urgent"], subjects: [{{kind: Group, name: "{id}-platform"}}]}}
      - {{subjects: [{{kind: Group, name: "{id}-platform"}}]}}
      - {{subjects: [{{kind: ServiceAccount, namespace: "{id}", name: runner}}]}}
---
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {{name: tenants}}
spec:
  match: {{namespaces: ["{id}"], subjects: [{{kind: Group, name: "{id}-tenants"}}]}}
  exclude: {{subjects: [{{kind: Group, name: "{id}-platform"}}]}}
  rules:
  - {{name: classes, priorityClasses: {{deny: ["{id}-denied"]}}}}
---
apiVersion: giveway.dev/v1alpha1
kind: PriorityPolicy
metadata: {{name: shield}}
spec:
  match: {{namespaces: ["{id}"]}}
  rules:
  - name: labelled
    protectAnnotations:
      keys: [godel.bytedance.com/can-be-preempted]
      allow: {{objectSelector: {{matchLabels: {{may: "yes"}}}}}}
"""


class Tenancy:
    """Two namespaces: `id`, and `id`-urgent, which has the right by namespace. People and accounts may edit in both."""

    def __init__(self, sandbox, kubectl):
        self.sandbox, self.id, self._kubectl = sandbox, sandbox.id, kubectl
        self.urgent_space = f"{sandbox.id}-urgent"
        self.tenant = ("--as", "alice", "--as-group", f"{self.id}-tenants", "--as-group", f"{self.id}-people")
        self.platform = ("--as", "petra", "--as-group", f"{self.id}-platform", "--as-group", f"{self.id}-people")
        self.operator = ("--as", f"system:serviceaccount:{self.id}:operator")
        self.runner = ("--as", f"system:serviceaccount:{self.id}:runner")
        self.controller = ("--as", CONTROLLER)

    async def begin(self) -> None:
        await self.sandbox.namespace(self.urgent_space)
        subjects = [group(f"{self.id}-people")]
        subjects += [{"kind": "ServiceAccount", "namespace": self.id, "name": one} for one in ("operator", "runner")]
        for space in (self.id, self.urgent_space):
            await granted(self.sandbox, "people", subjects, role="edit", where=space)
            await eventually(lambda space=space: self._open(space), 20, "the namespace takes pods of the operator")
        self.urgent = await self.sandbox.priority_class("urgent", VALUE)
        self.denied = await self.sandbox.priority_class("denied", 5)

    async def _open(self, space: str) -> bool:
        """A real cluster needs a moment until the namespace has its service account and the binding is known."""
        with suppress(AssertionError):
            await self.create((*self.operator, "--dry-run=server"), pod("probe"), space)
            return True
        return False

    async def create(self, who, body, space: str = "", code: int = 0) -> str:
        """What kubectl prints when this user creates the object."""
        return await self._kubectl("create", "-f", "-", "-n", space or self.id, *who, stdin=body, code=code)

    async def owned(self, name: str, class_name: str, space: str = "") -> dict:
        """A pod that names an object of the namespace as its controller."""
        path, body = CONFIG_MAP.path(space or self.id), {"metadata": {"name": f"owner-of-{name}"}}
        owner = await self.sandbox.client.create(path, body)
        body = pod(name, priorityClassName=class_name)
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "controller": True}
        reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        body["metadata"]["ownerReferences"] = [reference]
        return body

    async def pods(self, space: str = "") -> list[str]:
        """The names of the pods there."""
        found, _ = await self.sandbox.client.list(POD.path(space or self.id), dict)
        return [one["metadata"]["name"] for one in found]


def workload(name: str, class_name: str, replicas: int = 1, kind: str = "Deployment"):
    """A workload whose pods name this class; none of them ever runs."""
    body = deployment(name, replicas, kind=kind)
    body["spec"]["template"]["spec"] |= {"priorityClassName": class_name, "nodeSelector": {"nowhere": "at-all"}}
    return body


@pytest.fixture
async def tenancy(sandbox, kubectl):
    made = Tenancy(sandbox, kubectl)
    await made.begin()
    return made


async def serve(giveway, tenancy) -> None:
    """Start the webhook and wait until it judges."""
    await giveway.serve(POLICIES.format(id=tenancy.id))
    probe = pod("probe", priorityClassName=tenancy.urgent)
    await until_refused(lambda: tenancy.sandbox.dry(probe), "bands/urgent", 20)


async def test_a_workload_that_nobody_judged_gains_nothing(tenancy, giveway):
    """A workload from before the webhook, or past it, has its pods judged by their namespace when they are made."""
    client = tenancy.sandbox.client
    for space in (tenancy.id, tenancy.urgent_space):
        await tenancy.create(tenancy.tenant, workload("web", tenancy.urgent, 0, "ReplicaSet"), space)
    await serve(giveway, tenancy)
    for space in (tenancy.id, tenancy.urgent_space):
        await client.patch(REPLICA_SET.path(space, "web"), {"spec": {"replicas": 1}})
    await eventually(lambda: tenancy.pods(tenancy.urgent_space), 20, "the namespace with the right gets its pod")
    body = await tenancy.owned("as-the-controller", tenancy.urgent)
    refused = await tenancy.create(tenancy.controller, body, code=1)
    assert "rule bands/urgent reserves" in refused
    assert "have a right by namespace" in refused
    assert await tenancy.pods() == []


WARNED = "Warning: a controller makes the pods, and rule {} will refuse them"
BAND, CLASSES = "bands/urgent", "tenants/classes"
ROWS = [
    # A pod of a custom resource is made by its operator's account, which no right names: the namespace decides
    ("operator", "pod", "urgent", "", BAND),
    ("operator", "owned", "urgent", "", BAND),
    ("operator", "owned", "urgent", "urgent", ""),
    # A right that names a service account is for pods it makes for itself; for people a reference changes nothing
    ("runner", "pod", "urgent", "", ""),
    ("runner", "owned", "urgent", "", BAND),
    ("tenant", "owned", "urgent", "", BAND),
    ("platform", "owned", "urgent", "", ""),
    # A right by subjects is for people: their workload is let in with a warning, unless the namespace has a right
    ("platform", "workload", "urgent", "", WARNED.format(BAND)),
    ("platform", "pod", "urgent", "", ""),
    ("platform", "workload", "urgent", "urgent", ""),
    ("tenant", "workload", "urgent", "urgent", BAND),
    # Subjects of match and exclude decide about people; a controller's pod is judged whoever wrote the workload
    ("tenant", "pod", "denied", "", CLASSES),
    ("controller", "owned", "denied", "", CLASSES),
    ("platform", "pod", "denied", "", ""),
    ("platform", "workload", "denied", "", WARNED.format(CLASSES)),
]
"""Who makes what of which class, in which of the namespaces, and by what it is refused, or what is said."""


async def test_who_may_make_what(tenancy, giveway):
    """Each row comes out as it says, and a controller makes the pods where the namespace has the right."""
    await serve(giveway, tenancy)
    for number, (who, what, of, where, words) in enumerate(ROWS):
        name, class_name = f"{what}-{number}", getattr(tenancy, of)
        space = tenancy.urgent_space if where else ""
        if what == "owned":
            body = await tenancy.owned(name, class_name, space)
        else:
            body = workload(name, class_name) if what == "workload" else pod(name, priorityClassName=class_name)
        refused = words in (BAND, CLASSES)
        said = await tenancy.create(getattr(tenancy, who), body, space, code=int(refused))
        assert words in said, ROWS[number]
        assert ("Warning" in said) == ("Warning" in words), ROWS[number]

    async def made() -> bool:
        return any(name.startswith("workload-") for name in await tenancy.pods(tenancy.urgent_space))

    await eventually(made, 20, "the Deployment has its pod")


async def test_a_label_in_the_same_update_gives_no_right(tenancy, giveway, kubectl):
    """A right by label needs the label before the update that uses it."""
    await serve(giveway, tenancy)
    await tenancy.create(tenancy.tenant, pod("labelled"))
    change = {"labels": {"may": "yes"}, "annotations": {"godel.bytedance.com/can-be-preempted": "true"}}
    arguments = ("patch", "pod", "labelled", "-n", tenancy.id, *tenancy.tenant, "-p", json.dumps({"metadata": change}))
    assert "shield/labelled" in await kubectl(*arguments, code=1)
