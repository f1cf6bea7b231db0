"""The changes that can be made to a simulated cluster, and how each is made."""

from __future__ import annotations

import copy
import re
from typing import Any, NoReturn

import msgspec

from webhook.clusters.model.deployments import share
from webhook.clusters.simulated.objects import BY_KIND, WORKLOADS
from webhook.clusters.simulated.simulated_admission import RefusedError, User
from webhook.component_base.logs import visible
from webhook.kube.errors import ApiError
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.pods import controller_of
from webhook.policy.model.policies import Policies
from webhook.simulation.cluster_file.redacting import redact
from webhook.simulation.simulation import Running

_ZONE, _TYPE = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"
_HOSTNAME = "kubernetes.io/hostname"
_RETRY = 5.0
"""Seconds after which `kubectl drain` asks again if a budget refused."""
_AUTHOR = User("simulation:author")


class WhatIfError(Exception):
    """A change that cannot be made; the text says which, why, and what there is instead."""


class Scale(msgspec.Struct, frozen=True):
    """Another number of replicas for a workload."""

    at: float
    key: str
    replicas: int

    def make(self, running: Running) -> None:
        """Change the cluster."""
        if not running.acting.workloads.scale(self.key, self.replicas):
            raise WhatIfError(f"--scale {self.key}={self.replicas}: there is no such workload in the snapshot")
        running.history.note(self.at, f"{self.key} scaled to {self.replicas}")


class RemoveNode(msgspec.Struct, frozen=True):
    """A node is lost, with the pods on it."""

    at: float
    name: str

    def make(self, running: Running) -> None:
        """Change the cluster."""
        if running.tracker.remove("Node", self.name) is None:
            _unknown("--without-node", self.name, running.tracker.all("Node"))
        running.history.note(self.at, f"node {self.name} lost")
        now = running.clock.monotonic()
        for key, pod in list(running.tracker.all("Pod").items()):
            if pod.spec.node_name == self.name:
                if not pod.metadata.deletion_timestamp:
                    running.history.evicted(pod, "node lost", now)
                running.api.disrupt(key, "DeletionByPodGC")
                running.api.remove(key, pod.metadata.uid)


class AddNodes(msgspec.Struct, frozen=True):
    """More nodes, each like one that is there: of that instance type, or of that name."""

    at: float
    count: int
    like: str

    def make(self, running: Running) -> None:
        """Change the cluster."""
        nodes: dict[str, Node] = running.tracker.all("Node")
        like = nodes.get(self.like) or next(
            (node for node in nodes.values() if (node.metadata.labels or {}).get(_TYPE) == self.like), None
        )
        if like is None:
            _unknown("--add-nodes", self.like, _values(nodes, _TYPE) or list(nodes))
        stem = re.sub(r"[^a-z0-9]+", "-", self.like.lower()).strip("-")
        number = 0
        for _ in range(self.count):
            number += 1
            while (name := f"added-{stem}-{number}") in nodes:
                number += 1
            labels = {**(like.metadata.labels or {}), _HOSTNAME: name}
            meta = msgspec.structs.replace(like.metadata, name=name, uid=f"simulated-{name}", labels=labels)
            spec = msgspec.structs.replace(like.spec, unschedulable=False)
            running.tracker.put("Node", msgspec.structs.replace(like, metadata=meta, spec=spec))
        running.history.note(self.at, f"{self.count} nodes like {self.like} added")


