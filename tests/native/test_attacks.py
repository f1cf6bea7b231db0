"""Ways round the policies, tried on the compiled ones alone: no webhook is there to help."""

from __future__ import annotations

import pytest

from tests.native import apiserver
from tests.native.comparing import RECONCILER, Both, pod_request
from tests.policy.builders import engine, rules, table
from webhook.policy.model.values import (
    CAN_BE_PREEMPTED,
    CREATION,
    DECISION,
    GIVEN,
    MANAGED,
    MARK,
    PLAN,
    PROTECTION_DURATION,
)

FORGED = '{"id":"x","node":"n","attempt":-1000000}'
KUBELET = "system:node:n1"
CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
OPERATOR = "system:serviceaccount:operators:spark-operator"
BAND = (
    "{name: band, reserve: {from: 900000000, to: 1000000000,"
    " use: [{namespaces: [ingress]}, {subjects: [{kind: Group, name: platform}]}]}}"
)
SPEC = rules(f"{{name: copy, copyAnnotations: [{CAN_BE_PREEMPTED}, {PROTECTION_DURATION}]}}", BAND)
PREEMPTION = "preemptors: {priorityClasses: ['giveway-*']}"
OFFLINE = {CAN_BE_PREEMPTED: "true", PROTECTION_DURATION: "30"}
OBJECTS = [
    {"kind": "PriorityClass", "metadata": {"name": "huge"}, "value": 950000000},
    {"kind": "PriorityClass", "metadata": {"name": "plain"}, "value": 200},
    {
        "kind": "PriorityClass",
        "metadata": {"name": "giveway-offline", "annotations": OFFLINE},
        "value": 100,
        "preemptionPolicy": "Never",
    },
    *({"kind": "Namespace", "metadata": {"name": name}} for name in ("team-a", "ingress")),
]


@pytest.fixture(scope="module")
def both():
    """One policy set in both forms."""
    return Both(engine(SPEC, preemption=PREEMPTION).policies, OBJECTS)


def pod(name=None, *, meta=None, namespace="team-a", **spec):
    body = {
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": namespace, **(meta or {})},
        "spec": {"containers": [], **spec},
    }
    return body if name is None else {**body, "spec": {**body["spec"], "priorityClassName": name}}


def owned(*keys):
    """ManagedFields of a client that set these annotations itself."""
    fields = {"f:metadata": {"f:annotations": {f"f:{key}": {} for key in keys}}, "f:spec": {"f:containers": {}}}
    return [{"manager": "kubectl", "fieldsV1": fields}]


@pytest.mark.parametrize(
    ("user", "groups", "owner"),
    [
        (CONTROLLER, ("system:serviceaccounts", "system:serviceaccounts:kube-system", "platform"), "ReplicaSet"),
        (OPERATOR, ("system:serviceaccounts", "platform"), "SparkApplication"),
        ("system:kube-controller-manager", ("platform",), "ReplicaSet"),
    ],
    ids=["a controller", "an operator of custom resources", "the controller manager"],
)
def test_no_right_by_subjects_for_what_controllers_make(both, user, groups, owner):
    """A tenant's workload, of whatever kind and however large, reaches a reserved value by no controller's right."""
    meta = {"ownerReferences": [{"kind": owner, "name": "o", "controller": True}]}
    webhook, native = both.create(pod_request(pod("huge", meta=meta), user=user, groups=groups))
    assert native.denied == webhook.denied
    assert any("rule p/band reserves" in text for text in native.denied)
    _, native = both.create(pod_request(pod("huge", meta=meta, namespace="ingress"), user=user))
    assert not native.denied


def test_people_have_the_right_by_group(both):
    """Who makes a pod for themselves is judged by who they are."""
    for groups, refused in ((("platform",), False), ((), True)):
        _, native = both.create(pod_request(pod("huge"), groups=groups))
        assert bool(native.denied) == refused


GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}


@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize(("user", "meta"), [("alice", {}), (KUBELET, {}), ("alice", GOING)])
@pytest.mark.parametrize("key", [PLAN, DECISION, GIVEN, CREATION, CAN_BE_PREEMPTED, PROTECTION_DURATION, MARK])
def test_protected_keys_through_the_pod_and_its_status(both, key, user, meta, subresource):
    """Set, changed or removed: refused, whoever asks, in the webhook's words, also while the pod is being deleted."""
    field = "labels" if key == MARK else "annotations"
    without, with_key, other = (pod(meta={**meta, **keys}) for keys in ({}, {field: {key: "x"}}, {field: {key: "y"}}))
    for old, new in ((without, with_key), (with_key, without), (with_key, other)):
        asked = pod_request(new, user=user, operation="UPDATE", oldObject=old, subResource=subresource)
        webhook, native = both.validate(asked)
        assert native.denied == webhook.denied != set()


