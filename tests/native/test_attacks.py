"""Ways round the policies, tried on the compiled ones alone: no webhook is there to help."""

import pytest

from tests.admission.builders import make_pod
from tests.native.comparing import RECONCILER, Both, agreed, make_class, make_namespace, pod_request
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
KUBELET, MANAGING = "system:node:n1", "giveway-offline"
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
    make_class("huge", 950000000),
    make_class("plain", 200),
    make_class("giveway-offline", 100, "Never", **OFFLINE),
    *map(make_namespace, ("team-a", "ingress")),
]


@pytest.fixture(scope="module")
def both():
    """One policy set in both forms."""
    return Both(engine(SPEC, preemption=PREEMPTION).policies, OBJECTS)


def pod(name=None, *, meta=None, **spec):
    return make_pod(meta=meta, **spec, **({} if name is None else {"priorityClassName": name}))


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
    refused = agreed(both.create(pod_request(pod("huge", meta=meta), user=user, groups=groups)))
    assert any("rule p/band" in text for text in refused)
    assert not agreed(both.create(pod_request(pod("huge", meta={**meta, "namespace": "ingress"}), user=user)))


GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}


@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize(("user", "meta"), [("alice", {}), (KUBELET, {}), ("alice", GOING)])
@pytest.mark.parametrize("key", [PLAN, DECISION, GIVEN, CREATION, CAN_BE_PREEMPTED, PROTECTION_DURATION, MARK])
def test_protected_keys_through_the_pod_and_its_status(both, key, user, meta, subresource):
    """Set, changed or removed: refused, whoever asks, by the webhook's rule, also while the pod is being deleted."""
    field = "labels" if key == MARK else "annotations"
    without, with_key, other = (pod(meta={**meta, **keys}) for keys in ({}, {field: {key: "x"}}, {field: {key: "y"}}))
    for old, new in ((without, with_key), (with_key, without), (with_key, other)):
        asked = pod_request(new, user=user, operation="UPDATE", oldObject=old, subResource=subresource)
        (text,) = agreed(both.validate(asked))
        assert key in text
        assert ("builtin/shield" in text) is (key in OFFLINE)


def test_nothing_else_holds_up_a_pod_that_is_being_deleted():
    """A finalizer goes, and a label changes, whatever the policies say of it now."""
    never = rules("{name: never, validate: {expression: 'object.metadata.labels.size() < 0'}}")
    both = Both(engine(never, preemption=PREEMPTION).policies, OBJECTS)
    old = pod(meta=GOING)
    for change in ({"finalizers": []}, {"labels": {"a": "b"}}):
        webhook, native = results = both.validate(
            pod_request(pod(meta=GOING | change), operation="UPDATE", oldObject=old)
        )
        assert (agreed(results), native.failed, webhook.failed) == (set(), False, False)
    assert agreed(both.validate(pod_request(pod(meta={"labels": {"a": "b"}}), operation="UPDATE", oldObject=pod())))


@pytest.mark.parametrize("key", [GIVEN, CREATION, PLAN, MARK, "example.com/a"])
def test_a_mirror_pod_carries_no_record(both, key):
    """Mutation leaves mirror pods alone, so what a node's static manifest claims is refused, not taken away."""
    own = {"labels": {MARK: MANAGED}} if key == MARK else {}
    keys = {"kubernetes.io/config.mirror": "abc"} | ({} if key == MARK else {key: '{"class":"giveway-offline"}'})
    asked = pod_request(pod("plain", meta={"annotations": keys, **own}), user=KUBELET)
    assert bool(agreed(both.create(asked))) == (key != "example.com/a")


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
    assert agreed(binding(**{field: {key: "true"}}))
    other = {"labels": "annotations", "annotations": "labels"}[field]
    for meta in (
        {},
        {other: {key: "true"}},
        {"labels": {"topology.kubernetes.io/zone": "z"}, "annotations": {"example.com/a": "b"}},
    ):
        assert binding(**meta)[1].failed is bool(agreed(binding(**meta))) is False


def test_a_copied_manifest_loses_what_only_giveway_writes(both):
    """Plan, decision, a record of what was given, and a stray mark are taken off a new pod, and it gets in."""
    keys = {PLAN: FORGED, DECISION: FORGED, GIVEN: '{"class":"giveway-offline","copied":{}}', "example.com/a": "b"}
    fields = {"f:metadata": {"f:annotations": {f"f:{key}": {} for key in keys}}, "f:spec": {"f:containers": {}}}
    claimed = [{"manager": "kubectl", "fieldsV1": fields}]
    meta = {"labels": {MARK: MANAGED, "app": "a"}, "annotations": keys, "managedFields": claimed}
    webhook, native = both.create(pod_request(pod("plain", meta=meta)))
    assert native.object == webhook.object
    assert native.denied == set()
    assert native.object["metadata"]["annotations"] == {"example.com/a": "b"}
    assert native.object["metadata"]["labels"] == {"app": "a"}


