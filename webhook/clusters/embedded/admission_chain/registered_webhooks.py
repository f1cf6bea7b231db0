"""Admission webhooks as registered: which requests each one asks for, and in which order they are called.

Compiled from Mutating- and ValidatingWebhookConfigurations; the meanings of rules, scope and selectors, and the
reinvocation of mutating webhooks, are those of `k8s.io/apiserver/pkg/admission/plugin/webhook`. `matchConditions` are
CEL over the AdmissionRequest, every one of which must hold.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any

import msgspec

from webhook.clusters.embedded.admission_chain.webhook_client import (
    WebhookCallError,
    WebhookClient,
    WebhookResponse,
    denial,
    request_of,
)
from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.calls import WriteRequest
from webhook.clusters.embedded.protocol.statuses import StatusError, bad_request, internal_error
from webhook.clusters.embedded.storage.object_store import Memo, ObjectStore
from webhook.kube.json_patch import JsonPatchError, apply_json_patch
from webhook.kube.objects.meta import LabelSelector
from webhook.kube.selectors import label_matcher
from webhook.policy.cel.program import CelError, CelRuntimeError, Inputs, compile_bool

CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


def _asks(rule: Mapping[str, Any], change: WriteRequest) -> bool:
    """Whether a row of `rules` asks for the request.

    A Namespace object counts as cluster-wide although its request names a namespace.
    """
    resource = change.resource
    plural = resource.plural
    scope = "Namespaced" if change.namespace and plural != "namespaces" else "Cluster"
    wanted = {"operations": change.operation, "apiGroups": resource.group, "apiVersions": resource.version}
    return (
        (rule.get("scope") or "*") in ("*", scope)
        and all({"*", value} & set(rule.get(part) or ()) for part, value in wanted.items())
        and any(
            name in ("*", plural) and subresource in ("*", change.subresource)
            for name, _, subresource in (text.partition("/") for text in rule.get("resources") or ())
        )
    )


def _labels(obj: Object | None) -> Mapping[str, str]:
    labels: Mapping[str, str] | None = ((obj or {}).get("metadata") or {}).get("labels")
    return labels or {}


class RegisteredWebhook:
    """One webhook of a stored configuration, in which Kubernetes' defaults are filled in (`spec`)."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.spec = spec
        selectors = (spec[name] for name in ("namespaceSelector", "objectSelector"))
        self._in_namespace, self._of_object = (label_matcher(msgspec.convert(row, LabelSelector)) for row in selectors)

    def asks_for(self, change: WriteRequest, namespace_labels: Mapping[str, str] | None) -> bool:
        """Whether rules and selectors match; `namespace_labels` is None for a cluster-wide object."""
        if namespace_labels is not None and not self._in_namespace(namespace_labels):
            return False
        if not any(_asks(rule, change) for rule in self.spec.get("rules") or ()):
            return False
        states = [state for state in (change.object, change.old_object) if state is not None] or [{}]
        return any(self._of_object(_labels(state)) for state in states)

    def failed(self, why: str) -> StatusError:
        """500: it could not be asked, and lets no request pass then."""
        return internal_error(f'failed calling webhook "{self.spec["name"]}": {why}')


_compiled = lru_cache(maxsize=256)(compile_bool)


class ConditionError(Exception):
    """A condition that could not be evaluated while no other one was false."""


def conditions_hold(conditions: Iterable[tuple[str, str]], request: Object) -> bool:
    """Whether all conditions (name, expression) hold for an AdmissionRequest.

    One that is false decides; else one that fails raises ConditionError. `authorizer` is not among the variables.
    Size is no obstacle, as for an API server, whose bound is on the steps of an expression.
    """
    asked = {key: value for key, value in request.items() if key not in ("object", "oldObject")}
    objects = {"object": request["object"], "oldObject": request["oldObject"]}
    inputs = Inputs(lambda: {**objects, "request": asked, "namespaceObject": None, "priorityClass": None})
    failures = []
    for name, expression in conditions:
        try:
            if not _compiled(expression).evaluate(inputs):
                return False
        except (CelError, CelRuntimeError) as error:
            failures.append(f"match condition {name!r}: expression {expression!r} resulted in error: {error}")
    if failures:
        raise ConditionError("; ".join(failures))
    return True


