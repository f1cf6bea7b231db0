"""The objects: names, order, size, what is left out, and what the table of classes says."""

import msgspec
import pytest

from tests.admission.builders import make_pod
from tests.native import apiserver
from tests.native.comparing import RECONCILER, SETTINGS, Both, agreed, make_class, make_namespace, pod_request
from tests.policy.builders import engine, rules, table
from webhook.kube.objects.cluster_scoped import PriorityClass
from webhook.native.compiler import compile_policies
from webhook.native.objects import DESCRIPTION, RULES, Settings, object_name
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import CAN_BE_PREEMPTED, MARK
from webhook.policy.reports import next_end

NOW = 1_790_000_000.0
SHIELD = f"{{name: shield, protectAnnotations: {{keys: [{CAN_BE_PREEMPTED}]}}}}"
COPY = f"{{name: copy, copyAnnotations: [{CAN_BE_PREEMPTED}]}}"
DEFAULT = "{name: default, defaultPriorityClass: standard}"
BAND = "{name: band, reserve: {from: 100, to: 200, use: {namespaces: [team-a]}}}"
ALLOWED = "{name: allowed, priorityClasses: {allow: [standard]}}"
SPACES = {"team-a": make_namespace("team-a")}
PREEMPTION = "preemptors: {priorityClasses: ['online-*'], twins: {high: online-high}}"


def one_class(name, value=0, policy=None, created="", **annotations):
    """A PriorityClass of the cluster, made at that time."""
    found = msgspec.convert(make_class(name, value, policy, **annotations), PriorityClass)
    found.metadata.creation_timestamp = created or None
    return found


def compiled(*specs, classes=(), settings=SETTINGS, now=NOW, preemption=""):
    return compile_policies(engine(*specs, preemption=preemption).policies, classes, settings, now)


def names(found):
    return [one["metadata"]["name"] for one in found.objects if not one["kind"].endswith("Binding")]


def test_each_policy_is_followed_by_its_bindings_in_a_stable_order():
    """The same policies give the same text, and no two objects share a name; one binding for each class to give."""
    spec = rules(ALLOWED, BAND, "{name: soft, enforcement: warn, priorityClasses: {deny: [x]}}")
    first, second = compiled(spec, preemption=PREEMPTION), compiled(spec, preemption=PREEMPTION)
    assert msgspec.json.encode(first.objects) == msgspec.json.encode(second.objects)
    assert names(first) == [
        "giveway-builtin-pods-mutate",
        "giveway-builtin-podupdates-mutate",
        "giveway-builtin-priorityclasses-mutate",
        "giveway-builtin-pods-enforce",
        "giveway-builtin-pods-warn",
        "giveway-builtin-annotations-enforce",
        "giveway-builtin-bindings-enforce",
        "giveway-p-pods-enforce",
        "giveway-p-podgroups-enforce",
        "giveway-p-priorityclasses-enforce",
        "giveway-p-deletions-enforce",
        "giveway-p-pods-warn",
        "giveway-p-podgroups-warn",
    ]
    assert len({(one["kind"], one["metadata"]["name"]) for one in first.objects}) == len(first.objects)
    policy = {}
    for one in first.objects:
        if one["kind"].endswith("Binding"):
            assert one["kind"] == f"{policy['kind']}Binding"
            assert one["spec"]["policyName"] == policy["metadata"]["name"]
        else:
            policy = one
    parameters = [one["spec"].get("paramRef") for one in first.objects[1:3]]
    assert parameters == [None, {"name": "online-high", "parameterNotFoundAction": "Allow"}]


def test_every_annotation_has_a_variable_of_its_own():
    """Keys that differ only in their domain, in case, in punctuation or in a number at the end are told apart."""
    keys = [
        "a.io/may-go",
        "b.io/may-go",
        "a.io/may.go",
        "a.io/mayGo",
        "a.io/maygo",
        "a.io/may-go1",
        "a.io/May-Go",
        "a.io/name",
    ]
    classes = [one_class("online", **{key: f"value {number}" for number, key in enumerate(keys)})]
    listed = f"[{', '.join(keys)}]"
    spec = rules(
        f"{{name: copy, copyAnnotations: {listed}}}",
        f"{{name: keep, protectAnnotations: {{keys: {listed}, operations: [CREATE], allow: {{namespaces: [a]}}}}}}",
    )
    for one in compiled(spec, classes=classes).objects:
        variables = [row["name"] for row in one["spec"].get("variables", ())]
        assert len(variables) == len(set(variables)), (one["metadata"]["name"], variables)


