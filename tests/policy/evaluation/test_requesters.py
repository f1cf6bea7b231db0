"""Who asks for a pod: people are told apart by `subjects`, what controllers make by namespace only.

And which rights, and which `match` by subjects, are refused because they would be everybody's.
"""

import pytest

from tests.policy.builders import (
    create,
    define,
    deployment,
    document,
    loaded,
    namespace,
    outcomes,
    pod,
    rules,
    table,
    update,
    user,
)
from tests.policy.builders import engine as judging
from webhook.policy.files.loading import load_or_raise
from webhook.policy.model.values import CAN_BE_PREEMPTED as KEY
from webhook.policy.shapes.findings import PolicyError, Severity

CONTROLLER = user("system:serviceaccount:kube-system:replicaset-controller", "system:serviceaccounts")
OPERATOR = user("system:serviceaccount:operators:spark-operator", "system:serviceaccounts")
RUNNER = user("system:serviceaccount:ci:runner", "system:serviceaccounts", "system:serviceaccounts:ci")
MANAGER = user("system:kube-controller-manager")
PETRA = user("petra", "platform")
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}

PLATFORM = "subjects: [{kind: Group, name: platform}]"
CONTROLLERS = "{kind: Group, name: 'system:serviceaccounts:kube-system'}"
BOTH = PLATFORM.replace("]", f", {CONTROLLERS}]")
"""A `match` that says that it means controllers, too, as one must that restricts new pods."""
EXACTLY = "subjects: [{kind: ServiceAccount, namespace: ci, name: runner}]"
SPACE = "namespaces: [ingress]"
LABEL = "namespaceSelector: {matchLabels: {tier: infra}}"
HERE = f"{SPACE}, {PLATFORM}"
INGRESS = {"namespace": "ingress"}
SELECTOR = "namespaceSelector: {matchExpressions: [{key: KEY, operator: OP}]}"
NOT_X = SELECTOR.replace("KEY", "tier").replace("OP", "NotIn, values: [x]")
ANY = SELECTOR.replace("KEY", "kubernetes.io/metadata.name").replace("OP", "Exists")
NODE = user("system:node:n1", "system:nodes")
HELM = "{kind: ServiceAccount, namespace: kube-system, name: helm}"


def band(right):
    """A range reserved for this right."""
    return judging(rules(f"{{name: r, reserve: {{from: 900, to: 1000, use: {right}}}}}"))


def owned(**controller):
    """A pod that says a controller owns it."""
    body = pod("x", priority=950)
    body["metadata"]["ownerReferences"] = [{**OWNER, **controller}]
    return body


RIGHTS = {
    "a person by group": (PLATFORM, PETRA, {}, "allow"),
    "another person": (PLATFORM, user(), {}, "deny"),
    "a controller's pod by subjects only": (PLATFORM, CONTROLLER, {}, "deny"),
    "kube-controller-manager's pod": (PLATFORM, MANAGER, {}, "deny"),
    "an operator's pod": (PLATFORM, OPERATOR, {}, "deny"),
    "a controller's pod by namespace": (HERE, CONTROLLER, INGRESS, "allow"),
    "a controller's pod elsewhere": (HERE, CONTROLLER, {}, "deny"),
    "an operator's pod by namespace": (HERE, OPERATOR, INGRESS, "allow"),
    "a person in the namespace": (HERE, PETRA, INGRESS, "allow"),
    "another person in the namespace": (HERE, user(), INGRESS, "deny"),
    "a person elsewhere": (HERE, PETRA, {}, "deny"),
    "by label": (f"{LABEL}, {PLATFORM}", CONTROLLER, {"namespace_object": namespace("a", tier="infra")}, "allow"),
    "every namespace is no namespace": (f"namespaces: ['*'], {PLATFORM}", CONTROLLER, {}, "deny"),
    "every namespace among others": (f"namespaces: [ingress, '*'], {PLATFORM}", OPERATOR, {}, "deny"),
    "an empty selector neither": (f"namespaceSelector: {{}}, {PLATFORM}", CONTROLLER, {}, "deny"),
    "nor one that leaves some namespaces out": (f"{NOT_X}, {PLATFORM}", CONTROLLER, {}, "deny"),
    "nor one by a label that all have": (f"{ANY}, {PLATFORM}", CONTROLLER, {}, "deny"),
    "without subjects any namespace part decides": (NOT_X, CONTROLLER, {}, "allow"),
    "nor a label of the pod": (f"objectSelector: {{}}, {PLATFORM}", CONTROLLER, {}, "deny"),
    "a service account by its name": (EXACTLY, RUNNER, {}, "allow"),
    "by its user name": ("subjects: [{kind: User, name: 'system:serviceaccount:ci:runner'}]", RUNNER, {}, "allow"),
    "another service account": (EXACTLY, OPERATOR, {}, "deny"),
    "by a glob": ("subjects: [{kind: ServiceAccount, namespace: ci, name: 'run*'}]", RUNNER, {}, "deny"),
    "by its group": ("subjects: [{kind: Group, name: 'system:serviceaccounts:ci'}]", RUNNER, {}, "deny"),
    "kube-system by its name": (f"subjects: [{HELM}]", user("system:serviceaccount:kube-system:helm"), {}, "deny"),
}


