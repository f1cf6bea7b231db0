"""The generated entries: what is asked about, how, and that what is not asked about need not be."""

import copy
import json

import pytest

from tests.admission.builders import ask, make_context, make_pod, make_review, make_workload, response
from tests.policy.builders import engine, rules, table
from webhook.admission.context import RECONCILER, Context
from webhook.admission.webhook import HANDLERS
from webhook.clusters.embedded.admission_chain.registered_webhooks import conditions_hold
from webhook.kube.pods import WORKLOADS
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import CAN_BE_PREEMPTED, DECISION, GIVEN, MARK, PLAN, PROTECTION_DURATION
from webhook.registration.entries import EXEMPT, MUTATING, PROBES, VALIDATING, WebhookTarget, entries

PLAIN = entries(Policies(), WebhookTarget())
ALL = [pytest.param(kind, entry, id=entry["name"]) for kind in PLAIN for entry in PLAIN[kind]]
LABEL_RULE = rules("{name: v, validate: {expression: \"object.metadata.labels.?tier.orValue('') != 'x'\"}}")
SPEC_RULE = rules("{name: v, validate: {expression: 'size(object.spec.containers) < 3'}}")
SETS = {
    "none": (),
    "classes": (rules("{name: c, priorityClasses: {deny: [forbidden]}}", "{name: r, reserve: {from: 5, to: 9}}"),),
    "protected": (rules("{name: p, protectAnnotations: {keys: [team/owner]}}"),),
    "labels": (LABEL_RULE,),
    "selected": (
        rules(
            "{name: v, validate: {expression: 'size(object.spec.containers) < 1'}}",
            match="{objectSelector: {matchLabels: {strict: 'yes'}}}",
        ),
    ),
    "spec": (SPEC_RULE,),
    "who": (rules("{name: v, validate: {expression: \"request.userInfo.username != 'mallory'\"}}"),),
    "everything": (rules("{name: v, validate: {expression: 'oldObject == null || object == oldObject'}}"),),
    "conditional": (
        "conditions: [{name: x, expression: \"'odd' in object.metadata.annotations\"}]\n"
        + rules("{name: v, validate: {expression: 'object.spec.priority > 100'}}"),
    ),
}
CHANGES = {
    "nothing": {},
    "finalizer": {"finalizers": None},
    "owner": {"ownerReferences": [{"kind": "Job", "name": "j"}]},
    "leader-annotation": {"annotations": {"control-plane.alpha.kubernetes.io/leader": "me, since now"}},
    "leader-label": {"labels": {"app": "web", "role": "leader"}},
    "label-read": {"labels": {"app": "web", "tier": "x"}},
    "label-selected": {"labels": {"app": "web", "strict": "yes"}},
    "last-label": {"labels": None},
    "mark": {"labels": {"app": "web", MARK: "managed"}},
    "annotation-protected": {"annotations": {"team/owner": "me"}},
    "annotation-condition": {"annotations": {"odd": ""}},
    "preemptible": {"annotations": {CAN_BE_PREEMPTED: "true"}},
    "preemptible-empty": {"annotations": {CAN_BE_PREEMPTED: ""}},
    "priority": {"spec": {"priority": 7}},
    "priority-gone": {"spec": {"priority": None}},
    "class": {"spec": {"priorityClassName": "other"}},
    "policy": {"spec": {"preemptionPolicy": "Never"}},
    "toleration": {"spec": {"tolerations": [{"operator": "Exists"}]}},
    "containers": {"spec": {"containers": [{"name": n, "image": "i"} for n in "abc"]}},
}
OLD = make_pod(
    meta={"labels": {"app": "web"}, "finalizers": ["job"]}, priority=0, preemptionPolicy="PreemptLowerPriority"
)


def policies(name):
    return engine(*SETS[name]).policies if SETS[name] else Policies()


def by_name(found, name):
    [entry] = [entry for webhooks in found.values() for entry in webhooks if entry["name"] == name]
    return entry


def travels(entry, review):
    conditions = [(row["name"], row["expression"]) for row in entry["matchConditions"]]
    return conditions_hold(conditions, review["request"])