def test_an_object_says_of_which_rules_it_is_made():
    """A label names the policy, an annotation its rules, another what it does."""
    made = compiled(rules(ALLOWED, BAND)).objects
    found = next(one for one in made if one["metadata"]["name"] == "giveway-p-pods-enforce")["metadata"]
    assert found["labels"]["giveway.dev/policy"] == "p"
    assert found["annotations"] == {
        DESCRIPTION: "Judges pods by PriorityPolicy p (enforce).",
        RULES: "p/allowed p/band",
    }


def test_long_names_of_policies_stay_apart():
    """A name has at most 253 characters; what is cut off leaves its digest."""
    one, other = (object_name("x" * 245 + end, "pods", "enforce") for end in ("a", "b"))
    assert (len(one) <= 253, one != other) == (True, True)


@pytest.mark.parametrize(("enforcement", "actions"), [("enforce", ["Deny"]), ("warn", ["Warn"]), ("audit", ["Audit"])])
def test_enforcement_is_what_the_binding_does(enforcement, actions):
    """`enforce` refuses, `warn` warns, `audit` is noted."""
    made = compiled(rules(ALLOWED, enforcement=enforcement)).objects
    named = (f"giveway-p-pods-{enforcement}", f"giveway-p-podgroups-{enforcement}")
    wanted = [{"policyName": name, "validationActions": actions} for name in named]
    assert [made[-3]["spec"], made[-1]["spec"]] == wanted


@table(
    "spec, rule, reason",
    {
        "default class": (rules(DEFAULT), "p/default", "which class is the global default"),
        "copied annotations": (rules(COPY), "p/copy", "give the classes"),
        "annotations at CREATE": (
            rules(f"{{name: s, protectAnnotations: {{keys: [{CAN_BE_PREEMPTED}], operations: [CREATE]}}}}"),
            "p/s",
            "at CREATE it turns on what the pod's class says",
        ),
    },
)
def test_without_the_classes_what_needs_them_is_named(spec, rule, reason):
    """Nothing is left out silently."""
    (one,) = compiled(spec, classes=None).inexpressible
    assert (one.rule, reason in one.reason) == (rule, True)


READS_CLASS = "[{name: c, expression: 'priorityClass == null'}]"


@table(
    "spec",
    {
        "expression": rules("{name: v, validate: {expression: 'priorityClass == null', message: m}}"),
        "condition": rules(ALLOWED, conditions=READS_CLASS),
        "condition of what is copied": rules(COPY, conditions=READS_CLASS),
        "condition of a default": rules(DEFAULT, conditions=READS_CLASS),
        "condition of a shield": rules(SHIELD, conditions=READS_CLASS),
    },
)
def test_a_rule_that_cannot_be_expressed_is_left_out_and_named(spec):
    """Also a rule whose policy has such a condition."""
    found = compiled(spec, classes=[one_class("standard")])
    assert [one.reason.split(":")[0] for one in found.inexpressible] == ["reads priorityClass"]
    assert not any("giveway-p-" in name for name in names(found))


def pod(name="", value=0, policy="PreemptLowerPriority", namespace="team-a", **meta):
    """A pod as the Priority plugin filled it in."""
    named = {"priorityClassName": name} if name else {}
    return make_pod(meta={"namespace": namespace, **meta}, **named, priority=value, preemptionPolicy=policy)


def mutated(found, obj, classes=()):
    there = {one.metadata.name: one for one in classes}
    outcome = apiserver.mutate(found.objects, pod_request(obj), SPACES, there)
    assert not outcome.decisions
    return outcome.object


def judged(found, obj, spaces=SPACES, **change):
    return apiserver.validate(found.objects, pod_request(obj, **change), spaces)


