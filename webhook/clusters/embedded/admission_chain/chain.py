"""The admission chain in kube-apiserver's order, with its in-tree plugins.

In-tree mutating plugins (NamespaceLifecycle, ServiceAccount, Priority, DefaultTolerationSeconds, LimitRanger,
RuntimeClass), mutating webhooks, the in-tree plugins again where a webhook changed the object; later, on the final
object, in-tree validation and the validating webhooks. Each plugin can be switched off by its name.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Collection, Iterable

from webhook.clusters.embedded.admission_chain.webhook_dispatcher import WebhookDispatcher
from webhook.clusters.embedded.protocol.api_resources import Object
from webhook.clusters.embedded.protocol.calls import Attributes
from webhook.clusters.embedded.protocol.statuses import failure
from webhook.clusters.embedded.storage.object_store import StoreReader
from webhook.clusters.model.new_pods import apply_limit_ranges, apply_runtime_class, default_tolerations

IMMORTAL = ("default", "kube-system", "kube-public")
MIRROR = "kubernetes.io/config.mirror"
API_ACCESS = "kube-api-access-"
API_ACCESS_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
API_ACCESS_SOURCES = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {
        "downwardAPI": {
            "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
        }
    },
]
PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"
NOT_IN_SPEC = "must not be provided in pod spec; priority admission controller computed"
FROM_CLASS = "from the given PriorityClass name"


def _admit_namespace(attributes: Attributes, read: StoreReader) -> None:
    """Refuse to create in a namespace that is missing (404) or ending (403), or to delete an immortal one (403)."""
    name = attributes.namespace
    if attributes.resource.plural == "namespaces":
        if attributes.operation == "DELETE" and attributes.name in IMMORTAL:
            raise attributes.denied("this namespace may not be deleted")
        return
    if attributes.operation != "CREATE" or not name:
        return
    namespace = read.one("namespaces", "", name)
    if namespace is None:
        raise failure(404, "NotFound", f'namespaces "{name}" not found', {"name": name, "kind": "namespaces"})
    if namespace["metadata"].get("deletionTimestamp") and not attributes.subresource:
        error = attributes.denied(f"unable to create new content in namespace {name} because it is being terminated")
        cause = {"reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated"}
        error.status["details"]["causes"] = [{**cause, "field": "metadata.namespace"}]
        raise error


def _mount_token(attributes: Attributes, read: StoreReader) -> None:
    """Let a new pod run as ServiceAccount `default` if it names none, and mount its token from a volume of its own.

    The account need not exist, unlike on a real server: nobody makes the one of each namespace here.
    """
    spec = _pod_spec(attributes)
    annotations = ((attributes.object or {}).get("metadata") or {}).get("annotations") or {}
    if spec is None or attributes.operation != "CREATE" or MIRROR in annotations:
        return
    name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    account = read.one("serviceaccounts", attributes.namespace, name) or {}
    if not spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True)):
        return
    volumes = spec["volumes"] = spec.get("volumes") or []
    present = (volume["name"] for volume in volumes if str(volume.get("name")).startswith(API_ACCESS))
    if (volume := next(present, "")) == "":
        volume = API_ACCESS + secrets.token_hex(3)
        volumes.append({"name": volume, "projected": {"sources": copy.deepcopy(API_ACCESS_SOURCES)}})
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        mounts = container["volumeMounts"] = container.get("volumeMounts") or []
        if not any(mount.get("mountPath") == API_ACCESS_PATH for mount in mounts):
            mounts.append({"name": volume, "readOnly": True, "mountPath": API_ACCESS_PATH})


def _add_default_tolerations(attributes: Attributes, _read: StoreReader) -> None:
    """Let a new pod tolerate a node that is not ready or unreachable for 300 s, unless it says otherwise."""
    spec = _pod_spec(attributes)
    if spec is not None and attributes.operation == "CREATE":
        default_tolerations({"spec": spec})


def _apply_limit_ranges(attributes: Attributes, read: StoreReader) -> None:
    """Give a new pod's containers the amounts of its namespace's LimitRanges; what these forbid is not looked at."""
    spec = _pod_spec(attributes)
    if spec is not None and attributes.operation == "CREATE":
        ranges = read.all("limitranges", attributes.namespace)
        apply_limit_ranges({"spec": spec}, (row.get("spec") or {} for row in ranges))


def _apply_runtime_class(attributes: Attributes, read: StoreReader) -> None:
    """Give a new pod what its RuntimeClass says. Raises StatusError (403) if there is none, or they disagree."""
    spec = _pod_spec(attributes)
    name = (spec or {}).get("runtimeClassName")
    if spec is None or not name or attributes.operation != "CREATE":
        return
    known = read.one("runtimeclasses", "", name)
    if known is None:
        raise attributes.denied(f'pod rejected: RuntimeClass "{name}" not found')
    try:
        apply_runtime_class({"spec": spec}, known.get("overhead"), known.get("scheduling"))
    except ValueError as error:
        raise attributes.denied(str(error)) from None


def _admit_priority(attributes: Attributes, read: StoreReader) -> None:
    """Fill in a pod's priority from its class. Raises StatusError (403) where the pod disagrees with the class.

    The Priority plugin does what docs/kubernetes-behaviour.md K1 to K4 tell: it runs before the mutating webhooks,
    and once more after one of them changed the object.
    """
    spec = _pod_spec(attributes)
    if spec is None:
        return
    if attributes.operation == "UPDATE":
        old = (attributes.old_object or {}).get("spec") or {}
        for field in ("priority", "preemptionPolicy"):
            if spec.get(field) is None and old.get(field) is not None:
                spec[field] = old[field]
    if attributes.operation != "CREATE":
        return
    name = spec.get("priorityClassName", "")
    priority_class = read.one("priorityclasses", "", name) if name else _global_default(read.all("priorityclasses"))
    if name and priority_class is None:
        raise attributes.denied(f"no PriorityClass with name {name} was found")
    if priority_class is None:
        priority, policy = 0, PREEMPT_LOWER_PRIORITY
    else:
        spec["priorityClassName"] = priority_class["metadata"]["name"]
        priority = priority_class.get("value", 0)
        policy = priority_class.get("preemptionPolicy") or PREEMPT_LOWER_PRIORITY
    given = spec.get("priority")
    if given is not None and given != priority:
        text = f"the integer value of priority ({given}) {NOT_IN_SPEC} {priority} {FROM_CLASS}"
        raise attributes.denied(text)
    spec["priority"] = priority
    given = spec.get("preemptionPolicy")
    if given is not None and given != policy:
        text = f"the string value of PreemptionPolicy ({given}) {NOT_IN_SPEC} {policy} {FROM_CLASS}"
        raise attributes.denied(text)
    spec["preemptionPolicy"] = policy


def _validate_global_default(attributes: Attributes, read: StoreReader) -> None:
    """Refuse a second PriorityClass that is the global default (403)."""
    judged = attributes.object
    if attributes.resource.plural != "priorityclasses" or attributes.operation not in ("CREATE", "UPDATE"):
        return
    if judged is None or not judged.get("globalDefault"):
        return
    default = _global_default(read.all("priorityclasses"))
    if default is None:
        return
    name = default["metadata"]["name"]
    if attributes.operation == "CREATE" or name != judged["metadata"]["name"]:
        text = f"PriorityClass {name} is already marked as default. Only one default can exist"
        raise attributes.denied(text)


def _global_default(classes: Iterable[Object]) -> Object | None:
    """The class that pods without one get: of several global defaults the lowest value."""
    defaults = [class_ for class_ in classes if class_.get("globalDefault")]
    return min(defaults, key=lambda default: int(default.get("value", 0)), default=None)


def _pod_spec(attributes: Attributes) -> Object | None:
    """The spec of the pod that is written; None for everything else."""
    resource, obj = attributes.resource, attributes.object
    if resource.group or resource.plural != "pods" or attributes.subresource or obj is None:
        return None
    spec: Object = obj.setdefault("spec", {})
    return spec


_MUTATING: dict[str, Callable[[Attributes, StoreReader], None]] = {
    "NamespaceLifecycle": _admit_namespace,
    "ServiceAccount": _mount_token,
    "Priority": _admit_priority,
    "DefaultTolerationSeconds": _add_default_tolerations,
    "LimitRanger": _apply_limit_ranges,
    "RuntimeClass": _apply_runtime_class,
}
_VALIDATING = {"Priority": _validate_global_default}

PLUGINS = (*_MUTATING, "MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
"""The plugins by the names that `--disable-admission-plugins` takes."""


class AdmissionChain:
    """`read` looks into the store; `disabled` names plugins of PLUGINS that do not run."""

    def __init__(self, read: StoreReader, webhooks: WebhookDispatcher, disabled: Collection[str] = ()) -> None:
        unknown = set(disabled) - set(PLUGINS)
        if unknown:
            raise ValueError(f"no such admission plugin: {', '.join(sorted(unknown))}; there are {', '.join(PLUGINS)}")
        self._read = read
        self._enabled = frozenset(PLUGINS) - frozenset(disabled)
        self._webhooks = webhooks

    async def mutate(self, attributes: Attributes) -> Object | None:
        """Run everything that may change the object; the object to go on with, None at DELETE.

        Raises StatusError to refuse.
        """
        self._in_tree(attributes)
        if "MutatingAdmissionWebhook" in self._enabled:
            await self._webhooks.mutate(attributes, self._in_tree)
        return attributes.object

    async def validate(self, attributes: Attributes) -> None:
        """Judge the final object. Raises StatusError to refuse."""
        for name, plugin in _VALIDATING.items():
            if name in self._enabled:
                plugin(attributes, self._read)
        if "ValidatingAdmissionWebhook" in self._enabled:
            await self._webhooks.validate(attributes)

    def _in_tree(self, attributes: Attributes) -> None:
        for name, plugin in _MUTATING.items():
            if name in self._enabled:
                plugin(attributes, self._read)
