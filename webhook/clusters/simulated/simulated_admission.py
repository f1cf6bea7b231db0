"""What the webhook makes of objects that are added: its own reviews, and after them the Priority plugin."""

from __future__ import annotations

import copy
import math
from typing import Any

import msgspec

from webhook.admission.context import Context, Objects
from webhook.admission.review import Answer, say
from webhook.admission.webhook import RESOURCES, Phase, ask, review_of
from webhook.clusters.model.new_pods import apply_limit_ranges, apply_runtime_class, default_pod, default_tolerations
from webhook.clusters.simulated.clock import VirtualClock
from webhook.clusters.simulated.tracker import ObjectTracker
from webhook.kube.json_patch import apply_json_patch
from webhook.kube.label_keys import merge_label_keys
from webhook.kube.objects.pod import Pod
from webhook.kube.resources import LIMIT_RANGE, NAMESPACE, PRIORITY_CLASS, RUNTIME_CLASS
from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.request import UserInfo
from webhook.policy.model.match import CONTROLLER_GROUPS, KUBE_SYSTEM_ACCOUNT
from webhook.policy.model.policies import Policies
from webhook.policy.reports import next_end

Json = dict[str, Any]


class RefusedError(Exception):
    """An object that a rule refuses; the text names the rule and its message."""


def controller(kind: str) -> UserInfo:
    """The controller that makes the pods of workloads of this kind."""
    name = {"DaemonSet": "daemon-set", "ReplicationController": "replication"}.get(kind, kind.lower())
    return UserInfo(f"{KUBE_SYSTEM_ACCOUNT}{name}-controller", CONTROLLER_GROUPS)


class SimulatedAdmission:
    """Judges what is added, on the classes and namespaces of then."""

    def __init__(self, policies: Policies, tracker: ObjectTracker, clock: VirtualClock) -> None:
        self._policies, self._engine = policies, Engine(policies)
        self._clock = clock
        self._tracker = tracker
        self._context: Context | None = None
        self._pods: dict[tuple[str, bytes], Pod | str] = {}
        """Pods as they are stored, or why they are refused, by who makes them and what is sent."""
        self._pods_end: float | None = None
        """When another answer may be given, in seconds since the epoch, because an exception ends."""
        self.warnings: dict[str, str] = {}
        """Warnings by the object that got them first."""
        self.not_played: dict[str, str] = {}
        """What pods ask for that is not to be had, by kind and field."""
        for resource in (PRIORITY_CLASS, NAMESPACE, LIMIT_RANGE, RUNTIME_CLASS):
            tracker.cache(resource).handlers.append(self._forget)

    def use(self, policies: Policies) -> None:
        """Judge by other policies from now on."""
        self._policies, self._engine = policies, Engine(policies)
        self._forget()

    def admit(self, body: Json, user: UserInfo) -> Json:
        """The object as it is stored. Raises RefusedError."""
        kind = body["kind"]
        if kind not in RESOURCES:
            return body
        if kind == "Pod":
            self._fill_in(body)
        mutated = self._ask("mutate", body, user)
        stored = apply_json_patch(body, mutated.patch) if mutated.patch else body
        if kind == "Pod":
            # What the API server fills in: its Priority plugin, and its own strategy for new pods
            spec, lookup = stored["spec"], self._current().lookup
            if name := spec.get("priorityClassName"):
                class_ = lookup.priority_class(name)
                if class_ is None:
                    raise RefusedError(f"no PriorityClass with name {name} was found")
            elif class_ := min(lookup.default_priority_classes(), key=lambda default: default.value, default=None):
                spec["priorityClassName"] = class_.metadata.name
            spec["priority"] = class_.value if class_ else 0
            spec["preemptionPolicy"] = (class_.preemption_policy if class_ else None) or "PreemptLowerPriority"
            merge_label_keys(stored)
        self._ask("validate", stored, user)
        return stored

    def _fill_in(self, pod: Json) -> None:
        """What the API server fills in before it asks the webhook, but for the priority. Raises RefusedError."""
        default_pod(pod)
        ranges = self._tracker.all("LimitRange").values()
        namespace = pod["metadata"].get("namespace", "")
        apply_limit_ranges(pod, (row.spec or {} for row in ranges if row.metadata.namespace == namespace))
        default_tolerations(pod)
        name = pod["spec"].get("runtimeClassName")
        runtime_class = self._tracker.get("RuntimeClass", name) if name else None
        if name and runtime_class is None:
            why = f"pods have no overhead and run on every node, because RuntimeClass {name} is not in the snapshot"
            self.not_played.setdefault("Pod spec.runtimeClassName", why)
        elif runtime_class is not None:
            try:
                apply_runtime_class(pod, runtime_class.overhead, runtime_class.scheduling)
            except ValueError as error:
                raise RefusedError(str(error)) from None

    def pod(self, body: Json, user: UserInfo) -> Pod:
        """A pod as it is stored; asked once for pods that differ in nothing. Raises RefusedError."""
        now = self._clock.wall()
        if self._pods_end is None or now >= self._pods_end:
            self._pods.clear()
            self._pods_end = next_end(self._policies, now) or math.inf
        key = user.username, msgspec.json.encode(body, order="sorted")
        answer = self._pods.get(key)
        if answer is None:
            try:
                answer = msgspec.convert(
                    self.admit({"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(body)}, user), Pod
                )
            except RefusedError as error:
                answer = str(error)
            self._pods[key] = answer
        if isinstance(answer, str):
            raise RefusedError(answer)
        return answer

    def _ask(self, phase: Phase, body: Json, user: UserInfo) -> Answer:
        """What the webhook answers. Raises RefusedError."""
        meta = body.get("metadata") or {}
        namespace, name = meta.get("namespace", ""), meta.get("name", "")
        asked = review_of(body["kind"], body, user, namespace=namespace, name=name)
        answer = ask(self._current(), phase, asked)
        for warning in answer.warnings:
            self.warnings.setdefault(warning, f"{body['kind']} {namespace}/{name or meta.get('generateName', '')}")
        if not answer.allowed or answer.code != 200:
            refusals = "; ".join(say(row) for row in answer.verdicts if row.denies)
            raise RefusedError(answer.message or refusals or f"answered with {answer.code}")
        return answer

    def _current(self) -> Context:
        if self._context is None:
            classes, namespaces = self._tracker.all("PriorityClass"), self._tracker.all("Namespace")
            objects = Objects(classes.values(), namespaces.values())
            self._context = Context(self._engine, objects, clock=self._clock.wall)
        return self._context

    def _forget(self, _change: Any = None) -> None:
        """What pods are judged by, or filled in of, has changed: what was answered holds no longer."""
        self._context = self._pods_end = None