def change(old, *, spec=None, **metadata):
    """The pod with other fields; None takes a field away."""
    new = copy.deepcopy(old)
    for part, fields in (("metadata", metadata), ("spec", spec or {})):
        new[part] = {key: value for key, value in {**new[part], **fields}.items() if value is not None}
    return new


def verdict(context, old, new):
    answer = response(ask(context, "validate", make_review(new, old, user="mallory")))
    return answer["allowed"], answer.get("warnings")


@pytest.mark.parametrize("name", SETS)
def test_an_update_that_does_not_travel_is_judged_like_no_change(name):
    """Whatever the policies: what the API server does not ask about has no part in the verdict."""
    context = Context(engine(*SETS[name]), make_context().lookup) if SETS[name] else make_context()
    entry = by_name(entries(policies(name), WebhookTarget()), "pods.validate.giveway.dev")
    unchanged, changed = verdict(context, OLD, OLD), {key: change(OLD, **changes) for key, changes in CHANGES.items()}
    stays = {key: new for key, new in changed.items() if not travels(entry, make_review(new, OLD))}
    assert "nothing" in stays
    assert {key: verdict(context, OLD, new) for key, new in stays.items()} == dict.fromkeys(stays, unchanged)


@table(
    "name, changes, asked",
    {
        "annotation-of-a-leader-election": ("classes", "leader-annotation", False),
        "label-of-a-leader-election": ("classes", "leader-label", False),
        "labels-that-a-rule-reads": ("labels", "leader-label", True),
        "annotations-that-no-rule-reads": ("labels", "leader-annotation", False),
        "spec-that-a-rule-reads": ("spec", "toleration", True),
        "spec-that-nothing-reads": ("none", "toleration", False),
        "a-rule-on-who-asks": ("who", "leader-annotation", True),
        "a-rule-on-who-asks-and-finalizers": ("who", "finalizer", False),
        "a-rule-on-all-of-it": ("everything", "finalizer", True),
        "no-change": ("none", "nothing", False),
        "an-empty-protected-annotation": ("none", "preemptible-empty", True),
        "mark": ("none", "mark", True),
        "priority": ("none", "priority", True),
        "priority-taken-away": ("none", "priority-gone", True),
        "class": ("none", "class", True),
        "preemption-policy": ("none", "policy", True),
        "annotation-protected-by-policy": ("protected", "annotation-protected", True),
        "label-that-brings-a-rule-in": ("selected", "label-selected", True),
    },
)
def test_only_updates_of_what_is_read_travel(name, changes, asked):
    """An UPDATE waits for the webhook only where a policy in force or a built-in rule looks at what it changes."""
    entry = by_name(entries(policies(name), WebhookTarget()), "pods.validate.giveway.dev")
    assert travels(entry, make_review(change(OLD, **CHANGES[changes]), OLD)) is asked


def test_what_a_rule_reads_of_a_spec_travels_by_every_sub_resource():
    """Resources grow through pods/resize; who reads no spec is not asked about that."""
    for name, asked in (("spec", True), ("none", False)):
        entry = by_name(entries(policies(name), WebhookTarget()), "pods.validate.giveway.dev")
        resources = {resource for rule in entry["rules"] for resource in rule["resources"]}
        assert ({"pods/resize", "pods/ephemeralcontainers"} <= resources) is asked


@pytest.mark.parametrize("name", SETS)
def test_every_new_pod_travels_and_none_that_goes(name):
    """CREATE is always asked about; an UPDATE of a pod that is being deleted never is."""
    entry = by_name(entries(policies(name), WebhookTarget()), "pods.validate.giveway.dev")
    gone = change(OLD, deletionTimestamp="2026-11-21T00:00:00Z", labels=None, spec={"priority": 9})
    assert travels(entry, make_review(OLD))
    assert not travels(entry, make_review(gone, OLD))


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("kind", PLAIN)
@table(
    "pod",
    {
        "bare": {"metadata": {}, "spec": {}},
        "empty": {"metadata": {"labels": {}, "annotations": {}}, "spec": {"priority": 1}},
        "full": OLD,
    },
)
def test_no_condition_fails_on_any_object(name, kind, pod):
    """A condition that fails refuses the request under `Fail`: none does, on what has no optional field at all."""
    for entry in entries(policies(name), WebhookTarget(priority_plugin=False))[kind]:
        for old, operation in ((None, "CREATE"), ({"metadata": {}, "spec": {}}, "UPDATE"), (OLD, "UPDATE")):
            if not any(operation in rule["operations"] for rule in entry["rules"]):
                continue
            request = {"operation": operation, "name": "x", "namespace": "n", "object": pod, "oldObject": old}
            request["userInfo"] = {"username": "kubelet"}
            assert travels(entry, {"request": request}) in (True, False)


