"""Validation of pods, PodGroups, workloads and the templates of both: what holds without any policy file.

A pod's metadata is written through `pods`, `pods/status` and a Binding, whose annotations and labels the API server
copies to the pod (`registry/core/pod/storage`). So the protected keys, which are giveway's own annotations and mark and
the annotations that policies shield, are judged on all three.

kube-scheduler preempts for a PodGroup by the group's own priority (docs/semantics.md A9). So a group is judged by the
rules about the priority of pods: whether its class exists and agrees with its numbers, who may use the value, and which
classes are allowed.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from webhook.admission.context import CLASSES, LONGEST_NAME, POD_GROUPS, Context
from webhook.admission.mutating import MIRROR, carried
from webhook.admission.resolving import NEVER, PREEMPT, global_default, policy_of, resolve, written
from webhook.admission.review import Answer, Json, MetadataView, PodSpecView, PodView, Review
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


def validate_pod(context: Context, review: Review, answer: Answer) -> None:
    """Judge a pod as it would be stored; an UPDATE is judged by what it changes.

    Nothing holds up a pod that is being deleted. But who may not change its protected keys may not do so then either:
    until it is gone, they decide about other pods, too.
    """
    pod = review.typed(PodView)
    going = bool(pod.metadata.deletion_timestamp)
    if review.operation == "CREATE":
        if not going:
            _validate_new(context, review, pod, answer)
    elif going:
        validate_status(context, review, answer)
    elif review.has_old:
        old = review.typed(PodView, old=True)
        instead = "change the pod template" if pod.metadata.has_controller else "make a new pod"
        before = carried(old.spec)
        for field, value in carried(pod.spec).items():
            was = before[field]
            if value == was or (field == "priorityClassName" and not (value or was)):
                continue
            shown = ["absent" if item is None else bounded(str(item)) for item in (was, value)]
            changes = "now {}, requested {}".format(*shown)
            answer.deny("priority-immutable", f"spec.{field} of a pod cannot change ({changes}); {instead} instead")
        _check_changes(context, review, pod.metadata, old.sent_metadata, answer)
        answer.add(context.engine.judge(_change_request(context, review, pod, old), context.trace))


def validate_priority(context: Context, review: Review, answer: Answer) -> None:
    """Judge a new pod as the Priority plugin does, and by no policy: where pods of the system are made without it.

    A priority that nobody filled in is no fault of the pod, so it is let in.
    """
    if review.operation == "CREATE" and not _shows_static_pod(review):
        check_class(context, review, answer)


def check_class(context: Context, review: Review, answer: Answer) -> PriorityClass | None:
    """Refuse a class that is not there and numbers that are not its own; give it if it speaks."""
    spec = review.typed(PodView).spec
    name = spec.priority_class_name or ""
    named = context.lookup.priority_class(name) if name else None
    if name and named is None:
        answer.unsure.add((CLASSES, name))
        text = f"no PriorityClass with name {bounded(name)} was found"
        answer.deny("class-exists", f"{text}; `kubectl get priorityclasses` lists those that exist")
        return None
    expected = named or global_default(context)
    value, policy, source = 0, PREEMPT, "a pod without a PriorityClass"
    if expected:
        value, policy = expected.value, policy_of(expected)
        source = f"{'' if named else 'the default '}PriorityClass {expected.metadata.name}"
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


def _validate_new(context: Context, review: Review, pod: PodView, answer: Answer) -> None:
    """Judge a new pod: its class, its priority, its mark, and then what the policies say."""
    meta, spec = pod.metadata, pod.spec
    mirror, static = MIRROR in meta.annotations, _shows_static_pod(review)
    name = spec.priority_class_name or ""
    named = None if static else check_class(context, review, answer)
    resolved = spec.priority is not None and spec.preemption_policy is not None
    if answer.allowed and not mirror and not resolved:
        answer.deny("priority-resolved", NEVER_RESOLVED)
    if not static:
        check_group(context, review.namespace, spec, spec.priority, answer)
        if any(owner.controller and owner.kind == "Node" for owner in meta.owner_references or ()):
            answer.deny("static-pods", OF_A_NODE)
    managed = named is not None and named.preemption_policy == NEVER and context.managed(name) is not None
    _check_mark(answer, meta, name, managed=managed)
    if managed and MARK not in meta.labels and not mirror:
        answer.warnings.append(UNMARKED)
    # If mutation was asked, it has taken away what the reconciler writes, and replaced its own but on mirror pods
    for key, text in ON_NEW_PODS.items():
        if key in meta.annotations and (mirror or key in RECONCILER_ANNOTATIONS):
            answer.deny(_OWN_RULE, text.format(key))
    if not static:
        judge(context, context.pod_request(review, pod), spec, named, answer)


def _shows_static_pod(review: Review) -> bool:
    """Whether a kubelet shows what runs on its own node from a file there (docs/kubernetes-behaviour.md K31).

    Its containers run whether or not the API has the pod, and only a pod in the API is counted on the node.
    """
    pod, user = review.typed(PodView), review.user
    node = user.username.removeprefix(NODE_USER)
    if MIRROR not in pod.metadata.annotations or NODE_GROUP not in user.groups:
        return False
    owner = next((row for row in pod.metadata.owner_references or () if row.controller), None)
    if owner is None or user.username != f"{NODE_USER}{node}":
        return False
    return ("Node", node, node) == (owner.kind, owner.name, pod.spec.node_name)


def validate_workload(context: Context, review: Review, answer: Answer) -> None:
    """Judge the pods that a workload will make, so that its author reads the message.

    A template that an UPDATE leaves alone is not judged: scaling or deleting what exists always works.
    """
    data = review.object
    template = template_of(data, review.resource)
    if template is None or part(data, "metadata").get("deletionTimestamp"):
        return
    if review.operation == "UPDATE" and template == template_of(review.old_object, review.resource):
        return
    made = review.as_created(template, "pods")
    pod = made.typed(PodView)
    meta, spec = pod.metadata, pod.spec
    resolution = resolve(context, spec, _by_controller(context.request(made)), made, answer)
    if resolution.settled:
        view = msgspec.structs.replace(spec, preemption_policy=resolution.preemption_policy)
        check_group(context, review.namespace, view, resolution.value, answer)
    else:
        check_class(context, made, answer)
    _check_mark(answer, meta, resolution.name, managed=resolution.managed)
    if resolution.managed and _loses_the_mark(data, meta.labels):
        text = f"spec.selector does not select pods with label {MARK}: {MANAGED}, which giveway sets on these"
        answer.deny("mark", f"{text}; leave that label out of the selector")
    request = context.request(review)
    judge(context, request, spec, resolution.priority_class, answer)
    if answer.allowed:
        warn_of_controllers(context, request, "pods", answer)


def judge(
    context: Context, request: PolicyRequest, spec: PodSpecView, named: PriorityClass | None, answer: Answer
) -> None:
    """Add what policies say of a request with this class, and its own priority or the class's."""
    request.priority_class, request.priority = named, spec.priority
    if request.priority is None:
        request.priority = named.value if named else 0
    answer.add(context.engine.judge(request, context.trace))