class RegisteredWebhooks:
    """Calls the webhooks that ask for a request, as the stored configurations say."""

    def __init__(self, read: ObjectStore, caller: WebhookClient) -> None:
        self._read = read
        self._caller = caller
        self._mutating, self._validating = (
            Memo(read, (plural,), partial(self._compile, plural)) for plural in CONFIGURATIONS
        )

    async def mutate(self, change: WriteRequest, again: Callable[[WriteRequest], None]) -> None:
        """Run the mutating webhooks in order. Raises StatusError to refuse.

        If one changed the object, the in-tree plugins (`again`) run a second time, and so do, with
        `reinvocationPolicy: IfNeeded`, the webhooks that have not seen the change.
        """
        called: set[RegisteredWebhook] = set()
        due: set[RegisteredWebhook] = set()
        changed = False
        for webhook in self._asking(self._mutating, change):
            if await self._change(webhook, change):
                changed = True
                due |= called
            if webhook.spec.get("reinvocationPolicy") == "IfNeeded":
                called.add(webhook)
        if not changed:
            return
        before = copy.deepcopy(change.object)
        again(change)
        if change.object != before:
            due |= called
        for webhook in self._asking(self._mutating, change):
            if webhook in due:
                await self._change(webhook, change)

    async def validate(self, change: WriteRequest) -> None:
        """Ask every validating webhook at once. Raises StatusError of the first, in their order, that refuses."""
        asked = [self._ask(webhook, change, mutating=False) for webhook in self._asking(self._validating, change)]
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def _compile(self, plural: str) -> list[RegisteredWebhook]:
        """Every webhook, configurations by name as they are stored, webhooks in the order they are written."""
        return [
            RegisteredWebhook(webhook)
            for configuration in self._read.all(plural)
            for webhook in configuration.get("webhooks") or ()
        ]

    def _asking(self, registered: Memo[list[RegisteredWebhook]], change: WriteRequest) -> list[RegisteredWebhook]:
        webhooks = registered.get()
        if not webhooks or change.resource.plural in CONFIGURATIONS:
            return []
        labels: Mapping[str, str] | None = None
        if change.resource.plural == "namespaces":
            labels = _labels(change.object or change.old_object)
        elif change.namespace:
            labels = _labels(self._read.one("namespaces", "", change.namespace))
        return [webhook for webhook in webhooks if webhook.asks_for(change, labels)]

    async def _change(self, webhook: RegisteredWebhook, change: WriteRequest) -> bool:
        """Call one mutating webhook and apply its patch; whether it changed the object."""
        answer = await self._ask(webhook, change, mutating=True)
        if answer is None or not answer.operations:
            return False
        if change.object is None:
            raise webhook.failed("webhook attempted to modify the object, which is not supported for this operation")
        try:
            patched = apply_json_patch(change.object, answer.operations)
        except JsonPatchError as error:
            raise webhook.failed(str(error)) from error
        is_changed = bool(patched != change.object)
        change.object = patched
        return is_changed

    async def _ask(self, webhook: RegisteredWebhook, change: WriteRequest, *, mutating: bool) -> WebhookResponse | None:
        """The webhook's consent; None if it was passed over. Raises StatusError if it refuses or fails closed."""
        request, spec = request_of(change), webhook.spec
        try:
            conditions = [(row["name"], row["expression"]) for row in spec.get("matchConditions") or ()]
            if conditions and not conditions_hold(conditions, request):
                return None
            if change.dry_run and spec.get("sideEffects") not in ("None", "NoneOnDryRun"):
                raise bad_request(f'admission webhook "{spec["name"]}" does not support dry run')
            answer = await self._caller.call(spec, request, mutating=mutating)
        except (ConditionError, WebhookCallError) as error:
            if spec.get("failurePolicy") == "Ignore":
                return None
            text = str(error)
            raise (change.denied(text) if isinstance(error, ConditionError) else webhook.failed(text)) from error
        change.warnings.extend(answer.warnings)
        if not answer.allowed:
            raise denial(spec["name"], answer.status)
        return answer
