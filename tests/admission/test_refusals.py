"""What a refusal says, beside the request that causes it: what was wrong, and what would be right for this request."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from tests.admission.builders import (
    ask,
    make_class,
    make_context,
    make_pod,
    make_review,
    make_workload,
    manage,
    message_of,
    policy,
    response,
)
from webhook.admission import classes, validating
from webhook.admission.context import Context, Objects
from webhook.kube.objects.cluster_scoped import Namespace
from webhook.kube.objects.meta import ObjectMeta
from webhook.kube.objects.scheduling import PodGroup, PodGroupSpec
from webhook.policy.model.values import CAN_BE_PREEMPTED, GIVEN, MARK, PLAN

NEVER, PREEMPT = "Never", "PreemptLowerPriority"
LEADS = "subjects: [{kind: Group, name: leads}]"
IN_TEAM = f"{{namespaces: [team-a], {LEADS}}}"
GOLD = f"{{objectSelector: {{matchLabels: {{tier: gold}}}}, {LEADS}}}"
OPS = "{namespaces: [ops]}"
CONTROLLED = [{"kind": "ReplicaSet", "name": "web", "controller": True}]
CLASSES = [
    make_class("low", 10),
    make_class("band", 700),
    make_class("frontend", 50),
    make_class("giveway-frontend", 50, never=True),
    make_class("batch", 20, never=True),
    make_class("std", 5, default=True),
]


def context(*rules: str, **parts: str) -> Context:
    """The classes, and one policy `p` with these rules; pods of `frontend` are moved to its twin."""
    made = [policy("p", *rules, **parts)] if rules else []
    return make_context(*CLASSES, policies=(*made, manage("batch", frontend="giveway-frontend")))


def reserved(*use: str, define: str = "[]") -> Context:
    return context(f"{{name: band, reserve: {{from: 500, to: 900, use: [{', '.join(use)}], define: {define}}}}}")


def guarded(allow: str, operations: str = "UPDATE") -> Context:
    keys = f"keys: [{CAN_BE_PREEMPTED}], operations: [{operations}]"
    return context(f"{{name: guard, protectAnnotations: {{{keys}, allow: {allow}}}}}")


def pod(name: str = "band", value: int = 700, policy: str = PREEMPT, **meta: Any) -> dict[str, Any]:
    return make_pod(meta=meta, priorityClassName=name, priority=value, preemptionPolicy=policy)


def written(obj: dict[str, Any], *fields: str) -> dict[str, Any]:
    """The object with managedFields that say that its author wrote these fields of the spec."""
    spec = {f"f:{field}": {} for field in fields}
    entry = {"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": spec}}
    return {**obj, "metadata": {**obj["metadata"], "managedFields": [entry]}}


def annotated(value: str | None, **meta: Any) -> dict[str, Any]:
    return pod("low", 10, annotations={CAN_BE_PREEMPTED: value} if value else {}, **meta)


def a_class(name: str = "mine", value: int = 700, **fields: Any) -> dict[str, Any]:
    annotations = fields.pop("annotations", {})
    return {"kind": "PriorityClass", "metadata": {"name": name, "annotations": annotations}, "value": value, **fields}


def bind(**meta: Any) -> dict[str, Any]:
    body = make_review(pod("low", 10))
    body["request"] |= {"object": {"kind": "Binding", "metadata": {"name": "a", "namespace": "team-a", **meta}}}
    return body | {"request": body["request"] | {"subResource": "binding"}}


IN_RANGE = 'priority 700 (PriorityClass "band") lies in the range 500 to 900, which rule p/band reserves for'
OUTSIDE = "; choose a PriorityClass with a value outside that range"
DEFINED = "lies in the range 500 to 900, which rule p/band reserves: classes there may be defined by"
KEEP = "its value cannot be changed, so leave the class as it is, or ask one of these to change it"
KEY = f"annotation {CAN_BE_PREEMPTED} may not be"
LONG = {"a": "x" * 400_000}
ALL = "object.metadata.annotations.exists(k, k == 'b')"
REFUSALS: dict[str, tuple[Context, dict[str, Any], str]] = {
    # A priority of a reserved range
    "use, from another namespace": (
        reserved(OPS), make_review(pod()), f"{IN_RANGE} namespace ops{OUTSIDE}",
    ),
    "use, in the namespace and not in the group": (
        reserved(IN_TEAM),
        make_review(pod()),
        f"{IN_RANGE} namespace team-a with Group leads (who asks is not one of Group leads){OUTSIDE}",
    ),
    "use, with the label and not in the group, and another way": (
        reserved(GOLD, OPS),
        make_review(pod(labels={"tier": "gold"})),
        (f"{IN_RANGE} pods labelled tier=gold with Group leads, or namespace ops"
        f" (who asks is not one of Group leads){OUTSIDE}"),
    ),
    "use, in the group and without the label": (
        reserved(GOLD),
        make_review(pod(), userInfo={"username": "lena", "groups": ["leads"]}),
        (f"{IN_RANGE} pods labelled tier=gold with Group leads (objectSelector does not select the object's labels)"
        f"{OUTSIDE}"),
    ),
    "use, by a controller for somebody": (
        reserved(GOLD),
        make_review(pod(labels={"tier": "gold"}), user="system:serviceaccount:kube-system:job-controller"),
        (f"{IN_RANGE} pods labelled tier=gold with Group leads"
        " (who asks may make the pod for someone else, and no namespace is named) (pods that service accounts and"
        f" controllers make have a right by namespace, whoever wrote them){OUTSIDE}"),
    ),
    "use, in a template": (
        reserved(IN_TEAM),
        make_review(make_workload("Deployment", priorityClassName="band")),
        f"{IN_RANGE} namespace team-a with Group leads (who asks is not one of Group leads){OUTSIDE}",
    ),
    "define, a new class": (
        reserved(define=f"{{{LEADS}}}"),
        make_review(a_class()),
        f'value 700 of PriorityClass "mine" {DEFINED} Group leads; choose a value outside that range',
    ),
    "define, under the right name": (
        reserved(define=f"{{names: [mine*], {LEADS}}}"),
        make_review(a_class()),
        (f'value 700 of PriorityClass "mine" {DEFINED} Group leads under a name mine*'
        " (who asks is not one of Group leads); choose a value outside that range"),
    ),
    "define, an annotation of a class that is there": (
        reserved(define=f"{{{LEADS}}}"),
        make_review(a_class(annotations={"a": "b"}), a_class()),
        f'value 700 of PriorityClass "mine" {DEFINED} Group leads; {KEEP}',
    ),
    # Which classes may be used
    "a class that is not allowed": (
        context("{name: allowed, priorityClasses: {allow: [low]}}"),
        make_review(pod("batch", 20, NEVER)),
        'PriorityClass "batch" may not be used in namespace team-a: rule p/allowed allows low',
    ),
    "a class that nobody wrote: the twin of one that is not allowed": (
        context("{name: allowed, priorityClasses: {allow: [low]}}"),
        make_review(pod("giveway-frontend", 50, NEVER, labels={MARK: "managed"})),
        ('PriorityClass "giveway-frontend" (the twin of frontend) may not be used in namespace team-a: rule p/allowed'
        " allows low"),
    ),
    # Protected annotations
    "set at creation": (
        guarded(f"{{{LEADS}}}", "CREATE"),
        make_review(annotated("true")),
        f'{KEY} set to "true": rule p/guard leaves that to Group leads; leave it out',
    ),
    "set in the right namespace": (
        guarded(IN_TEAM),
        make_review(annotated("true", ownerReferences=CONTROLLED), annotated(None, ownerReferences=CONTROLLED)),
        (f'{KEY} set to "true": rule p/guard leaves that to namespace team-a with Group leads'
        " (who asks is not one of Group leads); set it in the pod template or on the PriorityClass, where it holds for"
        " new pods"),
    ),
    "changed on a bare pod": (
        context(), make_review(annotated("true"), annotated("false")),
        (f'{KEY} changed from "false" to "true": rule builtin/shield leaves that to nobody once the pod exists; set it'
        " in the manifest of a new pod or on the PriorityClass, where it holds for new pods"),
    ),
    "removed from a pod of a controller": (
        context(),
        make_review(annotated(None, ownerReferences=CONTROLLED), annotated("true", ownerReferences=CONTROLLED)),
        (f'{KEY} removed (it is "true"): rule builtin/shield leaves that to nobody once the pod exists; take it away in'
        " the pod template and from the PriorityClass, where that holds for new pods"),
    ),
    "set by a Binding": (
        context(),
        bind(annotations={CAN_BE_PREEMPTED: "true"}),
        f'{KEY} set to "true": rule builtin/shield leaves that to nobody once the pod exists; leave it out',
    ),
    # Expressions
    "an expression that is false": (
        context("{name: v, validate: {expression: 'false', message: no pods today}}"),
        make_review(pod("low", 10)),
        "no pods today (rule p/v)",
    ),
    "a pod that is too large": (
        context(f"{{name: v, validate: {{expression: {ALL!r}}}}}"),
        make_review(pod("low", 10, annotations=LONG | {f"k{n}": "x" * 200 for n in range(600)})),
        (f"rule p/v could not be evaluated: expression {ALL!r}: make the object smaller: it reads SIZE bytes; an"
        " expression may read at most 524288; set what it reads, or tell whoever keeps the policy"),
    ),
    # The pod's class and its numbers
    "a class that does not exist": (
        context(), make_review(make_pod(priorityClassName="ghost")),
        ("rule builtin/class-exists: no PriorityClass with name ghost was found; `kubectl get priorityclasses` lists"
        " those that exist"),
    ),
    "a priority that its author wrote": (
        context(), make_review(written(pod("low", 7), "priority", "priorityClassName")),
        ("rule builtin/priority-agrees: spec.priority is 7, but PriorityClass low has 10; leave spec.priority out, it"
        " is filled in"),
    ),
    "numbers that nobody wrote": (
        context(), make_review(written(pod("low", 10, NEVER), "priorityClassName", "containers")),
        ("rule builtin/preemption-policy-agrees: spec.preemptionPolicy is Never, but PriorityClass low has"
        " PreemptLowerPriority; nobody wrote it, so the class was made again at the same time: try again"),
    ),
    "a priority without a class": (
        make_context(),
        make_review(make_pod(priority=7, preemptionPolicy=PREEMPT)),
        ("rule builtin/priority-agrees: spec.priority is 7, but a pod without a PriorityClass has 0; name a"
        " PriorityClass that has it, or leave spec.priority out, it is filled in"),
    ),
    "a priority without a class that is not the default's": (
        context(), make_review(pod("", 7)),
        ("rule builtin/priority-agrees: spec.priority is 7, but the default PriorityClass std has 5; leave"
        " spec.priority out, it is filled in"),
    ),
    "nobody filled it in": (
        context(), make_review(make_pod(priorityClassName="low")),
        ("rule builtin/priority-resolved: spec.priority and spec.preemptionPolicy were never filled in: the pod passed"
        " neither the Priority plugin nor giveway's mutating webhook. Try again; if that does not help, check the"
        " MutatingWebhookConfiguration"),
    ),
    "another class for a bare pod": (
        context(), make_review(pod("band"), pod("low", 10)),
        ("rule builtin/priority-immutable: spec.priorityClassName of a pod cannot change (now low, requested band);"
        " make a new pod instead; rule builtin/priority-immutable: spec.priority of a pod cannot change (now 10,"
        " requested 700); make a new pod instead"),
    ),
    "another class for a pod of a controller": (
        context(), make_review(pod("low", 11, ownerReferences=CONTROLLED), pod("low", 10, ownerReferences=CONTROLLED)),
        ("rule builtin/priority-immutable: spec.priority of a pod cannot change (now 10, requested 11); change the pod"
        " template instead"),
    ),
    # giveway's own keys
    "a plan on a new pod": (
        context(), make_review(pod("low", 10, annotations={PLAN: "{}"})),
        f"rule builtin/own-annotations: annotation {PLAN} is written by giveway's reconciler only: leave it out",
    ),
    "a record on a mirror pod": (
        context(), make_review(pod("low", 10, annotations={GIVEN: "{}", "kubernetes.io/config.mirror": "x"})),
        (f"rule builtin/own-annotations: annotation {GIVEN} is giveway's record of what it gave a pod; a mirror pod"
        " gets nothing: leave it out"),
    ),
    "a Node as controller": (
        context(),
        make_review(pod("low", 10, ownerReferences=[{"kind": "Node", "name": "n1", "controller": True}])),
        ("rule builtin/static-pods: its controller is a Node, and a static pod is never evicted: only that node's"
        " kubelet makes such a pod, with the annotation kubernetes.io/config.mirror; leave the owner out"),
    ),
    "a plan on a pod that exists": (
        context(), make_review(pod("low", 10, annotations={PLAN: "{}"}), pod("low", 10)),
        (f"rule builtin/own-annotations: annotation {PLAN} is giveway's own record: on a pod that exists only"
        " system:serviceaccount:giveway-system:giveway-reconciler changes it; leave it as it is"),
    ),
    "the mark on a pod that exists": (
        context(), make_review(pod("low", 10), pod("low", 10, labels={MARK: "managed"})),
        (f"rule builtin/mark: label {MARK} says that giveway preempts for this pod; it is set at creation and stays as"
        " it is (now managed, requested absent); leave it as it is"),
    ),
    "the mark by a Binding": (
        context(),
        bind(labels={MARK: "managed"}),
        (f"rule builtin/mark: label {MARK} says that giveway preempts for this pod; it is set at creation and stays as"
        " it is (now absent, requested managed); leave it out"),
    ),
    "a stray mark": (
        context(), make_review(pod("low", 10, labels={MARK: "managed"})),
        (f"rule builtin/mark: label {MARK} is giveway's own mark and PriorityClass low is not one that it manages:"
        " leave the label out"),
    ),
    "another mark": (
        context(), make_review(pod("batch", 20, NEVER, labels={MARK: "mine"})),
        (f"rule builtin/mark: label {MARK} is 'mine'; its only value is 'managed', and giveway sets it by itself: leave"
        " it out"),
    ),
    # PriorityClasses, in the API server's words
    "a value beyond int32": (
        context(), make_review(a_class(value=2**31)),
        "rule builtin/int32: value 2147483648 does not fit an int32 (-2147483648 to 2147483647)",
    ),
    "a value below int32": (
        context(), make_review(a_class(value=-(2**31) - 1)),
        "rule builtin/int32: value -2147483649 does not fit an int32 (-2147483648 to 2147483647)",
    ),
    "a value beyond users": (
        context(), make_review(a_class(value=1_000_000_001)),
        ("rule builtin/highest-value: maximum allowed value of a user defined priority is 1000000000; mine asks for"
        " 1000000001; choose a lower one"),
    ),
    "a name of the system": (
        context(), make_review(a_class("system-x", 5)),
        ("rule builtin/system-prefix: priority class names with 'system-' prefix are reserved for system use only;"
        " choose another name than system-x"),
    ),
    "a class of the system as the default": (
        context(), make_review(a_class("system-node-critical", 2_000_001_000, globalDefault=True)),
        ("rule builtin/system-prefix: priority class names with 'system-' prefix are reserved for system use only;"
        " leave globalDefault out; rule builtin/one-default: PriorityClass std is already marked as default. Only one"
        " default can exist; leave globalDefault out, or take it off std first"),
    ),
    "a second default": (
        context(), make_review(a_class(value=5, globalDefault=True)),
        ("rule builtin/one-default: PriorityClass std is already marked as default. Only one default can exist; leave"
        " globalDefault out, or take it off std first"),
    ),
    "another value": (
        context(), make_review(a_class(value=6), a_class(value=5)),
        ("rule builtin/class-immutable: value may not be changed in an update (now 5, requested 6); make a new"
        " PriorityClass"),
    ),
}  # fmt: skip


def in_group(name: str, policy: str = PREEMPT) -> dict[str, Any]:
    """The review of a pod of class `low`, or `frontend`, in a PodGroup of class `batch`, or `giveway-frontend`."""
    value = next(one.value for one in CLASSES if one.metadata.name == name)
    body = pod(name, value, policy)
    body["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
    return make_review(body)


def beside_a_group() -> Context:
    spec = PodGroupSpec(priority=50, priority_class_name="giveway-frontend")
    given = context()
    space = Namespace(metadata=ObjectMeta(name="team-a"))
    return given.changed(lookup=Objects(CLASSES, [space], {"team-a/gang": PodGroup(spec=spec)}))


LOSES_THE_MARK = make_workload("ReplicaSet", meta={"labels": {"app": "w"}}, priorityClassName="batch")
LOSES_THE_MARK["spec"]["selector"] = {"matchExpressions": [{"key": MARK, "operator": "DoesNotExist"}]}
ODD = "[{name: odd, expression: object.spec.nothing == 1}]"
REFUSALS |= {
    "a pod of another priority than its group": (
        beside_a_group(),
        in_group("low"),
        (
            "rule builtin/group-priority: the pod has priority 10, but its PodGroup gang has 50 (PriorityClass"
            " giveway-frontend), which counts for all pods of the group; give both the same PriorityClass"
        ),
    ),
    "a pod for which kube-scheduler would preempt in a managed group": (
        beside_a_group(),
        in_group("frontend"),
        (
            "rule builtin/group-managed: the PodGroup gang has 50 (PriorityClass giveway-frontend), for which giveway"
            " preempts; a pod of it with preemptionPolicy PreemptLowerPriority would let kube-scheduler preempt for the"
            " group: give the pod PriorityClass giveway-frontend, too"
        ),
    ),
    "a selector that loses the mark": (
        context(),
        make_review(LOSES_THE_MARK),
        (
            f"rule builtin/mark: spec.selector does not select pods with label {MARK}: managed, which giveway sets on"
            " these; leave that label out of the selector"
        ),
    ),
    "a condition that fails": (
        context("{name: v, validate: {expression: 'false'}}", conditions=ODD),
        make_review(pod("low", 10)),
        (
            "rule p/odd: condition odd of policy p could not be evaluated: expression 'object.spec.nothing == 1': Key"
            ' not found in map : "nothing"; set what it reads, or tell whoever keeps the policy'
        ),
    ),
}


@pytest.mark.parametrize(("given", "body", "text"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_read_with_its_request(given, body, text):
    """Each says what was wrong and what would be right for this request, and nothing that is not true of it."""
    assert re.sub(r"reads \d+ bytes", "reads SIZE bytes", message_of(response(ask(given, "validate", body)))) == text


def test_every_kind_of_refusal_is_here():
    """Each built-in rule by which pods, workloads, groups and classes are refused has a row, and so has each body."""
    sources = (Path(module.__file__) for module in (validating, classes))
    calls = (node for file in sources for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
    named = {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "deny" and isinstance(call.args[0], ast.Constant)
    }
    said = " ".join(text for _, _, text in REFUSALS.values())
    assert {rule for rule in named if f"builtin/{rule}" not in said} == set()
    assert all(f"p/{rule}" in said for rule in ("band", "allowed", "guard", "v", "odd"))