def warn_of_controllers(context: Context, request: PolicyRequest, made: str, answer: Answer) -> None:
    """Tell the author of a template which rule will refuse what controllers make of it."""
    for verdict in context.engine.judge(_by_controller(request)) if context.engine.asks_who else ():
        if verdict.denies:
            refusal = f"rule {verdict.id} will refuse them: {without_name(verdict.id, verdict.message)}"
            answer.warnings.append(f"a controller makes the {made}, and {refusal}")


def _by_controller(request: PolicyRequest) -> PolicyRequest:
    """The request as a controller makes it, whoever the workload's author is."""
    raw = request.raw
    if raw:
        raw = {**raw, "userInfo": {"username": CONTROLLER.username, "groups": list(CONTROLLER.groups)}}
    return msgspec.structs.replace(request, user=CONTROLLER, raw=raw)


def validate_group(context: Context, review: Review, answer: Answer) -> None:
    """Judge a PodGroup as it would be stored, also at an update: what it names cannot change."""
    if not review.typed(PodView).metadata.deletion_timestamp:
        _judge_group(context, review.as_created(review.object, GROUPS), answer)


def validate_group_templates(context: Context, review: Review, answer: Answer) -> None:
    """Judge the groups of a Workload, so that its author reads it; they are judged again."""
    metadata = part(review.object, "metadata")
    if metadata.get("deletionTimestamp"):
        return
    for template in _templates(review.object.get("spec")):
        group = {"metadata": metadata, "spec": template}
        request = _judge_group(context, review.as_created(group, GROUPS), answer)
        if answer.allowed:
            warn_of_controllers(context, request, "PodGroups", answer)


def _judge_group(context: Context, group: Review, answer: Answer) -> PolicyRequest:
    request, named = context.request(group), check_class(context, group, answer)
    judge(context, request, group.typed(PodView).spec, named, answer)
    return request


def _templates(spec: Any) -> Iterator[Json]:
    """Every mapping below that names a class or a priority, wherever a version keeps templates."""
    if isinstance(spec, dict):
        if "priorityClassName" in spec or "priority" in spec:
            yield spec
        spec = list(spec.values())
    for below in spec if isinstance(spec, list) else ():
        yield from _templates(below)


