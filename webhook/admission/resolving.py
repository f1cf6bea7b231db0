"""Which PriorityClass, value and preemption policy a pod has or is about to get.

The rules are docs/semantics.md A1 to A5; what the API server does is docs/kubernetes-behaviour.md K1 to K3.
"""

from typing import Any

import msgspec

from webhook.admission.context import CLASSES, Context
from webhook.admission.review import Answer, PodSpecView, Review
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.policy.evaluation.request import PolicyRequest, part

NEVER, PREEMPT = "Never", "PreemptLowerPriority"
_NO_DEFAULT = "rule {} gives PriorityClass {}, which does not exist; it was not applied"
_DEFAULT = "a pod that names no PriorityClass gets {} here, by rule {}"


class Resolution(msgspec.Struct, kw_only=True):
    """What a pod resolves to. `priority_class` is None if none is named, or the named one does not exist.

    It is `settled` unless that is so, or what the pod already carries disagrees: then nothing may be filled in, and
    validation refuses it. `moved_from` is the class of which it gets the twin, and `set_by` the rule that gave it one.
    """

    name: str = ""
    moved_from: str = ""
    priority_class: PriorityClass | None = None
    value: int = 0
    preemption_policy: str = PREEMPT
    settled: bool = True
    managed: bool = False
    set_by: str = ""

    def take(self, priority_class: PriorityClass) -> None:
        """Resolve to this class."""
        self.name, self.priority_class = priority_class.metadata.name, priority_class
        self.value, self.preemption_policy = priority_class.value, policy_of(priority_class)


def policy_of(priority_class: PriorityClass) -> str:
    """A class's preemption policy; absent means PreemptLowerPriority."""
    return priority_class.preemption_policy or PREEMPT


def global_default(context: Context) -> PriorityClass | None:
    """The global default; of several the lowest value, then the first name."""
    defaults = context.lookup.default_priority_classes()
    return min(defaults, key=lambda item: (item.value, item.metadata.name), default=None)


def disagreement(spec: PodSpecView, value: int, preemption_policy: str) -> bool:
    """Whether a pod carries another value or policy; absent fields agree."""
    return spec.priority not in (None, value) or spec.preemption_policy not in (None, preemption_policy)


def written(review: Review, *path: str) -> bool | None:
    """Whether a client set the field, by its managers; None if they own nothing beside it either.

    The API server computes them from what the client sent, before admission runs. What plugins and webhooks add to a
    new object is nobody's.
    """
    *above, field = (f"f:{name}" for name in path)
    entries = part(review.object, "metadata").get("managedFields")
    told = None
    for entry in entries if isinstance(entries, list) else ():
        fields: Any = entry
        for name in ("fieldsV1", *above):
            fields = fields.get(name) if isinstance(fields, dict) else None
        if isinstance(fields, dict):
            told = told or field in fields
    return told


def resolve(
    context: Context, review: Review, spec: PodSpecView, request: PolicyRequest, *, again: bool = False
) -> Resolution:
    """Resolve a new pod or a template: named class, policy or global default, then its twin.

    With `again` an earlier call has given it what it has. The answer gets warnings, and the classes whose newest state
    would settle it.
    """
    resolution, answer = Resolution(), review.answer
    name = spec.priority_class_name
    if name:
        named = context.lookup.priority_class(name)
        if named is None:
            resolution.name, resolution.settled = name, False
            answer.unsure.add((CLASSES, name))
            return resolution
        resolution.take(named)
        if disagreement(spec, resolution.value, resolution.preemption_policy):
            resolution.settled = False
            answer.unsure.add((CLASSES, name))
        elif named.global_default and not again and written(review, "spec", "priorityClassName") is False:
            # No field manager owns the name, so the Priority plugin filled it in: judge the pod as the user sent it.
            # Without managedFields the name counts as the user's choice
            fields = dict(request.object["spec"])
            del fields["priorityClassName"]
            sent = {**request.object, "spec": fields}
            unnamed = msgspec.structs.replace(request, object=sent)
            _take_policy_default(context, unnamed, resolution, answer)
    else:
        # Without the plugin nobody has named the default to a pod that carries its numbers
        default = global_default(context)
        is_default = default is not None and not disagreement(spec, default.value, policy_of(default))
        has_none = not disagreement(spec, resolution.value, resolution.preemption_policy)
        taken = (is_default or has_none) and _take_policy_default(context, request, resolution, answer)
        if default is not None and is_default and not taken:
            resolution.take(default)
        elif not taken and (default is not None or not has_none):
            resolution.settled = False
            if default is not None:
                answer.unsure.add((CLASSES, default.metadata.name))
    if resolution.priority_class is not None and resolution.settled:
        _apply_management(context, resolution, resolution.priority_class, answer)
    return resolution


def _take_policy_default(context: Context, request: PolicyRequest, resolution: Resolution, answer: Answer) -> bool:
    """Resolve to the class a policy gives; it replaces what the Priority plugin filled in."""
    chosen = context.engine.default_priority_class(request)
    if chosen is None:
        return False
    name, rule = chosen
    default = context.lookup.priority_class(name)
    if default is None:
        answer.unsure.add((CLASSES, name))
        answer.warnings.append(_NO_DEFAULT.format(rule, name))
        return False
    resolution.take(default)
    resolution.set_by = rule
    answer.warnings.append(_DEFAULT.format(name, rule))
    return True


def _apply_management(context: Context, resolution: Resolution, own: PriorityClass, answer: Answer) -> None:
    """Move a managed class's pod to its twin; say whether the reconciler takes it."""
    name = resolution.name
    managed = context.managed(name)
    if managed is None or resolution.preemption_policy == NEVER:
        resolution.managed = managed is not None
        return
    if managed.twin is None:
        text = f"PriorityClass {name} is managed but has preemptionPolicy {PREEMPT}"
        text += " and no twin: kube-scheduler preempts for the pod"
        answer.warnings.append(f"{text}, giveway does not")
        return
    twin = context.lookup.priority_class(managed.twin)
    if twin is None or twin.value != own.value or policy_of(twin) != NEVER:
        problem = "does not exist"
        if twin is not None:
            problem = f"is not of value {own.value} with preemptionPolicy {NEVER}"
        answer.unsure.add((CLASSES, managed.twin))
        text = f"twin {managed.twin} of PriorityClass {name} {problem}"
        answer.warnings.append(f"{text}: the pod stays in {name}")
        return
    resolution.take(twin)
    resolution.managed, resolution.moved_from = True, name
    text = f"the pod gets PriorityClass {managed.twin}, the twin of {name}"
    text += ": giveway preempts for it, and kube-scheduler does not"
    answer.warnings.append(f"{text} (PreemptionPolicy {managed.policy.name})")