@table("right, who, where, outcome", RIGHTS)
@pytest.mark.parametrize("make", [create, deployment], ids=["pod", "template"])
def test_who_has_a_right(make, right, who, where, outcome):
    """People have a right by subjects; what is made for others has it by namespace, pod and template alike."""
    found = outcomes(band(f"{{{right}}}"), make(pod("x"), user=who, priority=950, **where))
    assert found == {"p/r": outcome}


@table(
    "right, reference, who, where, outcome",
    {
        "takes the right of a service account away": (EXACTLY, True, RUNNER, {}, "deny"),
        "an owner that is no controller takes nothing": (EXACTLY, False, RUNNER, {}, "allow"),
        "nor does one that says so in another type": (EXACTLY, "true", RUNNER, {}, "allow"),
        "gives a person nothing": (PLATFORM, True, user(), {}, "deny"),
        "gives nothing in the namespace either": (HERE, True, user(), INGRESS, "deny"),
        "a person stays a person": (PLATFORM, True, PETRA, {}, "allow"),
    },
)
def test_an_owner_reference_only_takes_away(right, reference, who, where, outcome):
    """Whoever makes a pod writes its ownerReferences, so they give no right."""
    request = create(owned(controller=reference), user=who, priority=950, **where)
    assert outcomes(band(f"{{{right}}}"), request) == {"p/r": outcome}


DENY = "{name: r, priorityClasses: {deny: ['*']}}"
RESTRICTIONS = {
    "a person who is meant": ({"match": BOTH}, PETRA, {}, True),
    "a person who is not": ({"match": BOTH}, user(), {}, False),
    "a controller's pod, whoever wrote the workload": ({"match": BOTH}, CONTROLLER, {}, True),
    "an operator's pod": ({"match": BOTH}, OPERATOR, {}, True),
    "a controller's pod in the namespace": ({"match": HERE}, CONTROLLER, INGRESS, True),
    "a controller's pod elsewhere": ({"match": HERE}, CONTROLLER, {}, False),
    "a person who is excluded": ({"exclude": PLATFORM}, PETRA, {}, False),
    "subjects exclude no controller": ({"exclude": PLATFORM}, CONTROLLER, {}, True),
    "not by their group either": ({"exclude": "subjects: [{kind: Group, name: 'system:*'}]"}, CONTROLLER, {}, True),
    "namespaces do": ({"exclude": HERE}, CONTROLLER, INGRESS, False),
    "a service account is excluded by its name": ({"exclude": EXACTLY}, RUNNER, {}, False),
    "a node is told apart like people": ({"exclude": PLATFORM}, NODE, {}, True),
    "and excluded like people": (
        {"exclude": "subjects: [{kind: Group, name: 'system:nodes'}]"},
        user("system:node:n1", "system:nodes"),
        {},
        False,
    ),
}


@table("parts, who, where, refused", RESTRICTIONS)
@pytest.mark.parametrize("make", [create, deployment], ids=["pod", "template"])
def test_whom_a_policy_restricts(make, parts, who, where, refused):
    """What restricts holds for what controllers make, what lets off does not."""
    found = outcomes(
        judging(rules(DENY, **{part: f"{{{words}}}" for part, words in parts.items()})),
        make(pod("x"), user=who, **where),
    )
    assert found == ({"p/r": "deny"} if refused else {})


@table(
    "match, who, where, given",
    {
        "a person": (PLATFORM, PETRA, {}, True),
        "another person": (PLATFORM, user(), {}, False),
        "controllers get nothing by subjects": (PLATFORM, CONTROLLER, {}, False),
        "by namespace they do": (HERE, CONTROLLER, INGRESS, True),
    },
)
def test_who_gets_a_default(match, who, where, given):
    """A default class and copied annotations are given as rights are."""
    engine = judging(
        rules(
            "{name: d, defaultPriorityClass: standard}", f"{{name: c, copyAnnotations: [{KEY}]}}", match=f"{{{match}}}"
        )
    )
    request = create(user=who, **where)
    assert bool(engine.default_priority_class(request)) is given
    assert bool(engine.annotations_to_copy(request)) is given