class Drain(msgspec.Struct, frozen=True):
    """The nodes of a zone, or one node, are cordoned and drained as `kubectl drain` does: budgets are kept."""

    at: float
    zone: str

    def make(self, running: Running) -> None:
        """Change the cluster."""
        nodes: dict[str, Node] = running.tracker.all("Node")
        names = [name for name, node in nodes.items() if (node.metadata.labels or {}).get(_ZONE) == self.zone]
        names = names or [name for name in nodes if name == self.zone]
        if not names:
            _unknown("--drain", self.zone, _values(nodes, _ZONE) or list(nodes))
        for name in names:
            node = nodes[name]
            spec = msgspec.structs.replace(node.spec, unschedulable=True)
            running.tracker.put("Node", msgspec.structs.replace(node, spec=spec))
        running.history.note(self.at, f"{len(names)} nodes of {self.zone} drained")
        drained = frozenset(names)
        for key, pod in list(running.tracker.all("Pod").items()):
            owner = controller_of(pod.metadata)
            is_daemon = owner is not None and owner.kind in {"DaemonSet", "Node"}
            if pod.spec.node_name in drained and not is_daemon:
                self._evict(running, key, pod.metadata.uid)

    def _evict(self, running: Running, key: str, uid: str, version: int = -1) -> None:
        """Evict a pod; a budget that refuses is asked again until it does not."""
        try:
            running.api.evict(key, uid, None, "drain")
        except ApiError as error:
            if error.status != 429:
                return
            # one that was refused as often as nothing has changed since keeps nobody waiting
            later = running.clock.call_later if version == running.tracker.version else running.later
            later(_RETRY, self._evict, running, key, uid, running.tracker.version)


class Apply(msgspec.Struct, frozen=True):
    """Objects from files, new or changed, and policies, which take the place of those of their names.

    `remarks` are for whoever gave the files.
    """

    at: float
    where: str
    objects: tuple[dict[str, Any], ...] = ()
    policies: Policies = Policies()
    remarks: tuple[str, ...] = ()

    def make(self, running: Running) -> None:
        """Change the cluster."""
        if self.policies != Policies():
            before, new = running.policies.policies, self.policies
            names = {policy.name for policy in new.priority} | {policy.name for policy in new.preemption}
            priority = (*(policy for policy in before.priority if policy.name not in names), *new.priority)
            preemption = (*(policy for policy in before.preemption if policy.name not in names), *new.preemption)
            running.use(Policies(priority=priority, preemption=preemption))
        for body in self.objects:
            meta = body.get("metadata") or {}
            name = f"{body['kind']}/{meta.get('namespace', '')}/{meta.get('name', '')}".replace("//", "/")
            try:
                self._put(running, copy.deepcopy(body))
            except RefusedError as error:
                running.history.refused.setdefault(name, str(error))
            except ApiError as error:
                raise WhatIfError(f"{self.where}: {error.message}") from error
            except msgspec.ValidationError as error:
                raise WhatIfError(f"{self.where}: {name}: {error}") from error
        running.history.note(self.at, f"{self.where} applied")

    def _put(self, running: Running, body: dict[str, Any]) -> None:
        """Put one object in its place. Raises what `make` says in words of its own."""
        kind = BY_KIND[body["kind"]]
        if kind.resource.namespaced:
            body.setdefault("metadata", {}).setdefault("namespace", "default")
        stored = running.admission.admit(body, _AUTHOR)
        if kind in WORKLOADS:
            running.acting.workloads.apply(kind.name, stored)
            return
        item: Any = msgspec.convert(stored, kind.type)
        item = redact(item, item.metadata.annotations or {})
        match item:
            case Pod():
                running.api.create(item)
            case PodDisruptionBudget(spec=spec):
                try:
                    share(spec.min_available or 0, 0)
                    share(spec.max_unavailable or 0, 0)
                except ValueError as error:
                    raise WhatIfError(f"{self.where}: PodDisruptionBudget {key_of(item)}: {error}") from error
                known = running.tracker.get(kind.name, key_of(item))
                generation = (known.metadata.generation or 0) if known is not None else 0
                meta = msgspec.structs.replace(item.metadata, generation=generation + 1)
                status = known.status if known is not None else item.status
                running.tracker.put(kind.name, msgspec.structs.replace(item, metadata=meta, status=status))
            case _:
                running.tracker.put(kind.name, item)


def _values(nodes: dict[str, Node], label: str) -> list[str]:
    return sorted({(node.metadata.labels or {}).get(label, "") for node in nodes.values()} - {""})


def _unknown(option: str, name: str, known: Any) -> NoReturn:
    shown = ", ".join(map(visible, list(known)[:8]))
    more = f" and {len(known) - 8} more" if len(known) > 8 else ""
    raise WhatIfError(f"{option} {name}: not in the snapshot; there are {shown}{more}")