def test_a_kind_of_rule_that_is_not_compiled_is_named():
    """A body that the compiler was never taught is told, never silently left open."""
    [policy] = engine(rules('{name: v, validate: {expression: "true"}}')).policies.priority
    unknown = msgspec.structs.replace(policy, rules=(msgspec.structs.replace(policy.rules[0], validate=None),))
    [left] = compile_policies(Policies(priority=(unknown,)), (), SETTINGS, NOW).inexpressible
    assert (left.rule, left.reason) == (f"{policy.name}/v", "rules of its kind are not compiled")


def test_a_class_that_the_table_does_not_know_yet():
    """Nothing is copied to its pod; nobody gains anything, and nobody is refused.

    Default classes and twins are asked for by name, the mark and the reserved ranges stand in the pod itself.
    """
    found = compiled(rules(DEFAULT, COPY, BAND), classes=[], preemption=PREEMPTION)
    assert not found.inexpressible
    assert mutated(found, pod()) == pod()
    given = mutated(found, pod(), [one_class("standard", 7, "Never", **{CAN_BE_PREEMPTED: "true"})])
    assert given["spec"] == pod("standard", 7, "Never")["spec"]
    assert CAN_BE_PREEMPTED not in given["metadata"]["annotations"]
    assert mutated(found, pod("online-new", 7, "Never"))["metadata"]["labels"] == {MARK: "managed"}
    old = pod("high", 7)
    assert mutated(found, old) == old
    outcome = judged(found, old)
    assert (outcome.allowed, "kube-scheduler preempts for the pod" in outcome.messages("Warn")[0]) == (True, True)
    assert not judged(found, pod("unknown", 150, "Never", namespace="b"), {"b": make_namespace("b")}).allowed


@table(
    "twin, moved",
    {
        "of the same value": (one_class("online-high", 7, "Never"), True),
        "of another value": (one_class("online-high", 8, "Never"), False),
        "that is not Never": (one_class("online-high", 7), False),
    },
)
def test_a_twin_takes_pods_by_what_it_is_now(twin, moved):
    """Without any table: the class of the pod stands in the pod, the twin is a parameter."""
    found = compiled(rules(BAND), classes=None, preemption=PREEMPTION)
    assert not found.inexpressible
    assert (mutated(found, pod("high", 7), [twin])["spec"]["priorityClassName"] == "online-high") == moved


def test_a_thousand_classes_fit_into_the_table_and_leave_the_rest_as_it_is():
    """The table is the only thing that grows; 1000 names of 63 characters fit into one expression."""
    spec = rules(DEFAULT, COPY, BAND, ALLOWED)
    few, many = (
        compiled(
            spec,
            classes=[
                one_class("standard"),
                *(one_class(f"{n:063d}", n, **{CAN_BE_PREEMPTED: "true"}) for n in range(count)),
            ],
        )
        for count in (5, 1000)
    )
    assert not many.inexpressible
    assert [one for one in few.objects[1:] if one not in many.objects] == []
    variables = [
        {row["name"]: row["expression"] for row in found.objects[0]["spec"]["variables"]} for found in (few, many)
    ]
    assert [name for name in variables[0] if variables[0][name] != variables[1][name]] == ["class1_can_be_preempted"]
    assert max(map(len, variables[1].values())) < 100_000
    assert mutated(many, pod(f"{999:063d}", 999))["metadata"]["annotations"][CAN_BE_PREEMPTED] == "true"


def test_classes_for_which_the_table_has_no_room_are_left_out_and_named():
    """Those in a band come first, then the older ones: many classes of one author displace nobody's."""
    may_go = {CAN_BE_PREEMPTED: "true"}
    spam = [one_class(f"{n:0253d}", 1000 + n, created="2026-11-01T00:00:00Z", **may_go) for n in range(450)]
    ours = [
        one_class("in-band", 150, created="2026-12-01T00:00:00Z", **may_go),
        one_class("old", 7, created="2026-01-01T00:00:00Z", **may_go),
    ]
    spec = rules(
        COPY, BAND, f"{{name: keep, protectAnnotations: {{keys: [{CAN_BE_PREEMPTED}], operations: [CREATE]}}}}"
    )
    found = compiled(spec, classes=[*spam, *ours])
    expressions = [row["expression"] for obj in found.objects for row in obj["spec"].get("variables", ())]
    assert 90_000 < max(map(len, expressions)) <= 100_000
    for known in ours:
        given = mutated(found, pod(known.metadata.name, known.value))
        assert given["metadata"]["annotations"][CAN_BE_PREEMPTED] == "true"
    assert [row.told.split(": ")[:2] for row in found.inexpressible] == [
        ["enforced natively, with a difference", "p/copy"],
        ["enforced natively, with a difference", "p/keep"],
    ]
    assert all(" more is not known here: " in str(row) for row in found.inexpressible)
    assert (found.lacks, compiled(spec, classes=[*ours, *reversed(spam)])) == ([], found)


