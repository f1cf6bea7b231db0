"""One request before the webhook and before the compiled policies, and what they said of it, side by side."""

import copy
import json
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from tests.native import apiserver
from webhook.admission.context import Context, Objects
from webhook.admission.review import Answer, enveloped, say
from webhook.admission.webhook import ask, review_of
from webhook.kube.instants import rfc3339
from webhook.kube.json_patch import apply_json_patch
from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.native.compiler import Compiled, compile_policies
from webhook.native.objects import Settings
from webhook.policy.evaluation.engine import Engine
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import GIVEN

Json = dict[str, Any]
RECONCILER = "system:serviceaccount:giveway-system:giveway-reconciler"
SETTINGS = Settings(namespace="giveway-system", reconciler=RECONCILER)
IN_TREE = {
    f"builtin/{rule}"
    for rule in [
        "class-exists",
        "priority-agrees",
        "preemption-policy-agrees",
        "priority-resolved",
        "priority-immutable",
        "int32",
        "highest-value",
        "system-prefix",
        "class-immutable",
        "one-default",
    ]
}
"""What the API server refuses by itself, so that nobody need compile it (docs/kubernetes-behaviour.md K2, K4)."""


class Both:
    """A policy set in both forms, over the same classes and namespaces, at the same time.

    `compiled_for` are the objects of the time when the native form was compiled, if that was earlier.
    """

    def __init__(
        self,
        policies: Policies,
        objects: list[Json],
        *,
        now: float | None = None,
        settings: Settings = SETTINGS,
        compiled_for: list[Json] | None = None,
    ) -> None:
        self.policies, self.now = policies, time.time() if now is None else now
        classes = [msgspec.convert(one, PriorityClass) for one in objects if one["kind"] == "PriorityClass"]
        self.namespaces = {one["metadata"]["name"]: one for one in objects if one["kind"] == "Namespace"}
        self.lookup = Objects(classes, [msgspec.convert(one, Namespace) for one in self.namespaces.values()])
        self.classes = dict(self.lookup.classes)
        self.mixed = any(
            policy.conditions and len({rule.enforcement for rule in policy.rules}) > 1 for policy in policies.priority
        )
        self._conditional = any(policy.conditions for policy in policies.priority)
        self.context = Context(Engine(policies), self.lookup, clock=lambda: self.now, reconciler=RECONCILER)
        self._rounds = 0
        known = objects if compiled_for is None else compiled_for
        table = [msgspec.convert(one, PriorityClass) for one in known if one["kind"] == "PriorityClass"]
        self.compiled: Compiled = compile_policies(policies, table, settings, self.now)

    def create(self, request: Json, meddle: Callable[[Json], Json] | None = None) -> "tuple[Result, Result]":
        """A CREATE of a pod, a PriorityClass or a Binding through both chains: mutation, the plugin, validation.

        With `meddle` somebody else changes the object after the first round of mutation.
        """
        request = self._as_sent(request)
        by_webhook = self._chain(request, meddle, self._mutated, self._answered)
        return by_webhook, self._chain(request, meddle, self._patched, self._judge)

    def webhook(self, request: Json) -> "Result":
        """A CREATE through the webhook alone."""
        return self._chain(self._as_sent(request), None, self._mutated, self._answered)

    def beside(self, request: Json) -> "tuple[Result, Result, Result]":
        """The webhook alone; and both, the API server's own policies first: what either of them says of the result."""
        request = self._as_sent(request)
        alone = self._chain(request, None, self._mutated, self._answered)

        def both(asked: Json) -> Json:
            return self._mutated({**asked, "object": self._patched(asked)})

        return (
            alone,
            self._chain(request, None, both, self._answered),
            self._chain(request, None, both, self._judge),
        )

    def _chain(
        self,
        request: Json,
        meddle: Callable[[Json], Json] | None,
        mutate: Callable[[Json], Json],
        judge: Callable[[Json], Any],
    ) -> "Result":
        """What an API server does: the plugin and mutation, again if the object changed, then validation."""
        request = copy.deepcopy(request)
        for round_ in ("first", "again"):
            if request["object"]["kind"] == "Pod" and request["operation"] == "CREATE":
                problem = apiserver.priority_plugin(request, self.classes)
                if problem:
                    return Result(problem)
            before = request["object"]
            request["object"] = mutate(request)
            if round_ == "first" and meddle is not None:
                request["object"] = apiserver.clean(meddle(request["object"]))
            elif round_ == "again" and meddle is None and not self._conditional and not forged(request["object"]):
                assert readable(before) == readable(request["object"]), "a second call changes the object"
        if request["object"]["kind"] == "Pod" and apiserver.priority_plugin(request, self.classes):
            return Result("the Priority plugin refuses what mutation made")
        self._stored(request)
        return Result(request["object"], judge(request), mixed=self.mixed)

    def validate(self, request: Json) -> "tuple[Result, Result]":
        """Any request through validation alone."""
        request = self._as_sent(request)
        left = request["object"] or {}
        judged = Result(left, self._answered(request), mixed=self.mixed)
        return judged, Result(left, self._judge(request))

    def _mutated(self, request: Json) -> Json:
        return apply_json_patch(request["object"], self._ask("mutate", request).patch)

    def _patched(self, request: Json) -> Json:
        self._rounds += 1
        outcome = apiserver.mutate(
            self.compiled.objects, request, self.namespaces, self.classes, backwards=bool(self._rounds // 2 % 2)
        )
        assert not outcome.decisions, outcome.decisions
        return outcome.object

    def _answered(self, request: Json) -> Answer:
        return self._ask("validate", request)

    def _judge(self, request: Json) -> apiserver.Outcome:
        return apiserver.validate(self.compiled.objects, request, self.namespaces)

    def _as_sent(self, request: Json) -> Json:
        """The request as an API server makes it of the object that somebody sent."""
        request = copy.deepcopy(request)
        request["object"] = apiserver.clean(request["object"])
        if request["operation"] == "CREATE":
            request["object"]["metadata"]["managedFields"] = apiserver.managed_fields(request["object"])
        if request.get("oldObject"):
            request["oldObject"] = apiserver.clean(request["oldObject"])
        return request

    def _stored(self, request: Json) -> None:
        """What the API server fills in between mutation and validation (`rest.BeforeCreate`)."""
        if request["operation"] != "CREATE":
            return
        meta = request["object"]["metadata"]
        meta.pop("deletionTimestamp", None)
        if request["object"]["kind"] != "Binding":
            meta["creationTimestamp"] = rfc3339(self.now)
            meta["name"] = meta.get("name") or f"{meta.get('generateName', '')}x7k2p"

    def _ask(self, phase: Any, request: Json) -> Answer:
        answer = ask(self.context, phase, enveloped(request))
        assert answer.code == 200, answer.message
        return answer


class Result:
    """The object as it would be stored, and the texts by which it is refused or warned of; or the plugin's refusal.

    `mixed` says that a policy with a condition has rules of several enforcements.
    """

    def __init__(self, obj: Json | str, said: Answer | apiserver.Outcome | None = None, *, mixed: bool = False) -> None:
        self.mixed = mixed
        self.refused_in_tree = obj if isinstance(obj, str) else ""
        self.object = {} if isinstance(obj, str) else readable(obj)
        self.denied: set[str] = set()
        self.warned: set[str] = set()
        self.failed = False
        if isinstance(said, Answer):
            rows = [row for row in said.verdicts if row.id not in IN_TREE]
            self.denied = {told(say(row)) for row in rows if row.denies and row.outcome == "deny"}
            self.failed = any(row.outcome == "error" and row.denies for row in rows)
            self.warned = {told(text) for text in said.warnings if "could not be evaluated" not in text}
        elif said is not None:
            self.denied = set(map(told, said.messages("Deny")))
            self.failed = any(one.error and "Deny" in one.actions for one in said.decisions)
            self.warned = set(map(told, said.messages("Warn")))

    def __repr__(self) -> str:
        return json.dumps(
            {
                "inTree": self.refused_in_tree,
                "denied": sorted(self.denied),
                "failed": self.failed,
                "warned": sorted(self.warned),
                "object": self.object,
            },
            indent=1,
        )


def told(text: str) -> str:
    """What both forms say in a text: natively it has less of what was asked for (docs/native-policies.md).

    That is the message of a `validate` rule, or else what the text is about and the rule.
    """
    rule, about = re.search(r"rule ([\w.-]+/[\w.-]+)", text), re.match(r"(rule \S+ )?(annotation|label) \S+", text)
    if rule is None or text.endswith(f"(rule {rule[1]})"):
        return text
    exception = re.search(r" by an exception until \S+ \(.*?\)", text)
    return f"{about[0] if about else ''} by rule {rule[1]}{exception[0] if exception else ''}"


def agreed(results: tuple[Result, Result]) -> set[str]:
    """By what both forms refuse a request."""
    webhook, native = results
    assert native.denied == webhook.denied
    return native.denied


def assert_same(webhook: Result, native: Result) -> None:
    """The same refusals, warnings and object; mutation warns in the webhook alone.

    An expression that fails is refused by both, in words of their own.

    Two differences are known (docs/native-policies.md). If a condition of a policy with rules of several enforcements
    fails, the strictest counts in the webhook, and natively that of the rules that the request concerns. If a manifest
    carries the record itself, the pod may natively be left without one.
    """
    assert native.refused_in_tree == webhook.refused_in_tree
    assert native.failed == webhook.failed or (webhook.failed and webhook.mixed)
    assert native.denied == webhook.denied
    if not webhook.failed:
        assert {text for text in native.warned if "no usable twin" not in text} == webhook.warned
    annotations = webhook.object.get("metadata", {}).get("annotations", {})
    if forged(native.object) and GIVEN not in native.object["metadata"].get("annotations", {}):
        annotations.pop(GIVEN, None)
    assert native.object == webhook.object


def make_class(name: str, value: int = 0, policy: str | None = None, **more: Any) -> Json:
    """A PriorityClass as JSON; `more` are annotations, if their keys are such, or else fields."""
    said = {key: more.pop(key) for key in list(more) if "/" in key}
    body = {"kind": "PriorityClass", "metadata": {"name": name, "annotations": said}, "value": value, **more}
    return body | ({"preemptionPolicy": policy} if policy else {})


def make_namespace(name: str, **labels: str) -> Json:
    """A Namespace as JSON."""
    return {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def forged(obj: Json) -> bool:
    """Whether a client wrote the record itself: it counts for nothing, in the second call as well."""
    return f"f:{GIVEN}" in json.dumps(obj.get("metadata", {}).get("managedFields", []))


def readable(obj: Json) -> Json:
    """An object with the record of what was given as data, so that the order in it makes no difference."""
    found: Json = apiserver.clean(copy.deepcopy(obj))
    annotations = found.get("metadata", {}).get("annotations", {})
    with suppress(ValueError):
        annotations |= {key: json.loads(annotations[key]) for key in {GIVEN} & annotations.keys()}
    return found


def pod_request(obj: Json, *, user: str = "alice", groups: tuple[str, ...] = (), **more: Any) -> Json:
    """An AdmissionRequest, as an API server sends it, for a pod, a PriorityClass or a Binding."""
    asking = {"username": user, "groups": ["system:authenticated", *groups]}
    name, namespace = obj["metadata"].get("name", ""), obj["metadata"].get("namespace", "")
    request: Json = review_of(obj["kind"], obj, asking, namespace=namespace, name=name)["request"]
    if obj["kind"] == "Binding":
        request |= {"resource": {"group": "", "version": "v1", "resource": "pods"}, "subResource": "binding"}
    return request | more