def test_nothing_else_holds_up_a_pod_that_is_being_deleted():
    """A finalizer goes, and a label changes, whatever the policies say of it now."""
    never = rules("{name: never, validate: {expression: 'object.metadata.labels.size() < 0'}}")
    both = Both(engine(never, preemption=PREEMPTION).policies, OBJECTS)
    old = pod(meta=GOING)
    for change in ({"finalizers": []}, {"labels": {"a": "b"}}):
        webhook, native = both.validate(pod_request(pod(meta=GOING | change), operation="UPDATE", oldObject=old))
        assert (native.denied, native.failed) == (webhook.denied, webhook.failed) == (set(), False)
    webhook, native = both.validate(pod_request(pod(meta={"labels": {"a": "b"}}), operation="UPDATE", oldObject=pod()))
    assert native.denied == webhook.denied != set()


@pytest.mark.parametrize("key", [GIVEN, CREATION, PLAN, MARK, "example.com/a"])
def test_a_mirror_pod_carries_no_record(both, key):
    """Mutation leaves mirror pods alone, so what a node's static manifest claims is refused, not taken away."""
    own = {"labels": {MARK: MANAGED}} if key == MARK else {}
    keys = {"kubernetes.io/config.mirror": "abc"} | ({} if key == MARK else {key: '{"class":"giveway-offline"}'})
    asked = pod_request(pod("plain", meta={"annotations": keys, **own}), user=KUBELET)
    webhook, native = both.create(asked)
    assert native.denied == webhook.denied
    assert bool(native.denied) == (key != "example.com/a")


def test_a_kubelets_status_and_the_reconcilers_plan_pass(both):
    """What changes no protected key, and what giveway writes itself."""
    running = {**pod(), "status": {"phase": "Running"}}
    asked = pod_request(running, user=KUBELET, operation="UPDATE", oldObject=pod(), subResource="status")
    assert both.validate(asked)[1].denied == set()
    planned = pod(meta={"annotations": {PLAN: FORGED}})
    asked = pod_request(planned, user=RECONCILER, operation="UPDATE", oldObject=pod(), subResource="status")
    assert both.validate(asked)[1].denied == set()


@pytest.mark.parametrize("resource", ["pods/binding", "bindings"])
@pytest.mark.parametrize("key", [PLAN, GIVEN, CREATION, CAN_BE_PREEMPTED, MARK])
def test_a_binding_brings_no_protected_key(both, resource, key):
    """It has no spec and no old object, and no expression fails on it; one with zone labels binds."""

    def binding(**meta):
        body = {"kind": "Binding", "metadata": {"name": "a", "namespace": "team-a", **meta}, "target": {"name": "n"}}
        asked = pod_request(body, user="system:kube-scheduler")
        if resource == "bindings":
            asked |= {"resource": {"group": "", "version": "v1", "resource": "bindings"}, "subResource": ""}
        return both.validate(asked)

    field = "labels" if key == MARK else "annotations"
    webhook, native = binding(**{field: {key: "true"}})
    assert native.denied == webhook.denied != set()
    for meta in ({}, {"labels": {"topology.kubernetes.io/zone": "z"}, "annotations": {"example.com/a": "b"}}):
        webhook, native = binding(**meta)
        assert (native.denied, native.failed) == (set(), False)


def test_a_copied_manifest_loses_what_only_giveway_writes(both):
    """Plan, decision, a record of what was given, and a stray mark are taken off a new pod, and it gets in."""
    keys = {PLAN: FORGED, DECISION: FORGED, GIVEN: '{"class":"giveway-offline","copied":{}}', "example.com/a": "b"}
    meta = {"labels": {MARK: MANAGED, "app": "a"}, "annotations": keys, "managedFields": owned(*keys)}
    webhook, native = both.create(pod_request(pod("plain", meta=meta)))
    assert native.object == webhook.object
    assert native.denied == set()
    assert native.object["metadata"]["annotations"] == {"example.com/a": "b"}
    assert native.object["metadata"]["labels"] == {"app": "a"}


@pytest.mark.parametrize("fields", [True, False], ids=["fields", "no fields"])
@pytest.mark.parametrize(
    ("name", "value", "denied"),
    [
        ("plain", MANAGED, True),
        (None, MANAGED, True),
        ("giveway-offline", "x", True),
        ("giveway-offline", MANAGED, False),
    ],
)
@pytest.mark.parametrize("owner", ["ReplicaSet", "Rollout"])
def test_a_controller_that_selects_by_the_mark_makes_no_pods_without_end(both, owner, name, value, denied, fields):  # noqa: PLR0917
    """A mark that a controller's template brings is right, or the pod is refused; it is never changed."""
    meta = {"labels": {MARK: value}, "ownerReferences": [{"kind": owner, "name": "o", "controller": True}]}
    if fields:
        meta["managedFields"] = [{"manager": "m", "fieldsV1": {"f:metadata": {"f:labels": {f"f:{MARK}": {}}}}}]
    webhook, native = both.create(pod_request(pod(name, meta=meta), user=CONTROLLER))
    assert native.denied == webhook.denied
    assert any("builtin/mark" in text for text in native.denied) == denied
    assert native.object["metadata"]["labels"][MARK] == webhook.object["metadata"]["labels"][MARK] == value


