"""Validation of pods, PodGroups, workloads and the templates of both: what holds without any policy file.

A pod's metadata is written through `pods`, `pods/status` and a Binding, whose annotations and labels the API server
copies to the pod (`registry/core/pod/storage`). So the protected keys, which are giveway's own annotations and mark and
the annotations that policies shield, are judged on all three.

kube-scheduler preempts for a PodGroup by the group's own priority (docs/semantics.md A9). So a group is judged by the
rules about the priority of pods.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from webhook.admission.context import CLASSES, LONGEST_NAME, POD_GROUPS, Context
from webhook.admission.mutating import MIRROR, carried
from webhook.admission.resolving import NEVER, PREEMPT, global_default, policy_of, resolve, written
from webhook.admission.review import Json, MetadataView, PodSpecView, Review
from webhook.kube.bounded import bounded
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.kube.objects.meta import LabelSelector
from webhook.kube.pods import speaking, template_of
from webhook.kube.selectors import SelectorError, label_matcher
from webhook.policy.evaluation.request import CONTROLLER, GROUPS, PolicyRequest, part
from webhook.policy.evaluation.rules import without_name
from webhook.policy.model.match import NODE_GROUP, NODE_USER
from webhook.policy.model.values import MANAGED, MARK, OWN_ANNOTATIONS, RECONCILER_ANNOTATIONS, WEBHOOK_ANNOTATIONS

OF_A_NODE = (
    "its controller is a Node, and a static pod is never evicted: only that node's kubelet makes such a pod, with the"
    " annotation kubernetes.io/config.mirror; leave the owner out"
)
ON_NEW_PODS = {
    **dict.fromkeys(RECONCILER_ANNOTATIONS, "annotation {} is written by giveway's reconciler only: leave it out"),
    **dict.fromkeys(
        WEBHOOK_ANNOTATIONS,
        "annotation {} is giveway's record of what it gave a pod; a mirror pod gets nothing: leave it out",
    ),
}
NEVER_RESOLVED = (
    "spec.priority and spec.preemptionPolicy were never filled in: the pod passed neither the Priority plugin nor"
    " giveway's mutating webhook. Try again; if that does not help, check the MutatingWebhookConfiguration"
)
OWN_RECORD = "annotation {} is giveway's own record: on a pod that exists only {} changes it; {}"
MARK_STAYS = f"label {MARK} says that giveway preempts for this pod; it is set at creation and stays as it is"
UNMARKED = f"no label {MARK}: {MANAGED}, so nothing preempts for this pod"
"""What is told by native policies as well (`webhook.native.protected`)."""
AS_IT_IS = {True: "leave it as it is", False: "leave it out"}
"""What would be right for whoever writes a key of giveway's own: on the pod itself, or by a Binding."""
_OWN_RULE = "own-annotations"
_IMMUTABLE = "spec.{} of a pod cannot change (now {}, requested {}); {} instead"
_NO_CLASS = "no PriorityClass with name {} was found; `kubectl get priorityclasses` lists those that exist"
_ONE_MARK = f"label {MARK} is {{!r}}; its only value is {MANAGED!r}, and giveway sets it by itself: leave it out"


def validate_pod(context: Context, review: Review) -> None:
    """Judge a pod as it would be stored; an UPDATE is judged by what it changes.

    Nothing holds up a pod that is being deleted. But who may not change its protected keys may not do so then either:
    until it is gone, they decide about other pods, too.
    """
    pod = review.pod
    if review.operation == "CREATE":
        _validate_new(context, review)
    elif review.going:
        validate_status(context, review)
    elif review.has_old:
        instead = "change the pod template" if pod.metadata.has_controller else "make a new pod"
        before = carried(review.old_pod.spec)
        for field, value in carried(pod.spec).items():
            was = before[field]
            if value == was or (field == "priorityClassName" and not (value or was)):
                continue
            shown = ["absent" if item is None else bounded(str(item)) for item in (was, value)]
            text = _IMMUTABLE.format(field, *shown, instead)
            review.answer.deny("priority-immutable", text)
        _check_changes(context, review)
        review.answer.add(context.engine.judge(_change_request(context, review), context.trace))


