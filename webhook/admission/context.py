"""What a review is judged by: the policies, and the cluster's PriorityClasses and Namespaces, by name.

And the request that the policy engine judges, which a `Context` makes of a review.
"""

import copy
import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from webhook.admission.review import Json, MetadataView, PodSpecView, PodView, Review
from webhook.component_base.own_names import SYSTEM_NAMESPACE, reconciler_user
from webhook.kube.bounded import BoundedCache
from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.objects.scheduling import PodGroup
from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.request import PolicyRequest
from webhook.policy.evaluation.rules import Verdict
from webhook.policy.files.loading import Uses
from webhook.policy.model.policies import Policies

CLASSES, NAMESPACES, POD_GROUPS = "priorityclasses", "namespaces", "podgroups"
"""The resources an answer can hinge on."""

LONGEST_NAME = 253
"""Characters of the longest name of a class or namespace (`apimachinery/pkg/util/validation.IsDNS1123Subdomain`)."""

OWN_NAMESPACE = SYSTEM_NAMESPACE
RECONCILER = reconciler_user(SYSTEM_NAMESPACE)
"""The user name of the reconciler as manifests/base installs it."""

SYSTEM_CLASSES = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}
"""The classes every Kubernetes has, with their values."""


class Lookup:
    """Objects by name, as last heard of; PodGroups by `namespace/name`.

    Where PodGroups are not watched, only one that was looked up live is known.
    """

    def __init__(
        self,
        classes: Mapping[str, PriorityClass],
        namespaces: Mapping[str, Namespace | None],
        pod_groups: Mapping[str, PodGroup | None],
    ) -> None:
        self.classes, self.namespaces = classes, namespaces
        self.priority_class, self.namespace, self.pod_group = classes.get, namespaces.get, pod_groups.get
        self._pod_groups = pod_groups

    def default_priority_classes(self) -> list[PriorityClass]:
        """All classes with `globalDefault: true`."""
        classes = list(self.classes.values())  # at once, since a cache changes while threads look at it
        return [item for item in classes if item.global_default]

    def corrected(self, live: Mapping[str, Mapping[str, Any]]) -> "Lookup":
        """The same with what was just read live, by resource; None is an object that is not there."""
        classes = {**self.classes, **live.get(CLASSES, {})}
        namespaces = ChainMap(dict(live.get(NAMESPACES, {})), self.namespaces)  # type: ignore[arg-type]  # only read
        pod_groups = ChainMap(dict(live.get(POD_GROUPS, {})), self._pod_groups)  # type: ignore[arg-type]
        return Lookup(
            {name: item for name, item in classes.items() if item is not None},
            namespaces,
            pod_groups,
        )


class Objects(Lookup):
    """A Lookup over given objects; the two system classes are there unless given otherwise."""

    def __init__(
        self,
        classes: Iterable[PriorityClass] = (),
        namespaces: Iterable[Namespace] = (),
        pod_groups: Mapping[str, PodGroup] | None = None,
    ) -> None:
        system = [PriorityClass(metadata=ObjectMeta(name=name), value=value) for name, value in SYSTEM_CLASSES.items()]
        super().__init__(
            {item.metadata.name: item for item in (*system, *classes)},
            {item.metadata.name: item for item in namespaces},
            pod_groups or {},
        )


_NO_POLICIES = Engine(Policies())


class Context:
    """What a review is judged by: the compiled policies, the cluster's objects, and where to say why, if anywhere.

    `reconciler` is the user name under which the reconciler writes giveway's own annotations, `namespace` giveway's
    own, in which the policies are applied; `uses` is what else is made of these (`webhook.policy.files.loading`).
    `allowance` is how many nanoseconds the expressions may take by their estimates before the review is given up with
    AllowanceError; None for any number. `clock` gives the time of a request, by which exceptions end, in seconds since
    the epoch.
    """

    def __init__(
        self,
        engine: Engine,
        lookup: Lookup,
        trace: list[Verdict] | None = None,
        *,
        reconciler: str = RECONCILER,
        namespace: str = OWN_NAMESPACE,
        uses: Uses = (),
        allowance: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.engine, self.lookup, self.trace = engine, lookup, trace
        self.reconciler, self.namespace, self.uses = reconciler, namespace, uses
        self.allowance, self.clock = allowance, clock
        reads = trace is not None
        for _, policy, rule in engine.policies.rules:
            hidden = {path[:2] for path in rule.declaration.fields} - _SHOWN
            reads |= bool(policy.conditions or rule.declaration.expressions or hidden)
        self.reads_everything = reads
        """Whether a rule may read any field of an object, so that objects are decoded in full."""
        self.managed = BoundedCache(engine.managed, 4096, LONGEST_NAME)
        """The policy and twin of a managed class, by its name."""

    def without_policies(self) -> "Context":
        """No policies over the same objects."""
        return Context(_NO_POLICIES, self.lookup, self.trace, reconciler=self.reconciler, clock=self.clock)

    def changed(self, **changes: Any) -> "Context":
        """The same policies with another `lookup` or `allowance`."""
        changed = copy.copy(self)
        vars(changed).update(changes)
        return changed

    def request(self, review: Review, data: Json | None = None, old: Json | None = None) -> PolicyRequest:
        """The request to judge; its priority is filled in once it is resolved.

        `data` and `old` stand for the object as it would be and as it is, if rules are to see something else.
        """
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

    def pod_request(self, review: Review, pod: PodView, old: PodView | None = None) -> PolicyRequest:
        """The request for a pod: in full if an expression may read it, else with what rules look at."""
        if self.reads_everything:
            return self.request(review)
        return self.request(review, msgspec.to_builtins(pod), msgspec.to_builtins(old))


_SHOWN = {
    (part, name)
    for part, view in (("metadata", MetadataView), ("spec", PodSpecView))
    for name in view.__struct_encode_fields__
} - {("metadata", "ownerReferences"), ("spec", "schedulingGroup")}
"""The fields of a pod that its view has whole."""