@pytest.mark.parametrize("kind", ["Deployment", "CronJob", "Job"])
def test_workloads_travel_with_a_new_template_only(kind):
    """Scaling and annotating a workload asks nobody."""
    entry = by_name(PLAIN, "workloads.validate.giveway.dev")
    old = make_workload(kind)
    scaled = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}, "spec": {**old["spec"], "replicas": 3}}
    assert travels(entry, make_review(old))
    assert not travels(entry, make_review(scaled, old))
    assert travels(entry, make_review(make_workload(kind, priorityClassName="x"), old))


def test_whatever_is_answered_is_asked():
    """Each resource and sub-resource the webhook answers for is in the configuration of its phase, and no other is."""
    for kind, phase in ((MUTATING, "mutate"), (VALIDATING, "validate")):
        asked = {
            (group, *resource.partition("/")[::2])
            for entry in entries(policies("spec"), WebhookTarget())[kind]
            for rule in entry["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        }
        assert asked == {key[1:] for key in HANDLERS if key[0] == phase}
    workloads = by_name(PLAIN, "workloads.validate.giveway.dev")["rules"]
    assert {(rule["apiGroups"][0], resource) for rule in workloads for resource in rule["resources"]} == set(WORKLOADS)


def test_what_is_mutated():
    """Pods, groups and classes when they are made and when their manifest is applied again, and the probe.

    A class is judged until it goes: who may define it may delete it, under one failure policy.
    """
    asked = {
        (resource, operation)
        for entry in PLAIN[MUTATING]
        for rule in entry["rules"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }
    both = {(what, how) for what in ("pods", "priorityclasses", "podgroups") for how in ("CREATE", "UPDATE")}
    assert asked == {*both, ("configmaps", "UPDATE")}
    judged = by_name(PLAIN, "priorityclasses.validate.giveway.dev")["rules"][0]["operations"]
    assert judged == ["CREATE", "UPDATE", "DELETE"]


@pytest.mark.parametrize(("kind", "entry"), ALL)
def test_every_entry_says_how_it_is_to_be_called(kind, entry):
    """Nothing is left for the API server to fill in."""
    assert entry["timeoutSeconds"] == 5
    assert (entry["sideEffects"], entry["matchPolicy"]) == ("None", "Equivalent")
    assert (entry["admissionReviewVersions"], entry["objectSelector"]) == (["v1"], {})
    open_ = entry["name"] in PROBES or entry["name"].startswith(
        ("pods-update", "workloads", "podgroup-templates", "policies")
    )
    assert entry["failurePolicy"] == ("Ignore" if open_ else "Fail")
    assert entry.get("reinvocationPolicy") == ("IfNeeded" if kind == MUTATING else None)
    phase = "mutate" if kind == MUTATING else "validate"
    service = {"namespace": "giveway-system", "name": "giveway-webhook", "path": f"/{phase}", "port": 443}
    assert entry["clientConfig"] == {"service": service}


@pytest.mark.parametrize(("kind", "entry"), ALL)
def test_no_entry_keeps_the_cluster_from_starting(kind, entry):
    """kube-system, giveway's own namespace and exempt ones are left out of all that could refuse a pod."""
    if entry["rules"][0]["scope"] == "Cluster":
        return
    if entry["rules"][0]["resources"] == ["configmaps"]:
        assert entry["failurePolicy"] == "Ignore"
        assert entry["namespaceSelector"]["matchExpressions"][0]["values"] == ["giveway-system"]
        return
    assert entry["namespaceSelector"]["matchExpressions"] == [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["giveway-system", "kube-system"]},
        {"key": EXEMPT, "operator": "DoesNotExist"},
    ]


def test_the_policies_are_judged_when_they_are_applied():
    """The ConfigMap of the policies travels, no other one does."""
    entry = by_name(PLAIN, "policies.validate.giveway.dev")
    for name, asked in (("giveway-policies", True), ("other", False)):
        config_map = {"kind": "ConfigMap", "metadata": {"name": name, "namespace": "giveway-system"}, "data": {}}
        assert travels(entry, make_review(config_map)) is travels(entry, make_review(config_map, config_map)) is asked


def test_the_same_policies_make_the_same_entries():
    """Two replicas write the same bytes, in whatever order their files name keys."""
    one, other = (rules(f"{{name: p, protectAnnotations: {{keys: {keys}}}}}") for keys in ("[b/x, a/y]", "[a/y, b/x]"))
    made = [json.dumps(entries(engine(spec).policies, WebhookTarget())) for spec in (one, other)]
    assert made[0] == made[1]


def test_other_addresses():
    """A Service elsewhere, or a URL, and pods that run unjudged rather than not at all."""
    moved = entries(Policies(), WebhookTarget(namespace="policy", service="hook", port=8443, failure_policy="Ignore"))
    service = {"namespace": "policy", "name": "hook", "path": "/validate", "port": 8443}
    assert moved[VALIDATING][0]["clientConfig"] == {"service": service}
    assert moved[VALIDATING][0]["namespaceSelector"]["matchExpressions"][0]["values"] == ["kube-system", "policy"]
    assert {entry["failurePolicy"] for webhooks in moved.values() for entry in webhooks} == {"Ignore"}
    away = entries(Policies(), WebhookTarget(url="https://10.0.0.1:9443/"))
    assert away[MUTATING][0]["clientConfig"] == {"url": "https://10.0.0.1:9443/mutate"}


WITHOUT_PLUGIN = entries(Policies(), WebhookTarget(priority_plugin=False))
NEW_ENTRIES = ["pods-system.mutate.giveway.dev", "pods-update.mutate.giveway.dev", "pods-system.validate.giveway.dev"]
UPDATE = by_name(PLAIN, NEW_ENTRIES[1])


def test_without_the_priority_plugin_the_pods_of_the_system_are_resolved():
    """Two entries more for new pods of kube-system and giveway; that for updates has more to complete."""
    more = [by_name(WITHOUT_PLUGIN, name) for name in NEW_ENTRIES]
    for kind in (MUTATING, VALIDATING):
        others = [entry for entry in PLAIN[kind] if entry != UPDATE]
        assert [entry for entry in WITHOUT_PLUGIN[kind] if entry not in more] == others
    new, update, judged = more
    for entry in (new, judged):
        assert entry["namespaceSelector"]["matchExpressions"] == [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["giveway-system", "kube-system"]},
            {"key": EXEMPT, "operator": "DoesNotExist"},
        ]
        assert entry["rules"][0]["operations"] == ["CREATE"]
    assert update["rules"][0]["operations"] == ["UPDATE"]
    assert [entry["failurePolicy"] for entry in more] == ["Ignore"] * 3, "nothing waits if nobody answers"
    paths = [entry["clientConfig"]["service"]["path"] for entry in (new, update, judged)]
    assert paths == ["/mutate-priority", "/mutate", "/validate-priority"]


@table(
    "old, new, asked",
    {
        "priority-left-out": ({"priority": 7}, {}, True),
        "policy-left-out": ({"preemptionPolicy": "Never"}, {}, True),
        "complete": ({"priority": 7}, {"priority": 7}, False),
        "changed": ({"priority": 7}, {"priority": 8}, False),
        "never-resolved": ({}, {}, False),
        "added": ({}, {"priority": 7}, False),
    },
)
def test_only_incomplete_updates_are_completed(old, new, asked):
    """Without the plugin an update that leaves out what was resolved gets it back; no other update travels for that."""
    entry = by_name(WITHOUT_PLUGIN, NEW_ENTRIES[1])
    assert travels(entry, update({"metadata": {}, "spec": new}, {"metadata": {}, "spec": old})) is asked


@table(
    "new, asked",
    {
        "another class": ({"spec": {"priorityClassName": "b"}}, True),
        "no class": ({"spec": {}}, True),
        "nothing left of what was given": ({"labels": {"a": "b"}, "annotations": {}}, True),
        "the mark is taken away": ({"labels": {}}, False),
        "the record is taken away": ({"annotations": {}}, False),
        "any other change": ({"annotations": {GIVEN: "{}", "a": "b"}}, False),
    },
)
def test_a_manifest_that_is_sent_again_is_completed(new, asked):
    """What names another class, or has nothing left of what giveway gave the pod, travels; and no other update."""
    meta, spec = {"labels": {MARK: "managed"}, "annotations": {GIVEN: "{}"}}, {"priorityClassName": "a"}
    changed = {"metadata": {key: new.get(key, meta[key]) for key in meta}, "spec": new.get("spec", spec)}
    assert travels(UPDATE, update(changed, {"metadata": meta, "spec": spec})) is asked


PROTECTED = {
    "annotations": (PLAN, DECISION, GIVEN, CAN_BE_PREEMPTED, PROTECTION_DURATION, "team/owner"),
    "labels": (MARK,),
}
KEYS = [pytest.param(part, key, id=key) for part, keys in PROTECTED.items() for key in keys]
KUBELET = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def protected(name):
    return by_name(entries(policies("protected"), WebhookTarget()), f"pods-{name}.validate.giveway.dev")


@pytest.mark.parametrize(("part", "key"), KEYS)
def test_a_protected_key_travels_whichever_way(part, key):
    """Setting, changing or removing one is asked about, on a pod and its status, and so is a Binding that has one."""
    pods = by_name(entries(policies("protected"), WebhookTarget()), "pods.validate.giveway.dev")
    bare, one, other = ({"metadata": {part: value}, "spec": {}} for value in ({}, {key: ""}, {key: "x"}))
    for entry in (pods, protected("status")):
        for old, new in ((bare, one), (one, other), (one, bare)):
            assert travels(entry, update(new, old))
    assert travels(protected("binding"), {"request": {"operation": "CREATE", "object": one, "oldObject": None}})


def update(new, old, user="alice"):
    return {"request": {"operation": "UPDATE", "object": new, "oldObject": old, "userInfo": {"username": user}}}


def test_the_status_of_every_day_does_not_travel():
    """What kubelets and the reconciler write of a pod's status never waits for the webhook, nor of a pod that goes."""
    entry = protected("status")
    assert not travels(entry, update({**OLD, "status": KUBELET}, OLD, "system:node:n1"))
    assert not travels(entry, update({**OLD, "status": KUBELET}, {"metadata": OLD["metadata"], "spec": {}}))
    planned = change(OLD, annotations={PLAN: "{}"})
    assert travels(entry, update(planned, OLD))
    assert not travels(entry, update(planned, OLD, RECONCILER))
    going = change(OLD, deletionTimestamp="2026-11-21T00:00:00Z")
    assert not travels(entry, update({**going, "status": KUBELET}, going, "system:node:n1"))
    assert travels(entry, update(change(planned, deletionTimestamp="2026-11-21T00:00:00Z"), going))


@pytest.mark.parametrize("user", ["o'hara", "back\\slash", "both\\\"'"])
def test_any_user_name_can_be_the_reconcilers(user):
    """`giveway run` acts as whoever started it, and a name may have quotes: the condition still means just that one."""
    entry = by_name(entries(policies("protected"), WebhookTarget(reconciler=user)), "pods-status.validate.giveway.dev")
    planned = change(OLD, annotations={PLAN: "{}"})
    assert travels(entry, update(planned, OLD))
    assert not travels(entry, update(planned, OLD, user))


@table(
    "more",
    {
        "bare": {"metadata": {}},
        "zone": {"metadata": {"name": "a", "labels": {"topology.kubernetes.io/zone": "z"}}},
        "annotated": {"metadata": {"annotations": {"a": "b"}}},
        "no metadata": {},
    },
)
def test_an_ordinary_binding_does_not_travel(more):
    """kube-scheduler's Bindings pass without a call, and the condition fails on none: failing would refuse them all."""
    request = {"operation": "CREATE", "object": {"target": {"kind": "Node", "name": "n1"}, **more}, "oldObject": None}
    request["userInfo"] = {"username": "system:kube-scheduler"}
    assert not travels(protected("binding"), {"request": request})
