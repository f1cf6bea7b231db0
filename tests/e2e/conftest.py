"""End-to-end tests against a kubeconfig: the embedded control plane by default, any cluster with --kubeconfig.

Each test works in a sandbox of its own: a namespace, nodes that only its pods select, PriorityClasses with its name
in theirs. On a real cluster nobody runs pods on such nodes; with --kubelet-stand-in the tests play their kubelet.
"""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.software import Software
from tests.inspection import command
from tests.workloads import Json, budget, condition, deployment, eventually, namespace, pod, priority_class, refusal
from webhook.clusters.acting.kubelet import Kubelet
from webhook.clusters.embedded.embedded_cluster import node
from webhook.clusters.embedded.standins.controller_manager import StandInInformers, context_of
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.resources import EVENT, NAMESPACE, NODE, POD, POD_DISRUPTION_BUDGET, PRIORITY_CLASS, Resource
from webhook.policy.model.values import CAN_BE_PREEMPTED, MANAGED, MARK, PLAN

LABEL = "giveway.dev/e2e"
MAY_GO = {CAN_BE_PREEMPTED: "true"}
TOLERANT = [{"operator": "Exists"}]
PLAYED = [{"key": f"node.kubernetes.io/{state}", "operator": "Exists"} for state in ("not-ready", "unreachable")]
"""Tolerations of whatever a node may be, and of what one without a kubelet may be, but not of a cordon."""
MEMORY = "8Gi"


async def class_is_usable(client: Client, name: str, namespace: str = "default") -> None:
    """Wait until pods may name a PriorityClass that was just made, which a dry run asks.

    The API server's Priority plugin reads classes from an informer of its own: until that has seen the class, a pod
    that names it is refused with 403.
    """

    async def usable() -> bool:
        made = client.create(POD.path(namespace), pod("probe", priorityClassName=name), dryRun="All")
        return f"no PriorityClass with name {name} was found" not in await refusal(made)

    await eventually(usable, 20, f"PriorityClass {name} can be used")


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The kubeconfig of the cluster under test."""
    given = request.config.getoption("--kubeconfig")
    if given:
        yield given
        return
    file = tmp_path_factory.mktemp("cluster") / "kubeconfig"
    arguments = ["cluster", "--nodes", "0", "--kubeconfig", str(file), "--termination-seconds", "0.2"]
    command = [sys.executable, "-m", "webhook.cli", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"export KUBECONFIG={file}\n"
        yield str(file)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, "giveway cluster ends cleanly at SIGTERM"


@pytest.fixture(scope="session")
def another_cluster(request: pytest.FixtureRequest) -> None:
    """Skip the test on the embedded control plane, where it would show nothing that a quicker one does not."""
    if not request.config.getoption("--kubeconfig"):
        pytest.skip("give a --kubeconfig")


@pytest.fixture
async def client(kubeconfig: str) -> AsyncIterator[Client]:
    """The administrator's client."""
    async with await Client.connect(kubeconfig) as connected:
        yield connected


