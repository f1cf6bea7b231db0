"""What an inspection goes by: the policies, and the namespaces that giveway is asked about."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from webhook.component_base.own_names import APPLIED, CONFIGURATION, IN_FORCE
from webhook.kube.client import Client
from webhook.kube.deep_json import decode_deep
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.objects.cluster_scoped import Namespace
from webhook.kube.objects.meta import LabelSelector
from webhook.kube.resources import CONFIG_MAP, VALIDATING_WEBHOOK_CONFIGURATION, Resource
from webhook.kube.selectors import label_matcher
from webhook.policy.files.loading import load_or_raise, load_texts, texts_of
from webhook.policy.model.policies import Policies
from webhook.policy.shapes.findings import PolicyError
from webhook.registration.entries import VALIDATING, WebhookTarget, entries


class NoPoliciesError(Exception):
    """The policies in force cannot be read from the cluster: `why`; the text says what would help, too."""

    def __init__(self, why: str, fix: str, *, is_forbidden: bool = False) -> None:
        super().__init__(f"{why}: {fix}")
        self.why, self.is_forbidden = why, is_forbidden


async def read_policies(client: Client, directory: Path | None, namespace: str) -> Policies:
    """The policies of a directory, or without one those in force in the cluster.

    These are what the webhook keeps in `namespace`; without a webhook (docs/native-policies.md) what was applied there.
    Raises PolicyError for files with errors, NoPoliciesError if nothing is kept or it may not be read.
    """
    if directory is not None:
        return load_or_raise(directory)
    name = IN_FORCE
    try:
        config_map = await unless_absent(client.get(CONFIG_MAP.path(namespace, IN_FORCE)))
    except ApiError as error:
        if error.status == 403:
            raise NoPoliciesError(
                f"no right to get ConfigMap {namespace}/{IN_FORCE}, in which the webhook keeps the policies in force",
                "name the files with --policies DIR",
                is_forbidden=True,
            ) from error
        raise
    configuration = VALIDATING_WEBHOOK_CONFIGURATION.path(name=CONFIGURATION)
    if config_map is None and await unless_absent(client.get(configuration), 403, 404) is None:
        # Without a webhook, what was applied is in force: the keeper of native policies and the reconciler read it
        name = APPLIED
        config_map = await unless_absent(client.get(CONFIG_MAP.path(namespace, APPLIED)), 403, 404)
    if config_map is None:
        raise NoPoliciesError(
            f"there is no ConfigMap {namespace}/{IN_FORCE}, in which the webhook keeps the policies in force",
            "name the files with --policies DIR, or the namespace that giveway runs in with --system-namespace",
        )
    loaded = load_texts(*texts_of(name, config_map.get("data") or {}))
    if loaded.errors:
        raise PolicyError(loaded.findings)
    return loaded.policies


def in_reach(namespaces: Iterable[Namespace], own: str) -> frozenset[str]:
    """The namespaces whose pods the API server asks about, by the selector that giveway registers.

    `own` is the namespace that giveway runs in.
    """
    pods: dict[str, Any] = entries(Policies(), WebhookTarget(namespace=own))[VALIDATING][0]
    selected = label_matcher(msgspec.convert(pods["namespaceSelector"], LabelSelector))
    names = {namespace.metadata.name: namespace for namespace in namespaces}
    return frozenset(name for name, namespace in names.items() if selected(namespace_labels(name, namespace)))


def namespace_labels(name: str, namespace: Namespace | None) -> dict[str, str]:
    """The labels by which selectors see a namespace: the API server adds its name, also to one that is not there."""
    return {"kubernetes.io/metadata.name": name, **((namespace.metadata.labels if namespace else None) or {})}


T = TypeVar("T")
D = TypeVar("D")
Progress = Callable[[str, int, int | None], None]
"""What is read, how many of it so far, and about how many there are, if that is known."""
_PAGE = 500


async def items_of(
    client: Client, resource: Resource, as_: type[Any], progress: Progress = lambda *_: None
) -> AsyncIterator[Any]:
    """The objects of a kind in all namespaces; those that cannot be decoded come as `msgspec.Raw`.

    Raises ApiError.
    """
    done, decoder = 0, msgspec.json.Decoder(as_)
    async for page in client.pages_of(resource, limit=_PAGE):
        for raw in page.items or ():
            try:
                yield decode_deep(decoder.decode, raw)
            except msgspec.DecodeError:
                yield raw
        done += len(page.items or ())
        left = page.metadata.remaining_item_count if page.metadata.continue_ else 0
        progress(resource.plural, done, None if left is None else done + left)
        await asyncio.sleep(0)


async def unless_refused(
    missing: dict[str, str], what: str, asked: Awaitable[T], instead: D, *, verb: str = "list", where: str = ""
) -> T | D:
    """An answer. If there is no such object or kind, or it may not be read, `instead`; `missing` gets why by what.

    Raises ApiError if the cluster does not answer at all, or does not know who asks.
    """
    try:
        return await asked
    except ApiError as error:
        if error.status in (0, 401):
            raise
        if error.status != 404:
            right = f"no right to {verb} {what}{where}"
            missing.setdefault(what, right if error.status == 403 else f"{what}{where} could not be read: {error}")
        return instead