EXCEPTION = "[{match: {namespaces: [team-a]}, rules: [allowed], reason: r, owner: o, until: 2026-11-30}]"
BEFORE, AFTER = 1_796_083_199.0, 1_796_083_200.0


@pytest.mark.parametrize(("when", "allowed"), [(BEFORE, True), (AFTER, False)], ids=["before", "after"])
def test_an_exception_for_new_pods_ends_by_itself(when, allowed):
    """The creationTimestamp, which the API server sets before it validates, is the clock."""
    objects = [make_class("other", 1), make_namespace("team-a")]
    both = Both(engine(rules(ALLOWED, exceptions=EXCEPTION)).policies, objects, now=NOW)
    assert not both.compiled.inexpressible
    both.now = when
    webhook, native = results = both.create(pod_request(make_pod(priorityClassName="other")))
    assert bool(agreed(results)) is not allowed
    assert native.warned == webhook.warned
    assert any("by an exception until 2026-12-01T00:00:00Z (o: r)" in text for text in native.warned) == allowed


def test_an_exception_for_changes_needs_somebody_who_compiles_again():
    """There is no clock at UPDATE: without a keeper the rule holds for everybody; with one it ends on time."""
    spec = rules(SHIELD, exceptions=EXCEPTION.replace("allowed", "shield"))
    change = {"operation": "UPDATE", "oldObject": pod()}

    def allowed(found):
        return judged(found, pod(annotations={CAN_BE_PREEMPTED: "true"}), **change).allowed

    kept = Settings(namespace="giveway-system", reconciler=RECONCILER, kept=True)
    assert "the API server has no clock there" in compiled(spec).inexpressible[0].reason
    assert not allowed(compiled(spec))
    assert allowed(compiled(spec, settings=kept))
    assert not compiled(spec, settings=kept).inexpressible
    assert not allowed(compiled(spec, settings=kept, now=AFTER))
    ends = [next_end(engine(spec).policies, now) for now in (NOW, AFTER)]
    assert ends == [AFTER, None]


def test_without_mutation_a_pod_that_would_stay_unmarked_is_refused():
    """On clusters before 1.36 nothing marks a pod that slipped past the webhook, so nobody would serve it."""
    plain = Settings(namespace="giveway-system", reconciler=RECONCILER, mutates=False)
    found = compiled(rules(ALLOWED), settings=plain, preemption=PREEMPTION)
    assert not any(one["kind"].startswith("Mutating") for one in found.objects)
    refused = judged(found, pod("online-a", 7, "Never")).messages("Deny")
    assert any("so nothing preempts" in text for text in refused)


@pytest.mark.parametrize("namespace", ["kube-system", "giveway-system", "exempt"])
def test_namespaces_that_the_webhook_leaves_out_are_left_out(namespace):
    """What the cluster needs to get back on its feet waits for nobody's policy."""
    found = compiled(rules(ALLOWED), classes=[])
    labels = {"giveway.dev/exempt": ""} if namespace == "exempt" else {}
    asked = pod("other", 7, "Never", namespace=namespace, annotations={"giveway.dev/plan": "{}"})
    assert judged(found, asked, {namespace: make_namespace(namespace, **labels)}).allowed


def test_no_policies_at_all_keep_what_is_builtin():
    """Giveway's own keys, the mark and the shield hold without any policy."""
    assert names(compile_policies(Policies(), [], SETTINGS, NOW)) == [
        "giveway-builtin-pods-mutate",
        "giveway-builtin-podupdates-mutate",
        "giveway-builtin-pods-enforce",
        "giveway-builtin-annotations-enforce",
        "giveway-builtin-bindings-enforce",
    ]
