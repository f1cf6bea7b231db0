"""The policies: those that match nothing, those that are not in force, and exceptions with their ends."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from webhook.admission.configmaps import POLICIES, held_back, mend
from webhook.component_base.own_names import IN_FORCE, WEBHOOK
from webhook.inspection.checks.alive import there
from webhook.inspection.cluster_findings import ClusterFinding, finding, names
from webhook.inspection.observed import Observed
from webhook.inspection.reading import namespace_labels
from webhook.kube.instants import epoch
from webhook.kube.objects.meta import LabelSelector
from webhook.kube.selectors import label_matcher
from webhook.policy.evaluation.engine import Engine
from webhook.policy.files.loading import load_texts, texts_of
from webhook.policy.model.globs import WILDCARD, name_matcher
from webhook.policy.reports import exceptions, removals


def matching_nothing(observed: Observed) -> Iterator[ClusterFinding]:
    """Policies for namespaces or classes that do not exist, and default classes that do not."""
    for policy in observed.policies.priority:
        match = policy.match
        named = name_matcher((WILDCARD,) if match.namespaces is None else match.namespaces)
        selected = label_matcher(match.namespace_selector or LabelSelector())
        reached = (name for name in observed.reach if named(name))
        if not any(selected(namespace_labels(name, observed.namespaces[name])) for name in reached):
            yield finding("policies.no-namespace", policy=policy, file=PurePath(policy.source.file).name)
        for rule in policy.rules:
            name = rule.default_priority_class
            if name is not None and name not in observed.classes:
                yield finding("policies.no-default", policy=policy, rule=rule, name=name)
            body = rule.priority_classes
            allowed = (body.allow or ()) if body else ()
            if absent := [name for name in allowed if WILDCARD not in name and name not in observed.classes]:
                yield finding("policies.absent", policy=policy, rule=rule, absent=absent)
    engine = Engine(observed.policies)
    managing = {managed.policy.name for name in observed.classes if (managed := engine.managed(name)) is not None}
    for preemption in observed.policies.preemption:
        if preemption.name not in managing:
            classes = names(preemption.preemptors.priority_classes) or "it names none"
            yield finding("policies.no-class", policy=preemption, classes=classes)


_SHOWN = 3


def differing(observed: Observed) -> Iterator[ClusterFinding]:
    """Why the policies in force are not those of the ConfigMap that people apply; nothing if they are."""
    own = observed.own_state
    if observed.no_policies and there(observed):
        yield finding("policies-in-force.none", no_policies=observed.no_policies)
    if own.applied is None:
        return
    applied, in_force = (f"ConfigMap {observed.own}/{name}" for name in (POLICIES, IN_FORCE))
    new = load_texts(*texts_of(POLICIES, own.applied.files))
    if new.errors:
        errors = [f"{error.place}: {error.message}" for error in new.errors]
        yield finding("policies-in-force.broken", applied=applied, errors=new.errors, shown=_few(errors))
        return
    if own.in_force is None or own.in_force.files == own.applied.files:
        return
    old = load_texts(*texts_of(IN_FORCE, own.in_force.files))
    if not old.errors and (held := held_back(removals(old.policies, new.policies), own.applied.allowed)):
        yield finding("policies-in-force.held", applied=applied, mend=mend(held, own.applied.allowed, new.policies))
        return
    # What was applied last and is stricter is only on its way
    later = own.in_force.written > own.applied.written
    if later and not old.errors and (wider := held_back(removals(new.policies, old.policies), own.applied.allowed)):
        yield finding("policies-in-force.wider", in_force=in_force, applied=applied, shown=_few(wider))
        return
    where = "under-way" if WEBHOOK in own.deployments else "outside"
    yield finding(f"policies-in-force.differ-{where}", in_force=in_force, applied=applied)


def _few(many: Sequence[object]) -> str:
    """The first few of them."""
    more = [f"and {len(many) - _SHOWN} more"] if len(many) > _SHOWN else []
    return "; ".join([*map(str, many[:_SHOWN]), *more])


_SOON_SECONDS = 14 * 86_400


def listed(observed: Observed) -> Iterator[ClusterFinding]:
    """Every exception of the policies, in the order in which they end: a warning once it has ended, an info before."""
    for exception in exceptions(observed.policies, observed.now):
        soon = epoch(exception.until) - observed.now <= _SOON_SECONDS
        how = "ended" if exception.ended else "soon" if soon else "holds"
        yield finding(f"exceptions.{how}", exception=exception)
