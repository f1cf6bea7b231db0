"""End-to-end tests against a kubeconfig: the embedded control plane by default, any cluster with --kubeconfig.

Each test works in a sandbox of its own: a namespace, nodes that only its pods select, PriorityClasses with its name
in theirs. On a real cluster nobody runs pods on such nodes; with --kubelet-stand-in the tests play their kubelet.
"""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.software import Software, installed
from tests.workloads import Json, budget, condition, eventually, pod, priority_class, refusal
from webhook.clusters.acting.kubelet import Kubelet
from webhook.clusters.embedded.embedded_cluster import node
from webhook.clusters.embedded.standins.controller_manager import StandInInformers, context_of
from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.resources import EVENT, NAMESPACE, NODE, POD, POD_DISRUPTION_BUDGET, PRIORITY_CLASS
from webhook.policy.model.values import CAN_BE_PREEMPTED, MANAGED, MARK

LABEL = "giveway.dev/e2e"
MAY_GO = {CAN_BE_PREEMPTED: "true"}
MEMORY = "8Gi"


async def class_is_usable(client: Client, name: str, namespace: str = "default") -> None:
    """Wait until pods may name a PriorityClass that was just made, which a dry run asks.

    The API server's Priority plugin reads classes from an informer of its own: until that has seen the class, a pod
    that names it is refused with 403.
    """

    async def usable() -> bool:
        try:
            await client.create(POD.path(namespace), pod("probe", priorityClassName=name), dryRun="All")
        except ApiError as error:
            return f"no PriorityClass with name {name} was found" not in error.message
        return True

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
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.id}}
        await self.client.create(NAMESPACE.path(), body)
        self._cluster_wide.append(NAMESPACE.path(None, self.id))
        await eventually(self._takes_pods, what="the new namespace has its service account and takes pods")

    async def _takes_pods(self) -> bool:
        """A real cluster refuses pods until a controller has made the namespace's default ServiceAccount."""
        said = await refusal(self.client.create(self.pods, pod("probe"), dryRun="All"))
        assert not said or "serviceaccount" in said
        return not said

    async def end(self) -> None:
        pods, _ = await self.client.list(self.pods, dict)
        for one in pods:
            await self._delete(f"{self.pods}/{one['metadata']['name']}", {"gracePeriodSeconds": 0})
        for path in reversed(self._cluster_wide):
            await self._delete(path)

    async def node(self, name: str, cpu: str = "4") -> str:
        """Add a node for this test's pods; its full name."""
        full = f"{self.id}-{name}"
        body: Any = node(full, cpu, MEMORY)
        body["metadata"]["labels"][LABEL] = self.id
        await self.client.create(NODE.path(), body)
        await self.client.patch(NODE.path(None, full, "status"), {"status": body["status"]})
        self._cluster_wide.append(NODE.path(None, full))
        return full

    async def priority_class(self, name: str, value: int, **fields: Any) -> str:
        """Add a PriorityClass and wait until pods may name it; its full name."""
        full = f"{self.id}-{name}"
        await self.client.create(PRIORITY_CLASS.path(), priority_class(full, value, **fields))
        self._cluster_wide.append(PRIORITY_CLASS.path(None, full))
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
        body["spec"].setdefault("tolerations", [{"operator": "Exists"}])
        body["metadata"]["annotations"] = annotations or {}
        if owner:
            reference = {"apiVersion": "example.com/v1", "kind": "Training", "name": owner, "uid": owner}
            body["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
        return await self.client.create(self.pods, body)

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

    def cleans_up(self, path: str) -> None:
        """Delete this object at the end; it is outside the sandbox's namespace."""
        self._cluster_wide.append(path)

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
    async with installed(sandbox.client, kubeconfig, tmp_path) as software:
        yield software


@pytest.fixture
def kubectl(kubeconfig: str):
    """Run kubectl against the cluster under test: arguments to its output; `code` is what it must exit with."""

    async def run(*arguments: str, code: int = 0, stdin: str = "") -> str:
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            *arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "KUBECONFIG": kubeconfig},
        )
        output, _ = await asyncio.wait_for(process.communicate(stdin.encode()), 30)
        assert process.returncode == code, output.decode()
        return output.decode()

    return run