def validate_priority(context: Context, review: Review) -> None:
    """Judge a new pod of the system as the Priority plugin does where it is off, and by no policy.

    A priority that nobody filled in is no fault of the pod, so it is let in.
    """
    if review.operation == "CREATE" and not _shows_static_pod(review):
        check_class(context, review)


def check_class(context: Context, review: Review) -> PriorityClass | None:
    """Refuse a class that is not there and numbers that are not its own; give it if it speaks."""
    spec, answer = review.pod.spec, review.answer
    name = spec.priority_class_name or ""
    named = context.lookup.priority_class(name) if name else None
    if name and named is None:
        answer.unsure.add((CLASSES, name))
        answer.deny("class-exists", _NO_CLASS.format(bounded(name)))
        return None
    expected = named or global_default(context)
    value, policy, source = 0, PREEMPT, "a pod without a PriorityClass"
    if expected:
        value, policy = expected.value, policy_of(expected)
        source = f"PriorityClass {expected.metadata.name}"
        if not named:
            source = f"the default {source}"
    for rule, field, now, right in (
        ("priority-agrees", "priority", spec.priority, value),
        ("preemption-policy-agrees", "preemptionPolicy", spec.preemption_policy, policy),
    ):
        if now is None or now == right:
            continue
        instead = f"leave spec.{field} out, it is filled in"
        if expected:
            answer.unsure.add((CLASSES, expected.metadata.name))
        else:
            instead = f"name a PriorityClass that has it, or {instead}"
        if written(review, "spec", field) is False:
            instead = "nobody wrote it, so the class was made again at the same time: try again"
        text = f"spec.{field} is {bounded(str(now))}, but {source} has {right}"
        answer.deny(rule, f"{text}; {instead}")
    return named if spec.priority is None else speaking(named, spec.priority)


def _validate_new(context: Context, review: Review) -> None:
    """Judge a new pod: its class, its priority, its mark, and then what the policies say."""
    meta, spec, answer = review.pod.metadata, review.pod.spec, review.answer
    mirror, static = MIRROR in meta.annotations, _shows_static_pod(review)
    named = None if static else check_class(context, review)
    resolved = spec.priority is not None and spec.preemption_policy is not None
    if answer.allowed and not mirror and not resolved:
        answer.deny("priority-resolved", NEVER_RESOLVED)
    if not static:
        check_group(context, review, spec, spec.priority)
        if any(owner.controller and owner.kind == "Node" for owner in meta.owner_references or ()):
            answer.deny("static-pods", OF_A_NODE)
    name = spec.priority_class_name or ""
    never = named is not None and named.preemption_policy == NEVER
    managed = never and context.managed(name) is not None
    _check_mark(review, name, managed=managed)
    if managed and MARK not in meta.labels and not mirror:
        answer.warnings.append(UNMARKED)
    # If mutation was asked, it has taken away what the reconciler writes, and replaced its own but on mirror pods
    for key, text in ON_NEW_PODS.items():
        if key in meta.annotations and (mirror or key in RECONCILER_ANNOTATIONS):
            answer.deny(_OWN_RULE, text.format(key))
    if not static:
        judge(context, review, context.pod_request(review), named)


def _shows_static_pod(review: Review) -> bool:
    """Whether a kubelet shows what runs from a file of its node (docs/kubernetes-behaviour.md K31).

    Its containers run all the same, and only a pod in the API is counted on the node.
    """
    pod, user = review.pod, review.user
    if MIRROR not in pod.metadata.annotations or NODE_GROUP not in user.groups:
        return False
    node = pod.spec.node_name
    if node is None or user.username != f"{NODE_USER}{node}":
        return False
    for owner in pod.metadata.owner_references or ():
        if owner.controller:
            return (owner.kind, owner.name) == ("Node", node)
    return False


