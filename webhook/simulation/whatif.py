"""What if: changes of a cluster from outside, each at its time, from options of the command and scenario files."""

from __future__ import annotations

import copy
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import msgspec

from webhook.admission.objectfiles import ObjectsError, read_documents, readable
from webhook.clusters.model.deployments import share
from webhook.clusters.simulated.objects import BY_KIND, WORKLOADS, kind_of
from webhook.clusters.simulated.simulated_admission import RefusedError
from webhook.component_base.logs import visible
from webhook.kube.errors import ApiError
from webhook.kube.objects.cluster_scoped import Node
from webhook.kube.objects.meta import key_of
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.pods import controller_of
from webhook.policy.evaluation.request import UserInfo
from webhook.policy.files.loading import load_texts
from webhook.policy.model.policies import Policies
from webhook.policy.shapes.findings import PolicyError
from webhook.policy.shapes.yaml_nodes import seconds as duration_of
from webhook.simulation.cluster_file.redacting import redact
from webhook.simulation.simulation import Running, Step

T = TypeVar("T")
_replace = msgspec.structs.replace
_ZONE, _TYPE = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"
_HOSTNAME = "kubernetes.io/hostname"
_RETRY = 5.0
"""Seconds after which `kubectl drain` asks again if a budget refused."""
_AUTHOR = UserInfo("simulation:author", ("system:authenticated",))
_COUNT = re.compile(r"(\d{1,5})\s*[x×*]\s*(\S+)")  # noqa: RUF001 - people write the multiplication sign, too
_SCALE = re.compile(r"([a-z0-9][-a-z0-9.]*/[a-z0-9][-a-z0-9.]*)=(\d{1,6})")
_POLICIES = ("PriorityPolicy", "PreemptionPolicy")


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
        running.history.notes.append((self.at, f"{self.key} scaled to {self.replicas}"))


class RemoveNode(msgspec.Struct, frozen=True):
    """A node is lost, with the pods on it."""

    at: float
    name: str

    def make(self, running: Running) -> None:
        """Change the cluster."""
        if running.tracker.remove("Node", self.name) is None:
            _unknown("--without-node", self.name, running.tracker.all("Node"))
        running.history.notes.append((self.at, f"node {self.name} lost"))
        for key, pod in list(running.tracker.all("Pod").items()):
            if pod.spec.node_name == self.name:
                if not pod.metadata.deletion_timestamp:
                    running.history.evicted(pod, "node lost")
                running.api.disrupt(key, "DeletionByPodGC")
                running.api.remove(key, pod.metadata.uid)


class AddNodes(msgspec.Struct, frozen=True):
    """More nodes, each like one that is there: of that instance type, or of that name."""

    at: float
    count: int
    like: str

    def make(self, running: Running) -> None:
        """Change the cluster."""
        nodes: Mapping[str, Node] = running.tracker.all("Node")
        like = nodes.get(self.like) or next(
            (node for node in nodes.values() if (node.metadata.labels or {}).get(_TYPE) == self.like), None
        )
        if like is None:
            _unknown("--add-nodes", self.like, _values(nodes, _TYPE) or list(nodes))
        stem = re.sub(r"[^a-z0-9]+", "-", self.like.lower()).strip("-")
        free = (name for number in itertools.count(1) if (name := f"added-{stem}-{number}") not in nodes)
        for name in itertools.islice(free, self.count):
            labels = {**(like.metadata.labels or {}), _HOSTNAME: name}
            meta = _replace(like.metadata, name=name, uid=f"simulated-{name}", labels=labels)
            spec = _replace(like.spec, unschedulable=False)
            running.tracker.put("Node", _replace(like, metadata=meta, spec=spec))
        running.history.notes.append((self.at, f"{self.count} nodes like {self.like} added"))


