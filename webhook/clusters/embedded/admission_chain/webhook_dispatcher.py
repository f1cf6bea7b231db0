"""Dispatch to admission webhooks: mutating ones in order with reinvocation, validating ones side by side.

Mirrors `k8s.io/apiserver/pkg/admission/plugin/webhook`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping

from webhook.clusters.embedded.admission_chain.admission_review import (
    WebhookResponse,
    denial,
    dry_run_unsupported,
    request_of,
)
from webhook.clusters.embedded.admission_chain.webhook_client import WebhookCallError, WebhookClient
from webhook.clusters.embedded.admission_chain.webhook_configurations import (
    ConditionError,
    RegisteredWebhook,
    compile_webhooks,
    conditions_hold,
)
from webhook.clusters.embedded.protocol.calls import WriteRequest
from webhook.clusters.embedded.protocol.statuses import StatusError, internal_error
from webhook.clusters.embedded.storage.object_store import Memo, StoreReader
from webhook.kube.json_patch import JsonPatchError, apply_json_patch


class WebhookDispatcher:
    """Calls the webhooks that ask for a request, as the stored configurations say."""

    def __init__(self, read: StoreReader, caller: WebhookClient) -> None:
        self._read = read
        self._mutating = _registered(read, "mutatingwebhookconfigurations")
        self._validating = _registered(read, "validatingwebhookconfigurations")
        self._caller = caller

    async def mutate(self, change: WriteRequest, again: Callable[[WriteRequest], None]) -> None:
        """Run the mutating webhooks. Raises StatusError to refuse.

        Where one changed the object, the in-tree plugins (`again`) run a second time, and so do, with
        `reinvocationPolicy: IfNeeded`, the webhooks that have not seen the change.
        """
        called: set[tuple[str, str, int]] = set()
        due: set[tuple[str, str, int]] = set()
        changed = False
        for webhook in self._asking(self._mutating, change):
            if await self._change(webhook, change):
                changed = True
                due |= called
            if webhook.spec.get("reinvocationPolicy") == "IfNeeded":
                called.add(webhook.key)
        if not changed:
            return
        before = copy.deepcopy(change.object)
        again(change)
        if change.object != before:
            due |= called
        for webhook in self._asking(self._mutating, change):
            if webhook.key in due:
                await self._change(webhook, change)

    async def validate(self, change: WriteRequest) -> None:
        """Ask every validating webhook at once. Raises StatusError of the first, in their order, that refuses."""
        webhooks = self._asking(self._validating, change)
        if not webhooks:
            return
        asked = [self._ask(webhook, change, mutating=False) for webhook in webhooks]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _asking(self, registered: Memo[list[RegisteredWebhook]], change: WriteRequest) -> list[RegisteredWebhook]:
        webhooks = registered.get()
        if not webhooks:
            return []
        labels: Mapping[str, str] | None = None
        if change.resource.plural == "namespaces":
            judged = change.object or change.old_object or {}
            labels = (judged.get("metadata") or {}).get("labels") or {}
        elif change.namespace:
            labels = self._read.labels("namespaces", change.namespace)
        return [webhook for webhook in webhooks if webhook.asks_for(change, labels)]

    async def _change(self, webhook: RegisteredWebhook, change: WriteRequest) -> bool:
        """Call one mutating webhook and apply its patch; whether it changed the object."""
        answer = await self._ask(webhook, change, mutating=True)
        if answer is None or not answer.patch:
            return False
        if change.object is None:
            raise _failed(webhook, "webhook attempted to modify the object, which is not supported for this operation")
        try:
            patched = apply_json_patch(change.object, answer.patch)
        except JsonPatchError as error:
            raise _failed(webhook, str(error)) from error
        if patched == change.object:
            return False
        change.object = patched
        return True

    async def _ask(self, webhook: RegisteredWebhook, change: WriteRequest, *, mutating: bool) -> WebhookResponse | None:
        """The webhook's consent; None if it was passed over. Raises StatusError if it refuses or fails closed."""
        request = request_of(change)
        try:
            conditions = [(row["name"], row["expression"]) for row in webhook.spec.get("matchConditions") or ()]
            if conditions and not conditions_hold(conditions, request):
                return None
        except ConditionError as error:
            if not webhook.fails_closed:
                return None
            raise change.denied(str(error)) from error
        if change.dry_run and webhook.spec.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise dry_run_unsupported(webhook.name)
        try:
            answer = await self._caller.call(webhook, request, mutating=mutating)
        except WebhookCallError as error:
            if not webhook.fails_closed:
                return None
            raise _failed(webhook, str(error)) from error
        change.warnings.extend(answer.warnings)
        if not answer.allowed:
            raise denial(webhook.name, answer.status)
        return answer


def _registered(read: StoreReader, plural: str) -> Memo[list[RegisteredWebhook]]:
    return Memo(read, (plural,), lambda: compile_webhooks(read.all(plural)))


def _failed(webhook: RegisteredWebhook, why: str) -> StatusError:
    return internal_error(f'failed calling webhook "{webhook.name}": {why}')