def shield(right, match="{}", operations="[UPDATE]"):
    """A rule that leaves an annotation to this right."""
    body = f"protectAnnotations: {{keys: [{KEY}], operations: {operations}, allow: {right}}}"
    return rules(f"{{name: r, {body}}}", match=match)


def claiming(owners):
    """A pod that says this of its owners."""
    body = pod("x", priority=950)
    body["metadata"]["ownerReferences"] = owners
    return body


def change(who):
    """The annotation of a pod that a controller owns is set."""
    new = owned()
    new["metadata"]["annotations"] = {KEY: "true"}
    return update(owned(), new, user=who)


RANGE = rules(f"{{name: r, reserve: {{from: 900, to: 1000, use: {{{EXACTLY}}}}}}}")
CLASSES = rules(
    f"{{name: r, reserve: {{from: 1, to: 9, define: {{{EXACTLY}}}}}}}", match=f"{{{EXACTLY[:-1]}, {CONTROLLERS}]}}"
)
MEANT = shield("{}", f"{{{BOTH}}}", "[CREATE, UPDATE]")
BY_LABEL = shield("{objectSelector: {matchLabels: {a: b}}}")
BY_GROUP = shield("{subjects: [{kind: Group, name: 'system:serviceaccounts:ci'}]}")
MARKED, LABELLED = pod(annotations={KEY: "true"}), pod(labels={"a": "b"}, annotations={KEY: "true"})
SAID = {
    "owners that are no list": (RANGE, create(claiming("x"), user=RUNNER), "allow"),
    "owners that are a mapping": (RANGE, create(claiming({"controller": True}), user=RUNNER), "allow"),
    "owners that are nothing": (RANGE, create(claiming([None, "x"]), user=RUNNER), "allow"),
    "a match by subjects is part of a shield's right": (MEANT, create(MARKED, user=PETRA), "allow"),
    "which controllers do not have": (MEANT, create(MARKED, user=CONTROLLER), "deny"),
    "people may change, too": (MEANT, update(pod(), MARKED, user=PETRA), "allow"),
    "service accounts may not": (MEANT, update(pod(), MARKED, user=RUNNER), "deny"),
    "a person changes a pod": (shield(f"{{{PLATFORM}}}"), change(PETRA), "allow"),
    "a service account by its name": (shield(f"{{{EXACTLY}}}"), change(RUNNER), "allow"),
    "a service account by its group": (BY_GROUP, change(RUNNER), "allow"),
    "a tenant's service account": (shield(f"{{namespaces: [team-a], {PLATFORM}}}"), change(RUNNER), "deny"),
    "a label in the same update gives no right": (BY_LABEL, update(pod(), LABELLED), "deny"),
    "one that was there does": (BY_LABEL, update(pod(labels={"a": "b"}), LABELLED), "allow"),
    "a class is made by who asks": (CLASSES, define("x", 5, user=RUNNER), "allow"),
    "and by nobody else": (CLASSES, define("x", 5, user=OPERATOR), None),
}


@table("spec, request_, outcome", SAID)
def test_who_acts_for_themselves(spec, request_, outcome):
    """A change goes through no workload, and a class is made for nobody else: subjects decide.

    What is no list of owners is left to the API server.
    """
    assert outcomes(judging(spec), request_) == ({} if outcome is None else {"p/r": outcome})


ABOUT_CLASSES = "rules:\n- {name: v, validate: {expression: 'true', message: m, resources: [priorityclasses]}}"
VALIDATED = ABOUT_CLASSES.replace("priorityclasses", "pods")
DEFAULT = "rules:\n- {name: d, defaultPriorityClass: standard}"
IN_PLATFORM = f"{{{PLATFORM}}}"


def use(right):
    """A spec whose one right is this."""
    return f"rules:\n- {{name: r, reserve: {{from: 1, to: 9, use: {right}}}}}"


def account(namespace, name):
    """A right of service accounts."""
    return f"{{subjects: [{{kind: ServiceAccount, namespace: {namespace}, name: '{name}'}}]}}"


def group(name):
    """A right of a group."""
    return f"{{subjects: [{{kind: Group, name: '{name}'}}]}}"


def told(spec):
    """Severity and words of each finding."""
    return [(one.severity, one.message) for one in loaded(spec).findings]