def check_group(context: Context, namespace: str, spec: PodSpecView, priority: int | None, answer: Answer) -> None:
    """Refuse a pod whose priority is not that of its PodGroup, where the group's counts.

    kube-scheduler preempts for a group by the group's priority, unless one of its pods is Never (docs/semantics.md A9).
    A group without a priority does not count, nor one that does not exist yet.
    """
    name = (spec.scheduling_group and spec.scheduling_group.pod_group_name) or ""
    if not name or len(name) > LONGEST_NAME:
        return
    asked = POD_GROUPS, f"{namespace}/{name}"
    group = context.lookup.pod_group(asked[1])
    if group is None:
        answer.unsure.add(asked)
        return
    theirs, class_name = group.spec.priority, group.spec.priority_class_name
    if theirs is None:
        return
    whose = f"PodGroup {name} has {theirs}" + (f" (PriorityClass {class_name})" if class_name else "")
    if priority not in (None, theirs):
        answer.unsure.add(asked)
        text = f"the pod has priority {priority}, but its {whose}, which counts for all pods of the group"
        answer.deny("group-priority", f"{text}; give both the same PriorityClass")
    elif spec.preemption_policy not in (None, NEVER) and context.managed(class_name) is not None:
        if not speaking(context.lookup.priority_class(class_name), theirs):
            return
        answer.unsure.add(asked)
        policy = f"a pod of it with preemptionPolicy {spec.preemption_policy}"
        text = f"the {whose}, for which giveway preempts; {policy} would let kube-scheduler preempt for the group"
        answer.deny("group-managed", f"{text}: give the pod PriorityClass {class_name}, too")


def validate_status(context: Context, review: Review, answer: Answer) -> None:
    """Judge what an update of `pods/status` does to protected keys."""
    if review.operation != "UPDATE" or not review.has_old:
        return
    pod, old = review.typed(PodView), review.typed(PodView, old=True)
    _check_changes(context, review, pod.metadata, old.sent_metadata, answer)
    answer.add(context.engine.judge_annotations(_change_request(context, review, pod, old)))


def validate_binding(context: Context, review: Review, answer: Answer) -> None:
    """Judge a Binding as an update of its pod, of which nothing is known.

    Its own labels give no rights: whoever binds chooses them. So those of the pod are not known here.
    """
    if review.operation != "CREATE":
        return
    meta = review.typed(PodView).metadata
    _check_changes(context, review, meta, None, answer)
    named = {"name": review.name or meta.name, "annotations": meta.sent_annotations}
    request = context.request(review, {"metadata": named}, {"metadata": {}})
    change = msgspec.structs.replace(request, operation="UPDATE", resource="pods", labels_known=False)
    answer.add(context.engine.judge_annotations(change))


def _change_request(context: Context, review: Review, pod: PodView, old: PodView) -> PolicyRequest:
    """The request for an UPDATE of a pod: its priority is the one it was created with."""
    spec, request = pod.spec, context.pod_request(review, pod, old)
    if spec.priority_class_name:
        named = context.lookup.priority_class(spec.priority_class_name)
        request.priority_class = speaking(named, spec.priority)
    request.priority = spec.priority
    return request


def _check_changes(
    context: Context, review: Review, new: MetadataView, before: MetadataView | None, answer: Answer
) -> None:
    """Refuse others than the reconciler that change giveway's annotations or the mark."""
    if review.user.username == context.reconciler:
        return
    old, instead = before or MetadataView(), AS_IT_IS[before is not None]
    for key in OWN_ANNOTATIONS:
        if new.annotations.get(key) != old.annotations.get(key):
            answer.deny(_OWN_RULE, OWN_RECORD.format(key, context.reconciler, instead))
    mark, was = new.labels.get(MARK), old.labels.get(MARK)
    if mark != was:
        states = f"now {bounded(was or 'absent')}, requested {bounded(mark or 'absent')}"
        answer.deny("mark", f"{MARK_STAYS} ({states}); {instead}")


def _check_mark(answer: Answer, meta: MetadataView, name: str, *, managed: bool) -> None:
    mark = meta.labels.get(MARK)
    if mark is None or (managed and mark == MANAGED):
        return
    text = f"label {MARK} is giveway's own mark and no PriorityClass is named: leave the label out"
    if managed:
        only = f"its only value is {MANAGED!r}, and giveway sets it by itself"
        text = f"label {MARK} is {bounded(mark)!r}; {only}: leave it out"
    elif name:
        whose = f"PriorityClass {bounded(name)} is not one that it manages"
        text = f"label {MARK} is giveway's own mark and {whose}: leave the label out"
    answer.deny("mark", text)


def _loses_the_mark(workload: Json, labels: dict[str, str]) -> bool:
    """Whether a selector loses pods with the mark: the workload would make them without end."""
    try:
        selects = label_matcher(msgspec.convert(workload["spec"]["selector"], LabelSelector))
    except (KeyError, TypeError, msgspec.ValidationError, SelectorError):
        return False
    return selects(labels) and not selects({**labels, MARK: MANAGED})