@pytest.mark.parametrize("fields", [True, False], ids=["fields", "no fields"])
@pytest.mark.parametrize(("name", "value"), [("plain", MANAGED), (None, MANAGED), (MANAGING, "x"), (MANAGING, MANAGED)])
@pytest.mark.parametrize("owner", ["ReplicaSet", "Rollout"])
def test_a_controller_that_selects_by_the_mark_makes_no_pods_without_end(both, owner, name, value, fields):
    """A mark that a controller's template brings is right, or the pod is refused; it is never changed."""
    meta = {"labels": {MARK: value}, "ownerReferences": [{"kind": owner, "name": "o", "controller": True}]}
    if fields:
        meta["managedFields"] = [{"manager": "m", "fieldsV1": {"f:metadata": {"f:labels": {f"f:{MARK}": {}}}}}]
    webhook, native = results = both.create(pod_request(pod(name, meta=meta), user=CONTROLLER))
    assert any("builtin/mark" in text for text in agreed(results)) == ((name, value) != (MANAGING, MANAGED))
    assert native.object["metadata"]["labels"][MARK] == webhook.object["metadata"]["labels"][MARK] == value


def test_a_class_without_a_value_has_the_value_0():
    """So the API server reads it, and a range with 0 in it is about the class."""
    both = Both(engine(rules("{name: low, reserve: {from: 0, to: 9}}")).policies, OBJECTS)
    made = make_class("none") | {"value": 0}
    asked = pod_request({key: value for key, value in made.items() if key != "value"})
    webhook, _ = both.create(asked)
    assert webhook.denied == agreed(both.create(pod_request(made))) != set()


@pytest.mark.parametrize("subresource", ["", "resize", "ephemeralcontainers"])
def test_no_sub_resource_changes_a_spec_unjudged(subresource):
    """A rule about what a pod's containers are is a rule about their resize, too."""
    few = "{name: few, validate: {expression: 'object.spec.containers.all(c, c.image != \"big\")'}}"
    both = Both(engine(rules(few)).policies, OBJECTS)
    big = pod(containers=[{"name": "c", "image": "big"}])
    assert agreed(both.validate(pod_request(big, operation="UPDATE", oldObject=pod(), subResource=subresource)))
    assert not agreed(both.validate(pod_request(pod(), operation="UPDATE", oldObject=big, subResource=subresource)))


def test_a_generated_name_does_not_escape_never(both):
    """`generateName: giveway-` makes a managed class; its manifest can be applied again."""
    made = make_class("", 1) | {"metadata": {"generateName": "giveway-"}}
    webhook, native = both.create(pod_request(made))
    assert native.object == webhook.object
    assert native.object["preemptionPolicy"] == "Never"
    old, again = make_class("giveway-a", 1, "Never"), make_class("giveway-a", 1)
    webhook, native = both.create(pod_request(again, operation="UPDATE", oldObject=old))
    assert native.object == webhook.object == old | {"metadata": native.object["metadata"]}


@pytest.mark.parametrize(
    ("user", "runs_on"), [(KUBELET, "n1"), (KUBELET, "n2"), ("system:node:n2", "n1"), ("alice", "n1")]
)
@pytest.mark.parametrize("groups", [("system:nodes",), ()])
@pytest.mark.parametrize("meta", [{}, {"labels": {MARK: MANAGED}}], ids=["plain", "marked"])
def test_a_kubelet_shows_its_static_pods(both, user, runs_on, groups, meta):
    """A mirror pod of the kubelet's own node is judged for what is giveway's own, and for nothing else."""
    node = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u", "controller": True}
    own = {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [node], **meta}
    asked = pod_request(pod("huge", meta=own, nodeName=runs_on), user=user, groups=groups)
    refused = bool(agreed(both.create(asked)))
    assert refused is (bool(meta) or (user, runs_on, groups) != (KUBELET, "n1", ("system:nodes",)))


EMPTY_VALUE = {
    "of matchLabels": "{matchLabels: {urgent: ''}}",
    "of matchExpressions": "{matchExpressions: [{key: urgent, operator: In, values: ['', 'x']}]}",
}


@table("selector", EMPTY_VALUE)
@pytest.mark.parametrize("place", ["a right", "a match", "an exclude"])
def test_a_label_that_is_absent_is_none_with_an_empty_value(selector, place):
    """A namespace without the label has no right and no rule by it, and is not let off."""
    reserve = "{name: band, reserve: {from: 900000000, to: 1000000000%s}}"
    specs = {
        "a right": rules(reserve % f", use: [{{namespaceSelector: {selector}}}]"),
        "a match": rules(reserve % "", match=f"{{namespaceSelector: {selector}}}"),
        "an exclude": rules(reserve % "", exclude=f"{{namespaceSelector: {selector}}}"),
    }
    namespaces = [make_namespace("team-a"), make_namespace("ingress", urgent="")]
    both = Both(engine(specs[place]).policies, [*OBJECTS, *namespaces])
    for namespace, selected in (("team-a", False), ("ingress", True)):
        refused = agreed(both.create(pod_request(pod("huge", meta={"namespace": namespace}))))
        assert bool(refused) is (selected == (place == "a match"))
