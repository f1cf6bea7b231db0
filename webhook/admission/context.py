"""What a review is judged by: policies, and the cluster's objects by name; and the request that is made of it."""

import copy
import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import msgspec

from webhook.admission.review import Json, MetadataView, PodSpecView, Review
from webhook.component_base.own_names import SYSTEM_NAMESPACE, reconciler_user
from webhook.kube.bounded import BoundedCache
from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.objects.scheduling import PodGroup
from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.request import PolicyRequest
from webhook.policy.evaluation.rules import Verdict
from webhook.policy.files.loading import Uses

CLASSES, NAMESPACES, POD_GROUPS = "priorityclasses", "namespaces", "podgroups"
"""The resources an answer can hinge on."""
LONGEST_NAME = 253
"""Characters of the longest name of a class or namespace (`apimachinery/pkg/util/validation.IsDNS1123Subdomain`)."""
OWN_NAMESPACE = SYSTEM_NAMESPACE
RECONCILER = reconciler_user(SYSTEM_NAMESPACE)
"""The user name of the reconciler as manifests/base installs it."""
SYSTEM_CLASSES = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}
"""The classes every Kubernetes has, with their values."""


@dataclass(eq=False)
class Lookup:
    """Objects by name, as last heard of; PodGroups by `namespace/name`, if they are watched or were looked up live."""

    classes: Mapping[str, PriorityClass]
    namespaces: Mapping[str, Namespace | None]
    pod_groups: Mapping[str, PodGroup | None]

    def __post_init__(self) -> None:
        self.priority_class = self.classes.get
        self.namespace = self.namespaces.get
        self.pod_group = self.pod_groups.get

    def default_priority_classes(self) -> list[PriorityClass]:
        """All classes with `globalDefault: true`."""
        # At once, since a cache changes while threads look at it
        classes = list(self.classes.values())
        return [item for item in classes if item.global_default]

    def corrected(self, live: Mapping[str, Mapping[str, Any]]) -> "Lookup":
        """The same with what was just read live, by resource; None is an object that is not there."""
        classes = {**self.classes, **live.get(CLASSES, {})}
        known: list[Any] = [self.namespaces, self.pod_groups]
        others = zip((NAMESPACES, POD_GROUPS), known, strict=True)
        return Lookup(
            {name: item for name, item in classes.items() if item is not None},
            *(ChainMap(dict(live.get(name, {})), items) for name, items in others),
        )


class Objects(Lookup):
    """A Lookup over given objects; the two system classes are there unless given otherwise."""

    def __init__(
        self,
        classes: Iterable[PriorityClass] = (),
        namespaces: Iterable[Namespace] = (),
        pod_groups: Mapping[str, PodGroup] | None = None,
    ) -> None:
        by_name: dict[str, PriorityClass] = {}
        for name, value in SYSTEM_CLASSES.items():
            by_name[name] = PriorityClass(metadata=ObjectMeta(name=name), value=value)
        by_name |= {item.metadata.name: item for item in classes}
        super().__init__(by_name, {item.metadata.name: item for item in namespaces}, pod_groups or {})


@dataclass(eq=False)
class Context:
    """What a review is judged by: the compiled policies, the cluster's objects, and where to say why, if anywhere.

    `reconciler` is the user name under which the reconciler writes giveway's own annotations, `namespace` giveway's
    own, in which the policies are applied; `uses` is what else is made of these (`webhook.policy.files.loading`).
    `allowance` is how many nanoseconds the expressions may take by their estimates before the review is given up with
    AllowanceError; None for any number. `clock` gives the time, by which exceptions end, in seconds since the epoch.
    """

    engine: Engine
    lookup: Lookup
    trace: list[Verdict] | None = None
    _: KW_ONLY
    reconciler: str = RECONCILER
    namespace: str = OWN_NAMESPACE
    uses: Uses = ()
    allowance: float | None = None
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.reads_everything = self.trace is not None
        """Whether a rule may read any field of an object, so that objects are decoded in full."""
        for policy, rule in self.engine.policies.rules:
            read = rule.declaration
            hidden = {path[:2] for path in read.fields} - _SHOWN
            if policy.conditions or read.expressions or hidden:
                self.reads_everything = True
        self.managed = BoundedCache(self.engine.managed, 4096, LONGEST_NAME)
        """The policy and twin of a managed class, by its name."""

    def changed(self, **changes: Any) -> "Context":
        """The same policies with another `lookup` or `allowance`."""
        changed = copy.copy(self)
        vars(changed).update(changes)
        return changed

    def request(self, review: Review, data: Json | None = None, old: Json | None = None) -> PolicyRequest:
        """The request to judge, without its priority; `data` and `old` stand for the objects, if given."""
        namespace = review.namespace
        return PolicyRequest(
            operation=review.operation,
            resource=review.resource,
            object=review.object if data is None else data,
            old_object=review.old_object if data is None else old,
            namespace=namespace,
            name=review.name,
            user=review.user,
            namespace_object=self.lookup.namespace(namespace) if namespace else None,
            raw=review.raw if self.reads_everything else {},
            dry_run=review.dry_run,
            allowance=self.allowance,
            now=self.clock(),
        )

    def pod_request(self, review: Review) -> PolicyRequest:
        """The request for a pod: in full if an expression may read it, else with what rules look at."""
        if self.reads_everything:
            return self.request(review)
        old = None if review.operation == "CREATE" else review.old_pod
        return self.request(review, msgspec.to_builtins(review.pod), msgspec.to_builtins(old))


_SHOWN = {
    (part, name)
    for part, view in (("metadata", MetadataView), ("spec", PodSpecView))
    for name in view.__struct_encode_fields__
} - {("metadata", "ownerReferences"), ("spec", "schedulingGroup")}
"""The fields of a pod that its view has whole."""