class Sandbox:
    """One test's part of the cluster. `id` is in the names of what is not in its namespace."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.id = f"e2e-{secrets.token_hex(3)}"
        self.pods = POD.path(self.id)
        self._cluster_wide: list[str] = []

    async def begin(self) -> None:
        await self.namespace(self.id)
        await self.nothing_holds()

    async def nothing_holds(self) -> None:
        """Wait until the namespace takes pods, and nothing of an earlier giveway judges them.

        A real cluster refuses pods until a controller has made the namespace's default ServiceAccount. What was in
        force goes on for a moment, and what refuses longer than what changes. So a new pod has to keep a forged plan:
        nobody refuses the annotation any more, and nobody takes it off.
        """
        forged = pod("forged")
        forged["metadata"]["annotations"] = {PLAN: "{}"}

        async def taken() -> bool:
            with suppress(ApiError):
                return PLAN in (await self.dry(forged))["metadata"].get("annotations", {})
            return False

        await eventually(taken, 30, "the namespace takes pods, and no policies of another test hold")

    async def end(self) -> None:
        pods, _ = await self.client.list(self.pods, dict)
        for one in pods:
            await self._delete(f"{self.pods}/{one['metadata']['name']}", {"gracePeriodSeconds": 0})
        for path in reversed(self._cluster_wide):
            await self._delete(path)

    async def create(self, resource: Resource, body: Json) -> None:
        """Add a cluster-wide object."""
        await self.client.create(resource.path(), body)
        self.cleans_up(resource.path(None, body["metadata"]["name"]))

    def cleans_up(self, path: str) -> None:
        """Delete this object at the end; it is outside the sandbox's namespace."""
        self._cluster_wide.append(path)

    async def namespace(self, name: str) -> None:
        """Add a namespace of this full name."""
        await self.create(NAMESPACE, namespace(name))

    async def node(self, name: str, cpu: str = "4") -> str:
        """Add a node for this test's pods; its full name."""
        full = f"{self.id}-{name}"
        body: Any = node(full, cpu, MEMORY)
        body["metadata"]["labels"][LABEL] = self.id
        await self.create(NODE, body)
        await self.client.patch(NODE.path(None, full, "status"), {"status": body["status"]})
        return full

    async def priority_class(
        self, name: str, value: int, annotations: dict[str, str] | None = None, **fields: Any
    ) -> str:
        """Add a PriorityClass and wait until pods may name it; its full name."""
        full = f"{self.id}-{name}"
        body = priority_class(full, value, **fields)
        body["metadata"]["annotations"] = annotations or {}
        await self.create(PRIORITY_CLASS, body)
        await class_is_usable(self.client, full, self.id)
        return full

    async def classes(self) -> tuple[str, str]:
        """A class of victims, and one of preemptors."""
        low = await self.priority_class("low", 80)
        return low, await self.priority_class("high", 100, preemptionPolicy="Never")

    async def pod(
        self, name: str, *, annotations: dict[str, str] | None = None, owner: str = "", **fields: Any
    ) -> Json:
        """Create a pod that selects this test's nodes and puts up with whatever taints they have.

        An `owner` is of a kind that no controller of the cluster knows.
        """
        body = pod(name, **fields)
        body["spec"].setdefault("nodeSelector", {LABEL: self.id})
        body["spec"].setdefault("tolerations", TOLERANT)
        body["metadata"]["annotations"] = annotations or {}
        if owner:
            reference = {"apiVersion": "example.com/v1", "kind": "Training", "name": owner, "uid": owner}
            body["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
        return await self.client.create(self.pods, body)

    async def workload(
        self, name: str, replicas: int, cpu: str, class_name: str, kind: str = "Deployment", **more: Any
    ) -> None:
        """Create a workload whose pods may be evicted; `more` are annotations and labels of them, or of their spec."""
        body = deployment(name, replicas, cpu, kind)
        template = body["spec"]["template"]
        template["metadata"]["annotations"] = more.pop("annotations", MAY_GO)
        template["metadata"]["labels"] |= more.pop("labels", {})
        where = {"nodeSelector": {LABEL: self.id}, "tolerations": PLAYED}
        template["spec"] |= {"priorityClassName": class_name, **where, **more}
        await self.client.create(f"/apis/apps/v1/namespaces/{self.id}/{kind.lower()}s", body)

    async def dry(self, body: Json) -> Json:
        """The pod as it would be stored."""
        return await self.client.create(self.pods, body, dryRun="All")

    async def run(self, name: str, cpu: str = "2", **fields: Any) -> str:
        """Create a pod and wait until it is Ready; its node."""
        await self.pod(name, cpu=cpu, **fields)
        return await self.running(name)

    async def stuck(self, name: str, cpu: str = "2", **fields: Any) -> str:
        """Create a pod and wait until it fits nowhere; the scheduler's message."""
        await self.pod(name, cpu=cpu, **fields)
        return await self.unschedulable(name)

    async def victim(self, name: str, class_name: str, cpu: str = "4", **fields: Any) -> str:
        """Run a pod that may be evicted; its node."""
        return await self.run(name, cpu, annotations=MAY_GO, priorityClassName=class_name, **fields)

    async def preemptor(self, class_name: str, cpu: str = "4", name: str = "p", app: str = "p", **fields: Any) -> None:
        """Create a managed pod."""
        labels = {MARK: MANAGED, "app": app}
        await self.pod(name, cpu=cpu, priorityClassName=class_name, labels=labels, **fields)

    async def evict(self, name: str, **options: Any) -> None:
        """Ask for a pod's eviction, as somebody who may."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": self.id}}
        await self.client.create(f"{self.pods}/{name}/eviction", {**body, "deleteOptions": options})

    @asynccontextmanager
    async def held(self, *names: str) -> AsyncIterator[None]:
        """These pods stay when they are deleted, until they are let go, at the end at the latest."""
        for name in names:
            await self.client.patch(f"{self.pods}/{name}", {"metadata": {"finalizers": ["giveway.dev/held"]}})
        try:
            yield
        finally:
            for name in names:
                await unless_absent(self.let_go(name))

    async def let_go(self, name: str) -> None:
        """Let the pod go that was held."""
        await self.client.patch(f"{self.pods}/{name}", {"metadata": {"finalizers": None}})

    async def here(self) -> set[str]:
        """The pods that are neither gone nor leaving."""
        pods, _ = await self.client.list(self.pods, dict)
        return {one["metadata"]["name"] for one in pods if "deletionTimestamp" not in one["metadata"]}

    async def told(self, words: str, reason: str = "", name: str = "", seconds: float = 30) -> None:
        """Wait for an Event whose note has these words, for this reason and on this pod if they are given."""

        async def check() -> bool:
            events, _ = await self.client.list(EVENT.path(self.id), dict)
            return any(
                words in event.get("note", "")
                and reason in ("", event.get("reason"))
                and name in ("", event["regarding"]["name"])
                for event in events
            )

        await eventually(check, seconds, f"an Event {reason} on {name or 'a pod'} says {words!r}")

    async def budget(self, name: str, labels: dict[str, str], **spec: Any) -> None:
        """Create a PodDisruptionBudget and wait until its status is current."""
        path = POD_DISRUPTION_BUDGET.path(self.id)
        await self.client.create(path, budget(name, labels, **spec))

        async def observed() -> bool:
            found = await self.client.get(f"{path}/{name}")
            return found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]

        await eventually(observed)

    async def get(self, name: str) -> Json:
        return await self.client.get(f"{self.pods}/{name}")

    async def until(self, name: str, holds: Callable[[Json], Any], seconds: float, what: str) -> Any:
        """What `holds` says of the pod, as soon as that is true."""

        async def check() -> Any:
            return holds(await self.get(name))

        return await eventually(check, seconds, f"{name} {what}")

    async def bound(self, name: str, seconds: float = 15.0) -> str:
        """The node the pod was bound to."""
        return str(await self.until(name, lambda one: one["spec"].get("nodeName"), seconds, "is bound"))

    async def one_bound(self, *names: str) -> str:
        """The first of these pods that is bound."""

        async def check() -> Any:
            bound = [name for name in names if (await self.get(name))["spec"].get("nodeName")]
            return bound and bound[0]

        return str(await eventually(check, 30, f"one of {names} is bound"))

    async def running(self, name: str, seconds: float = 15.0) -> str:
        """The node on which the pod is Ready."""

        def is_ready(one: Json) -> Any:
            return condition(one, "Ready").get("status") == "True" and one["spec"]["nodeName"]

        return str(await self.until(name, is_ready, seconds, "is Ready"))

    async def unschedulable(self, name: str, seconds: float = 15.0) -> str:
        """The scheduler's message once the pod fits nowhere."""

        def said(one: Json) -> Any:
            row = condition(one, "PodScheduled")
            return row.get("reason") == "Unschedulable" and row["message"]

        return str(await self.until(name, said, seconds, "is unschedulable"))

    async def without(self, key: str, name: str, seconds: float = 15.0) -> None:
        """Wait until the pod has no such annotation."""
        await self.until(
            name, lambda one: key not in (one["metadata"].get("annotations") or {}), seconds, f"has no {key}"
        )

    async def nominate(self, name: str, node_name: str | None) -> None:
        """Set or clear the pod's nomination, as an outside component does (docs/kubernetes-behaviour.md K8 and K20)."""
        body = {"status": {"nominatedNodeName": node_name}}
        await self.client.patch(f"{self.pods}/{name}/status", body, kind="merge")

    async def gone(self, name: str, seconds: float = 15.0) -> None:
        """Wait until the pod's object is gone."""

        async def check() -> bool:
            return "not found" in await refusal(self.get(name))

        await eventually(check, seconds, f"{name} is gone")

    async def _delete(self, path: str, body: Json | None = None) -> None:
        with suppress(ApiError):
            await self.client.delete(path, body)


@pytest.fixture
async def sandbox(client: Client, request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """An empty sandbox; with --kubelet-stand-in its nodes have a kubelet."""
    made = Sandbox(client)
    await made.begin()
    tasks: list[asyncio.Task[None]] = []
    if request.config.getoption("--kubelet-stand-in"):
        informers = StandInInformers(client)
        kubelet = Kubelet(context_of(informers), lambda _: client, serves=lambda name: name.startswith(made.id))
        tasks = [asyncio.create_task(informers.run()), asyncio.create_task(kubelet.run())]
        await informers.synced()
    try:
        yield made
    finally:
        await made.end()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def giveway(sandbox: Sandbox, kubeconfig: str, tmp_path: Path) -> AsyncIterator[Software]:
    """The rights of giveway on the cluster, ready to be started; its processes end before the sandbox does."""
    software = Software(sandbox.client, kubeconfig, tmp_path)
    await software.install()
    try:
        yield software
    finally:
        await software.end()


@pytest.fixture
def doctor(kubeconfig: str) -> Callable[..., Awaitable[list[Json]]]:
    """What `giveway doctor` finds by these checks on the cluster under test; `policies` are a directory."""

    async def findings(*checks: str, policies: Path | None = None) -> list[Json]:
        arguments = ["--policies", policies] if policies else []
        said = await command.giveway("doctor", "--kubeconfig", kubeconfig, "--format=json", *arguments)
        return [row for row in json.loads(said.stdout)["findings"] if row["check"] in checks]

    return findings


@pytest.fixture
def kubectl(kubeconfig: str):
    """Run kubectl against the cluster under test: arguments to its output; `code` is what it must exit with.

    The standard input is a text, or an object.
    """

    async def run(*arguments: str, code: int = 0, stdin: str | Json = "") -> str:
        text = stdin if isinstance(stdin, str) else json.dumps(stdin)
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            *arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "KUBECONFIG": kubeconfig},
        )
        output, _ = await asyncio.wait_for(process.communicate(text.encode()), 60)
        assert process.returncode == code, output.decode()
        return output.decode()

    return run