class Drain(msgspec.Struct, frozen=True):
    """The nodes of a zone, or one node, are cordoned and drained as `kubectl drain` does: budgets are kept."""

    at: float
    zone: str

    def make(self, running: Running) -> None:
        """Change the cluster."""
        nodes: Mapping[str, Node] = running.tracker.all("Node")
        names = [name for name, node in nodes.items() if (node.metadata.labels or {}).get(_ZONE) == self.zone]
        names = names or [name for name in nodes if name == self.zone]
        if not names:
            _unknown("--drain", self.zone, _values(nodes, _ZONE) or list(nodes))
        for name in names:
            cordoned = _replace(nodes[name].spec, unschedulable=True)
            running.tracker.put("Node", _replace(nodes[name], spec=cordoned))
        running.history.notes.append((self.at, f"{len(names)} nodes of {self.zone} drained"))
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
            except (ApiError, msgspec.ValidationError) as error:
                why = error.message if isinstance(error, ApiError) else f"{name}: {error}"
                raise WhatIfError(f"{self.where}: {why}") from error
        running.history.notes.append((self.at, f"{self.where} applied"))

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
                meta, status = (
                    _replace(item.metadata, generation=generation + 1),
                    known.status if known else item.status,
                )
                running.tracker.put(kind.name, _replace(item, metadata=meta, status=status))
            case _:
                running.tracker.put(kind.name, item)


def _values(nodes: Mapping[str, Node], label: str) -> list[str]:
    return sorted({(node.metadata.labels or {}).get(label, "") for node in nodes.values()} - {""})


def _unknown(option: str, name: str, known: Any) -> NoReturn:
    shown = ", ".join(map(visible, list(known)[:8]))
    more = f" and {len(known) - 8} more" if len(known) > 8 else ""
    raise WhatIfError(f"{option} {name}: not in the snapshot; there are {shown}{more}")


