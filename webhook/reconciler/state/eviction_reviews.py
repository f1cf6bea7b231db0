"""Whether somebody's webhook or admission policy is asked about evictions, and so may refuse one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from webhook.kube.client import Client
from webhook.kube.errors import ApiError
from webhook.kube.informer import Informer
from webhook.kube.objects.meta import KubeStruct, ObjectMeta

log = logging.getLogger(__name__)

_GROUP = "/apis/admissionregistration.k8s.io/v1"
_WEBHOOKS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_POLICIES = "validatingadmissionpolicies"
_NOT_FOUND, _FORBIDDEN = 404, 403
_PAUSE, _SHORT_PAUSE = 300.0, 5.0
"""Seconds before a resource is looked for again: one that is absent or forbidden, and one that failed."""


class _Rule(KubeStruct):
    """Which requests are reviewed."""

    operations: list[str] | None = None
    api_groups: list[str] | None = None
    resources: list[str] | None = None


class _Webhook(KubeStruct):
    rules: list[_Rule] | None = None


class _MatchConstraints(KubeStruct):
    resource_rules: list[_Rule] | None = None


class _Spec(KubeStruct):
    match_constraints: _MatchConstraints = msgspec.field(default_factory=_MatchConstraints)


class ReviewConfiguration(KubeStruct):
    """As much of a webhook configuration, or of an admission policy, as says which requests it reviews."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    webhooks: list[_Webhook] | None = None
    spec: _Spec = msgspec.field(default_factory=_Spec)

    def rules(self) -> Iterable[_Rule]:
        """All rules of it."""
        for webhook in self.webhooks or ():
            yield from webhook.rules or ()
        yield from self.spec.match_constraints.resource_rules or ()


class EvictionReviews:
    """Follows the webhook configurations and admission policies; what cannot be read may refuse anything.

    Nobody waits for these caches: without them a plan of several victims is tried first, which costs 0.1 s.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        paths = [f"{_GROUP}/{resource}" for resource in (*_WEBHOOKS, _POLICIES)]
        self.caches = {path: Informer(client, path, ReviewConfiguration) for path in paths}

    def expect_nobody(self) -> None:
        """Take it that nobody reviews evictions: in a cluster that is only imagined."""
        for cache in self.caches.values():
            cache.synced.set()

    async def run(self) -> None:
        """Keep the caches current until cancelled."""
        await asyncio.gather(*(self._follow(path) for path in self.caches))

    async def _follow(self, path: str) -> None:
        """Keep one cache current once its resource can be read; a resource that the server lacks has no objects."""
        cache = self.caches[path]
        while True:
            try:
                await self._client.get(path, limit=1)
            except ApiError as error:
                if error.status == _NOT_FOUND:
                    cache.synced.set()
                elif error.status == _FORBIDDEN:
                    log.warning("%s cannot be read, so plans of several victims are tried first: %s", path, error)
                await asyncio.sleep(_PAUSE if error.status in {_NOT_FOUND, _FORBIDDEN} else _SHORT_PAUSE)
            else:
                cache.synced.clear()
                await cache.run()

    def may_refuse(self, *, deletes: bool) -> bool:
        """Whether somebody may refuse an eviction, or a delete of a pod."""
        if not all(cache.synced.is_set() for cache in self.caches.values()):
            return True
        operation, names = ("DELETE", {"pods"}) if deletes else ("CREATE", {"pods/eviction", "pods/*", "*/eviction"})
        return any(
            {operation, "*"} & set(rule.operations or ())
            and {"", "*"} & set(rule.api_groups or ())
            and (names | {"*", "*/*"} if deletes else names | {"*/*"}) & set(rule.resources or ())
            for cache in self.caches.values()
            for configuration in cache.items().values()
            for rule in configuration.rules()
        )