def validate_workload(context: Context, review: Review) -> None:
    """Judge the pods that a workload will make, so that its author reads the message.

    A template that an UPDATE leaves alone is not judged: scaling or deleting what exists always works.
    """
    data, answer = review.object, review.answer
    template = template_of(data, review.resource)
    if template is None or review.going:
        return
    if review.operation == "UPDATE" and template == template_of(review.old_object, review.resource):
        return
    made = review.as_created(template, "pods")
    spec = made.pod.spec
    resolution = resolve(context, made, spec, _by_controller(context.request(made)))
    if resolution.settled:
        view = msgspec.structs.replace(spec, preemption_policy=resolution.preemption_policy)
        check_group(context, review, view, resolution.value)
    else:
        check_class(context, made)
    _check_mark(made, resolution.name, managed=resolution.managed)
    if resolution.managed and _loses_the_mark(data, made.pod.metadata.labels):
        text = f"spec.selector does not select pods with label {MARK}: {MANAGED}"
        text += ", which giveway sets on these; leave that label out of the selector"
        answer.deny("mark", text)
    request = context.request(review)
    judge(context, made, request, resolution.priority_class)
    if answer.allowed:
        warn_of_controllers(context, review, request, "pods")


def judge(context: Context, review: Review, request: PolicyRequest, named: PriorityClass | None) -> None:
    """Add what policies say of a request with this class and the priority of the pod, or the class."""
    request.priority_class, request.priority = named, review.pod.spec.priority
    if request.priority is None:
        request.priority = named.value if named else 0
    review.answer.add(context.engine.judge(request, context.trace))


def warn_of_controllers(context: Context, review: Review, request: PolicyRequest, made: str) -> None:
    """Tell the author of a template which rule will refuse what controllers make of it."""
    if not context.engine.asks_who:
        return
    for verdict in context.engine.judge(_by_controller(request)):
        if verdict.denies:
            text = without_name(verdict.id, verdict.message)
            refusal = f"rule {verdict.id} will refuse them: {text}"
            review.answer.warnings.append(f"a controller makes the {made}, and {refusal}")


def _by_controller(request: PolicyRequest) -> PolicyRequest:
    """The request as a controller makes it, whoever the workload's author is."""
    raw = request.raw
    if raw:
        raw = {**raw, "userInfo": {"username": CONTROLLER.username, "groups": list(CONTROLLER.groups)}}
    return msgspec.structs.replace(request, user=CONTROLLER, raw=raw)


def validate_group(context: Context, review: Review) -> None:
    """Judge a PodGroup as it would be stored, also at an update: what it names cannot change."""
    if not review.going:
        group = review.as_created(review.object, GROUPS)
        judge(context, group, context.request(group), check_class(context, group))


def validate_group_templates(context: Context, review: Review) -> None:
    """Judge the groups of a Workload, so that its author reads it; they are judged again."""
    if review.going:
        return
    metadata = part(review.object, "metadata")
    for template in _templates(review.object.get("spec")):
        group = review.as_created({"metadata": metadata, "spec": template}, GROUPS)
        request = context.request(group)
        judge(context, group, request, check_class(context, group))
        if review.answer.allowed:
            warn_of_controllers(context, review, request, "PodGroups")


def _templates(spec: Any) -> Iterator[Json]:
    """Every mapping below that names a class or a priority, wherever a version keeps templates."""
    if isinstance(spec, dict):
        if "priorityClassName" in spec or "priority" in spec:
            yield spec
        spec = list(spec.values())
    for below in spec if isinstance(spec, list) else ():
        yield from _templates(below)