def test_what_was_given_follows_a_class_that_another_webhook_sets(both):
    """The mark goes, a copied value goes, and the value that the user set stays."""
    meta = {"annotations": {PROTECTION_DURATION: "60"}, "managedFields": owned(PROTECTION_DURATION)}

    def meddle(obj):
        spec = {key: part for key, part in obj["spec"].items() if key not in ("priority", "preemptionPolicy")}
        return {**obj, "spec": {**spec, "priorityClassName": "plain"}}

    asked = pod_request(pod("giveway-offline", meta=meta))
    first = apiserver.mutate(both.compiled.objects, _resolved(asked, both), both.namespaces).object["metadata"]
    assert (first["labels"], first["annotations"][CAN_BE_PREEMPTED]) == ({MARK: MANAGED}, "true")
    webhook, native = both.create_twice(asked, meddle)
    assert native.object == webhook.object
    assert MARK not in native.object["metadata"].get("labels", {})
    annotations = native.object["metadata"]["annotations"]
    assert {key: annotations.get(key) for key in OFFLINE} == {CAN_BE_PREEMPTED: None, PROTECTION_DURATION: "60"}


def _resolved(asked, both):
    assert apiserver.priority_plugin(asked, both.classes) == ""
    return asked


def test_a_generated_name_does_not_escape_never(both):
    """`generateName: giveway-` makes a managed class; its manifest can be applied again."""
    made = {"kind": "PriorityClass", "metadata": {"generateName": "giveway-"}, "value": 1}
    webhook, native = both.create(pod_request(made))
    assert native.object == webhook.object
    assert native.object["preemptionPolicy"] == "Never"
    old = {"kind": "PriorityClass", "metadata": {"name": "giveway-a"}, "value": 1, "preemptionPolicy": "Never"}
    again = {"kind": "PriorityClass", "metadata": {"name": "giveway-a"}, "value": 1}
    webhook, native = both.create(pod_request(again, operation="UPDATE", oldObject=old))
    assert native.object == webhook.object == old | {"metadata": {**old["metadata"], **native.object["metadata"]}}


def test_labels_that_a_user_chooses_in_the_same_update_give_no_right():
    """An objectSelector gives a right at UPDATE only if the labels before and after are selected."""
    spec = rules(
        f"{{name: s, protectAnnotations: {{keys: [{CAN_BE_PREEMPTED}],"
        " allow: [{objectSelector: {matchLabels: {may: 'yes'}}}]}}"
    )
    both = Both(engine(spec).policies, OBJECTS)
    new = pod(meta={"labels": {"may": "yes"}, "annotations": {CAN_BE_PREEMPTED: "true"}})
    webhook, native = both.validate(pod_request(new, operation="UPDATE", oldObject=pod()))
    assert native.denied == webhook.denied != set()
    old = pod(meta={"labels": {"may": "yes"}})
    assert both.validate(pod_request(new, operation="UPDATE", oldObject=old))[1].denied == set()


COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
OWNED = {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u"}]}


def named_class(value, **metadata):
    return {"kind": "PriorityClass", "metadata": {"name": "huge", **metadata}, "value": value}


@table(
    "old, new, user, refused",
    {
        "deleted": (named_class(950000000), None, "alice", True),
        "collected without an owner": (named_class(950000000), None, COLLECTOR, True),
        "collected for its owner": (named_class(950000000, **OWNED), None, COLLECTOR, False),
        "deleted though it has an owner": (named_class(950000000, **OWNED), None, "alice", True),
        "given an owner": (named_class(950000000), named_class(950000000, **OWNED), "alice", True),
        "deleted outside the band": (named_class(200), None, "alice", False),
        "given an owner outside": (named_class(200), named_class(200, **OWNED), "alice", False),
    },
)
def test_a_class_of_a_band_goes_by_nobody_elses_hand(both, old, new, user, refused):
    """Who may delete a class, and make one with its name, would decide about everybody's pods of it."""
    change = {"operation": "UPDATE" if new else "DELETE", "object": new, "oldObject": old}
    webhook, native = both.validate(pod_request(old, user=user, **change))
    assert native.denied == webhook.denied
    assert any("rule p/band reserves" in text for text in native.denied) is refused


@pytest.mark.parametrize("user", [KUBELET, "system:node:n2", "alice"])
@pytest.mark.parametrize("groups", [("system:nodes",), ()])
@pytest.mark.parametrize("meta", [{}, {"labels": {MARK: MANAGED}}], ids=["plain", "marked"])
def test_a_kubelet_shows_its_static_pods(both, user, groups, meta):
    """A mirror pod of the kubelet's own node is judged for what is giveway's own, and for nothing else."""
    node = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u", "controller": True}
    own = {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [node], **meta}
    asked = pod_request(pod("huge", meta=own, nodeName="n1"), user=user, groups=groups)
    webhook, native = both.create(asked)
    assert native.denied == webhook.denied
    assert bool(native.denied) is (bool(meta) or (user, groups) != (KUBELET, ("system:nodes",)))