OF_CONTROLLERS = [
    pytest.param(account("kube-system", "*-controller"), id="what was recommended once"),
    pytest.param(account("kube-system", "replicaset-controller"), id="one controller"),
    pytest.param(account("kube-system", "ttl-controller"), id="anything called a controller"),
    pytest.param(account("kube-system", "*"), id="all of kube-system"),
    pytest.param(account("'*'", "job-controller"), id="any namespace"),
    pytest.param(account("'*'", "*"), id="every service account"),
    pytest.param(group("system:serviceaccounts"), id="their group"),
    pytest.param(group("system:serviceaccounts:kube-system"), id="the group of kube-system"),
    pytest.param(group("system:authenticated"), id="everybody"),
    pytest.param(group("system:*"), id="group glob"),
    pytest.param(group("*"), id="any group"),
    pytest.param("{subjects: [{kind: User, name: '*'}]}", id="any user"),
    pytest.param("{subjects: [{kind: User, name: 'system:kube-controller-manager'}]}", id="kube-controller-manager"),
    pytest.param("{subjects: [{kind: User, name: 'system:serviceaccount:kube-system:*'}]}", id="user glob"),
    pytest.param("{subjects: [{kind: Group, name: platform}, {kind: Group, name: '*'}]}", id="beside others"),
    pytest.param("{namespaces: ['*'], " + group("*")[1:], id="every namespace by name"),
    pytest.param("{namespaceSelector: {}, " + group("*")[1:], id="every namespace by selector"),
    pytest.param("{objectSelector: {matchLabels: {a: b}}, " + group("*")[1:], id="a label does not guard it"),
]


@pytest.mark.parametrize("right", OF_CONTROLLERS)
@pytest.mark.parametrize(
    "spec", [use, lambda right: shield(right, operations="[CREATE, UPDATE]")], ids=["reserve", "protectAnnotations"]
)
def test_a_right_of_controllers_is_refused(spec, right, tmp_path):
    """It would be the right of whoever makes a workload; serve does not load it, and the text names the mend."""
    ((severity, text),) = told(spec(right))
    assert severity is Severity.ERROR
    assert "whoever makes a workload" in text
    assert 'add "namespaces" or "namespaceSelector"' in text
    (tmp_path / "p.yaml").write_text(document(spec(right)))
    with pytest.raises(PolicyError):
        load_or_raise(tmp_path)


@table(
    "spec",
    {
        "by namespace": use("{namespaces: [ingress]}"),
        "people of a namespace": use("{namespaces: [ingress], " + IN_PLATFORM[1:]),
        "by namespace label": use("{namespaceSelector: {matchLabels: {a: b}}, " + group("*")[1:]),
        "labels in a namespace": use("{namespaces: [x], objectSelector: {matchLabels: {a: b}}}"),
        "everybody, plainly": use("{}"),
        "who may change a pod that runs": shield(IN_PLATFORM),
        "everybody may change a pod that runs": shield(group("system:authenticated")),
        "updates": "match: {subjects: [{kind: Group, name: g}], operations: [UPDATE]}\n" + DEFAULT,
        "only pods that run are meant": shield("{}", IN_PLATFORM),
        "only classes are meant": f"match: {IN_PLATFORM}\n{ABOUT_CLASSES}",
        "by both": "exclude: {namespaces: [a], subjects: [{kind: Group, name: g}]}\n" + DEFAULT,
    },
)
def test_nothing_is_said_of_what_holds_for_author_and_pods(spec):
    """Namespaces survive everything, and a change is made by who asks for it."""
    assert told(spec) == []


ALL_ACCOUNTS = "{kind: Group, name: 'system:serviceaccounts'}"
MEANING_ALL = IN_PLATFORM.replace("]", f", {ALL_ACCOUNTS}]")


@table(
    "rule",
    {
        "allow-list": "{name: r, priorityClasses: {allow: [low]}}",
        "range": "{name: r, reserve: {from: 1, to: 9}}",
        "annotations": f"{{name: r, protectAnnotations: {{keys: [{KEY}], operations: [CREATE]}}}}",
        "expression": "{name: r, validate: {expression: 'false', message: m}}",
    },
)
def test_a_match_by_subjects_alone_must_say_that_it_means_controllers(rule):
    """Otherwise it refuses the pods of everybody's workloads, so it is not loaded, and the text says what to write."""
    ((severity, text),) = told(f"match: {IN_PLATFORM}\n{rules(rule)}")
    assert severity is Severity.ERROR
    assert "would refuse the pods of everybody's Deployments" in text
    for mend in ('"namespaces" or "namespaceSelector"', '"operations: [UPDATE]"', ALL_ACCOUNTS.replace("'", "")):
        assert mend in text
    assert told(f"match: {MEANING_ALL}\n{rules(rule)}") == []