def check_group(context: Context, review: Review, spec: PodSpecView, priority: int | None) -> None:
    """Refuse a pod whose priority is not that of its PodGroup, where the group's counts.

    kube-scheduler preempts for a group by the group's priority, unless one of its pods is Never (docs/semantics.md A9).
    A group without a priority does not count, nor one that does not exist yet.
    """
    name = (spec.scheduling_group and spec.scheduling_group.pod_group_name) or ""
    if not name or len(name) > LONGEST_NAME:
        return
    answer = review.answer
    asked = POD_GROUPS, f"{review.namespace}/{name}"
    group = context.lookup.pod_group(asked[1])
    if group is None:
        answer.unsure.add(asked)
        return
    theirs, class_name = group.spec.priority, group.spec.priority_class_name
    if theirs is None:
        return
    whose = f"PodGroup {name} has {theirs}"
    if class_name:
        whose += f" (PriorityClass {class_name})"
    if priority not in (None, theirs):
        answer.unsure.add(asked)
        text = f"the pod has priority {priority}, but its {whose}, which counts"
        text += " for all pods of the group; give both the same PriorityClass"
        answer.deny("group-priority", text)
    elif spec.preemption_policy not in (None, NEVER) and context.managed(class_name) is not None:
        if not speaking(context.lookup.priority_class(class_name), theirs):
            return
        answer.unsure.add(asked)
        text = f"the {whose}, for which giveway preempts; a pod of it with preemptionPolicy"
        text += f" {spec.preemption_policy} would let kube-scheduler preempt for the group"
        answer.deny("group-managed", f"{text}: give the pod PriorityClass {class_name}, too")


def validate_status(context: Context, review: Review) -> None:
    """Judge what an update of `pods/status` does to protected keys."""
    if review.operation != "UPDATE" or not review.has_old:
        return
    _check_changes(context, review)
    review.answer.add(context.engine.judge_going(_change_request(context, review)))


def validate_binding(context: Context, review: Review) -> None:
    """Judge a Binding as an update of its pod, whose labels are not known: its own give no rights."""
    if review.operation != "CREATE":
        return
    meta = review.pod.metadata
    _check_changes(context, review)
    named = {"name": review.name or meta.name, "annotations": meta.sent_annotations}
    change = context.request(review, {"metadata": named}, {"metadata": {}})
    change.operation, change.resource, change.labels_known = "UPDATE", "pods", False
    review.answer.add(context.engine.judge_going(change))


def _change_request(context: Context, review: Review) -> PolicyRequest:
    """The request for an UPDATE of a pod: its priority is the one it was created with."""
    spec, request = review.pod.spec, context.pod_request(review)
    if spec.priority_class_name:
        named = context.lookup.priority_class(spec.priority_class_name)
        request.priority_class = speaking(named, spec.priority)
    request.priority = spec.priority
    return request


def _check_changes(context: Context, review: Review) -> None:
    """Refuse changes of giveway's annotations or the mark by others than the reconciler."""
    if review.user.username == context.reconciler:
        return
    new, before = review.pod.metadata, None
    if review.operation == "UPDATE":
        before = review.old_pod.sent_metadata
    old, instead = before or MetadataView(), AS_IT_IS[before is not None]
    for key in OWN_ANNOTATIONS:
        if new.annotations.get(key) != old.annotations.get(key):
            review.answer.deny(_OWN_RULE, OWN_RECORD.format(key, context.reconciler, instead))
    mark, was = new.labels.get(MARK), old.labels.get(MARK)
    if mark != was:
        states = f"now {bounded(was or 'absent')}, requested {bounded(mark or 'absent')}"
        review.answer.deny("mark", f"{MARK_STAYS} ({states}); {instead}")


def _check_mark(review: Review, name: str, *, managed: bool) -> None:
    mark = review.pod.metadata.labels.get(MARK)
    if mark is None or (managed and mark == MANAGED):
        return
    whose = "no PriorityClass is named"
    if name:
        whose = f"PriorityClass {bounded(name)} is not one that it manages"
    text = f"label {MARK} is giveway's own mark and {whose}: leave the label out"
    if managed:
        text = _ONE_MARK.format(bounded(mark))
    review.answer.deny("mark", text)


def _loses_the_mark(workload: Json, labels: dict[str, str]) -> bool:
    """Whether a selector loses pods with the mark: the workload would make them without end."""
    try:
        selects = label_matcher(msgspec.convert(workload["spec"]["selector"], LabelSelector))
    except (KeyError, TypeError, msgspec.ValidationError, SelectorError):
        return False
    return selects(labels) and not selects({**labels, MARK: MANAGED})
