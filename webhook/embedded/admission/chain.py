"""The admission chain in kube-apiserver's order.

In-tree mutating plugins (NamespaceLifecycle, Priority, DefaultTolerationSeconds), mutating webhooks, the in-tree
plugins again where a webhook changed the object; later, on the final object, in-tree validation and the
validating webhooks. Each plugin can be switched off by its name.
"""

from __future__ import annotations

from collections.abc import Collection

from webhook.embedded.admission.lifecycle import add_default_tolerations, admit_namespace
from webhook.embedded.admission.priority import PriorityPlugin
from webhook.embedded.admission.webhooks import Webhooks
from webhook.embedded.protocol.calls import Attributes, Object
from webhook.embedded.storage.reading import StoreReader

__all__ = ["PLUGINS", "AdmissionChain"]

PLUGINS = (
    "NamespaceLifecycle",
    "Priority",
    "DefaultTolerationSeconds",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionWebhook",
)
"""The plugins by the names that `--disable-admission-plugins` takes."""


class AdmissionChain:
    """`read` looks into the store; `disabled` names plugins of PLUGINS that do not run."""

    def __init__(self, read: StoreReader, webhooks: Webhooks, disabled: Collection[str] = ()) -> None:
        unknown = set(disabled) - set(PLUGINS)
        if unknown:
            raise ValueError(f"no such admission plugin: {', '.join(sorted(unknown))}; there are {', '.join(PLUGINS)}")
        self._read = read
        self._enabled = frozenset(PLUGINS) - frozenset(disabled)
        self._webhooks = webhooks
        self._priority = PriorityPlugin(
            lambda: read.all("priorityclasses"), lambda name: read.one("priorityclasses", "", name)
        )

    async def mutate(self, attributes: Attributes) -> Object | None:
        """Run everything that may change the object. Raises StatusError to refuse."""
        if "NamespaceLifecycle" in self._enabled:
            admit_namespace(attributes, lambda name: self._read.one("namespaces", "", name))
        self._in_tree(attributes)
        if "MutatingAdmissionWebhook" in self._enabled:
            await self._webhooks.mutate(attributes, self._in_tree)
        return attributes.object

    async def validate(self, attributes: Attributes) -> None:
        """Judge the final object. Raises StatusError to refuse."""
        if "Priority" in self._enabled:
            self._priority.validate(attributes)
        if "ValidatingAdmissionWebhook" in self._enabled:
            await self._webhooks.validate(attributes)

    def _in_tree(self, attributes: Attributes) -> None:
        if "Priority" in self._enabled:
            self._priority.admit(attributes)
        if "DefaultTolerationSeconds" in self._enabled:
            add_default_tolerations(attributes)