class _Strict(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Part of a scenario: a field that nobody reads is a mistake of its author."""


class _Scale(_Strict):
    """Another number of replicas for NAMESPACE/NAME."""

    workload: str
    replicas: int


class _AddNodes(_Strict):
    """So many nodes like one of the cluster file: of that instance type, or of that name."""

    count: int
    like: str


class _Step(_Strict):
    """One change; exactly one of them is named. `at` is a duration such as 90s, 10m or 1h30m."""

    at: str = "0s"
    apply: list[str] | None = None
    scale: _Scale | None = None
    remove_node: str | None = None
    drain: str | None = None
    add_nodes: _AddNodes | None = None


class _Spec(_Strict):
    steps: list[_Step]
    until: str | None = None


class _Metadata(_Strict):
    name: str


class Scenario(_Strict):
    """A scenario file: changes of a cluster, each at its time. Files to apply are relative to it."""

    api_version: Literal["giveway.dev/v1alpha1"]
    kind: Literal["Scenario"]
    metadata: _Metadata
    spec: _Spec


def duration(text: str) -> float:
    """Seconds of `90s`, `10m`, `1h30m`. Raises WhatIfError."""
    seconds = duration_of(text)
    if seconds is None or seconds < 0:
        raise WhatIfError(f"{text!r} is no duration: expected something like 90s, 10m or 1h30m")
    return seconds


def timed(text: str) -> Step:
    """A step of `TIME:VERB ARGUMENT`, such as `10m:scale web/api=20`. Raises WhatIfError."""
    at, colon, rest = text.partition(":")
    verb, _, argument = rest.strip().partition(" ")
    if not colon or not argument.strip():
        raise WhatIfError(f"--at {text!r}: expected TIME:CHANGE, such as '10m:scale web/api=20' or '1h:drain zone-a'")
    return step_of(verb, argument.strip(), duration(at.strip()))


def step_of(verb: str, argument: str, at: float = 0.0) -> Step:
    """A step by the name of its option. Raises WhatIfError."""
    match verb:
        case "apply":
            return applied([Path(argument)], at)
        case "scale":
            if (match := _SCALE.fullmatch(argument)) is None:
                raise WhatIfError(f"--scale {argument!r}: expected NAMESPACE/NAME=REPLICAS, such as web/api=20")
            return Scale(at, match[1], int(match[2]))
        case "without-node":
            return RemoveNode(at, argument)
        case "drain":
            return Drain(at, argument)
        case "add-nodes":
            if (match := _COUNT.fullmatch(argument)) is None:
                raise WhatIfError(f"--add-nodes {argument!r}: expected COUNTxTYPE, such as 20xm5.large")
            return AddNodes(at, int(match[1]), match[2])
    raise WhatIfError(f"{verb!r} is no change: there are apply, scale, without-node, drain and add-nodes")


def read_scenario(path: Path) -> tuple[list[Step], float | None]:
    """The steps of a file, and until when it goes if it says so. Raises WhatIfError with the place of a mistake."""
    place, steps = "", list[Step]()
    try:
        document = _only(readable(read_documents([path])), "one document")
        spec = msgspec.convert(document.content, Scenario).spec
        for number, step in enumerate(spec.steps):
            place = f"spec.steps[{number}].at: "
            at, place, scale, add = duration(step.at), f"spec.steps[{number}]: ", step.scale, step.add_nodes
            changes = {
                "scale": f"{scale.workload}={scale.replicas}" if scale is not None else None,
                "without-node": step.remove_node,
                "drain": step.drain,
                "add-nodes": f"{add.count}x{add.like}" if add is not None else None,
            }
            made = [step_of(verb, argument, at) for verb, argument in changes.items() if argument is not None]
            made += [applied([path.parent / name for name in step.apply], at)] if step.apply is not None else []
            steps.append(_only(made, "exactly one of apply, scale, removeNode, drain and addNodes"))
        place = "spec.until: "
        return steps, duration(spec.until) if spec.until is not None else None
    except ObjectsError as error:
        raise WhatIfError(str(error)) from error
    except (msgspec.ValidationError, WhatIfError) as error:
        raise WhatIfError(f"{path}: {place}{str(error).replace('`$.', '`')}") from error


def _only(items: Sequence[T], expected: str) -> T:
    if len(items) != 1:
        raise WhatIfError(f"expected {expected}, found {len(items)}")
    return items[0]


def applied(paths: Iterable[Path], at: float = 0.0) -> Step:
    """Objects and policies from YAML or JSON files, as kubectl reads them. Raises WhatIfError.

    Kinds that decide nothing here are passed over; the step's `remarks` say so, and what stands twice in a file.
    """
    files, texts = list(paths), list[tuple[str, str]]()
    remarks: list[str] = []
    objects: list[dict[str, Any]] = []
    passed_over: Counter[str] = Counter()
    try:
        documents = readable(read_documents(files), remarks.append)
    except ObjectsError as error:
        raise WhatIfError(str(error)) from error
    for where, group in itertools.groupby(documents, key=lambda document: document.where):
        of_file = list(group)
        policies = [document for document in of_file if document.kind in _POLICIES]
        if policies and len(policies) < len(of_file):
            raise WhatIfError(f"{where}: policies and other objects in one file: put them into two")
        if policies:
            texts.append((where, Path(where).read_text()))
            continue
        for document in of_file:
            if kind_of(str(document.content.get("apiVersion") or ""), document.kind) is None:
                passed_over[document.kind] += 1
            elif not document.metadata.get("name"):
                raise WhatIfError(f"{document.place}: a {document.kind} has no metadata.name")
            else:
                objects.append(document.content)
    loaded = load_texts(texts)
    if loaded.errors:
        raise WhatIfError(str(PolicyError(loaded.findings)))
    names = ", ".join(map(str, files))
    if passed_over:
        counts = ", ".join(f"{count} {kind}" for kind, count in passed_over.items())
        remarks.append(f"{names}: passed over, for it decides nothing here: {counts}")
    return Apply(at, names, tuple(objects), loaded.policies, tuple(remarks))
