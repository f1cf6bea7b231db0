"""What the webhook makes of objects that are added: its own reviews, and after them the Priority plugin."""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.admission.context import Context, Objects
from webhook.admission.mutating import apply
from webhook.admission.review import Answer, say
from webhook.admission.webhook import review
from webhook.kube.objects import Pod
from webhook.kube.pods import WORKLOADS
from webhook.policy.evaluation.engine import Engine
from webhook.policy.model import Policies
from webhook.simulation.clock import VirtualClock
from webhook.simulation.cluster.store import Store

__all__ = ["Admission", "RefusedError", "User"]

_RESOURCES = {workload.kind: key for key, workload in WORKLOADS.items()} | {
    "Pod": ("", "pods"),
    "PriorityClass": ("scheduling.k8s.io", "priorityclasses"),
}
Json = dict[str, Any]


class RefusedError(Exception):
    """An object that a rule refuses; the text names the rule and its message."""


class User(msgspec.Struct, frozen=True):
    """Who creates something."""

    name: str
    groups: tuple[str, ...] = ("system:authenticated",)

    @classmethod
    def controller(cls, kind: str) -> User:
        """The controller that makes the pods of workloads of this kind."""
        name = {"DaemonSet": "daemon-set", "ReplicationController": "replication"}.get(kind, kind.lower())
        account = "system:serviceaccounts"
        return cls(
            f"system:serviceaccount:kube-system:{name}-controller",
            (account, f"{account}:kube-system", "system:authenticated"),
        )


class Admission:
    """Judges what is added, on the classes and namespaces of then."""

    def __init__(self, policies: Policies, store: Store, clock: VirtualClock) -> None:
        self._engine = Engine(policies)
        self._clock = clock
        self._store = store
        self._context: Context | None = None
        self.warnings: dict[str, str] = {}
        """Warnings by the object that got them first."""
        for kind in ("PriorityClass", "Namespace"):
            store.hook(kind, self._forget)

    def use(self, policies: Policies) -> None:
        """Judge by other policies from now on."""
        self._engine = Engine(policies)
        self._context = None

    def admit(self, body: Json, user: User) -> Json:
        """The object as it is stored. Raises RefusedError."""
        kind = body["kind"]
        if kind not in _RESOURCES:
            return body
        mutated = self._ask("mutate", body, user)
        self._check(body, mutated)
        stored = apply(body, mutated.patch) if mutated.patch else body
        if kind == "Pod":
            self._fill_in(stored)
        self._check(body, self._ask("validate", stored, user))
        return stored

    def pod(self, body: Json, user: User) -> Pod:
        """A pod as it is stored. Raises RefusedError."""
        return msgspec.convert(self.admit({"apiVersion": "v1", "kind": "Pod", **body}, user), Pod)

    def _ask(self, phase: Any, body: Json, user: User) -> Answer:
        group, resource = _RESOURCES[body["kind"]]
        meta = body.get("metadata") or {}
        request = {
            "uid": "simulated",
            "resource": {"group": group, "version": "v1", "resource": resource},
            "operation": "CREATE",
            "namespace": meta.get("namespace", ""),
            "name": meta.get("name", ""),
            "userInfo": {"username": user.name, "groups": user.groups},
            "object": body,
        }
        asked = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        return review(self._current(), phase, msgspec.json.encode(asked)).answer

    def _check(self, body: Json, answer: Answer) -> None:
        meta = body.get("metadata") or {}
        where = f"{body['kind']} {meta.get('namespace', '')}/{meta.get('name') or meta.get('generateName', '')}"
        for warning in answer.warnings:
            self.warnings.setdefault(warning, where)
        if not answer.allowed or answer.code != 200:
            refusals = "; ".join(say(row) for row in answer.verdicts if row.denies)
            raise RefusedError(answer.message or refusals or f"answered with {answer.code}")

    def _fill_in(self, body: Json) -> None:
        """What the API server's Priority plugin does. Raises RefusedError for a class that is not there."""
        spec = body["spec"]
        name = spec.get("priorityClassName")
        lookup = self._current().lookup
        if name:
            found = lookup.priority_class(name)
            if found is None:
                raise RefusedError(f"no PriorityClass with name {name} was found")
        else:
            defaults = sorted(lookup.default_priority_classes(), key=lambda one: one.value)
            found = defaults[0] if defaults else None
            if found is not None:
                spec["priorityClassName"] = found.metadata.name
        spec["priority"] = found.value if found else 0
        spec["preemptionPolicy"] = (found.preemption_policy if found else None) or "PreemptLowerPriority"

    def _current(self) -> Context:
        if self._context is None:
            classes, namespaces = self._store.all("PriorityClass"), self._store.all("Namespace")
            self._context = Context(
                self._engine, Objects(classes.values(), namespaces.values()), clock=self._clock.wall
            )
        return self._context

    def _forget(self, _change: Any) -> None:
        self._context = None
