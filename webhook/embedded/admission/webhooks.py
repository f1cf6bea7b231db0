"""Dispatch to admission webhooks: mutating ones in order with reinvocation, validating ones side by side.

Mirrors `k8s.io/apiserver/pkg/admission/plugin/webhook`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping

from webhook.embedded.admission.audit import AuditLog
from webhook.embedded.admission.calling import HookCaller, HookCallError
from webhook.embedded.admission.hooks import Hook, compile_hooks
from webhook.embedded.admission.match_conditions import ConditionError, conditions_hold
from webhook.embedded.admission.naming import denied
from webhook.embedded.admission.review import WebhookResponse, denial, dry_run_unsupported, request_of
from webhook.embedded.merging.patches import json_patch
from webhook.embedded.protocol.calls import Attributes
from webhook.embedded.protocol.statuses import StatusError, internal_error
from webhook.embedded.storage.reading import Memo, StoreReader

__all__ = ["Webhooks"]

Labels = Mapping[str, str]


class Webhooks:
    """Calls the webhooks that ask for a request, as the stored configurations say."""

    def __init__(self, read: StoreReader, caller: HookCaller, audit: AuditLog) -> None:
        self._read = read
        self._audit = audit
        self._mutating = _registered(read, "mutatingwebhookconfigurations")
        self._validating = _registered(read, "validatingwebhookconfigurations")
        self._caller = caller

    async def mutate(self, attributes: Attributes, again: Callable[[Attributes], None]) -> None:
        """Run the mutating webhooks. Raises StatusError to refuse.

        Where one changed the object, the in-tree plugins (`again`) run a second time, and so do, with
        `reinvocationPolicy: IfNeeded`, the webhooks that have not seen the change.
        """
        called: set[tuple[str, str, int]] = set()
        due: set[tuple[str, str, int]] = set()
        changed = False
        for hook in self._asking(self._mutating, attributes):
            if await self._change(hook, attributes):
                changed = True
                due |= called
            if hook.reinvoked:
                called.add(hook.key)
        if not changed:
            return
        before = copy.deepcopy(attributes.object)
        again(attributes)
        if attributes.object != before:
            due |= called
        for hook in self._asking(self._mutating, attributes):
            if hook.key in due:
                await self._change(hook, attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Ask every validating webhook at once. Raises StatusError of the first, in their order, that refuses."""
        hooks = self._asking(self._validating, attributes)
        if not hooks:
            return
        asked = [self._ask(hook, attributes, mutating=False) for hook in hooks]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _asking(self, registered: Memo[list[Hook]], attributes: Attributes) -> list[Hook]:
        hooks = registered.get()
        if not hooks:
            return []
        labels = self._labels(attributes)
        return [hook for hook in hooks if hook.asks_for(attributes, labels)]

    def _labels(self, attributes: Attributes) -> Labels | None:
        if attributes.resource.plural == "namespaces":
            judged = attributes.object or attributes.old_object or {}
            return (judged.get("metadata") or {}).get("labels") or {}
        return self._read.labels("namespaces", attributes.namespace) if attributes.namespace else None

    async def _change(self, hook: Hook, attributes: Attributes) -> bool:
        """Call one mutating webhook and apply its patch; whether it changed the object."""
        answer = await self._ask(hook, attributes, mutating=True)
        if answer is None or not answer.patch:
            return False
        if attributes.object is None:
            raise _failed(hook, "webhook attempted to modify the object, which is not supported for this operation")
        try:
            patched = json_patch(attributes.object, answer.patch)
        except StatusError as error:
            raise _failed(hook, str(error)) from error
        if patched == attributes.object:
            return False
        attributes.object = patched
        return True

    async def _ask(self, hook: Hook, attributes: Attributes, *, mutating: bool) -> WebhookResponse | None:
        """The webhook's consent; None if it was passed over. Raises StatusError if it refuses or fails closed."""
        request = request_of(attributes)
        try:
            if hook.conditions and not conditions_hold(hook.conditions, request):
                return None
        except ConditionError as error:
            if not hook.fail:
                return None
            raise denied(attributes, str(error)) from error
        if attributes.dry_run and not hook.dry_runs:
            raise dry_run_unsupported(hook.name)
        try:
            answer = await self._caller.call(hook, request, mutating=mutating)
        except HookCallError as error:
            if not hook.fail:
                return None
            raise _failed(hook, str(error)) from error
        attributes.warnings.extend(answer.warnings)
        self._audit.record(attributes, hook.name, answer.audit_annotations, allowed=answer.allowed)
        if not answer.allowed:
            raise denial(hook.name, answer.status)
        return answer


def _registered(read: StoreReader, plural: str) -> Memo[list[Hook]]:
    return Memo(read, (plural,), lambda: compile_hooks(read.all(plural)))


def _failed(hook: Hook, why: str) -> StatusError:
    return internal_error(f'failed calling webhook "{hook.name}": {why}')
