"""The admission chain in kube-apiserver's order, with its in-tree plugins.

In-tree mutating plugins (NamespaceLifecycle, Priority, ServiceAccount, DefaultTolerationSeconds), mutating webhooks,
the in-tree plugins again where a webhook changed the object; later, on the final object, in-tree validation and the
validating webhooks. Each plugin can be switched off by its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from webhook.clusters.embedded.admission_chain.registered_webhooks import RegisteredWebhooks
from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.calls import WriteRequest
from webhook.clusters.embedded.protocol.statuses import failure
from webhook.clusters.embedded.storage.object_store import ObjectStore
from webhook.clusters.model.new_pods import default_tolerations

IMMORTAL = ("default", "kube-system", "kube-public")
_WHY = "must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name"


def _admit_namespace(change: WriteRequest, read: ObjectStore) -> None:
    """Refuse to create in a namespace that is missing (404) or ending (403), or to delete an immortal one (403)."""
    name = change.namespace
    if change.resource.plural == "namespaces":
        if change.operation == "DELETE" and change.name in IMMORTAL:
            raise change.denied("this namespace may not be deleted")
        return
    if change.operation != "CREATE" or not name:
        return
    namespace = read.one("namespaces", "", name)
    if namespace is None:
        raise failure(404, "NotFound", f'namespaces "{name}" not found', {"name": name, "kind": "namespaces"})
    if namespace["metadata"].get("deletionTimestamp") and not change.subresource:
        error = change.denied(f"unable to create new content in namespace {name} because it is being terminated")
        cause = {"reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated"}
        error.status["details"]["causes"] = [{**cause, "field": "metadata.namespace"}]
        raise error


def _admit_priority(spec: Object, change: WriteRequest, read: ObjectStore) -> None:
    """Fill in a pod's priority from its class. Raises StatusError (403) where the pod disagrees with the class.

    The Priority plugin does what docs/kubernetes-behaviour.md K1 to K4 tell: it runs before the mutating webhooks,
    and once more after one of them changed the object.
    """
    if change.operation == "UPDATE":
        old = (change.old_object or {}).get("spec") or {}
        for field in ("priority", "preemptionPolicy"):
            if spec.get(field) is None and old.get(field) is not None:
                spec[field] = old[field]
    if change.operation != "CREATE":
        return
    name = spec.get("priorityClassName", "")
    class_ = read.one("priorityclasses", "", name) if name else _global_default(read.all("priorityclasses"))
    if name and class_ is None:
        raise change.denied(f"no PriorityClass with name {name} was found")
    if class_ is not None:
        spec["priorityClassName"] = class_["metadata"]["name"]
    known = class_ or {}
    for field, value, what in (
        ("priority", known.get("value", 0), "integer value of priority"),
        ("preemptionPolicy", known.get("preemptionPolicy", "PreemptLowerPriority"), "string value of PreemptionPolicy"),
    ):
        given = spec.get(field)
        if given is not None and given != value:
            raise change.denied(f"the {what} ({given}) {_WHY.format(value)}")
        spec[field] = value


def _admit_default(change: WriteRequest, read: ObjectStore) -> None:
    """Refuse a second PriorityClass that is the global default (403)."""
    default = _global_default(read.all("priorityclasses")) if (change.object or {}).get("globalDefault") else None
    if default is not None and (name := default["metadata"]["name"]) != change.name:
        raise change.denied(f"PriorityClass {name} is already marked as default. Only one default can exist")


def _global_default(classes: Iterable[Object]) -> Object | None:
    """The class that pods without one get: of several global defaults the lowest value."""
    defaults = [class_ for class_ in classes if class_.get("globalDefault")]
    return min(defaults, key=lambda default: int(default.get("value", 0)), default=None)


PLUGINS = (
    *("NamespaceLifecycle", "Priority", "ServiceAccount", "DefaultTolerationSeconds"),
    *("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"),
)
"""The plugins by the names that `--disable-admission-plugins` takes."""


class AdmissionChain:
    """`read` looks into the store; `disabled` names plugins of PLUGINS that do not run."""

    def __init__(self, read: ObjectStore, webhooks: RegisteredWebhooks, disabled: Collection[str] = ()) -> None:
        self._read = read
        self._enabled = frozenset(PLUGINS) - frozenset(disabled)
        self._webhooks = webhooks

    async def mutate(self, change: WriteRequest) -> Object | None:
        """Run everything that may change the object; the object to go on with, None at DELETE.

        Raises StatusError to refuse.
        """
        if not change.admit:
            return change.object
        self._in_tree(change)
        if "MutatingAdmissionWebhook" in self._enabled:
            await self._webhooks.mutate(change, self._in_tree)
        return change.object

    async def validate(self, change: WriteRequest) -> None:
        """Judge the final object. Raises StatusError to refuse."""
        if not change.admit:
            return
        if change.resource.plural == "priorityclasses" and "Priority" in self._enabled:
            _admit_default(change, self._read)
        if "ValidatingAdmissionWebhook" in self._enabled:
            await self._webhooks.validate(change)

    def _in_tree(self, change: WriteRequest) -> None:
        if "NamespaceLifecycle" in self._enabled:
            _admit_namespace(change, self._read)
        resource, obj = change.resource, change.object
        if resource.plural != "pods" or change.subresource or obj is None:
            return
        spec = obj.setdefault("spec", {})
        if "Priority" in self._enabled:
            _admit_priority(spec, change, self._read)
        if "ServiceAccount" in self._enabled and change.operation == "CREATE":
            # The account of a pod that names none is `default`; it need not exist, and no token is mounted.
            name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
            spec["serviceAccountName"] = spec["serviceAccount"] = name
        if "DefaultTolerationSeconds" in self._enabled:
            default_tolerations(obj)
